/* Columns in the layout of Arrow at the level of C. `_columns.pxd` fills them from messages of any kind; here is the
   short way for the most frequent kind. */
#ifndef JETLAKE_COLUMNS_H
#define JETLAKE_COLUMNS_H

#include "jetlake/store/records/record.h"

/* All columns, from the next row on. */
typedef struct {
    int64_t *seqs, *times, *times_ns;
    int32_t *sizes, *subject_offsets, *payload_offsets, *map_offsets;
    unsigned char *subjects, *payloads;
} jl_columns;

/* As it is; where it is short, without a call and in steps of 16 bytes, so up to 16 too many. */
static inline void jl_copy_text(unsigned char *out, const unsigned char *text, size_t size) {
    if (size <= 32) {
        memcpy(out, text, 16);
        if (size > 16) memcpy(out + 16, text + 16, 16);
    } else if (size >= 64 && size <= 128) {
        memcpy(out, text, 64);
        memcpy(out + size - 64, text + size - 64, 64);
    } else if (size > 256) {
        memcpy(out, text, size);
    } else {
        for (size_t done = 0; done < size; done += 16) memcpy(out + done, text + done, 16);
    }
}

/* Put plain messages one after the other into the columns and verify them, at most JL_RUN_MAX, as long as they are
   sound and their sequences ascend to at most `seq_max`; how many. Plain are those without headers that do not expire,
   with less than 128 bytes of subject and 16384 of payload, so that one word holds their flags and sizes.
   A row is written before it is known to be sound: the processor copies while it hashes. */
static inline __attribute__((always_inline)) uint32_t jl_put_plain_run(const unsigned char *data, uint64_t *offset,
                                                                       uint64_t end, uint64_t seed, uint64_t prev_seq,
                                                                       uint64_t seq_max, uint64_t span_max,
                                                                       uint32_t count_max, const jl_columns *out) {
    jl_lanes lanes[JL_RUN_MAX];
    const unsigned char *ends[JL_RUN_MAX + 1]; /* of the message before, and of each */
    const unsigned char *at = data + *offset, *limit = data + end;
    uint32_t count = 0, sound;
    for (ends[0] = at; count < count_max && limit - at >= 8; at = ends[++count]) {
        const unsigned char *subject = at + 6, *payload, *trailer;
        uint64_t word = jl_load64(at), subject_size = word >> 8 & 0x7F, payload_size = word >> 24 & 0x7F, seq, time_ns;
        int32_t subjects_size = out->subject_offsets[count], payloads_size = out->payload_offsets[count];
        if (word & (0xFF8000 | (0xFF & ~JL_MSG_ID))) break;
        if (word & 0x80000000) {
            if (word & 0x8000000000) break;
            payload_size |= word >> 25 & 0x3F80;
            subject++;
        }
        payload = subject + subject_size;
        trailer = payload + payload_size;
        if (trailer + JL_TRAILER_SIZE > limit || !subject_size) break;
        seq = jl_load64(trailer);
        time_ns = jl_load64(trailer + 8);
        if (seq - prev_seq - 1 >= span_max || time_ns > INT64_MAX) break; /* not higher is as far away as can be */
        prev_seq = seq;
        out->seqs[count] = (int64_t)seq;
        out->times_ns[count] = (int64_t)time_ns;
        out->times[count] = (int64_t)(time_ns / 1000);
        out->sizes[count] = (int32_t)payload_size;
        out->map_offsets[count + 1] = out->map_offsets[count];
        out->subject_offsets[count + 1] = subjects_size + (int32_t)subject_size;
        out->payload_offsets[count + 1] = payloads_size + (int32_t)payload_size;
        jl_copy_text(out->subjects + subjects_size, subject, subject_size);
        jl_copy_text(out->payloads + payloads_size, payload, payload_size);
        lanes[count] = jl_hash_begin(at, (size_t)(trailer + 16 - at), seed);
        ends[count + 1] = trailer + JL_TRAILER_SIZE;
    }
    while (count && (uint64_t)out->seqs[count - 1] > seq_max) count--;
    for (sound = 0; sound < count; sound++) {
        const unsigned char *stop = ends[sound + 1] - 8;
        if (jl_hash_end(&lanes[sound], stop, (size_t)(stop - ends[sound]), seed) != jl_load64(stop)) break;
    }
    *offset = (uint64_t)(ends[sound] - data);
    return sound;
}

/* The same for any number of messages; `offset` is moved behind them. */
static __attribute__((unused)) uint64_t jl_put_plain(const unsigned char *data, uint64_t *offset, uint64_t end,
                                                     uint64_t seed, uint64_t prev_seq, uint64_t seq_max,
                                                     uint64_t span_max, uint64_t rows_max, jl_columns out) {
    uint64_t rows = 0;
    while (rows < rows_max) {
        uint32_t count_max = rows_max - rows < JL_RUN_MAX ? (uint32_t)(rows_max - rows) : JL_RUN_MAX;
        uint32_t count = jl_put_plain_run(data, offset, end, seed, prev_seq, seq_max, span_max, count_max, &out);
        if (!count) break;
        rows += count;
        prev_seq = (uint64_t)out.seqs[count - 1];
        out.seqs += count;
        out.times += count;
        out.times_ns += count;
        out.sizes += count;
        out.subject_offsets += count;
        out.payload_offsets += count;
        out.map_offsets += count;
    }
    return rows;
}

#endif

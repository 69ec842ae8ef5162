/* Records at the level of C, inlined into the kernels. `format.py` has the layout; a test compares the numbers here with
   the ones there, and `_record_c.pyx` with its Python twin. */
#ifndef JETLAKE_RECORD_H
#define JETLAKE_RECORD_H

#include "xxh64.h"

enum {
    JL_SKIP = 0x02,
    JL_ERASED = 0x04,
    JL_EXPIRES = 0x10,
    JL_MSG_ID = 0x20,
    JL_MORE = 0x40,
    JL_REST = 0x80,
    JL_IN_BATCH = JL_MORE | JL_REST,
    JL_NOT_MESSAGE = 0x0F,
    JL_TRAILER_SIZE = 24,
    JL_SUBJECT_SIZE_MAX = 65535,
    JL_HEADERS_SIZE_MAX = 64 * 1024 * 1024,
    JL_PAYLOAD_SIZE_MAX = 256 * 1024 * 1024,
    JL_HINT_BITS = 13,
    JL_HINT_COUNT = 1 << JL_HINT_BITS,
    JL_RUN_MAX = 8
};

typedef struct {
    uint8_t flags;
    uint32_t subject_size, headers_size, payload_size;
    uint64_t subject_start, headers_start, payload_start, end;
    uint64_t seq;
    int64_t time_ns, expires_ns;
} jl_parts;

/* Read a size at *offset and step over it. */
static inline int jl_get_size(const unsigned char *data, uint64_t *offset, uint64_t end, uint32_t size_max,
                              uint32_t *out) {
    uint64_t at = *offset, size = 0;
    int shift = 0;
    unsigned char byte;
    do {
        if (at >= end || shift > 28) return 0;
        byte = data[at++];
        size |= (uint64_t)(byte & 0x7F) << shift;
        shift += 7;
    } while (byte >= 0x80);
    *out = (uint32_t)size;
    *offset = at;
    return size <= size_max;
}

static inline unsigned char *jl_put_size(unsigned char *out, uint32_t size) {
    for (; size >= 0x80; size >>= 7) *out++ = (unsigned char)(size | 0x80);
    *out++ = (unsigned char)size;
    return out;
}

static inline uint32_t jl_varint_size(uint32_t value) {
    uint32_t size = 1;
    for (; value >= 0x80; value >>= 7) size++;
    return size;
}

/* As `format.size_check`. */
static inline uint16_t jl_size_check(uint8_t flags, uint32_t subject_size, uint32_t headers_size,
                                     uint32_t payload_size, uint64_t seed) {
    uint64_t mixed = ((uint64_t)flags | (uint64_t)subject_size << 8 | (uint64_t)headers_size << 24) ^ seed;
    mixed = (mixed * JL_P1) ^ payload_size;
    mixed = (mixed ^ (mixed >> 29)) * JL_P2;
    return (uint16_t)(mixed >> 48);
}

/* The parts of a record whose flags and sizes are known, from its subject at `at` on; 0 when they do not fit. */
static inline int jl_place(const unsigned char *data, uint64_t at, uint64_t end, int expires, jl_parts *out) {
    uint64_t size = (uint64_t)out->subject_size + out->headers_size + out->payload_size + JL_TRAILER_SIZE;
    if (expires) size += 8;
    if (size > end - at) return 0;
    out->subject_start = at;
    out->headers_start = at + out->subject_size;
    out->payload_start = out->headers_start + out->headers_size;
    out->end = at + size;
    out->expires_ns = expires ? (int64_t)jl_load64(data + out->end - 32) : 0;
    out->seq = jl_load64(data + out->end - 24);
    out->time_ns = (int64_t)jl_load64(data + out->end - 16);
    return 1;
}

/* Find the parts of a record of the most frequent kind: a message that does not expire, with less than 128 bytes of
   subject and of headers and 128 to 16383 of payload, so that one word holds its flags and sizes; 0 for any other. */
static inline int jl_parse_plain(const unsigned char *data, uint64_t start, uint64_t end, jl_parts *out) {
    uint64_t word;
    if (end - start < 8) return 0;
    word = jl_load64(data + start);
    if ((word & (0x8080808000 | (0xFF & ~(JL_MSG_ID | JL_IN_BATCH)))) != 0x80000000) return 0;
    out->flags = (uint8_t)word;
    out->subject_size = word >> 8 & 0x7F;
    out->headers_size = word >> 16 & 0x7F;
    out->payload_size = (word >> 24 & 0x7F) | (word >> 25 & 0x3F80);
    return jl_place(data, start + 7, end, 0, out);
}

/* Find the parts of the record at `start`; 0 when they do not all lie before `end`, or their sizes are not sound.
   `is_expected` where a record is known to start: then its checksum will tell, and the check of sizes can be spared. */
static inline int jl_parse(const unsigned char *data, uint64_t start, uint64_t end, uint64_t seed, int is_expected,
                           jl_parts *out) {
    uint64_t at = start + 1;
    if (start >= end) return 0;
    if (is_expected && jl_parse_plain(data, start, end, out)) return 1;
    out->flags = data[start];
    if ((out->flags & JL_IN_BATCH && out->flags & JL_NOT_MESSAGE) ||
        !jl_get_size(data, &at, end, JL_SUBJECT_SIZE_MAX, &out->subject_size) ||
        !jl_get_size(data, &at, end, JL_HEADERS_SIZE_MAX, &out->headers_size) ||
        !jl_get_size(data, &at, end, JL_PAYLOAD_SIZE_MAX, &out->payload_size) || end - at < 2)
        return 0;
    if (!is_expected && (data[at] | (uint16_t)data[at + 1] << 8) !=
        jl_size_check(out->flags, out->subject_size, out->headers_size, out->payload_size, seed))
        return 0;
    return jl_place(data, at + 2, end, out->flags & JL_EXPIRES, out);
}

/* Does the checksum match? */
static inline int jl_is_sound(const unsigned char *data, uint64_t start, const jl_parts *parts, uint64_t seed) {
    return jl_xxh64(data + start, parts->end - 8 - start, seed) == jl_load64(data + parts->end - 8);
}

/* A few bits of a subject, cheaply: which of JL_HINT_COUNT places to look at first. At least 24 bytes follow it. */
static inline uint32_t jl_hint_place(const unsigned char *subject, uint32_t size) {
    uint64_t word = size >= 8 ? jl_load64(subject + size - 8) : jl_load64(subject) << (64 - 8 * size);
    return (uint32_t)(((word ^ size) * JL_P1) >> (64 - JL_HINT_BITS));
}

/* Parse and verify messages one after the other, at most JL_RUN_MAX, as long as they are sound and their sequences
   ascend; how many. The ends of all hashes come after their beginnings, so that the processor works on several at once.
   `hints`, if not NULL, are addresses of what is known of subjects: those of these messages are put into `places`, and
   fetched while the messages are verified. */
static inline __attribute__((always_inline)) uint32_t jl_sound_run_hinted(
    const unsigned char *data, uint64_t offset, uint64_t end, uint64_t seed, uint64_t prev_seq, uint64_t seq_max,
    uint64_t span_max, jl_parts *out, uint32_t count_max, void *const *hints, uint32_t hint_size, uint32_t *places) {
    jl_lanes lanes[JL_RUN_MAX];
    uint64_t start = offset;
    uint32_t count = 0, i;
    for (; count < count_max && jl_parse(data, offset, end, seed, 1, &out[count]); count++) {
        const jl_parts *parts = &out[count];
        if (parts->flags & JL_NOT_MESSAGE || !parts->subject_size || parts->seq > seq_max ||
            parts->seq - prev_seq - 1 >= span_max) /* not higher is as far away as can be */
            break;
        if (hints) {
            places[count] = jl_hint_place(data + parts->subject_start, parts->subject_size);
            __builtin_prefetch(hints[places[count]]);
            __builtin_prefetch((const char *)hints[places[count]] + hint_size + parts->subject_size - 1);
        }
        lanes[count] = jl_hash_begin(data + offset, parts->end - 8 - offset, seed);
        prev_seq = parts->seq;
        offset = parts->end;
    }
    for (i = 0; i < count; start = out[i].end, i++) {
        const unsigned char *stop = data + out[i].end - 8;
        if (jl_hash_end(&lanes[i], stop, out[i].end - 8 - start, seed) != jl_load64(stop)) break;
    }
    return i;
}

/* The same without hints. Not inlined: that leaves it more registers than its callers could. */
static __attribute__((noinline, unused)) uint32_t jl_sound_run(const unsigned char *data, uint64_t offset, uint64_t end,
                                                               uint64_t seed, uint64_t prev_seq, uint64_t seq_max,
                                                               uint64_t span_max, jl_parts *out, uint32_t count_max) {
    return jl_sound_run_hinted(data, offset, end, seed, prev_seq, seq_max, span_max, out, count_max, NULL, 0, NULL);
}

/* How many bytes a record takes. */
static inline uint64_t jl_record_size(uint32_t subject_size, uint32_t headers_size, uint32_t payload_size,
                                      int expires) {
    return 3 + JL_TRAILER_SIZE + (expires ? 8 : 0) + (uint64_t)jl_varint_size(subject_size) + subject_size +
           jl_varint_size(headers_size) + headers_size + jl_varint_size(payload_size) + payload_size;
}

static inline unsigned char *jl_put_part(unsigned char *out, const unsigned char *part, uint32_t size) {
    if (size) memcpy(out, part, size); /* an empty part may have no address */
    return out + size;
}

/* Write a record, for which `jl_record_size` bytes must be there; how many it took. */
static inline uint64_t jl_put(unsigned char *out, uint8_t flags, const unsigned char *subject, uint32_t subject_size,
                              const unsigned char *headers, uint32_t headers_size, const unsigned char *payload,
                              uint32_t payload_size, uint64_t seq, int64_t time_ns, int64_t expires_ns,
                              uint64_t seed) {
    unsigned char *at = out;
    uint16_t check = jl_size_check(flags, subject_size, headers_size, payload_size, seed);
    *at++ = flags;
    at = jl_put_size(jl_put_size(jl_put_size(at, subject_size), headers_size), payload_size);
    *at++ = (unsigned char)check;
    *at++ = (unsigned char)(check >> 8);
    at = jl_put_part(at, subject, subject_size);
    at = jl_put_part(at, headers, headers_size);
    at = jl_put_part(at, payload, payload_size);
    if (flags & JL_EXPIRES) {
        jl_store64(at, (uint64_t)expires_ns);
        at += 8;
    }
    jl_store64(at, seq);
    jl_store64(at + 8, (uint64_t)time_ns);
    jl_store64(at + 16, jl_xxh64(out, (size_t)(at + 16 - out), seed));
    return (uint64_t)(at + 24 - out);
}

#endif

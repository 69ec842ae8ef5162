"""Decode the records of a block into Arrow columns, compiled. `_arrow_py.py` is the reference."""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t

from jetlake.store import format
from jetlake.store.records._record_c cimport ERASED, NOT_MESSAGE, RUN_MAX, SKIP, Parts, is_sound, parse, sound_run
from jetlake.store.index._subject_filter_c cimport SubjectFilter

from jetlake.table._columns cimport (
    ALL,
    HEADERS,
    PAYLOAD,
    SEQ,
    SIZE,
    SUBJECT,
    TIME,
    TIME_NS,
    Out,
    next_rows,
    open_columns,
    put_plain,
    put_rows,
    took_rows,
)

from jetlake.table._arrow_py import Decoded

# What _columns.pxd takes for granted; a test compares them.
NUMBERS = {"SEQ": SEQ, "SUBJECT": SUBJECT, "TIME": TIME, "TIME_NS": TIME_NS, "HEADERS": HEADERS, "PAYLOAD": PAYLOAD,
           "SIZE": SIZE}

cdef uint64_t SEQ_MAX = format.SEQ_MAX
cdef uint64_t SPAN_MAX = format.BLOCK_SEQ_SPAN_MAX


cdef inline bint one_record(const uint8_t* base, uint64_t offset, uint64_t stop, uint64_t seed, bint is_expected,
                            uint64_t prev_seq, Parts* parts) noexcept nogil:
    """Parse and verify what is not part of a run of sound messages."""
    if not parse(base, offset, stop, seed, is_expected, parts):
        return False
    if not parts.flags & NOT_MESSAGE and not parts.subject_size:
        return False
    if not parts.flags & NOT_MESSAGE or parts.flags & (SKIP | ERASED):
        if parts.seq <= prev_seq or parts.seq > SEQ_MAX or parts.seq - prev_seq > SPAN_MAX:
            return False
    return is_sound(base, offset, parts, seed)


def decode(data, Py_ssize_t start, Py_ssize_t end, uint64_t seed, uint64_t prev_seq, bint is_final, uint64_t first_seq,
           uint64_t last_seq, const uint64_t[::1] gone_starts, const uint64_t[::1] gone_ends,
           SubjectFilter filter not None, int64_t time_ns_min, int64_t time_ns_max, columns):
    """Fill columns with the wanted messages of data[start:end]; see `arrow.py`."""
    cdef const uint8_t[::1] view = data
    if not 0 <= start <= end <= view.shape[0]:
        raise IndexError(f"range {start}..{end} of {view.shape[0]} bytes")
    if prev_seq > SEQ_MAX:
        raise ValueError(f"no sequence {prev_seq}")
    if gone_starts.shape[0] != gone_ends.shape[0]:
        raise ValueError("gone ranges have as many starts as ends")
    cdef const uint8_t* base = &view[0] if view.shape[0] else NULL
    cdef Out out = open_columns(columns, end - start)
    cdef Py_ssize_t seen = 0, gone = 0, gone_count = gone_starts.shape[0], room, plain
    cdef bint is_all = filter.is_all
    cdef bint is_everything = is_all and time_ns_min == INT64_MIN and time_ns_max == INT64_MAX
    cdef bint is_full = is_everything and out.mask == ALL
    cdef uint64_t seq_max = last_seq if last_seq < SEQ_MAX else SEQ_MAX
    cdef uint64_t offset = start, sound_end = start, stop = end
    cdef Parts[RUN_MAX] run
    cdef Parts* parts
    cdef uint32_t run_count, wanted, i
    damage = []
    with nogil:  # so that several threads can decode
        while offset < stop and out.rows < out.rows_max:
            run_count = 0
            parts = &run[0]
            if is_full and offset == sound_end and gone == gone_count and first_seq <= prev_seq + 1:
                plain = put_plain(base, &offset, stop, seed, prev_seq, seq_max, SPAN_MAX, out.rows_max - out.rows,
                                  next_rows(&out))
                if plain:
                    took_rows(&out, plain)
                    seen += plain
                    prev_seq = out.seqs[out.rows - 1]
                    sound_end = offset
                    continue
            if offset == sound_end:
                room = out.rows_max - out.rows
                run_count = sound_run(base, offset, stop, seed, prev_seq, SEQ_MAX, SPAN_MAX, parts,
                                      RUN_MAX if room > RUN_MAX else <uint32_t>room)
            if run_count == 0:
                if not one_record(base, offset, stop, seed, offset == sound_end, prev_seq, parts):
                    if not is_final:
                        break
                    offset += 1
                    continue
                if offset > sound_end:
                    with gil:
                        damage.append((sound_end, offset - sound_end))
                if parts.flags & NOT_MESSAGE:
                    if parts.flags & (SKIP | ERASED):
                        prev_seq = parts.seq
                    offset = sound_end = parts.end
                    continue
                run_count = 1
            offset = sound_end = run[run_count - 1].end
            prev_seq = run[run_count - 1].seq
            wanted = 0
            if is_everything and gone == gone_count and first_seq <= run[0].seq and prev_seq <= last_seq:
                seen += run_count
                put_rows(&out, base, run, run_count)
                continue
            for i in range(run_count):
                parts = &run[i]
                if not first_seq <= parts.seq <= last_seq:
                    continue
                while gone < gone_count and gone_ends[gone] < parts.seq:
                    gone += 1
                if gone < gone_count and gone_starts[gone] <= parts.seq:
                    continue
                seen += 1
                if not time_ns_min <= parts.time_ns <= time_ns_max:
                    continue
                if not is_all and not filter.matches_c(base + parts.subject_start, parts.subject_size):
                    continue
                if wanted < i:
                    run[wanted] = parts[0]
                wanted += 1
            put_rows(&out, base, run, wanted)
    if is_final and offset > sound_end:
        damage.append((sound_end, offset - sound_end))
        sound_end = offset
    return Decoded(sound_end, prev_seq, out.rows, seen, out.keys.count, out.values.count, damage)

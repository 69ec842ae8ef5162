"""Answers to a run of direct gets, compiled. `_gets_py.py` is the reference."""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t

from jetlake.broker._frames_c cimport is_reply_to, lies_within
from jetlake.broker._routes_py import check_door
from jetlake.buffers cimport bytes_of
from jetlake.jetstream import _gets_py as _py
from jetlake.jetstream._gets_py import check_seqs
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.output cimport digit_count, put, put_byte, put_crlf, put_number, put_two
from jetlake.store._record_c cimport NOT_MESSAGE, Parts, is_sound, parse
from jetlake.store._subject_entry cimport LAST_STALE, Entry
from jetlake.store._subject_table_c cimport SubjectTable

cdef int64_t TIME_NS_MAX = _py.TIME_NS_MAX
cdef enum:
    SUBJECT_SIZE_MAX = 65535
    TIME_SIZE_MAX = 30
    OVERHEAD_MAX = 256                  # verb, spaces, line ends, names of headers, and numbers


def find_last(SubjectTable table not None, data, ops, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t skip,
              uint64_t seq_max, array.array seqs not None):
    """Put the last sequence of each operation's subject into `seqs`; where it stopped. See `gets.py`."""
    cdef Py_ssize_t size, words, number
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &size)
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef PubOp* op
    cdef Entry* entry
    cdef int64_t slot
    if not (0 <= first < stop <= op_count(words) and size <= UINT32_MAX):
        check_door(size, words, first, stop)
    check_seqs(seqs, first, stop)
    if skip < 0:
        raise IndexError(f"{skip} bytes to skip")
    cdef uint64_t* out = <uint64_t*>seqs.data.as_voidptr
    for number in range(first, stop):
        op = op_list + number
        if not lies_within(op.subject_start, op.subject_size, size):
            raise IndexError(f"operation {number} is not in the buffer")
        if op.headers_size or op.payload_size or not op.reply_size:
            return number
        if not 0 < op.subject_size - skip <= SUBJECT_SIZE_MAX:
            return number
        slot = table.find_c(source + op.subject_start + skip, op.subject_size - skip)
        if slot < 0:
            return number
        entry = table.live_c(<uint32_t>slot)
        if entry.flags & LAST_STALE or entry.last > seq_max:
            return number
        out[number - first] = entry.last
    return stop


def get_frames(data, ops, Py_ssize_t first, list records not None, array.array seqs not None,
               array.array seeds not None, bytes prefix not None, bint may_have_dots, bytes sid not None,
               bytes stream not None):
    """The answers to operations from `first` on, one for each record; where it stopped. See `gets.py`."""
    cdef Py_ssize_t size, words, place, count = len(records), used = 0
    if not count:
        return b"", first
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &size)
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef PubOp* op
    if not (0 <= first < first + count <= op_count(words) and size <= UINT32_MAX):
        check_door(size, words, first, first + count)
    check_seqs(seqs, first, first + count)
    check_seqs(seeds, first, first + count)
    cdef uint64_t* wanted = <uint64_t*>seqs.data.as_voidptr
    cdef uint64_t* seed = <uint64_t*>seeds.data.as_voidptr
    cdef const uint8_t* prefix_text = prefix
    cdef Py_ssize_t prefix_size = len(prefix), fixed_size = len(sid) + len(stream) + OVERHEAD_MAX
    cdef bytearray frames = bytearray()
    cdef bytes record
    cdef const uint8_t* text
    cdef uint8_t* out
    cdef Parts parts
    for place in range(count):
        op = op_list + first + place
        if not lies_within(op.reply_start, op.reply_size, size):
            raise IndexError(f"operation {first + place} is not in the buffer")
        if not is_reply_to(source + op.reply_start, op.reply_size, prefix_text, prefix_size, may_have_dots):
            break
        record = records[place]
        text = <const uint8_t*>PyBytes_AS_STRING(record)
        if not (parse(text, 0, PyBytes_GET_SIZE(record), seed[place], False, &parts)
                and is_sound(text, 0, &parts, seed[place]) and parts.seq == wanted[place]
                and not parts.flags & NOT_MESSAGE and 0 <= parts.time_ns < TIME_NS_MAX):
            break
        reserve(frames, used, fixed_size + op.reply_size + <Py_ssize_t>parts.end)
        out = <uint8_t*>PyByteArray_AS_STRING(frames)
        used = put_answer(out + used, source, op, text, &parts, sid, stream) - out
    else:
        place = count
    return bytes(memoryview(frames)[:used]), first + place


cdef int reserve(bytearray frames, Py_ssize_t used, Py_ssize_t more) except -1:
    if used + more > PyByteArray_GET_SIZE(frames):
        PyByteArray_Resize(frames, max(used + more, 2 * used))
    return 0


cdef uint8_t* put_answer(uint8_t* out, const uint8_t* source, PubOp* op, const uint8_t* text, Parts* parts, bytes sid,
                         bytes stream) noexcept:
    cdef uint8_t[TIME_SIZE_MAX] time
    cdef Py_ssize_t time_size = put_time(time, <uint64_t>parts.time_ns) - time, stream_size = PyBytes_GET_SIZE(stream)
    cdef const uint8_t* headers = text + parts.headers_start
    cdef uint32_t kept_size = parts.headers_size
    cdef bint is_new = kept_size <= 2
    if is_new:
        kept_size = 0
    elif headers[kept_size - 2] == 13 and headers[kept_size - 1] == 10:
        kept_size -= 2
    # The names with their colons and line ends take 15 + 16 + 17 + 19 bytes, the end of the block 2.
    cdef uint64_t head_size = (
        (10 if is_new else 0) + <uint64_t>kept_size + 69 + stream_size + parts.subject_size + digit_count(parts.seq)
        + time_size
    )
    out = put(put(out, b"HMSG ", 5), source + op.reply_start, op.reply_size)
    out = put_byte(put(put_byte(out, 32), PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid)), 32)
    out = put_crlf(put_number(put_byte(put_number(out, head_size), 32), head_size + parts.payload_size))
    if is_new:
        out = put(out, b"NATS/1.0\r\n", 10)
    out = put(out, headers, kept_size)
    out = put_crlf(put(put(out, b"Nats-Stream: ", 13), PyBytes_AS_STRING(stream), stream_size))
    out = put_crlf(put(put(out, b"Nats-Subject: ", 14), text + parts.subject_start, parts.subject_size))
    out = put_crlf(put_number(put(out, b"Nats-Sequence: ", 15), parts.seq))
    out = put_crlf(put_crlf(put(put(out, b"Nats-Time-Stamp: ", 17), time, time_size)))
    return put_crlf(put(out, text + parts.payload_start, parts.payload_size))


cdef uint8_t* put_time(uint8_t* out, uint64_t time_ns) noexcept:
    """A time from 1970 to 2106 as Go writes it: 2026-11-15T23:41:16.2487744Z."""
    cdef uint64_t seconds = time_ns // 1_000_000_000, rest = time_ns % 1_000_000_000, divisor = 100_000_000
    cdef uint64_t days = seconds // 86_400, clock = seconds % 86_400
    # Days since 1970-01-01 as a date, by eras of 400 years that begin in March (so leap days come last).
    cdef uint64_t day = days + 719_468, era = day // 146_097
    cdef uint64_t day_of_era = day - era * 146_097
    cdef uint64_t year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    cdef uint64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    cdef uint64_t shifted_month = (5 * day_of_year + 2) // 153
    cdef uint64_t month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    cdef uint64_t year = year_of_era + era * 400 + (month <= 2)
    out = put_byte(put_two(put_two(out, year // 100), year % 100), c"-")
    out = put_byte(put_two(out, month), c"-")
    out = put_byte(put_two(out, day_of_year - (153 * shifted_month + 2) // 5 + 1), c"T")
    out = put_byte(put_two(out, clock // 3600), c":")
    out = put_two(put_byte(put_two(out, clock // 60 % 60), c":"), clock % 60)
    if rest:
        out = put_byte(out, c".")
    while rest:
        out = put_byte(out, <uint8_t>(48 + rest // divisor))
        rest %= divisor
        divisor //= 10
    return put_byte(out, c"Z")

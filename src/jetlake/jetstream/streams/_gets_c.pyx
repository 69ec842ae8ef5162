"""Answers to a run of gets, compiled. `_gets_py.py` is the reference."""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from jetlake.broker._frames_c cimport is_reply_to, lies_within
from jetlake.buffers cimport bytes_of
from jetlake.jetstream.streams import _gets_py as _py
from jetlake.jetstream.streams._gets_py import check_seqs
from jetlake.ops import check_ops
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.output cimport digit_count, put, put_byte, put_crlf, put_number, put_two
from jetlake.store.records._record_c cimport NOT_MESSAGE, Parts, is_sound, parse
from jetlake.store.index._subject_entry cimport LAST_STALE, Entry
from jetlake.store.index._subject_table_c cimport SubjectTable

cdef int64_t TIME_NS_MAX = _py.TIME_NS_MAX
cdef bytes JSON_HEAD = b'{"type":"%s","message":{"subject":"' % _py.MESSAGE_TYPE.encode()
cdef const char* BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
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
        check_ops(size, words, first, stop)
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
        if entry == NULL or entry.flags & LAST_STALE or entry.last > seq_max:
            return number
        out[number - first] = entry.last
    return stop


cdef struct Asked:
    uint64_t seq                        # 0: the last one of a subject
    const uint8_t* subject
    Py_ssize_t subject_size


def find_asked(SubjectTable table not None, data, ops, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t skip,
               bytes name not None, uint64_t seq_max, array.array seqs not None):
    """Put the sequence that each operation's payload asks for into `seqs`; where it stopped. See `gets.py`."""
    cdef Py_ssize_t size, words, number, name_size = len(name)
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &size)
    cdef const uint8_t* name_text = name
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef PubOp* op
    cdef Entry* entry
    cdef int64_t slot
    cdef Asked asked
    if not (0 <= first < stop <= op_count(words) and size <= UINT32_MAX):
        (size, words, first, stop)
    check_seqs(seqs, first, stop)
    if skip < 0:
        raise IndexError(f"{skip} bytes to skip")
    cdef uint64_t* out = <uint64_t*>seqs.data.as_voidptr
    for number in range(first, stop):
        op = op_list + number
        if not (lies_within(op.subject_start, op.subject_size, size)
                and lies_within(op.payload_start, op.payload_size, size)):
            raise IndexError(f"operation {number} is not in the buffer")
        if op.headers_size or not op.reply_size or op.subject_size - skip != name_size:
            return number
        if memcmp(source + op.subject_start + skip, name_text, name_size):
            return number
        if not read_get(source + op.payload_start, source + op.payload_start + op.payload_size, &asked):
            return number
        if not asked.seq:
            slot = table.find_c(asked.subject, asked.subject_size)
            if slot < 0:
                return number
            entry = table.live_c(<uint32_t>slot)
            if entry == NULL or entry.flags & LAST_STALE:
                return number
            asked.seq = entry.last
        if asked.seq > seq_max:
            return number
        out[number - first] = asked.seq
    return stop


cdef inline const uint8_t* skip_space(const uint8_t* at, const uint8_t* end) noexcept:
    while at < end and (at[0] == 32 or at[0] == 9 or at[0] == 13 or at[0] == 10):
        at += 1
    return at


cdef const uint8_t* skip_text(const uint8_t* at, const uint8_t* end, const char* text, Py_ssize_t size) noexcept:
    """Behind a text and the space that follows it; NULL when something else is there."""
    if at == NULL or end - at < size or memcmp(at, text, size):
        return NULL
    return skip_space(at + size, end)


cdef bint read_get(const uint8_t* at, const uint8_t* end, Asked* asked) noexcept:
    """Read {"seq":1} or {"last_by_subj":"a"}; False when it is anything else."""
    cdef const uint8_t* key = skip_text(skip_space(at, end), end, b"{", 1)
    cdef const uint8_t* start
    asked.seq = 0
    at = skip_text(skip_text(key, end, b'"seq"', 5), end, b":", 1)
    if at != NULL:
        start = at
        while at < end and 48 <= at[0] <= 57 and at - start < 19:
            asked.seq = asked.seq * 10 + (at[0] - 48)
            at += 1
        if at == start or start[0] == 48:
            return False
    else:
        at = skip_text(skip_text(key, end, b'"last_by_subj"', 14), end, b":", 1)
        if at == NULL or at == end or at[0] != c'"':
            return False
        at += 1
        start = at
        while at < end and 32 < at[0] < 127 and at[0] not in (c'"', c"\\", c"*", c">"):
            at += 1
        asked.subject, asked.subject_size = start, at - start
        if not 0 < at - start <= SUBJECT_SIZE_MAX or at == end or at[0] != c'"':
            return False
        at += 1
    return skip_text(skip_space(at, end), end, b"}", 1) == end


def get_frames(data, ops, Py_ssize_t first, list records not None, array.array seqs not None,
               array.array seeds not None, bytes prefix not None, bint may_have_dots, bytes sid not None,
               bytes stream not None):
    """The answers to operations from `first` on, one for each record; where it stopped. See `gets.py`."""
    return frames_of(data, ops, first, records, seqs, seeds, prefix, may_have_dots, sid, stream)


def message_frames(data, ops, Py_ssize_t first, list records not None, array.array seqs not None,
                   array.array seeds not None, bytes prefix not None, bint may_have_dots, bytes sid not None):
    """The same in the JSON of STREAM.MSG.GET. See `gets.py`."""
    return frames_of(data, ops, first, records, seqs, seeds, prefix, may_have_dots, sid, None)


cdef frames_of(data, ops, Py_ssize_t first, list records, array.array seqs, array.array seeds, bytes prefix,
               bint may_have_dots, bytes sid, bytes stream):
    """The answers to direct gets of a stream; in JSON without a stream."""
    cdef Py_ssize_t size, words, place, count = len(records), used = 0
    if not count:
        return b"", first
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &size)
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef PubOp* op
    if not (0 <= first < first + count <= op_count(words) and size <= UINT32_MAX):
        check_ops(size, words, first, first + count)
    check_seqs(seqs, first, first + count)
    check_seqs(seeds, first, first + count)
    cdef uint64_t* wanted = <uint64_t*>seqs.data.as_voidptr
    cdef uint64_t* seed = <uint64_t*>seeds.data.as_voidptr
    cdef const uint8_t* prefix_text = prefix
    cdef Py_ssize_t prefix_size = len(prefix), fixed_size = len(sid) + OVERHEAD_MAX
    fixed_size += len(JSON_HEAD) if stream is None else len(stream)
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
        if stream is not None:
            reserve(frames, used, fixed_size + op.reply_size + <Py_ssize_t>parts.end)
            out = <uint8_t*>PyByteArray_AS_STRING(frames)
            used = put_answer(out + used, source, op, text, &parts, sid, stream) - out
        elif is_json_text(text + parts.subject_start, parts.subject_size):
            reserve(frames, used, fixed_size + op.reply_size + 2 * <Py_ssize_t>parts.end)
            out = <uint8_t*>PyByteArray_AS_STRING(frames)
            used = put_message(out + used, source, op, text, &parts, sid) - out
        else:
            break
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


cdef bint is_json_text(const uint8_t* text, Py_ssize_t size) noexcept:
    """Whether JSON shows a text as it is."""
    cdef Py_ssize_t at
    for at in range(size):
        if not 32 <= text[at] < 127 or text[at] == c'"' or text[at] == c"\\":
            return False
    return True


cdef uint8_t* put_message(uint8_t* out, const uint8_t* source, PubOp* op, const uint8_t* text, Parts* parts,
                          bytes sid) noexcept:
    cdef uint8_t[TIME_SIZE_MAX] time
    cdef Py_ssize_t time_size = put_time(time, <uint64_t>parts.time_ns) - time, head_size = PyBytes_GET_SIZE(JSON_HEAD)
    cdef uint64_t headers_size = base64_size(parts.headers_size), payload_size = base64_size(parts.payload_size)
    # The quote behind the subject and the name of the sequence take 8 bytes, those of headers and payload 10 each with
    # their quotes, that of the time 9, and the end 3.
    cdef uint64_t body_size = (
        head_size + parts.subject_size + 8 + digit_count(parts.seq) + (headers_size + 10 if headers_size else 0)
        + (payload_size + 10 if payload_size else 0) + 9 + time_size + 3
    )
    out = put(put(out, b"MSG ", 4), source + op.reply_start, op.reply_size)
    out = put_byte(put(put_byte(out, 32), PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid)), 32)
    out = put(put_crlf(put_number(out, body_size)), PyBytes_AS_STRING(JSON_HEAD), head_size)
    out = put(put(out, text + parts.subject_start, parts.subject_size), b'","seq":', 8)
    out = put_number(out, parts.seq)
    if headers_size:
        out = put_base64(put(out, b',"hdrs":"', 9), text + parts.headers_start, parts.headers_size)
        out = put_byte(out, c'"')
    if payload_size:
        out = put_base64(put(out, b',"data":"', 9), text + parts.payload_start, parts.payload_size)
        out = put_byte(out, c'"')
    out = put(put(put(out, b',"time":"', 9), time, time_size), b'"}}', 3)
    return put_crlf(out)


cdef inline uint64_t base64_size(uint64_t size) noexcept:
    return (size + 2) // 3 * 4


cdef uint8_t* put_base64(uint8_t* out, const uint8_t* text, Py_ssize_t size) noexcept:
    cdef Py_ssize_t at = 0
    cdef uint32_t bits
    while size - at >= 3:
        bits = <uint32_t>text[at] << 16 | <uint32_t>text[at + 1] << 8 | text[at + 2]
        out[0], out[1] = BASE64[bits >> 18], BASE64[bits >> 12 & 63]
        out[2], out[3] = BASE64[bits >> 6 & 63], BASE64[bits & 63]
        out += 4
        at += 3
    if size - at:
        bits = <uint32_t>text[at] << 16 | (<uint32_t>text[at + 1] << 8 if size - at == 2 else 0)
        out[0], out[1] = BASE64[bits >> 18], BASE64[bits >> 12 & 63]
        out[2], out[3] = BASE64[bits >> 6 & 63] if size - at == 2 else c"=", c"="
        out += 4
    return out


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

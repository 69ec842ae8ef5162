# Columns in the layout of Arrow while a kernel fills them: `_arrow_c` from records, `_msgs_c` from received messages.
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from jetlake.store._record_c cimport load64

cdef enum:  # as in `_arrow_py`; a test compares them
    SEQ = 1
    SUBJECT = 2
    TIME = 4
    TIME_NS = 8
    HEADERS = 16
    PAYLOAD = 32
    SIZE = 64

cdef enum:
    SLACK = 16
    SHORT_MAX = 256
    LINES_MAX = 32  # headers with more lines than that are grouped in Python


cdef struct Line:
    const uint8_t* name
    const uint8_t* value
    Py_ssize_t name_size, value_size
    bint is_done


cdef struct Text:  # a column of bytes being filled
    int32_t* offsets
    uint8_t* data
    Py_ssize_t count, size


cdef struct Out:
    int mask
    Py_ssize_t rows, rows_max
    int64_t* seqs
    int64_t* times
    int64_t* times_ns
    int32_t* sizes
    Text subjects, payloads, keys, values
    int32_t* map_offsets
    int32_t* list_offsets


cdef inline bint is_utf8(const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """Whether Python would decode it."""
    cdef const uint8_t* end = text + size
    cdef uint8_t lead, low, high
    cdef int more
    while text < end:
        lead = text[0]
        text += 1
        if lead < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if end - text < more or not low <= text[0] <= high:
            return False
        while more > 1:
            more -= 1
            if not 0x80 <= text[more] <= 0xBF:
                return False
        text += 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
    return True


cdef inline void* words(buffer) except? NULL:
    """Where a buffer lies; it stays there, since its owner holds it and nobody resizes it meanwhile."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    cdef void* start = view.buf if view.len else NULL
    PyBuffer_Release(&view)
    return start


cdef inline Text text_column(offsets, data) except *:
    """A column over two buffers."""
    cdef Text out
    out.count = out.size = 0
    out.offsets, out.data = <int32_t*>words(offsets), <uint8_t*>words(data)
    if out.offsets != NULL:
        out.offsets[0] = 0
    return out


cdef inline void put_bytes(Text* out, const uint8_t* text, Py_ssize_t size) noexcept nogil:
    cdef uint8_t* copy = out.data + out.size
    cdef Py_ssize_t i = 0
    if size <= SHORT_MAX:  # spares the call; up to 15 bytes too many, as in `put_text`
        while i < size:
            memcpy(copy + i, text + i, 16)
            i += 16
    else:
        memcpy(copy, text, size)
    out.size += size
    out.count += 1
    out.offsets[out.count] = <int32_t>out.size


cdef inline void put_text(Text* out, const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """As UTF-8, whatever it is.

    Eight bytes at a time, so up to seven too many: a record's trailer follows all of its texts, and there is room for
    SLACK bytes behind a column.
    """
    cdef uint8_t* copy = out.data + out.size
    cdef uint64_t word, bits = 0
    cdef Py_ssize_t i = 0
    while i < size:
        memcpy(copy + i, text + i, 8)
        word = load64(text + i)
        if size - i < 8:
            word &= (<uint64_t>1 << 8 * (size - i)) - 1
        bits |= word
        i += 8
    out.size += size
    out.count += 1
    out.offsets[out.count] = <int32_t>out.size
    if bits & <uint64_t>0x8080808080808080ULL and not is_utf8(text, size):
        for i in range(size):
            if copy[i] >= 0x80:
                copy[i] = c"?"


cdef inline Py_ssize_t split_headers(const uint8_t* block, Py_ssize_t size, Line* lines) noexcept nogil:
    """The `name: value` lines of a header block; -1 when there are too many."""
    cdef const uint8_t* end = block + size
    cdef const uint8_t* at = block
    cdef const uint8_t* stop
    cdef const uint8_t* colon
    cdef Py_ssize_t count = 0
    cdef bint is_first = True
    while True:
        stop = at
        while True:  # the next CRLF
            stop = <const uint8_t*>memchr(stop, c"\r", end - stop) if stop < end else NULL
            if stop == NULL or end - stop < 2:
                stop = end
                break
            if stop[1] == c"\n":
                break
            stop += 1
        if not is_first and stop > at:
            colon = <const uint8_t*>memchr(at, c":", stop - at)
            if colon != NULL:
                if count == LINES_MAX:
                    return -1
                lines[count].name, lines[count].name_size = at, colon - at
                colon += 1
                while colon < stop and colon[0] == c" ":
                    colon += 1
                lines[count].value, lines[count].value_size = colon, stop - colon
                lines[count].is_done = False
                count += 1
        is_first = False
        if stop == end:
            return count
        at = stop + 2


cdef inline void put_headers(Line* lines, Py_ssize_t count, Text* keys, Text* values, int32_t* list_offsets) noexcept nogil:
    """An entry for each name, with all of its values."""
    cdef Py_ssize_t i, j
    for i in range(count):
        if lines[i].is_done:
            continue
        put_text(keys, lines[i].name, lines[i].name_size)
        for j in range(i, count):
            if lines[j].name_size == lines[i].name_size and (
                    j == i or memcmp(lines[j].name, lines[i].name, lines[i].name_size) == 0):
                put_text(values, lines[j].value, lines[j].value_size)
                lines[j].is_done = True
        list_offsets[keys.count] = <int32_t>values.count


cdef inline Out open_columns(columns, Py_ssize_t body_size) except *:
    """The buffers of a `Columns`, each of them as large as so many bytes of messages can need."""
    cdef Out out
    check_room(columns, body_size)
    out.mask, out.rows, out.rows_max = columns.mask, 0, columns.rows_max
    out.seqs, out.times = <int64_t*>words(columns.seqs), <int64_t*>words(columns.times)
    out.times_ns, out.sizes = <int64_t*>words(columns.times_ns), <int32_t*>words(columns.sizes)
    out.subjects = text_column(columns.subject_offsets, columns.subjects)
    out.payloads = text_column(columns.payload_offsets, columns.payloads)
    out.keys = text_column(columns.key_offsets, columns.keys)
    out.values = text_column(columns.value_offsets, columns.values)
    out.map_offsets, out.list_offsets = <int32_t*>words(columns.map_offsets), <int32_t*>words(columns.list_offsets)
    if out.mask & HEADERS:
        out.map_offsets[0] = out.list_offsets[0] = 0
    return out


cdef inline int put_row(Out* out, uint64_t seq, int64_t time_ns, const uint8_t* subject, Py_ssize_t subject_size,
                        const uint8_t* headers, Py_ssize_t headers_size, const uint8_t* payload,
                        Py_ssize_t payload_size) except -1:
    """One message. At least SLACK bytes can be read behind each part of it."""
    cdef Line[LINES_MAX] lines
    cdef Py_ssize_t line_count
    if out.mask & SEQ:
        out.seqs[out.rows] = <int64_t>seq
    if out.mask & TIME:
        out.times[out.rows] = time_ns // 1000 - (time_ns < 0 and time_ns % 1000 != 0)
    if out.mask & TIME_NS:
        out.times_ns[out.rows] = time_ns
    if out.mask & SIZE:
        out.sizes[out.rows] = <int32_t>payload_size
    if out.mask & SUBJECT:
        put_text(&out.subjects, subject, subject_size)
    if out.mask & PAYLOAD:
        put_bytes(&out.payloads, payload, payload_size)
    if out.mask & HEADERS:
        if headers_size:
            line_count = split_headers(headers, headers_size, lines)
            if line_count < 0:
                put_many_headers((<const char*>headers)[:headers_size], out)
            else:
                put_headers(lines, line_count, &out.keys, &out.values, out.list_offsets)
        out.map_offsets[out.rows + 1] = <int32_t>out.keys.count
    out.rows += 1
    return 0


cdef inline int put_many_headers(bytes block, Out* out) except -1:
    """A block with very many lines: grouped by the reference."""
    from jetlake.spark._arrow_py import group_headers

    cdef bytes slack = bytes(SLACK), text
    for name, group in group_headers(block).items():
        text = name + slack
        put_bytes(&out.keys, text, len(name))
        for value in group:
            text = value + slack
            put_bytes(&out.values, text, len(value))
        out.list_offsets[out.keys.count] = <int32_t>out.values.count
    return 0


cdef inline int check_room(columns, Py_ssize_t body_size) except -1:
    """Does every buffer of a wanted column hold what so many bytes of messages can hold?"""
    rows_max = columns.rows_max
    entries_max = body_size // 3 + 1
    sizes = [(SEQ, columns.seqs, 8 * rows_max), (TIME, columns.times, 8 * rows_max),
             (TIME_NS, columns.times_ns, 8 * rows_max), (SIZE, columns.sizes, 4 * rows_max),
             (SUBJECT, columns.subject_offsets, 4 * (rows_max + 1)), (SUBJECT, columns.subjects, body_size + SLACK),
             (PAYLOAD, columns.payload_offsets, 4 * (rows_max + 1)), (PAYLOAD, columns.payloads, body_size + SLACK),
             (HEADERS, columns.map_offsets, 4 * (rows_max + 1)), (HEADERS, columns.key_offsets, 4 * entries_max),
             (HEADERS, columns.list_offsets, 4 * entries_max), (HEADERS, columns.value_offsets, 4 * entries_max),
             (HEADERS, columns.keys, body_size + SLACK), (HEADERS, columns.values, body_size + SLACK)]
    for flag, buffer, size in sizes:
        if columns.mask & flag and memoryview(buffer).nbytes < size:
            raise ValueError(f"a buffer of {memoryview(buffer).nbytes} bytes, {size} are needed")
    return 0

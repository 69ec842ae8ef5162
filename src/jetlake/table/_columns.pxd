# Columns in the layout of Arrow while a kernel fills them: `_arrow_c` from records, `_msgs_c` from received messages.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp

from jetlake.buffers cimport room_of
from jetlake.store.records._record_c cimport RUN_MAX, Parts, load64

cdef extern from "jetlake/table/columns.h" nogil:
    ctypedef struct Columns "jl_columns":
        int64_t* seqs
        int64_t* times
        int64_t* times_ns
        int32_t* sizes
        int32_t* subject_offsets
        int32_t* payload_offsets
        int32_t* map_offsets
        uint8_t* subjects
        uint8_t* payloads

    void copy_text "jl_copy_text"(uint8_t* out, const uint8_t* text, size_t size)
    Py_ssize_t put_plain "jl_put_plain"(const uint8_t* data, uint64_t* offset, uint64_t end, uint64_t seed,
                                        uint64_t prev_seq, uint64_t seq_max, uint64_t span_max, uint64_t rows_max,
                                        Columns out)

cdef enum:  # as in `_arrow_py`; a test compares them
    SEQ = 1
    SUBJECT = 2
    TIME = 4
    TIME_NS = 8
    HEADERS = 16
    PAYLOAD = 32
    SIZE = 64
    ALL = 127

cdef enum:
    SLACK = 16
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


cdef inline void* words(buffer, bint is_wanted, Py_ssize_t size_min) except? NULL:
    """Where a buffer lies."""
    cdef Py_ssize_t size
    cdef void* start = room_of(buffer, &size)
    if is_wanted and size < size_min:
        raise ValueError(f"a buffer of {size} bytes, {size_min} are needed")
    return start


cdef inline Text text_column(offsets, data, bint is_wanted, Py_ssize_t texts_max, Py_ssize_t size_max) except *:
    """A column over two buffers."""
    cdef Text out
    out.count = out.size = 0
    out.offsets = <int32_t*>words(offsets, is_wanted, 4 * (texts_max + 1))
    out.data = <uint8_t*>words(data, is_wanted, size_max + SLACK)
    if out.offsets != NULL:
        out.offsets[0] = 0
    return out


cdef inline void put_bytes(Text* out, const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """A record's trailer follows all of its parts, and there is room for SLACK bytes behind a column."""
    cdef uint8_t* copy = out.data + out.size
    out.size += size
    out.count += 1
    out.offsets[out.count] = <int32_t>out.size
    copy_text(copy, text, size)


cdef inline void make_utf8(Text* out, Py_ssize_t first) noexcept nogil:
    """See to it that the texts from the one with number `first` on are UTF-8."""
    cdef uint8_t* text = out.data + out.offsets[first]
    cdef uint8_t* end = out.data + out.size
    cdef uint64_t bits = 0
    cdef Py_ssize_t number
    while end - text >= 16:
        bits |= load64(text) | load64(text + 8)
        text += 16
    if end - text >= 8:
        bits |= load64(text)
        text += 8
    if text < end:
        bits |= load64(text) << (64 - 8 * (end - text))
    if not bits & <uint64_t>0x8080808080808080ULL:
        return
    for number in range(first, out.count):
        text, end = out.data + out.offsets[number], out.data + out.offsets[number + 1]
        if not is_utf8(text, end - text):
            while text < end:
                if text[0] >= 0x80:
                    text[0] = c"?"
                text += 1


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


cdef inline int put_headers(Out* out, const uint8_t* block, Py_ssize_t size) except -1 nogil:
    """An entry for each name, with all of its values."""
    cdef Line[LINES_MAX] lines
    cdef Py_ssize_t count = split_headers(block, size, lines), keys = out.keys.count, values = out.values.count, i, j
    if count < 0:
        return put_many_headers(block, size, out)
    for i in range(count):
        if lines[i].is_done:
            continue
        put_bytes(&out.keys, lines[i].name, lines[i].name_size)
        for j in range(i, count):
            if lines[j].name_size == lines[i].name_size and (
                    j == i or memcmp(lines[j].name, lines[i].name, lines[i].name_size) == 0):
                put_bytes(&out.values, lines[j].value, lines[j].value_size)
                lines[j].is_done = True
        out.list_offsets[out.keys.count] = <int32_t>out.values.count
    make_utf8(&out.keys, keys)
    make_utf8(&out.values, values)
    return 0


cdef inline Out open_columns(columns, Py_ssize_t body_size) except *:
    """The buffers of a `Columns`, each of them as large as so many bytes of messages can need."""
    cdef Out out
    cdef int mask = columns.mask
    cdef Py_ssize_t rows = columns.rows_max, entries = body_size // 3
    out.mask, out.rows, out.rows_max = mask, 0, rows
    out.seqs = <int64_t*>words(columns.seqs, mask & SEQ, 8 * rows)
    out.times = <int64_t*>words(columns.times, mask & TIME, 8 * rows)
    out.times_ns = <int64_t*>words(columns.times_ns, mask & TIME_NS, 8 * rows)
    out.sizes = <int32_t*>words(columns.sizes, mask & SIZE, 4 * rows)
    out.subjects = text_column(columns.subject_offsets, columns.subjects, mask & SUBJECT, rows, body_size)
    out.payloads = text_column(columns.payload_offsets, columns.payloads, mask & PAYLOAD, rows, body_size)
    out.keys = text_column(columns.key_offsets, columns.keys, mask & HEADERS, entries, body_size)
    out.values = text_column(columns.value_offsets, columns.values, mask & HEADERS, entries, body_size)
    out.map_offsets = <int32_t*>words(columns.map_offsets, mask & HEADERS, 4 * (rows + 1))
    out.list_offsets = <int32_t*>words(columns.list_offsets, mask & HEADERS, 4 * (entries + 1))
    if mask & HEADERS:
        out.map_offsets[0] = out.list_offsets[0] = 0
    return out


cdef inline Columns next_rows(const Out* out) noexcept nogil:
    """Where the next row goes."""
    cdef Columns rows
    rows.seqs, rows.times, rows.times_ns = out.seqs + out.rows, out.times + out.rows, out.times_ns + out.rows
    rows.sizes, rows.map_offsets = out.sizes + out.rows, out.map_offsets + out.rows
    rows.subject_offsets, rows.subjects = out.subjects.offsets + out.rows, out.subjects.data
    rows.payload_offsets, rows.payloads = out.payloads.offsets + out.rows, out.payloads.data
    return rows


cdef inline void took_rows(Out* out, Py_ssize_t count) noexcept nogil:
    """Go on behind rows that were put where `next_rows` says."""
    cdef Py_ssize_t first = out.rows
    out.rows += count
    out.subjects.count = out.payloads.count = out.rows
    out.subjects.size, out.payloads.size = out.subjects.offsets[out.rows], out.payloads.offsets[out.rows]
    make_utf8(&out.subjects, first)


cdef inline int put_rows(Out* out, const uint8_t* base, const Parts* rows, Py_ssize_t count) except -1 nogil:
    """Messages, column by column. At least SLACK bytes can be read behind each part of them."""
    cdef Text texts  # a column, where no byte that is copied could be a part of it: that keeps it in registers
    cdef Py_ssize_t first = out.rows, i
    cdef bint has_headers
    if count == RUN_MAX:  # most often; a compiler unrolls what has a number
        has_headers = put_numbers(out, rows, RUN_MAX)
    else:
        has_headers = put_numbers(out, rows, count)
    if out.mask & SUBJECT:
        texts = out.subjects
        for i in range(count):
            put_bytes(&texts, base + rows[i].subject_start, rows[i].subject_size)
        make_utf8(&texts, first)
        out.subjects = texts
    if out.mask & PAYLOAD:
        texts = out.payloads
        for i in range(count):
            put_bytes(&texts, base + rows[i].payload_start, rows[i].payload_size)
        out.payloads = texts
    if has_headers:
        for i in range(count):
            if rows[i].headers_size:
                put_headers(out, base + rows[i].headers_start, rows[i].headers_size)
            out.map_offsets[first + i + 1] = <int32_t>out.keys.count
    out.rows += count
    return 0


cdef inline bint put_numbers(Out* out, const Parts* rows, Py_ssize_t count) noexcept nogil:
    """Columns of numbers, and that of headers as if there were none; whether there are some."""
    cdef int32_t* map_offsets = out.map_offsets + out.rows + 1
    cdef int32_t key_count = <int32_t>out.keys.count
    cdef uint32_t headers_size = 0
    cdef int64_t* seqs = out.seqs + out.rows
    cdef int64_t* times = out.times + out.rows
    cdef int64_t* times_ns = out.times_ns + out.rows
    cdef int32_t* sizes = out.sizes + out.rows
    cdef Py_ssize_t i
    cdef int64_t time_ns
    if out.mask & SEQ:
        for i in range(count):
            seqs[i] = <int64_t>rows[i].seq
    if out.mask & TIME:
        for i in range(count):
            time_ns = rows[i].time_ns
            times[i] = time_ns // 1000 - (time_ns < 0 and time_ns % 1000 != 0)
    if out.mask & TIME_NS:
        for i in range(count):
            times_ns[i] = rows[i].time_ns
    if out.mask & SIZE:
        for i in range(count):
            sizes[i] = <int32_t>rows[i].payload_size
    if out.mask & HEADERS:
        for i in range(count):
            headers_size |= rows[i].headers_size
            map_offsets[i] = key_count
    return headers_size != 0


cdef inline int put_many_headers(const uint8_t* block, Py_ssize_t size, Out* out) except -1 with gil:
    """A block with very many lines: grouped by the reference."""
    from jetlake.table._arrow_py import group_headers

    cdef bytes slack = bytes(SLACK), text
    for name, group in group_headers((<const char*>block)[:size]).items():
        text = name + slack
        put_bytes(&out.keys, text, len(name))
        for value in group:
            text = value + slack
            put_bytes(&out.values, text, len(value))
        out.list_offsets[out.keys.count] = <int32_t>out.values.count
    return 0

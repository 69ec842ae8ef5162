"""Messages that a consumer delivers into Arrow columns, compiled. `_msgs_py.py` is the reference."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp

from jetlake.table._columns cimport Out, open_columns, put_rows
from jetlake.store.records._record_c cimport Parts

from jetlake.table._msgs_py import _LINE_SIZE_MAX, SLACK, Received

cdef Py_ssize_t ROOM = SLACK
cdef Py_ssize_t LINE_SIZE_MAX = _LINE_SIZE_MAX

cdef enum:
    WORDS_MAX = 7
    TOKENS_MAX = 16


cdef struct Word:
    const uint8_t* text
    Py_ssize_t size


cdef inline int split(const uint8_t* text, Py_ssize_t size, uint8_t sign, Word* words, int words_max) noexcept nogil:
    """The words of a text; more than `words_max` count, but are not told."""
    cdef const uint8_t* end = text + size
    cdef const uint8_t* stop
    cdef int count = 0
    while True:
        stop = <const uint8_t*>memchr(text, sign, end - text) if text < end else NULL
        if stop == NULL:
            stop = end
        if count < words_max:
            words[count].text, words[count].size = text, stop - text
        count += 1
        if stop == end:
            return count
        text = stop + 1
        if text == end:  # an empty last word
            if count < words_max:
                words[count].text, words[count].size = text, 0
            return count + 1


cdef inline int64_t number(Word* word) noexcept nogil:
    """A decimal number below 2**63; -1 for anything else."""
    cdef uint64_t value = 0
    cdef Py_ssize_t i
    if not 0 < word.size <= 19:
        return -1
    for i in range(word.size):
        if not c"0" <= word.text[i] <= c"9":
            return -1
        value = value * 10 + (word.text[i] - c"0")
    return <int64_t>value if value <= <uint64_t>0x7FFFFFFFFFFFFFFF else -1


cdef inline const uint8_t* line_end(const uint8_t* text, const uint8_t* end) noexcept nogil:
    """Where the next CRLF is; NULL when there is none."""
    while text < end:
        text = <const uint8_t*>memchr(text, c"\r", end - text)
        if text == NULL or end - text < 2:
            return NULL
        if text[1] == c"\n":
            return text
        text += 1
    return NULL


def receive(data, Py_ssize_t start, Py_ssize_t end, int64_t last_seq, int64_t time_ns_min, int64_t time_ns_max,
            columns):
    """Fill columns with the delivered messages of data[start:end] up to a sequence; see `msgs.py`."""
    cdef const uint8_t[::1] view = data
    if not 0 <= start <= end <= view.shape[0] - ROOM:
        raise IndexError(f"range {start}..{end} of {view.shape[0]} bytes")
    cdef Out out = open_columns(columns, end - start)
    cdef const uint8_t* base = &view[0]
    cdef const uint8_t* at = base + start
    cdef const uint8_t* stop = base + end
    cdef const uint8_t* cut
    cdef Word[WORDS_MAX] words
    cdef Word[TOKENS_MAX] tokens
    cdef Parts msg
    cdef int count, token_count, first
    cdef bint with_headers, is_other = False
    cdef int64_t headers_size, size, seq, time_ns, left, pending = -1, seen_seq = 0, seen = 0
    while at < stop and out.rows < out.rows_max:
        cut = line_end(at, stop)
        if cut == NULL:
            if stop - at > LINE_SIZE_MAX:
                raise ValueError("a line without an end")
            break
        is_other = True
        with_headers = cut - at > 5 and memcmp(at, b"HMSG ", 5) == 0
        if not with_headers and (cut - at <= 4 or memcmp(at, b"MSG ", 4) != 0):
            break
        count = split(at, cut - at, c" ", words, WORDS_MAX)
        if count != 5 + with_headers or not words[1].size:
            break
        headers_size = number(&words[4]) if with_headers else 0
        size = number(&words[count - 1])
        if headers_size < 0 or size < headers_size:
            break
        if words[3].size < 8 or memcmp(words[3].text, b"$JS.ACK.", 8) != 0:
            break
        token_count = split(words[3].text, words[3].size, c".", tokens, TOKENS_MAX)
        if token_count != 9 and token_count < 11:
            break
        first = 5 if token_count == 9 else 7
        seq, time_ns, left = number(&tokens[first]), number(&tokens[first + 2]), number(&tokens[first + 3])
        if seq < 0 or time_ns < 0 or left < 0:
            break
        is_other = False
        cut += 2
        if size > stop - cut or stop - cut - size < 2:
            break
        seen, seen_seq, pending = seen + 1, seq, left
        if seq <= last_seq and time_ns_min <= time_ns <= time_ns_max:
            msg.seq, msg.time_ns = seq, time_ns
            msg.subject_start, msg.subject_size = words[1].text - base, words[1].size
            msg.headers_start, msg.headers_size = cut - base, headers_size
            msg.payload_start, msg.payload_size = msg.headers_start + headers_size, size - headers_size
            put_rows(&out, base, &msg, 1)
        at = cut + size + 2
    return Received(at - base, out.rows, seen, seen_seq, pending, out.keys.count, out.values.count, is_other)

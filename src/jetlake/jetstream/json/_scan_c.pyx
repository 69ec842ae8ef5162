# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Where the values of a JSON text begin and end: the compiled twin of `_json_scan_py.py`, which says what it writes."""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

from array import array as new_array

from jetlake.jetstream.json import _scan_py as twin

cdef enum:
    OBJECT, ARRAY, STRING, TEXT, NUMBER, TRUE, FALSE, NULL_
cdef enum:
    OK, EOF_, DEPTH, ESCAPE, IN_STRING, IN_NUMBER, NO_VALUE, NO_KEY, AFTER_KEY, AFTER_PAIR, AFTER_ELEMENT
cdef enum:
    IN_LITERAL = 16
    WORDS = 4
    FIRST_WORDS = 256

assert (OBJECT, ARRAY, STRING, TEXT, NUMBER, TRUE, FALSE, NULL_) == (
    twin.OBJECT, twin.ARRAY, twin.STRING, twin.TEXT, twin.NUMBER, twin.TRUE, twin.FALSE, twin.NULL
)
assert (OK, EOF_, DEPTH, ESCAPE, IN_STRING, IN_NUMBER) == (
    twin.OK, twin.EOF, twin.DEPTH, twin.ESCAPE, twin.IN_STRING, twin.IN_NUMBER
)
assert (NO_VALUE, NO_KEY, AFTER_KEY, AFTER_PAIR, AFTER_ELEMENT, IN_LITERAL, WORDS) == (
    twin.NO_VALUE, twin.NO_KEY, twin.AFTER_KEY, twin.AFTER_PAIR, twin.AFTER_ELEMENT, twin.IN_LITERAL, twin.WORDS
)

cdef struct Scanner:
    const unsigned char* data
    Py_ssize_t at
    Py_ssize_t size
    uint32_t* open                  # objects and arrays that are not over
    Py_ssize_t depth
    Py_ssize_t depth_max


cdef inline bint is_digit(unsigned char char) noexcept nogil:
    return c"0" <= char <= c"9"


cdef inline int skip_space(Scanner* s) noexcept nogil:
    """OK, or EOF_ when nothing follows."""
    while s.at < s.size and (s.data[s.at] == c" " or 9 <= s.data[s.at] <= 10 or s.data[s.at] == 13):
        s.at += 1
    return OK if s.at < s.size else EOF_


cdef int take_string(Scanner* s, uint32_t* kind) noexcept nogil:
    cdef unsigned char char
    cdef Py_ssize_t start
    kind[0] = STRING
    s.at += 1
    while s.at < s.size:
        char = s.data[s.at]
        if char == c'"':
            s.at += 1
            return OK
        if char < 0x20:
            return IN_STRING
        if char >= 0x80:
            kind[0] = TEXT
        elif char == c"\\":
            kind[0] = TEXT
            start = s.at
            s.at += 1
            if s.at == s.size:
                return EOF_
            char = s.data[s.at]
            if char == c"u":
                for _ in range(4):
                    s.at += 1
                    if s.at == s.size:
                        return EOF_
                    char = s.data[s.at]
                    if not (is_digit(char) or c"a" <= char <= c"f" or c"A" <= char <= c"F"):
                        s.at = start
                        return ESCAPE
            elif not (
                char == c'"' or char == c"\\" or char == c"/" or char == c"b" or char == c"f" or char == c"n"
                or char == c"r" or char == c"t"
            ):
                s.at = start
                return ESCAPE
        s.at += 1
    return EOF_


cdef int take_digits(Scanner* s) noexcept nogil:
    """At least one."""
    if s.at == s.size:
        return EOF_
    if not is_digit(s.data[s.at]):
        return IN_NUMBER
    while s.at < s.size and is_digit(s.data[s.at]):
        s.at += 1
    return OK


cdef int take_number(Scanner* s) noexcept nogil:
    cdef int status
    if s.data[s.at] == c"-":
        s.at += 1
    if s.at < s.size and s.data[s.at] == c"0":
        s.at += 1
    else:
        status = take_digits(s)
        if status:
            return status
    if s.at < s.size and s.data[s.at] == c".":
        s.at += 1
        status = take_digits(s)
        if status:
            return status
    if s.at < s.size and (s.data[s.at] == c"e" or s.data[s.at] == c"E"):
        s.at += 1
        if s.at < s.size and (s.data[s.at] == c"+" or s.data[s.at] == c"-"):
            s.at += 1
        return take_digits(s)
    return OK


cdef int take_literal(Scanner* s, const char* word, int number) noexcept nogil:
    cdef int place = 0
    while word[place]:
        if s.at == s.size:
            return EOF_
        if s.data[s.at] != <unsigned char> word[place]:
            return IN_LITERAL + 8 * number + place
        s.at += 1
        place += 1
    return OK


cdef int take_scalar(Scanner* s, uint32_t* kind) noexcept nogil:
    """A value that contains no other."""
    cdef unsigned char char = s.data[s.at]
    if char == c'"':
        return take_string(s, kind)
    if char == c"-" or is_digit(char):
        kind[0] = NUMBER
        return take_number(s)
    if char == c"t":
        kind[0] = TRUE
        return take_literal(s, b"true", 0)
    if char == c"f":
        kind[0] = FALSE
        return take_literal(s, b"false", 1)
    if char == c"n":
        kind[0] = NULL_
        return take_literal(s, b"null", 2)
    return NO_VALUE


cdef class Found:
    """The word groups so far."""

    cdef array.array words
    cdef uint32_t count             # of words in use

    def __cinit__(self):
        self.words = new_array("I", bytes(4 * FIRST_WORDS))

    cdef int add(self, uint32_t kind, Py_ssize_t start, Py_ssize_t end) except -1:
        cdef uint32_t* group
        if len(self.words) - self.count < WORDS:
            array.resize(self.words, 2 * len(self.words))
        group = &self.words.data.as_uints[self.count]
        group[0], group[1], group[2] = kind, <uint32_t> start, <uint32_t> end
        self.count += WORDS
        group[3] = self.count // WORDS
        return 0


cdef int take_key(Scanner* s, Found found) except -1:
    cdef uint32_t kind
    cdef Py_ssize_t start
    cdef int status = skip_space(s)
    if status:
        return status
    if s.data[s.at] != c'"':
        return NO_KEY
    start = s.at
    status = take_string(s, &kind)
    if status:
        return status
    found.add(kind, start, s.at)
    status = skip_space(s)
    if status:
        return status
    if s.data[s.at] != c":":
        return AFTER_KEY
    s.at += 1
    return OK


cdef int begin(Scanner* s, Found found, bint* is_over) except -1:
    """A value's first byte, or all of it; `is_over` is false when another value has to follow at once."""
    cdef uint32_t kind
    cdef Py_ssize_t start
    cdef int status = skip_space(s)
    cdef bint is_object
    is_over[0] = True
    if status:
        return status
    start = s.at
    if s.data[start] != c"{" and s.data[start] != c"[":
        status = take_scalar(s, &kind)
        if not status:
            found.add(kind, start, s.at)
        return status
    if s.depth >= s.depth_max:
        return DEPTH
    is_object = s.data[start] == c"{"
    s.open[s.depth] = found.count
    s.depth += 1
    found.add(OBJECT if is_object else ARRAY, start, start)
    s.at += 1
    status = skip_space(s)
    if status:
        return status
    if s.data[s.at] == (c"}" if is_object else c"]"):
        close(s, found)
        return OK
    is_over[0] = False
    return take_key(s, found) if is_object else OK


cdef void close(Scanner* s, Found found) noexcept:
    cdef uint32_t* group
    s.at += 1
    s.depth -= 1
    group = &found.words.data.as_uints[s.open[s.depth]]
    group[2], group[3] = <uint32_t> s.at, found.count // WORDS


cdef int go_on(Scanner* s, Found found, bint* is_over) except -1:
    """What follows a value in the innermost object or array; `is_over` is false when that is another value."""
    cdef bint is_object = found.words.data.as_uints[s.open[s.depth - 1]] == OBJECT
    cdef int status = skip_space(s)
    is_over[0] = True
    if status:
        return status
    if s.data[s.at] == (c"}" if is_object else c"]"):
        close(s, found)
        return OK
    if s.data[s.at] != c",":
        return AFTER_PAIR if is_object else AFTER_ELEMENT
    s.at += 1
    is_over[0] = False
    return take_key(s, found) if is_object else OK


def scan(bytes data not None, Py_ssize_t start, Py_ssize_t depth_max):
    """The word groups of the value that begins at or after `start`, a status, and where it ends or the error is."""
    cdef Scanner s
    cdef Found found = Found()
    cdef bint is_over = False
    cdef int status = OK
    if not 0 <= start <= len(data) or not 0 <= depth_max < 1 << 20 or len(data) >= 1 << 30:
        raise ValueError(f"cannot scan from {start} of {len(data)} bytes, {depth_max} deep")
    s.data, s.at, s.size = <const unsigned char*> PyBytes_AS_STRING(data), start, PyBytes_GET_SIZE(data)
    s.depth, s.depth_max = 0, depth_max
    s.open = <uint32_t*> malloc(max(depth_max, 1) * sizeof(uint32_t))
    if s.open == NULL:
        raise MemoryError
    try:
        while not status and not (is_over and s.depth == 0):
            status = go_on(&s, found, &is_over) if is_over else begin(&s, found, &is_over)
    finally:
        free(s.open)
    array.resize(found.words, found.count)
    return found.words, status, s.at

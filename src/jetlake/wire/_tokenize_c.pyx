"""Find the publishes in a buffer, compiled. `_tokenize_py.py` is the reference."""

from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t
from libc.string cimport memchr

from jetlake import ops as _ops
from jetlake.buffers cimport bytes_of
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.wire import protocol
from jetlake.wire._lines cimport MSG_ID, SIZE_DIGITS_MAX, SPECIAL, header_flags, is_blank, parse_size, skip_visible, upper
from jetlake.wire._tokenize_py import _check_door

assert _ops.OP_SPECIAL == SPECIAL and _ops.OP_MSG_ID == MSG_ID and protocol.SIZE_DIGITS_MAX == SIZE_DIGITS_MAX
cdef int SPACED = protocol.SPACED, BARE = protocol.BARE
cdef int PUB = protocol.PUB, HPUB = protocol.HPUB
cdef int PUB_ARGS_MIN = protocol.PUB_ARGS_MIN, HPUB_ARGS_MIN = protocol.HPUB_ARGS_MIN
cdef int NEED_MORE = protocol.NEED_MORE, OTHER = protocol.OTHER, FULL = protocol.FULL
cdef int UNKNOWN_OPERATION = protocol.UNKNOWN_OPERATION, TOO_LONG_LINE = protocol.TOO_LONG_LINE
cdef int PAYLOAD_VIOLATION = protocol.PAYLOAD_VIOLATION, NO_CRLF = protocol.NO_CRLF
cdef int BAD_ARGS = protocol.BAD_ARGS, BAD_SIZE = protocol.BAD_SIZE, BAD_HEADER_SIZE = protocol.BAD_HEADER_SIZE
cdef int NO_HEADERS = protocol.NO_HEADERS
cdef int GOOD = -1  # no reason to stop

cdef struct Verb:
    const uint8_t* name
    Py_ssize_t size
    int style

cdef Verb[16] verbs
cdef int verb_count = len(protocol.VERBS)
assert verb_count <= 16 and sizeof(PubOp) == 4 * _ops.OP_WORDS
_names = [name for name, _ in protocol.VERBS]  # keeps alive what the table points to
for _place, (_name, _style) in enumerate(protocol.VERBS):
    verbs[_place] = Verb(<const uint8_t*><const char*>_names[_place], len(_name), _style)


cdef struct Line:
    int verb
    Py_ssize_t arg
    Py_ssize_t stop


cdef int _find_verb(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """The first verb that starts like the data; -1 if none does."""
    cdef int place
    cdef Py_ssize_t i, compared
    for place in range(verb_count):
        compared = min(size, verbs[place].size)
        i = 0
        while i < compared and upper(data[i]) == verbs[place].name[i]:
            i += 1
        if i == compared:
            return place
    return -1


cdef int _find_line(const uint8_t* data, Py_ssize_t offset, Py_ssize_t end, Py_ssize_t max_control_line,
                    Line* line) noexcept nogil:
    """Fill in the line that starts at the offset, or say why to stop there."""
    cdef int place = _find_verb(data + offset, end - offset)
    cdef Py_ssize_t after, arg, search, arg_end
    cdef const uint8_t* found
    if place < 0:
        return UNKNOWN_OPERATION
    if verbs[place].size >= end - offset:
        return NEED_MORE
    arg = after = offset + verbs[place].size
    if verbs[place].style == SPACED and not is_blank(data[after]):
        return UNKNOWN_OPERATION
    if verbs[place].style != BARE:
        while arg < end and is_blank(data[arg]):
            arg += 1
    if arg - after > max_control_line:
        return TOO_LONG_LINE
    if arg == end:
        return NEED_MORE
    search = arg if verbs[place].style == BARE else arg + 1
    # A line with its CR and LF is no longer than this: what follows is not searched.
    arg_end = end if max_control_line > end - arg - 2 else arg + max_control_line + 2
    found = <const uint8_t*>memchr(data + search, 10, arg_end - search) if search < arg_end else NULL
    if found != NULL:
        arg_end = found - data
    if arg_end - arg - (arg_end > arg and data[arg_end - 1] == 13) > max_control_line:
        return TOO_LONG_LINE
    if found == NULL:
        return NEED_MORE
    line.verb, line.arg, line.stop = place, arg, arg_end
    return GOOD


cdef int _parse_args(const uint8_t* data, Line* line, int64_t max_payload, PubOp* op) noexcept nogil:
    """Fill in the operation of a PUB or HPUB line, flags not yet known, or say why to stop there."""
    cdef Py_ssize_t[4] starts
    cdef Py_ssize_t[4] sizes
    cdef int count = 0, count_min = HPUB_ARGS_MIN if line.verb == HPUB else PUB_ARGS_MIN
    cdef Py_ssize_t at = line.arg, stop = line.stop - (data[line.stop - 1] == 13), begin
    cdef int64_t size, headers_size = 0
    cdef uint8_t byte
    while at < stop:
        if is_blank(data[at]):
            at += 1
            continue
        begin = at
        at = skip_visible(data, at, stop)
        while at < stop:
            byte = data[at]
            if byte <= 32:
                if is_blank(byte):
                    break
                if byte == 13 or byte == 10:
                    return BAD_ARGS
            at += 1
        if count > count_min:
            return BAD_ARGS
        starts[count], sizes[count] = begin, at - begin
        count += 1
    if count < count_min:
        return BAD_ARGS
    if line.verb == HPUB:
        headers_size = parse_size(data + starts[count - 2], sizes[count - 2])
        if headers_size < 0:
            return BAD_HEADER_SIZE
    size = parse_size(data + starts[count - 1], sizes[count - 1])
    if size < 0:
        return BAD_SIZE
    if headers_size > size:
        return BAD_HEADER_SIZE
    if 0 <= max_payload < size:
        return PAYLOAD_VIOLATION
    op.subject_start, op.subject_size = <uint32_t>starts[0], <uint32_t>sizes[0]
    op.reply_start = op.reply_size = 0
    if count > count_min:
        op.reply_start, op.reply_size = <uint32_t>starts[1], <uint32_t>sizes[1]
    op.headers_start, op.headers_size = <uint32_t>(line.stop + 1), <uint32_t>headers_size
    op.payload_start = <uint32_t>(line.stop + 1 + headers_size)
    op.payload_size = <uint32_t>(size - headers_size)
    op.slot = op.flags = 0
    op.expected = 0
    return GOOD


def tokenize(data, Py_ssize_t start, Py_ssize_t end, ops, Py_ssize_t count_max, int64_t max_payload,
             Py_ssize_t max_control_line, bint headers=True):
    """Write an operation for each publish of data[start:end]; see `tokenize.py`."""
    cdef Py_ssize_t size, words
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &size)
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef PubOp op
    if not (0 <= start <= end <= size <= UINT32_MAX and 0 <= count_max <= op_count(words) and max_control_line >= 0):
        _check_door(size, start, end, words, count_max, max_control_line)
    if start == end:
        return 0, start, NEED_MORE, 0
    cdef Line line = Line(0, 0, 0)
    cdef Py_ssize_t count = 0, offset = start, stop
    cdef int reason
    while offset < end:
        if count == count_max:
            return count, offset, FULL, 0
        reason = _find_line(source, offset, end, max_control_line, &line)
        if reason != GOOD:
            return count, offset, reason, 0
        if line.verb > HPUB:
            return count, offset, OTHER, line.stop + 1 - offset
        if line.verb == HPUB and not headers:
            return count, offset, NO_HEADERS, 0
        reason = _parse_args(source, &line, max_payload, &op)
        if reason != GOOD:
            return count, offset, reason, 0
        # At most nine digits after a buffer of at most 32 bits: this does not overflow.
        stop = line.stop + 1 + <Py_ssize_t>op.headers_size + <Py_ssize_t>op.payload_size
        if end > stop and source[stop] != 13:
            return count, offset, NO_CRLF, 0
        if stop > end - 2:
            return count, offset, NEED_MORE, stop + 2 - offset
        if source[stop + 1] != 10:
            return count, offset, NO_CRLF, 0
        if op.headers_size:
            op.flags = header_flags(source + op.headers_start, source + op.payload_start)
        op_list[count] = op
        count += 1
        offset = stop + 2
    return count, offset, NEED_MORE, 0

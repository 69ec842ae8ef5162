"""Find the messages of a link, compiled. `_link_tokenize_py.py` is the reference."""

from cpython cimport array
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp

from jetlake.buffers cimport bytes_of
from jetlake.ops import OP_WORDS, check_ops
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.wire import _link_tokenize_py as _twin
from jetlake.wire import protocol
from jetlake.wire._link_tokenize_py import check_link
from jetlake.wire._lines cimport header_flags, is_blank, parse_size, skip_visible, upper

cdef int NEED_MORE = protocol.NEED_MORE, OTHER = protocol.OTHER, FULL = protocol.FULL
cdef int UNKNOWN_OPERATION = protocol.UNKNOWN_OPERATION, TOO_LONG_LINE = protocol.TOO_LONG_LINE
cdef int PAYLOAD_VIOLATION = protocol.PAYLOAD_VIOLATION, NO_CRLF = protocol.NO_CRLF
cdef int BAD_ARGS = protocol.BAD_ARGS, BAD_SIZE = protocol.BAD_SIZE, BAD_HEADER_SIZE = protocol.BAD_HEADER_SIZE
cdef int GOOD = -1  # no reason to stop
cdef int MESSAGES = _twin.MESSAGES, ACK_DOTS = _twin.ACK_DOTS
cdef bytes ACK_PREFIX = _twin.ACK_PREFIX
cdef const char* ACK_TEXT = ACK_PREFIX
cdef Py_ssize_t ACK_SIZE = len(ACK_PREFIX)
cdef array.array WORDS = array.array("I")

cdef struct Verb:
    const uint8_t* name
    Py_ssize_t size

cdef struct Verbs:
    Verb[16] verbs
    int count

cdef Verbs leaf_verbs, route_verbs
assert sizeof(PubOp) == 4 * OP_WORDS


cdef int fill(Verbs* table, tuple names) except -1:
    """Point to the names, which the twin keeps alive."""
    assert len(names) <= 16
    table.count = len(names)
    for place, name in enumerate(names):
        table.verbs[place] = Verb(<const uint8_t*><const char*>name, len(name))
    return 0


fill(&leaf_verbs, _twin.LEAF_VERBS)
fill(&route_verbs, _twin.ROUTE_VERBS)


cdef struct Found:
    Py_ssize_t queues_start
    Py_ssize_t queues_size
    bint is_mapped
    Py_ssize_t account_start
    Py_ssize_t account_size


cdef int find_verb(const uint8_t* data, Py_ssize_t size, const Verbs* table) noexcept nogil:
    """The first verb that starts like the data; -1 if none does."""
    cdef int place
    cdef Py_ssize_t i, compared
    for place in range(table.count):
        compared = min(size, table.verbs[place].size)
        i = 0
        while i < compared and upper(data[i]) == table.verbs[place].name[i]:
            i += 1
        if i == compared:
            return place
    return -1


cdef Py_ssize_t find_stored_subject(const uint8_t* reply, Py_ssize_t size) noexcept nogil:
    """Where the @ is that a stored subject follows in a reply; -1 if there is none."""
    cdef Py_ssize_t at = 0
    cdef int dots = 0
    cdef const uint8_t* found
    if size <= ACK_SIZE or memcmp(reply, ACK_TEXT, ACK_SIZE) != 0:
        return -1
    while at < size and dots < ACK_DOTS:
        dots += reply[at] == c"."
        at += 1
    if dots < ACK_DOTS or at == size:
        return -1
    found = <const uint8_t*>memchr(reply + at, c"@", size - at)
    return found - reply if found != NULL and found - reply < size - 1 else -1


cdef int parse(const uint8_t* data, Py_ssize_t at, Py_ssize_t line_end, bint has_headers, int64_t max_payload, bint is_route,
               PubOp* op, Found* found) noexcept nogil:
    """Fill in the operation of a message, flags not yet known, or say why to stop there."""
    cdef Py_ssize_t[4] starts, ends  # of the first four arguments
    cdef Py_ssize_t[3] last_starts, last_ends  # of the last three, the very last one first
    cdef Py_ssize_t stop = line_end - (data[line_end - 1] == 13), begin, count = 0, i
    cdef int64_t size, headers_size = 0
    cdef Py_ssize_t reply = -1, queues = -1
    if at >= stop or not is_blank(data[at]):
        return BAD_ARGS
    found.account_start = found.account_size = 0
    if is_route:
        while at < stop and is_blank(data[at]):
            at += 1
        found.account_start = at
        while at < stop and not is_blank(data[at]):
            if data[at] == 13:
                return BAD_ARGS
            at += 1
        found.account_size = at - found.account_start
    for i in range(3):
        last_starts[i] = last_ends[i] = 0
    while at < stop:
        if is_blank(data[at]):
            at += 1
            continue
        begin = at
        at = skip_visible(data, at, stop)
        while at < stop and not is_blank(data[at]):
            if data[at] == 13:
                return BAD_ARGS
            at += 1
        if count < 4:
            starts[count], ends[count] = begin, at
        last_starts[2], last_ends[2] = last_starts[1], last_ends[1]
        last_starts[1], last_ends[1] = last_starts[0], last_ends[0]
        last_starts[0], last_ends[0] = begin, at
        count += 1
    if count < 2 + has_headers:
        return BAD_ARGS
    if has_headers:
        headers_size = parse_size(data + last_starts[1], last_ends[1] - last_starts[1])
        if headers_size < 0:
            return BAD_HEADER_SIZE
    size = parse_size(data + last_starts[0], last_ends[0] - last_starts[0])
    if size < 0:
        return BAD_SIZE
    if headers_size > size:
        return BAD_HEADER_SIZE
    if 0 <= max_payload < size:
        return PAYLOAD_VIOLATION
    count -= 1 + has_headers
    if count == 2:
        reply = 1
    elif count > 2:
        if ends[1] - starts[1] != 1:
            return BAD_ARGS
        if data[starts[1]] == c"+":
            reply = 2
            queues = 3 if count > 3 else -1
        elif data[starts[1]] == c"|":
            queues = 2
        else:
            return BAD_ARGS
    op.subject_start, op.subject_size = <uint32_t>starts[0], <uint32_t>(ends[0] - starts[0])
    op.reply_start = op.reply_size = 0
    found.is_mapped = False
    if reply >= 0:
        op.reply_start, op.reply_size = <uint32_t>starts[reply], <uint32_t>(ends[reply] - starts[reply])
        found.is_mapped = find_stored_subject(data + op.reply_start, op.reply_size) >= 0
    found.queues_start = found.queues_size = 0
    if queues >= 0:
        found.queues_start = starts[queues]
        found.queues_size = last_ends[1 + has_headers] - starts[queues]
    op.headers_start, op.headers_size = <uint32_t>(line_end + 1), <uint32_t>headers_size
    op.payload_start = <uint32_t>(line_end + 1 + headers_size)
    op.payload_size = <uint32_t>(size - headers_size)
    op.slot = op.flags = 0
    op.expected = 0
    return GOOD


cdef inline bint is_same(const uint8_t* source, Found* a, Found* b) noexcept nogil:
    """Whether two messages may be of one batch."""
    return (a.is_mapped == b.is_mapped and a.queues_size == b.queues_size and a.account_size == b.account_size
            and memcmp(source + a.queues_start, source + b.queues_start, a.queues_size) == 0
            and memcmp(source + a.account_start, source + b.account_start, a.account_size) == 0)


def tokenize_link(data, Py_ssize_t start, Py_ssize_t end, ops, Py_ssize_t count_max, int64_t max_payload,
                  Py_ssize_t line_size_max, bint is_route=False):
    """Write an operation for each message of data[start:end]; see `link_tokenize.py`."""
    cdef Py_ssize_t size, words
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &size)
    cdef PubOp* op_list = ops_of(ops, &words)
    if not (0 <= start <= end <= size <= UINT32_MAX and 0 < count_max <= op_count(words)):
        check_link(size, start, end, words, count_max)
    cdef PubOp op
    cdef Found found = Found(0, 0, False, 0, 0), first = Found(0, 0, False, 0, 0)
    cdef const Verbs* table = &route_verbs if is_route else &leaf_verbs
    cdef Py_ssize_t count = 0, offset = start, stop, needed = 0, line_end, searched
    cdef const uint8_t* newline
    cdef int reason = NEED_MORE, verb
    while offset < end:
        verb = find_verb(source + offset, end - offset, table)
        if verb < 0:
            reason = UNKNOWN_OPERATION
            break
        searched = end - offset if end - offset <= line_size_max else line_size_max + 1
        newline = <const uint8_t*>memchr(source + offset, 10, searched)
        if newline == NULL:
            reason = TOO_LONG_LINE if end - offset > line_size_max else NEED_MORE
            break
        line_end = newline - source
        if verb >= MESSAGES:
            reason, needed = OTHER, line_end + 1 - offset
            break
        if count == count_max:
            reason = FULL
            break
        if line_end - offset < 5:
            reason = BAD_ARGS
            break
        reason = parse(source, offset + 4, line_end, verb == 1, max_payload, is_route, &op, &found)
        if reason != GOOD:
            break
        reason = NEED_MORE
        # At most nine digits after a buffer of at most 32 bits: this does not overflow.
        stop = line_end + 1 + <Py_ssize_t>op.headers_size + <Py_ssize_t>op.payload_size
        if end > stop and source[stop] != 13:
            reason = NO_CRLF
            break
        if stop > end - 2:
            needed = stop + 2 - offset
            break
        if source[stop + 1] != 10:
            reason = NO_CRLF
            break
        if count == 0:
            first = found
        elif not is_same(source, &found, &first):
            reason = FULL
            break
        if op.headers_size:
            op.flags = header_flags(source + op.headers_start, source + op.payload_start)
        op_list[count] = op
        count += 1
        offset = stop + 2
    return (count, offset, reason, needed, first.queues_start, first.queues_size, bool(first.is_mapped),
            first.account_start, first.account_size)


def restore_subjects(data, ops, Py_ssize_t count):
    """The first operations as a subscriber is to see them; see `link_tokenize.py`."""
    cdef Py_ssize_t size, words, number, mark
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &size)
    cdef PubOp* op_list = ops_of(ops, &words)
    check_ops(size, words, 0, count)
    cdef array.array shown = array.clone(WORDS, count * <Py_ssize_t>(sizeof(PubOp) // 4), zero=False)
    cdef PubOp* op = <PubOp*>shown.data.as_voidptr
    for number in range(count):
        op[number] = op_list[number]
        if op[number].reply_start > size or op[number].reply_size > size - op[number].reply_start:
            raise IndexError(f"operation {number} is not in the buffer")
        mark = find_stored_subject(source + op[number].reply_start, op[number].reply_size)
        if mark >= 0:
            op[number].subject_start = op[number].reply_start + <uint32_t>(mark + 1)
            op[number].subject_size = op[number].reply_size - <uint32_t>(mark + 1)
            op[number].reply_size = <uint32_t>mark
    return shown

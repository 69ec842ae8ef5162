"""Whom does each publish of a batch reach? Compiled. `_recipient_table_py.py` is the reference."""

from cpython cimport array
from libc.stdint cimport UINT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from jetlake.broker import _recipient_table_py as _twin
from jetlake.buffers cimport bytes_of
from jetlake.ops import check_ops
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.store.index._subject_filter_c cimport SubjectFilter
from jetlake.store.index._subject_table_c cimport SubjectTable

cdef int32_t UNKNOWN = _twin.UNKNOWN, NOBODY = _twin.NOBODY
cdef array.array NUMBERS = array.array("i"), OPS = array.array("I")


cdef class RecipientTable:
    """Subjects and the numbers of their recipients."""

    cdef SubjectTable _table
    cdef array.array _recipients        # by slot of the table
    cdef Py_ssize_t _known, _subjects_max
    cdef list _captures
    cdef SubjectFilter _others
    cdef bint _may_find
    cdef SubjectTable _prefixes
    cdef array.array _prefix_recipients  # by slot of that table
    cdef uint64_t _prefix_tokens     # bit n: some prefix has n tokens
    cdef list _tokens_of             # how many prefixes have n tokens

    def __init__(self, Py_ssize_t subjects_max=_twin.SUBJECTS_MAX):
        self._subjects_max = subjects_max
        self._prefixes, self._prefix_recipients = SubjectTable(), array.clone(NUMBERS, 0, zero=False)
        self._tokens_of = [0] * 64
        self.clear((), None)

    def clear(self, captures, others):
        """Forget every subject, and learn how to find the recipients of new ones; see `recipient_table.py`."""
        self._forget()
        self._captures = [(SubjectFilter(patterns), recipients) for patterns, recipients in captures]
        self._others = SubjectFilter(others) if others else None
        self._may_find = others is not None
        cdef Py_ssize_t slot
        for slot in range(len(self._prefix_recipients)):
            self._prefix_recipients.data.as_ints[slot] = UNKNOWN

    def add_prefix(self, bytes prefix not None):
        """Subjects that begin like this, with whole tokens, share their recipients, which `put_prefix` tells."""
        cdef Py_ssize_t tokens = _twin.check_prefix(prefix)
        cdef int64_t slot = self._prefixes.intern(prefix)
        if self._prefixes.count_c(slot):
            raise ValueError(f"prefix {prefix!r} is there already")
        self._prefixes.add_c(slot, 1)
        if slot >= len(self._prefix_recipients):
            grow(self._prefix_recipients)
        self._prefix_recipients.data.as_ints[slot] = UNKNOWN
        self._tokens_of[tokens] += 1
        self._prefix_tokens |= <uint64_t>1 << tokens

    def remove_prefix(self, bytes prefix not None):
        """Subjects that begin like this are like all others again."""
        cdef Py_ssize_t tokens = prefix.count(b".")
        self._prefixes.remove_c(self._prefix_slot(prefix), 1)
        self._tokens_of[tokens] -= 1
        if not self._tokens_of[tokens]:
            self._prefix_tokens &= ~(<uint64_t>1 << tokens)

    def put_prefix(self, bytes prefix not None, int32_t recipients):
        """Remember the recipients of a prefix until `clear`."""
        self._prefix_recipients.data.as_ints[self._prefix_slot(prefix)] = recipients

    def prefix_of(self, bytes subject not None):
        """The prefix that a subject begins with; None when there is none, or the rest is no literal subject."""
        cdef int64_t slot = self._find_prefix(<const uint8_t*>subject, len(subject))
        return self._prefixes.subject(slot) if slot >= 0 else None

    cdef int64_t _prefix_slot(self, bytes prefix) except -1:
        cdef int64_t slot = self._prefixes.find(prefix)
        if slot < 0:
            raise KeyError(f"no prefix {prefix!r}")
        return slot

    cdef int64_t _find_prefix(self, const uint8_t* subject, Py_ssize_t size) noexcept:
        """The slot of the shortest prefix that a subject begins with; -1 when there is none."""
        cdef Py_ssize_t at, tokens = 0
        cdef int64_t slot
        if not self._prefix_tokens:
            return -1
        for at in range(size - 1):
            if subject[at] == c".":
                tokens += 1
                if tokens >= 64 or not self._prefix_tokens >> tokens:
                    return -1
                if self._prefix_tokens >> tokens & 1:
                    slot = self._prefixes.find_c(subject, at + 1)
                    if slot >= 0:
                        return slot if is_plain(subject + at + 1, size - at - 1) else -1
        return -1

    def __len__(self):
        return self._known

    def put(self, bytes subject not None, int32_t recipients):
        """Remember the recipients of a subject."""
        cdef const uint8_t* text = subject
        cdef int64_t slot = self._slot(text, len(subject))
        if slot >= 0:
            self._remember(slot, recipients)

    def run(self, data, ops, Py_ssize_t first, Py_ssize_t stop):
        """The recipients of operation `first`, and the first operation with other ones: (stop, recipients)."""
        cdef Py_ssize_t size, words, number
        cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &size)
        cdef PubOp* op_list = ops_of(ops, &words)
        cdef PubOp* op
        if not (0 <= first < stop <= op_count(words) and size <= UINT32_MAX):
            check_ops(size, words, first, stop)
        cdef int32_t recipients = UNKNOWN, found
        for number in range(first, stop):
            op = op_list + number
            if op.subject_start > size or op.subject_size > size - op.subject_start:
                raise IndexError(f"the subject of operation {number} is not in the buffer")
            found = self._recipients_of(source + op.subject_start, op.subject_size)
            if number == first:
                recipients = found
            elif found != recipients:
                return number, recipients
            if found == UNKNOWN:
                return number, UNKNOWN
        return stop, recipients

    def groups(self, data, ops, Py_ssize_t first, Py_ssize_t stop, const uint8_t[::1] apart not None):
        """Sort publishes by their recipients, as far as that is allowed; see `recipient_table.py`."""
        cdef Py_ssize_t size, words, number, at, kinds = apart.shape[0], known = 0
        cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &size)
        cdef PubOp* op_list = ops_of(ops, &words)
        cdef PubOp* op
        cdef int32_t found
        if not (0 <= first < stop <= op_count(words) and size <= UINT32_MAX):
            check_ops(size, words, first, stop)
        cdef array.array numbers = array.clone(NUMBERS, stop - first, zero=False)  # the recipients of each operation
        cdef array.array order = array.clone(NUMBERS, stop - first, zero=False)    # those that were met, in turn
        cdef array.array ends = array.clone(NUMBERS, kinds, zero=True)             # by recipients: how many; where next
        for number in range(first, stop):
            op = op_list + number
            if op.subject_start > size or op.subject_size > size - op.subject_start:
                raise IndexError(f"the subject of operation {number} is not in the buffer")
            found = self._recipients_of(source + op.subject_start, op.subject_size)
            if not 0 <= found < kinds or not apart[found]:
                stop = number
                break
            if not ends.data.as_ints[found]:
                order.data.as_ints[known] = found
                known += 1
            ends.data.as_ints[found] += 1
            numbers.data.as_ints[number - first] = found
        cdef list runs = []
        cdef int begin = 0, count
        for at in range(known):
            found = order.data.as_ints[at]
            count, ends.data.as_ints[found] = ends.data.as_ints[found], begin
            runs.append((found, begin, begin + count))
            begin += count
        cdef array.array taken = array.clone(OPS, (stop - first) * <Py_ssize_t>(sizeof(PubOp) // 4), zero=False)
        cdef PubOp* sorted_ops = <PubOp*>taken.data.as_voidptr
        for number in range(first, stop):
            found = numbers.data.as_ints[number - first]
            sorted_ops[ends.data.as_ints[found]] = op_list[number]
            ends.data.as_ints[found] += 1
        return stop, taken, runs

    cdef int32_t _recipients_of(self, const uint8_t* subject, Py_ssize_t size) except? -9:
        cdef int64_t slot = self._find_prefix(subject, size)
        cdef int32_t recipients
        if slot >= 0:
            return self._prefix_recipients.data.as_ints[slot]
        slot = self._slot(subject, size)
        if slot < 0:
            return UNKNOWN
        recipients = self._recipients.data.as_ints[slot]
        if recipients == UNKNOWN:
            recipients = self._find(subject, size)
            if recipients != UNKNOWN:
                self._remember(slot, recipients)
        return recipients

    cdef int64_t _slot(self, const uint8_t* subject, Py_ssize_t size) except -9:
        """The slot of a subject; -1 if it can have none. The table starts anew when it is full."""
        cdef int64_t slot = self._table.intern_c(subject, size)
        if slot >= self._subjects_max:
            self._forget()
            slot = self._table.intern_c(subject, size)
        if slot >= len(self._recipients):
            grow(self._recipients)
        return slot

    cdef void _remember(self, int64_t slot, int32_t recipients) noexcept:
        self._known += self._recipients.data.as_ints[slot] == UNKNOWN
        self._recipients.data.as_ints[slot] = recipients

    cdef int32_t _find(self, const uint8_t* subject, Py_ssize_t size) except? -9:
        cdef SubjectFilter filter
        if not self._may_find or not is_plain(subject, size):
            return UNKNOWN
        if self._others is not None and self._others.matches_c(subject, size):
            return UNKNOWN
        for filter, recipients in self._captures:
            if filter.matches_c(subject, size):
                return recipients
        return NOBODY

    cdef _forget(self):
        self._table = SubjectTable()
        self._recipients = array.clone(NUMBERS, 0, zero=False)
        self._known = 0


cdef grow(array.array recipients):
    """Make room for more slots, whose recipients are not known."""
    cdef Py_ssize_t at, before = len(recipients), after = max(1024, 2 * before)
    array.resize(recipients, after)
    for at in range(before, after):
        recipients.data.as_ints[at] = UNKNOWN


cdef bint is_plain(const uint8_t* subject, Py_ssize_t size) noexcept:
    """Whether no token is empty or a wildcard."""
    cdef Py_ssize_t at, start = 0
    for at in range(size + 1):
        if at == size or subject[at] == c".":
            if at == start or (at == start + 1 and (subject[start] == c"*" or subject[start] == c">")):
                return False
            start = at + 1
    return True


def deal(ops, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t count, uint64_t seed):
    """Operations first..stop-1 dealt at random into `count` arrays, in order within each; see `recipient_table.py`."""
    cdef Py_ssize_t words, number, turn, choice
    cdef PubOp* op_list = ops_of(ops, &words)
    check_ops(0, words, first, stop)
    if not 0 < count <= UINT32_MAX:
        raise ValueError(f"operations cannot be dealt to {count}")
    cdef array.array choices = array.clone(NUMBERS, stop - first, zero=False)
    cdef array.array sizes = array.clone(NUMBERS, count, zero=True)
    cdef array.array hand
    cdef uint64_t state = seed | 1
    for turn in range(stop - first):
        state ^= state << 13
        state ^= state >> 7
        state ^= state << 17
        choice = (state >> 32) * <uint64_t>count >> 32
        choices.data.as_ints[turn] = choice
        sizes.data.as_ints[choice] += 1
    cdef list dealt = []
    cdef PubOp** ends = <PubOp**>malloc(count * sizeof(PubOp*))
    if ends == NULL:
        raise MemoryError
    try:
        for choice in range(count):
            hand = array.clone(OPS, sizes.data.as_ints[choice] * <Py_ssize_t>(sizeof(PubOp) // 4), zero=False)
            ends[choice] = <PubOp*>hand.data.as_voidptr
            dealt.append(hand)
        for turn in range(stop - first):
            choice = choices.data.as_ints[turn]
            ends[choice][0] = op_list[first + turn]
            ends[choice] += 1
    finally:
        free(ends)
    return dealt

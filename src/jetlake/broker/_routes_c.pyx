"""Which route does each publish of a batch take? Compiled. `_routes_py.py` is the reference."""

from cpython cimport array
from libc.stdint cimport UINT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from jetlake.broker import _routes_py as _twin
from jetlake.broker._routes_py import check_door
from jetlake.buffers cimport bytes_of
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.store._subject_filter_c cimport SubjectFilter
from jetlake.store._subject_table_c cimport SubjectTable

cdef int32_t UNKNOWN = _twin.UNKNOWN, NOBODY = _twin.NOBODY, ACKS = _twin.ACKS
cdef const char* ACK_PREFIX = _twin.ACK_PREFIX
cdef Py_ssize_t ACK_PREFIX_SIZE = len(_twin.ACK_PREFIX)
cdef array.array NUMBERS = array.array("i"), OPS = array.array("I")


cdef class RouteTable:
    """Subjects and the numbers of their routes."""

    cdef SubjectTable _table
    cdef array.array _routes        # by slot of the table
    cdef Py_ssize_t _known, _subjects_max
    cdef list _captures
    cdef SubjectFilter _others
    cdef bint _may_find

    def __init__(self, Py_ssize_t subjects_max=_twin.SUBJECTS_MAX):
        self._subjects_max = subjects_max
        self.clear((), None)

    def clear(self, captures, others):
        """Forget every subject, and learn how to find the routes of new ones; see `routes.py`."""
        self._forget()
        self._captures = [(SubjectFilter(patterns), route) for patterns, route in captures]
        self._others = SubjectFilter(others) if others else None
        self._may_find = others is not None

    def __len__(self):
        return self._known

    def put(self, bytes subject not None, int32_t route):
        """Remember the route of a subject."""
        cdef const uint8_t* text = subject
        cdef int64_t slot = self._slot(text, len(subject))
        if slot >= 0:
            self._remember(slot, route)

    def run(self, data, ops, Py_ssize_t first, Py_ssize_t stop):
        """The route of operation `first`, and the operation at which another route begins: (stop, route)."""
        cdef Py_ssize_t size, words, number
        cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &size)
        cdef PubOp* op_list = ops_of(ops, &words)
        cdef PubOp* op
        if not (0 <= first < stop <= op_count(words) and size <= UINT32_MAX):
            check_door(size, words, first, stop)
        cdef int32_t route = UNKNOWN, found
        for number in range(first, stop):
            op = op_list + number
            if op.subject_start > size or op.subject_size > size - op.subject_start:
                raise IndexError(f"the subject of operation {number} is not in the buffer")
            found = self._route(source + op.subject_start, op.subject_size)
            if number == first:
                route = found
            elif found != route:
                return number, route
            if found == UNKNOWN:
                return number, UNKNOWN
        return stop, route

    cdef int32_t _route(self, const uint8_t* subject, Py_ssize_t size) except? -9:
        cdef int64_t slot
        cdef int32_t route
        if size >= ACK_PREFIX_SIZE and memcmp(subject, ACK_PREFIX, ACK_PREFIX_SIZE) == 0:
            return ACKS
        slot = self._slot(subject, size)
        if slot < 0:
            return UNKNOWN
        route = self._routes.data.as_ints[slot]
        if route == UNKNOWN:
            route = self._find(subject, size)
            if route != UNKNOWN:
                self._remember(slot, route)
        return route

    cdef int64_t _slot(self, const uint8_t* subject, Py_ssize_t size) except -9:
        """The slot of a subject; -1 if it can have none. The table starts anew when it is full."""
        cdef int64_t slot = self._table.intern_c(subject, size)
        if slot >= self._subjects_max:
            self._forget()
            slot = self._table.intern_c(subject, size)
        if slot >= len(self._routes):
            self._grow()
        return slot

    cdef void _remember(self, int64_t slot, int32_t route) noexcept:
        self._known += self._routes.data.as_ints[slot] == UNKNOWN
        self._routes.data.as_ints[slot] = route

    cdef int32_t _find(self, const uint8_t* subject, Py_ssize_t size) except? -9:
        cdef SubjectFilter filter
        if not self._may_find or not is_plain(subject, size):
            return UNKNOWN
        if self._others is not None and self._others.matches_c(subject, size):
            return UNKNOWN
        for filter, route in self._captures:
            if filter.matches_c(subject, size):
                return route
        return NOBODY

    cdef _forget(self):
        self._table = SubjectTable()
        self._routes = array.clone(NUMBERS, 0, zero=False)
        self._known = 0

    cdef _grow(self):
        cdef Py_ssize_t at, before = len(self._routes), after = max(1024, 2 * before)
        array.resize(self._routes, after)
        for at in range(before, after):
            self._routes.data.as_ints[at] = UNKNOWN


cdef bint is_plain(const uint8_t* subject, Py_ssize_t size) noexcept:
    """Whether no token is empty or a wildcard."""
    cdef Py_ssize_t at, start = 0
    for at in range(size + 1):
        if at == size or subject[at] == c".":
            if at == start or (at == start + 1 and (subject[start] == c"*" or subject[start] == c">")):
                return False
            start = at + 1
    return True


def prefix_run(data, ops, Py_ssize_t first, Py_ssize_t stop, bytes prefix not None):
    """The first operation from `first` on whose subject does not begin like this; `stop` when there is none."""
    cdef const uint8_t[::1] view = data
    cdef uint32_t[::1] words = ops
    check_door(view.shape[0], words.shape[0], first, stop)
    cdef PubOp* op = <PubOp*>&words[0] + first
    cdef const char* text = prefix
    cdef size_t prefix_size = len(prefix), size = view.shape[0]
    while first < stop:
        if op.subject_start > size or op.subject_size > size - op.subject_start:
            raise IndexError(f"the subject of operation {first} is not in the buffer")
        if op.subject_size < prefix_size or memcmp(&view[0] + op.subject_start, text, prefix_size) != 0:
            break
        first += 1
        op += 1
    return first


def deal(ops, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t count, uint64_t seed):
    """Operations first..stop-1 dealt at random into `count` arrays, in order within each; see `routes.py`."""
    cdef Py_ssize_t words, number, turn, choice
    cdef PubOp* op_list = ops_of(ops, &words)
    check_door(0, words, first, stop)
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

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Patterns of subjects, on bytes: the compiled twin of `_subject_filter_py.py`.

A pattern is compared in place, token by token, after its literal prefix. It may be read one byte past its end, which is
the zero byte that ends every bytes object.

There may be thousands of patterns. Literal ones are sorted and searched; the others are sorted by their prefix, and only
those are tried whose prefix the subject begins with.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from jetlake.subjects import encode_subject

cdef enum:
    FEW = 4                         # patterns that are faster tried than searched


cdef inline bint is_wildcard(const Pattern* pattern, Py_ssize_t at, unsigned char sign) noexcept nogil:
    """Whether the token that begins here is this sign and nothing else."""
    return pattern.text[at] == sign and (at + 1 == pattern.size or pattern.text[at + 1] == c".")


cdef Pattern parse_pattern(bytes text) noexcept:
    cdef Pattern pattern
    cdef Py_ssize_t at
    pattern.text = <const unsigned char*> PyBytes_AS_STRING(text)
    pattern.size = pattern.prefix_size = PyBytes_GET_SIZE(text)
    pattern.literal = True
    for at in range(pattern.size):
        if at == 0 or pattern.text[at - 1] == c".":
            if is_wildcard(&pattern, at, c"*") or is_wildcard(&pattern, at, c">"):
                pattern.prefix_size, pattern.literal = at, False
                break
    return pattern


cdef bint pattern_matches(const Pattern* pattern, const unsigned char* subject, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t p = pattern.prefix_size, s = pattern.prefix_size
    if size < s or memcmp(subject, pattern.text, s) != 0:
        return False
    if pattern.literal:
        return size == s
    while True:                     # p and s stand at the beginning of a token
        if is_wildcard(pattern, p, c">"):
            return True
        if is_wildcard(pattern, p, c"*"):
            p += 1
            while s < size and subject[s] != c".":
                s += 1
        else:
            while p < pattern.size and pattern.text[p] != c".":
                if s == size or subject[s] != pattern.text[p]:
                    return False
                p += 1
                s += 1
            if s < size and subject[s] != c".":
                return False
        if p == pattern.size or s == size:
            return p == pattern.size and s == size
        p += 1
        s += 1


cdef int compare(const Pattern* pattern, const unsigned char* text, Py_ssize_t size) noexcept nogil:
    """How the prefix of a pattern, for a literal all of it, stands to a text in the order of bytes."""
    cdef int found = memcmp(pattern.text, text, min(pattern.prefix_size, size))
    return found if found else (pattern.prefix_size > size) - (pattern.prefix_size < size)


cdef Py_ssize_t lower_bound(
    const Pattern* items, Py_ssize_t low, Py_ssize_t high, const unsigned char* text, Py_ssize_t size
) noexcept nogil:
    """The first of sorted patterns whose prefix is not below a text."""
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if compare(&items[middle], text, size) < 0:
            low = middle + 1
        else:
            high = middle
    return low


def prefix_of(bytes text):
    """What all subjects that a pattern matches begin with."""
    cdef Pattern pattern = parse_pattern(text)
    return text[:pattern.prefix_size]


cdef list in_order(tuple patterns):
    """Literals come first, then the others by their prefix."""
    cdef list literals = [], others = []
    cdef bytes text
    for text in patterns:
        (literals if parse_pattern(text).literal else others).append(text)
    return sorted(literals) + sorted(others, key=prefix_of)


@cython.final
cdef class SubjectFilter:
    """One or several valid patterns, matched as "any of"; none at all matches everything."""

    def __cinit__(self, patterns):
        if isinstance(patterns, (str, bytes)):
            raise TypeError("expected a sequence of patterns, not one pattern")
        self.patterns = tuple([encode_subject(p) if isinstance(p, str) else bytes(p) for p in patterns])
        self.is_all = not self.patterns or b">" in self.patterns
        self.item_count = len(self.patterns)
        self.items = <Pattern*> malloc(max(self.item_count, 1) * sizeof(Pattern))
        if self.items == NULL:
            raise MemoryError
        for i, pattern in enumerate(in_order(self.patterns)):
            self.items[i] = parse_pattern(pattern)
            self.literal_count += self.items[i].literal

    def __dealloc__(self):
        free(self.items)

    @property
    def literal(self):
        """The subject, when there is exactly one pattern and it is literal."""
        return self.patterns[0] if self.item_count == 1 and self.items[0].literal else None

    def matches(self, bytes subject not None):
        """True when a pattern matches this subject."""
        return self.matches_c(<const unsigned char*> PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))

    cdef bint matches_c(self, const unsigned char* subject, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t i
        if self.is_all:
            return True
        if self.item_count <= FEW:
            for i in range(self.item_count):
                if pattern_matches(&self.items[i], subject, size):
                    return True
            return False
        i = lower_bound(self.items, 0, self.literal_count, subject, size)
        if i < self.literal_count and compare(&self.items[i], subject, size) == 0:
            return True
        return self._matches_wild(subject, size)

    cdef bint _matches_wild(self, const unsigned char* subject, Py_ssize_t size) noexcept nogil:
        """Try the patterns with a wildcard whose prefix is a beginning of the subject."""
        cdef Py_ssize_t i, end
        for end in range(size + 1):
            if end and subject[end - 1] != c".":
                continue
            i = lower_bound(self.items, self.literal_count, self.item_count, subject, end)
            while i < self.item_count and compare(&self.items[i], subject, end) == 0:
                if pattern_matches(&self.items[i], subject, size):
                    return True
                i += 1
        return False

    cdef bint all_literal(self) noexcept nogil:
        return 0 < self.item_count == self.literal_count

# cython: language_level=3
"""What other kernels may cimport from the subject filter."""

cimport cython

cdef struct Pattern:                # points into a bytes object that the filter's tuple keeps alive
    const unsigned char* text
    Py_ssize_t size
    Py_ssize_t prefix_size          # the text before the first wildcard token; the whole for a literal
    bint literal


@cython.final
cdef class SubjectFilter:
    cdef readonly tuple patterns
    cdef readonly bint is_all
    cdef Pattern* items
    cdef Py_ssize_t item_count
    cdef Py_ssize_t literal_count   # they stand first

    cdef bint matches_c(self, const unsigned char* subject, Py_ssize_t size) noexcept nogil
    cdef bint _matches_wild(self, const unsigned char* subject, Py_ssize_t size) noexcept nogil
    cdef bint all_literal(self) noexcept nogil

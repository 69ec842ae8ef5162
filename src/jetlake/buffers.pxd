# Where the bytes of a buffer lie, for kernels that are called for single messages: a typed memoryview costs as much as
# the work itself. The address holds until the kernel returns, since nobody resizes these buffers meanwhile.
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer


cdef inline void* _address(buffer, int flags, Py_ssize_t* size) except? NULL:
    cdef Py_buffer view
    size[0] = 0  # also where this is no buffer: a compiler cannot know that nobody asks for the size then
    PyObject_GetBuffer(buffer, &view, flags)
    cdef void* start = view.buf if view.len else NULL
    size[0] = view.len
    PyBuffer_Release(&view)
    return start


cdef inline const void* bytes_of(buffer, Py_ssize_t* size) except? NULL:
    """A buffer to read from, and its size in bytes."""
    return _address(buffer, PyBUF_SIMPLE, size)


cdef inline void* room_of(buffer, Py_ssize_t* size) except? NULL:
    """A buffer to write to, and its size in bytes."""
    return _address(buffer, PyBUF_WRITABLE, size)

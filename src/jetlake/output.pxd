# Writing text into a buffer, for kernels that make frames. Each function returns where the next byte goes; the caller
# has made sure that there is room.
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    DIGITS_MAX = 20


cdef inline uint8_t* put(uint8_t* out, const void* text, size_t size) noexcept nogil:
    if size:                        # an empty part may have no address
        memcpy(out, text, size)
    return out + size


cdef inline uint8_t* put_byte(uint8_t* out, uint8_t byte) noexcept nogil:
    out[0] = byte
    return out + 1


cdef inline uint8_t* put_crlf(uint8_t* out) noexcept nogil:
    out[0], out[1] = 13, 10
    return out + 2


cdef inline uint8_t* put_two(uint8_t* out, uint64_t number) noexcept nogil:
    """A number below 100, in two digits."""
    out[0], out[1] = <uint8_t>(48 + number // 10), <uint8_t>(48 + number % 10)
    return out + 2


cdef inline int digit_count(uint64_t number) noexcept nogil:
    cdef int count = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


cdef inline uint8_t* put_number(uint8_t* out, uint64_t number) noexcept nogil:
    """A number in decimal, two digits at a time."""
    cdef uint8_t[DIGITS_MAX] digits
    cdef int at = DIGITS_MAX
    while number >= 100:
        at -= 2
        put_two(&digits[at], number % 100)
        number //= 100
    if number >= 10:
        at -= 2
        put_two(&digits[at], number)
    else:
        at -= 1
        digits[at] = <uint8_t>(48 + number)
    return put(out, &digits[at], DIGITS_MAX - at)


cdef inline uint8_t* put_signed(uint8_t* out, int64_t number) noexcept nogil:
    if number < 0:
        return put_number(put_byte(out, 45), -<uint64_t>number)
    return put_number(out, <uint64_t>number)

# Records at the level of C, for the other kernels.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "xxh64.h" nogil:
    uint64_t xxh64 "jl_xxh64"(const uint8_t* data, size_t size, uint64_t seed)
    uint64_t load64 "jl_load64"(const uint8_t* data)
    void store64 "jl_store64"(uint8_t* data, uint64_t value)

ctypedef struct Parts:
    uint8_t flags
    uint32_t subject_size, headers_size, payload_size
    uint64_t subject_start, headers_start, payload_start, end
    uint64_t seq
    int64_t time_ns, expires_ns

cdef const char* parse(const uint8_t* data, uint64_t start, uint64_t end, uint64_t seed, Parts* out) noexcept nogil
cdef bint is_sound(const uint8_t* data, uint64_t start, Parts* parts, uint64_t seed) noexcept nogil
cdef bint is_message(Parts* parts) noexcept nogil
cdef uint64_t size_of(uint32_t subject_size, uint32_t headers_size, uint32_t payload_size, bint expires) noexcept nogil
cdef uint64_t put(uint8_t* out, uint8_t flags, const uint8_t* subject, uint32_t subject_size, const uint8_t* headers,
                  uint32_t headers_size, const uint8_t* payload, uint32_t payload_size, uint64_t seq, int64_t time_ns,
                  int64_t expires_ns, uint64_t seed) noexcept nogil

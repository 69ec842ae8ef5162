# Records at the level of C, for the kernels: `record.h` as Cython sees it.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "jetlake/store/records/record.h" nogil:
    enum:
        SKIP "JL_SKIP"
        ERASED "JL_ERASED"
        EXPIRES "JL_EXPIRES"
        MSG_ID "JL_MSG_ID"
        NOT_MESSAGE "JL_NOT_MESSAGE"
        MORE "JL_MORE"
        REST "JL_REST"
        TRAILER_SIZE "JL_TRAILER_SIZE"
        SUBJECT_SIZE_MAX "JL_SUBJECT_SIZE_MAX"
        HEADERS_SIZE_MAX "JL_HEADERS_SIZE_MAX"
        PAYLOAD_SIZE_MAX "JL_PAYLOAD_SIZE_MAX"
        HINT_COUNT "JL_HINT_COUNT"
        RUN_MAX "JL_RUN_MAX"

    ctypedef struct Parts "jl_parts":
        uint8_t flags
        uint32_t subject_size, headers_size, payload_size
        uint64_t subject_start, headers_start, payload_start, end
        uint64_t seq
        int64_t time_ns, expires_ns

    uint64_t load64 "jl_load64"(const uint8_t* data)
    bint parse "jl_parse"(const uint8_t* data, uint64_t start, uint64_t end, uint64_t seed, bint is_expected, Parts* out)
    bint is_sound "jl_is_sound"(const uint8_t* data, uint64_t start, const Parts* parts, uint64_t seed)
    uint32_t sound_run "jl_sound_run"(const uint8_t* data, uint64_t offset, uint64_t end, uint64_t seed,
                                      uint64_t prev_seq, uint64_t seq_max, uint64_t span_max, Parts* out,
                                      uint32_t count_max)
    uint32_t sound_run_hinted "jl_sound_run_hinted"(const uint8_t* data, uint64_t offset, uint64_t end, uint64_t seed,
                                                    uint64_t prev_seq, uint64_t seq_max, uint64_t span_max,
                                                    Parts* out, uint32_t count_max, void** hints, uint32_t hint_size,
                                                    uint32_t* places)
    uint32_t hint_place "jl_hint_place"(const uint8_t* subject, uint32_t size)
    uint64_t record_size "jl_record_size"(uint32_t subject_size, uint32_t headers_size, uint32_t payload_size,
                                          bint expires)
    uint64_t put "jl_put"(uint8_t* out, uint8_t flags, const uint8_t* subject, uint32_t subject_size,
                          const uint8_t* headers, uint32_t headers_size, const uint8_t* payload, uint32_t payload_size,
                          uint64_t seq, int64_t time_ns, int64_t expires_ns, uint64_t seed)

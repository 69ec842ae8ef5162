# The struct of `ops.py`, for kernels.
from libc.stdint cimport uint32_t

ctypedef struct PubOp:
    uint32_t subject_start
    uint32_t subject_size
    uint32_t reply_start
    uint32_t reply_size
    uint32_t headers_start
    uint32_t headers_size
    uint32_t payload_start
    uint32_t payload_size
    uint32_t slot
    uint32_t flags

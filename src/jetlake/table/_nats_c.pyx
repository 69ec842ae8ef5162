"""Messages of a nats-server block into Arrow columns, compiled. `_nats_py.py` is the reference."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jetlake.buffers cimport bytes_of
from jetlake.ops cimport PubOp, ops_of
from jetlake.store.index._subject_filter_c cimport SubjectFilter
from jetlake.store.records._record_c cimport RUN_MAX, Parts

from jetlake.table._columns cimport Out, open_columns, put_rows

from jetlake.table._nats_py import Filled, check


def fill(data, ops, seqs, times, Py_ssize_t first, Py_ssize_t stop, SubjectFilter filter not None, int64_t time_ns_min,
         int64_t time_ns_max, columns):
    """Fill columns with the messages first..stop-1 that are wanted; see `nats_rows.py`."""
    cdef Py_ssize_t size, words, seqs_size, times_size, place = first
    cdef const uint8_t* base = <const uint8_t*>bytes_of(data, &size)
    cdef PubOp* op = ops_of(ops, &words)
    cdef const uint64_t* seq_list = <const uint64_t*>bytes_of(seqs, &seqs_size)
    cdef const int64_t* time_list = <const int64_t*>bytes_of(times, &times_size)
    check(size, ops, seqs_size // 8, times_size // 8, first, stop, columns.rows_max)
    cdef uint64_t span = 0
    if first < stop:
        span = <uint64_t>op[stop - 1].payload_start + op[stop - 1].payload_size - op[first].subject_start
    cdef Out out = open_columns(columns, span)
    cdef bint is_all = filter.is_all
    cdef Parts[RUN_MAX] run
    cdef Parts* parts
    cdef uint32_t count
    with nogil:
        while place < stop:
            count = 0
            while place < stop and count < RUN_MAX:
                if time_ns_min <= time_list[place] <= time_ns_max and (
                        is_all or filter.matches_c(base + op[place].subject_start, op[place].subject_size)):
                    parts = &run[count]
                    parts.subject_start, parts.subject_size = op[place].subject_start, op[place].subject_size
                    parts.headers_start, parts.headers_size = op[place].headers_start, op[place].headers_size
                    parts.payload_start, parts.payload_size = op[place].payload_start, op[place].payload_size
                    parts.seq, parts.time_ns = seq_list[place], time_list[place]
                    count += 1
                place += 1
            put_rows(&out, base, run, count)
    return Filled(out.rows, out.keys.count, out.values.count)

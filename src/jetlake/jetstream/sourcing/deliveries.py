"""Messages that an origin's consumer delivered: read in runs, without an object for each.

`read_frames(data)` makes operations (see `jetlake.ops`) of whole MSG and HMSG frames.

`read_stream(data, start, end, sid)` does the same for what came from a socket: it stops in front of a frame that is not
whole, or is of another subscription, or any other line, and returns where that is, too.

`read_run(data, ops, first, stop, consumer, consumer_seq, seq, seqs, times)` reads the reply subjects of operations
first..stop-1, which say what was delivered:

    $JS.ACK.<stream>.<consumer>.<deliveries>.<seq>.<consumer seq>.<time>.<pending>
    $JS.ACK.<domain>.<account hash>.<stream>.<consumer>.<deliveries>.<seq>.<consumer seq>.<time>.<pending>[.…]

It notes their sequences and times in `seqs` and `times`, from their start, and stops in front of an operation that is
not the next delivery of this consumer; or, unless `seq` is 0, whose sequence is not the next one. It returns where it
stopped, and how many messages the last one left pending.

`read_delivery` reads one.
"""

from __future__ import annotations

from jetlake.jetstream.sourcing._deliveries_py import Delivery, read_delivery
from jetlake.store.kernels import COMPILED

if COMPILED:
    from jetlake.jetstream.sourcing._deliveries_c import read_frames, read_run, read_stream
else:
    from jetlake.jetstream.sourcing._deliveries_py import read_frames, read_run, read_stream

__all__ = ["COMPILED", "Delivery", "read_delivery", "read_frames", "read_run", "read_stream"]

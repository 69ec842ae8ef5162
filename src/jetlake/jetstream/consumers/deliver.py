"""Turn stored messages into the frames that a consumer sends, straight from the bytes of their blocks.

`frames` delivers a run of new messages: it goes from block to block, chooses messages by the index, and frames them
from memory where their block still has them there, else from pieces of its file. Nothing is made per message but its
frame. `frame_one` is for a message that is delivered again.

    MSG <subject> <sid> <ack reply> <size>                        the message as it is stored
    HMSG <subject> <sid> <ack reply> <headers size> <size>

The ack reply is a prefix, `$JS.ACK.<stream>.<consumer>.`, and `<deliveries>.<stream seq>.<consumer seq>.<time ns>.<num
pending>`. Checksums are verified: a damaged message is left out, and named in the result.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from jetlake.jetstream.consumers._deliver_py import BEYOND, COUNT, END, SIZE, ack_reply, delivery
from jetlake.store.api import StoredMsg
from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.blocks.window import window
from jetlake.store.engine import BlockStore
from jetlake.store.format import Buffer
from jetlake.store.kernels import COMPILED as STORE_COMPILED
from jetlake.store.queries import Filter
from jetlake.subjects import encode_subject

try:
    if not STORE_COMPILED:  # the kernel reads the store's own, at the level of C
        raise ImportError("the store's kernels are not built")
    from jetlake.jetstream.consumers._deliver_c import Framer, select

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.jetstream.consumers._deliver_py import Framer, select

    COMPILED = False

__all__ = ["COMPILED", "COUNT", "END", "NO_LIMIT", "SIZE", "Run", "frame_one", "frames"]

NO_LIMIT = 2**63 - 1  # for count_max and size_max
_SELECTED_MAX = 4096  # messages chosen in one step


@dataclass(slots=True)
class Run:
    """What one call delivers."""

    data: bytearray  # the frames
    seqs: array[int]  # of their messages, ascending
    size: int  # as a pull request's max_bytes counts it: subjects, ack replies, headers and payloads
    next_seq: int  # where to go on
    reason: int  # why it stopped: END (nothing more up to last_seq), COUNT, or SIZE (the next one does not fit)
    damaged: list[int]  # sequences left out because their bytes are damaged

    @property
    def count(self) -> int:
        return len(self.seqs)


def frames(
    store: BlockStore,
    start_seq: int,
    last_seq: int,
    filter: Filter,
    count_max: int,
    size_max: int,
    sid: bytes,
    ack_prefix: bytes,
    consumer_seq: int,
    num_pending: int,
    headers_only: bool = False,
    extra_headers: bytes = b"",
) -> Run:
    """The matching messages from start_seq to last_seq, as the first deliveries of a consumer.

    filter: from `store.queries.filter`. consumer_seq: of the first one. num_pending: how many there are before the run,
    its own included. headers_only: `Nats-Msg-Size` in place of payloads. extra_headers: whole lines for every message,
    which nats-server does not count for max_bytes.
    """
    framer = Framer(sid, ack_prefix, consumer_seq, num_pending, count_max, size_max, headers_only, extra_headers)
    catalog, reason = store.catalog, END
    seq = max(start_seq, catalog.first_seq)
    last_seq = min(last_seq, catalog.last_seq)
    while reason == END and seq <= last_seq:
        block, found = catalog.block_of(seq) if filter.subjects.is_all else None, seq
        if block is None:  # else it has the next message, if any that it has is left
            following = store.queries.next_seq(filter, seq)
            if following is None or following > last_seq:
                seq = last_seq + 1
                break
            block, found = catalog.block_of(following), following
            assert block is not None
        seq, reason = _frame_block(store, block, filter, found, min(last_seq, block.last_seq), framer)
    store.lose(framer.damaged)
    data, seqs = framer.take()
    return Run(data, seqs, framer.size, seq, reason, framer.damaged)


def frame_one(
    message: StoredMsg,
    sid: bytes,
    ack_prefix: bytes,
    deliveries: int,
    consumer_seq: int,
    num_pending: int,
    headers_only: bool = False,
    extra_headers: bytes = b"",
) -> tuple[bytes, int]:
    """The frame of one message, delivered for the so-many-eth time, and its size as max_bytes counts it."""
    reply = ack_reply(ack_prefix, deliveries, message.seq, consumer_seq, message.time_ns, num_pending)
    subject = encode_subject(message.subject)
    return delivery(subject, message.headers, message.payload, sid, reply, headers_only, extra_headers)


def _frame_block(
    store: BlockStore, block: MsgBlock, filter: Filter, first: int, last: int, framer: Framer
) -> tuple[int, int]:
    """Frame matching messages first..last of a block; the sequence to go on from, and the reason why there."""
    index = store.catalog.index(block)
    place, stop = index.position_from(first), index.position_from(last + 1)
    memo, (starts, ends) = store.queries.memo(filter, index), block.gone.arrays
    while place < stop:
        # One more than it may frame, so that a run ends for lack of messages only where there are none.
        positions = array("I", bytes(4 * min(framer.count_max - framer.count + 1, _SELECTED_MAX, stop - place)))
        count, place = select(
            index.table,
            filter.subjects,
            index.ids,
            place,
            stop,
            index.seqs,
            index.base_seq,
            starts,
            ends,
            memo,
            positions,
        )
        done, reason = _frame_positions(store, block, index, positions, count, framer)
        if reason != END:
            return index.seq(positions[done]), reason
    return last + 1, END


def _frame_positions(
    store: BlockStore, block: MsgBlock, index: BlockIndex, positions: array[int], count: int, framer: Framer
) -> tuple[int, int]:
    """Frame the messages at some positions of a block; where it stopped, and why."""
    place, reason, unreadable = 0, END, range(0)
    while place < count and reason in (END, BEYOND):
        data: Buffer = b""
        base = 0  # without data the first message counts as damaged
        if positions[place] not in unreadable:
            data, base = window(block, index, positions, place, count)
            if not data:
                unreadable = store.unreadable_at(block, index, positions[place])
        stop = count if data else place + 1
        place, reason = framer.frame(
            data,
            base,
            index.offsets,
            index.count,
            block.body_size,
            index.seqs,
            index.base_seq,
            block.seed,
            positions,
            place,
            stop,
        )
    return place, reason

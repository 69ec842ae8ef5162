"""DirectRun: direct gets by subject that arrived together, which is what key-value gets are.

A stream with `allow_direct` names the prefix of these requests to its account, which then hands over whole runs of
them. Those that ask for nothing special are answered from the stored records by two kernel calls a run; any other goes
through the API alone, in its turn.

Only what is committed is answered here: a message that a power cut could still take back is left to the slow way.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from jetlake.broker.subscription import Buffer, InternalSubscription, read_msg
from jetlake.jetstream.streams.gets import find_last, get_frames
from jetlake.ops import OP_WORDS
from jetlake.subjects import encode_subject

if TYPE_CHECKING:
    from jetlake.broker.account import Account, ReplyTarget
    from jetlake.broker.peer import Peer
    from jetlake.jetstream.streams.stream import Stream

RUN_COUNT_MAX = 256  # messages that are read before they are sent
RUN_SIZE_MAX = 1024 * 1024


def answer_runs(
    answer: Callable[[Buffer, array[int], int, int], int],
    api: InternalSubscription,
    origin: Peer,
    data: Buffer,
    ops: array[int],
    first: int,
    stop: int,
) -> None:
    """Answer requests run by run; one that `answer` stops at goes through the API."""
    while first < stop:
        end = answer(data, ops, first, min(stop, first + RUN_COUNT_MAX))
        if end == first:
            api.deliver(read_msg(data, ops, first, origin))
            end += 1
        first = end


def reply_target(account: Account, data: Buffer, ops: array[int], number: int) -> ReplyTarget | None:
    """Where the reply of an operation goes, if that is one plain subscription."""
    start, size = ops[number * OP_WORDS + 2 : number * OP_WORDS + 4]
    return account.reply_target(bytes(data[start : start + size]))


class DirectRun:
    """The direct gets of one stream."""

    def __init__(self, stream: Stream, api: InternalSubscription) -> None:
        self._stream, self._api, self._account = stream, api, stream.account
        self._name = encode_subject(stream.name)
        self._prefix = b"$JS.API.DIRECT.GET.%s." % self._name
        self._seqs = array("Q", bytes(8 * RUN_COUNT_MAX))

    def open(self) -> None:
        """Take requests, if the stream's configuration allows them."""
        self.close()
        if self._stream.config.allow_direct and self._stream.log.is_leading:
            self._account.add_prefix(self._prefix, self._api, self._take)

    def close(self) -> None:
        """Take no more."""
        self._account.remove_prefix(self._prefix)

    def _take(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        answer_runs(self._answer, self._api, origin, data, ops, first, stop)

    def _answer(self, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Answer requests up to one that is not plain; where that is."""
        target = reply_target(self._account, data, ops, first)
        if target is None or not target.client.options.headers:
            return first
        stream = self._stream
        skip, seqs = len(self._prefix), self._seqs
        found = find_last(stream.store.catalog.table, data, ops, first, stop, skip, stream.log.committed_seq, seqs)
        if found == first:
            return first
        records, seeds = stream.store.stored_records(seqs[: found - first], RUN_SIZE_MAX)
        frames, end = get_frames(
            data, ops, first, records, seqs, seeds, target.prefix, target.may_have_dots, target.sid, self._name
        )
        if frames:
            target.client.send_msgs(frames, end - first)
        return end

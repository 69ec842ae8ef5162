"""DirectRun: direct gets by subject that arrived together, which is what key-value gets are.

A stream with `allow_direct` names the prefix of these requests to its account, which then hands over whole runs of
them. Those that ask for nothing special are answered from the stored records by two kernel calls a run; any other goes
through the API alone, in its turn.

Only what is committed is answered here: a message that a power cut could still take back is left to the slow way.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from jetlake.broker.subscription import Buffer, Subscription, read_msg
from jetlake.jetstream.gets import find_last, get_frames
from jetlake.ops import OP_WORDS
from jetlake.subjects import encode_subject

if TYPE_CHECKING:
    from jetlake.broker.client import Client
    from jetlake.jetstream.stream import Stream

RUN_COUNT_MAX = 256  # messages that are read before they are sent
RUN_SIZE_MAX = 1024 * 1024


class DirectRun:
    """The direct gets of one stream."""

    def __init__(self, stream: Stream, api: Subscription) -> None:
        self._stream, self._api, self._account = stream, api, stream.account
        self._name = encode_subject(stream.name)
        self._prefix = b"$JS.API.DIRECT.GET.%s." % self._name
        self._seqs = array("Q", bytes(8 * RUN_COUNT_MAX))

    def open(self) -> None:
        """Take requests, if the stream's configuration allows them."""
        self.close()
        if self._stream.config.allow_direct:
            self._account.add_prefix(self._prefix, self._api, self._take)

    def close(self) -> None:
        """Take no more."""
        self._account.remove_prefix(self._prefix)

    def _take(self, client: Client | None, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        while first < stop:
            end = self._answer(data, ops, first, min(stop, first + RUN_COUNT_MAX))
            if end == first:
                self._api.deliver(read_msg(data, ops, first, client))
                end += 1
            first = end

    def _answer(self, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Answer requests up to one that is not plain; where that is."""
        start, size = ops[first * OP_WORDS + 2 : first * OP_WORDS + 4]
        route = self._account.reply_route(bytes(data[start : start + size]))
        if route is None or not route.client.options.headers:
            return first
        stream = self._stream
        skip, seqs = len(self._prefix), self._seqs
        found = find_last(stream.store.catalog.table, data, ops, first, stop, skip, stream.committed_seq, seqs)
        if found == first:
            return first
        records, seeds = stream.store.stored_records(seqs[: found - first], RUN_SIZE_MAX)
        frames, end = get_frames(
            data, ops, first, records, seqs, seeds, route.prefix, route.may_have_dots, route.sid, self._name
        )
        if frames:
            route.client.send_msgs(frames, end - first)
        return end

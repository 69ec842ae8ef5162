"""MessageRun: STREAM.MSG.GET requests that arrived together.

Those that ask for a sequence, or for the last message of a subject, are answered from the stored records by two kernel
calls a run; any other goes through the API alone, in its turn. Only what is committed is answered here: a message that
a power cut could still take back is left to the slow way.
"""

from __future__ import annotations

from array import array
from itertools import takewhile
from typing import TYPE_CHECKING

from jetlake.broker.subscription import Buffer
from jetlake.jetstream.api.direct_run import RUN_COUNT_MAX, RUN_SIZE_MAX, answer_runs, reply_target
from jetlake.jetstream.streams.gets import find_asked, message_frames
from jetlake.ops import OP_WORDS
from jetlake.subjects import decode_subject

if TYPE_CHECKING:
    from jetlake.broker.peer import Peer
    from jetlake.jetstream.js_account import JsAccount

PREFIX = b"$JS.API.STREAM.MSG.GET."


class MessageRun:
    """The message gets of one account."""

    def __init__(self, js: JsAccount) -> None:
        self._js, self._account = js, js.account
        self._seqs = array("Q", bytes(8 * RUN_COUNT_MAX))

    def open(self) -> None:
        """Take requests."""
        self._account.add_prefix(PREFIX, self._js.api, self._take)

    def close(self) -> None:
        """Take no more."""
        self._account.remove_prefix(PREFIX)

    def _take(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        answer_runs(self._answer, self._js.api, origin, data, ops, first, stop)

    def _answer(self, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Answer requests of one stream up to one that is not plain; where that is."""
        start, size = ops[first * OP_WORDS : first * OP_WORDS + 2]
        name = bytes(data[start + len(PREFIX) : start + size])
        stream, target = self._js.streams.get(decode_subject(name)), reply_target(self._account, data, ops, first)
        if stream is None or target is None:
            return first
        catalog, seqs = stream.store.catalog, self._seqs
        found = find_asked(catalog.table, data, ops, first, stop, len(PREFIX), name, stream.log.committed_seq, seqs)
        live = array("Q", takewhile(catalog.is_live, seqs[: found - first]))
        records, seeds = stream.store.stored_records(live, RUN_SIZE_MAX)
        frames, end = message_frames(
            data, ops, first, records, seqs, seeds, target.prefix, target.may_have_dots, target.sid
        )
        if frames:
            target.client.send_msgs(frames, end - first)
        return end

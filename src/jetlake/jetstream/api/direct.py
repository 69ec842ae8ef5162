"""DIRECT.GET: messages as messages, not as JSON.

The body of an answer is the message's payload, and its headers are followed by what says which message it is. A batch
is a row of messages and a last one, with a status, that ends it. What cannot be had is told by a status alone.

Only what is committed is shown: who asks for a message that a power cut could still take back waits for its commit.

A batch is sent a slice at a time, as fast as its reader takes it: other clients have their turn between two slices.

    DIRECT.GET.<stream>             a JSON request: one message, a batch, or the last message of many subjects
    DIRECT.GET.<stream>.<subject>   the last message of a subject
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jetlake.broker.subscription import Msg
from jetlake.errors import BadRequest, MessageNotFound, TooManyResults
from jetlake.jetstream.api.messages import GET, has_conflict, load
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.json.shape import read_request
from jetlake.jetstream.streams.config import Storage
from jetlake.store import StoredMsg
from jetlake.store.engine import BlockStore
from jetlake.subjects import encode_subject
from jetlake.wire.go_time import format_time
from jetlake.wire.headers import Pair, append_headers, status_block

if TYPE_CHECKING:
    from jetlake.jetstream.streams.machine import Store
    from jetlake.jetstream.streams.stream import Stream

RESULTS_MAX = 1024
SLICE_COUNT, SLICE_SIZE = 128, 256 * 1024  # messages and bytes that are sent before others have their turn
BUSY_NS = 5_000_000  # how long to wait for a reader whose connection is full
_SELECTORS = ("seq", "last_by_subj", "next_by_subj", "multi_last")


def direct_get(stream: Stream, msg: Msg, key: str | None, exceeds_level: bool) -> None:
    """Answer a direct get; `key` is the subject that its own subject goes on with, None without one."""
    answers = _Answers(stream, msg.reply)
    if exceeds_level:
        answers.status(412, "Required Api Level")
        return
    if key is None and not msg.payload:
        answers.status(408, "Empty Request")
        return
    try:
        fields = read_request(msg.payload, GET, strict=False)
    except ApiError:
        answers.status(408, "Malformed Request")
        return
    if key is None:
        _get(answers, fields)
    else:
        _get_last(answers, fields, key)


class _Answers:
    """Sends messages of a stream to who asked."""

    def __init__(self, stream: Stream, reply: bytes) -> None:
        self.stream = stream
        self._reply, self._send = reply, stream.account.send
        self._name = encode_subject(stream.config.name)
        self.sent_size = 0
        self.last_seq = 0  # of the message sent before
        self._is_heard = True  # whether somebody got it

    @property
    def store(self) -> Store:
        return self.stream.store  # another object once its files were read anew

    def when_committed(self, seq: int, answer: Callable[[], None]) -> None:
        """Answer once the messages up to a sequence are committed, at once if they are."""
        self.stream.log.when_committed(seq, answer, lambda error: self.status(500, error.description))

    def status(self, code: int, text: str, pairs: list[Pair] | None = None) -> None:
        self._send(self._reply, headers=status_block(code, text, pairs or []))

    def message(self, message: StoredMsg, *, no_headers: bool = False, num_pending: int | None = None) -> None:
        """Send a message; with the number of those that follow it when it is one of a batch."""
        headers = b""
        if not no_headers:
            pairs = [
                (b"Nats-Stream", self._name),
                (b"Nats-Subject", encode_subject(message.subject)),
                (b"Nats-Sequence", b"%d" % message.seq),
                (b"Nats-Time-Stamp", format_time(message.time_ns).encode()),
            ]
            if num_pending is not None:
                pairs += self.progress(num_pending)
            headers = append_headers(message.headers, pairs)
        self._is_heard = self._send(self._reply, message.payload, headers=headers)
        self.last_seq = message.seq
        self.sent_size += len(encode_subject(message.subject)) + len(message.headers) + len(message.payload)

    def progress(self, num_pending: int) -> list[Pair]:
        """Where in a batch we are."""
        return [(b"Nats-Num-Pending", b"%d" % num_pending), (b"Nats-Last-Sequence", b"%d" % self.last_seq)]

    def send_in_slices(self, sending: Iterator[None]) -> None:
        """Send what an iterator sends, message by message, until it ends or nobody is there to get it."""
        host, account, size_end = self.stream.host, self.stream.account, self.sent_size + SLICE_SIZE

        def go_on() -> None:
            if not self.stream.is_closed and self._is_heard:
                self.send_in_slices(sending)

        reader = account.target(self._reply)
        if reader is not None and reader.room() <= 0:
            host.call_at(host.clock() + BUSY_NS, go_on)
            return
        for _ in range(SLICE_COUNT):
            if next(sending, self) is self:
                return
            if self.sent_size >= size_end:
                break
        host.call_soon(go_on)


def _get_last(answers: _Answers, fields: dict[str, Any], key: str) -> None:
    others = ("seq", "last_by_subj", "next_by_subj", "multi_last", "batch", "up_to_seq")
    has_others = any(fields.get(name) for name in others) or "start_time" in fields or "up_to_time" in fields
    if not key or has_others:
        answers.status(408, "Bad Request")
    else:
        _get_one(answers, {**fields, "last_by_subj": key})


def _get(answers: _Answers, fields: dict[str, Any]) -> None:
    last, next_by, batch = fields.get("last_by_subj", ""), fields.get("next_by_subj", ""), fields.get("batch", 0)
    multi, up_to_seq = fields.get("multi_last", ()), fields.get("up_to_seq", 0)
    if not any(fields.get(name) for name in _SELECTORS) and "start_time" not in fields:
        answers.status(408, "Empty Request")
    elif (
        has_conflict(fields)
        or (last and (batch > 0 or multi))
        or (next_by and multi)
        or (up_to_seq and "up_to_time" in fields)
    ):
        answers.status(408, "Bad Request")
    elif multi or batch:
        get = _get_multi if multi else _get_batch
        answers.when_committed(answers.stream.last_seq, lambda: get(answers, fields))
    else:
        _get_one(answers, fields)


def _get_one(answers: _Answers, fields: dict[str, Any]) -> None:
    message = load(answers.stream, fields)
    if message is None:
        answers.status(404, "Message Not Found")
    else:
        no_headers = fields.get("no_hdr", False)
        answers.when_committed(message.seq, lambda: answers.message(message, no_headers=no_headers))


def _get_batch(answers: _Answers, fields: dict[str, Any]) -> None:
    """Matching messages in a row, up to a number or size."""
    store, filter = answers.store, fields.get("next_by_subj", "") or ">"
    seq = max(store.seq_from_time(fields["start_time"]) if "start_time" in fields else fields.get("seq", 0), 1)
    try:
        pending = store.num_pending(seq, filter).msgs
    except BadRequest:  # no filter: nothing matches it
        answers.status(404, "Message Not Found")
        return
    answers.send_in_slices(_send_batch(answers, fields, seq, filter, pending))


def _send_batch(answers: _Answers, fields: dict[str, Any], seq: int, filter: str, pending: int) -> Iterator[None]:
    size_max, no_headers = _size_max(answers, fields), fields.get("no_hdr", False)
    gaps = _gaps(answers.store)
    for count in range(max(fields["batch"], 0)):
        message = answers.store.load_next(seq, filter)
        if _gaps(answers.store) != gaps:  # damage took some of them, or they were removed meanwhile
            gaps, pending = _gaps(answers.store), answers.store.num_pending(seq, filter).msgs
        if message is None or message.seq > answers.stream.log.committed_seq:
            if count:
                break
            answers.status(404, "Message Not Found")
            return
        seq = message.seq + 1
        pending -= not no_headers  # nats-server counts only where it shows
        answers.message(message, no_headers=no_headers, num_pending=pending)
        if answers.sent_size >= size_max:
            break
        yield
    answers.status(204, "EOB", answers.progress(pending))


def _gaps(store: BlockStore) -> int:
    """How many sequences have no message; it grows with every one that leaves."""
    return store.catalog.gone_count


def _get_multi(answers: _Answers, fields: dict[str, Any]) -> None:
    """The last message of each matching subject, in order."""
    store, state = answers.store, answers.store.fast_state()
    up_to_seq = fields.get("up_to_seq", 0)
    if "up_to_time" in fields:
        up_to_seq = store.seq_from_time(fields["up_to_time"])
        if up_to_seq <= state.first_seq:
            answers.status(404, "No Results")
            return
        up_to_seq -= 1
    up_to_seq = up_to_seq or answers.stream.log.committed_seq
    try:
        seqs = store.multi_last_seqs(fields["multi_last"], up_to_seq, RESULTS_MAX)
    except TooManyResults:
        answers.status(413, "Too Many Results")
        return
    except BadRequest:
        seqs = []
    # nats-server's files have nothing up to a sequence that is not there yet; its memory has.
    is_beyond = up_to_seq > state.last_seq and answers.stream.config.storage is Storage.FILE
    if not seqs or is_beyond:
        answers.status(404, "No Results")
        return
    answers.send_in_slices(
        _send_multi(answers, fields, [seq for seq in seqs if seq >= fields.get("seq", 0)], up_to_seq)
    )


def _send_multi(answers: _Answers, fields: dict[str, Any], seqs: list[int], up_to_seq: int) -> Iterator[None]:
    size_max, batch, pending = _size_max(answers, fields), fields.get("batch", 0), len(seqs)
    for seq in seqs[:batch] if batch > 0 else seqs:
        pending -= 1
        with suppress(MessageNotFound):  # damage took it, or it was removed after the first slice
            answers.message(answers.store.load(seq), num_pending=pending)
        if answers.sent_size >= size_max:
            break
        yield
    answers.status(204, "EOB", [*answers.progress(pending), (b"Nats-UpTo-Sequence", b"%d" % up_to_seq)])


def _size_max(answers: _Answers, fields: dict[str, Any]) -> int:
    return fields.get("max_bytes", 0) or answers.stream.host.options.max_pending

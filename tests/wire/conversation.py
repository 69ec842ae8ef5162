"""What a server that knows tokenizer and verb parser, and nothing else, makes of a stream of bytes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from jetlake.ops import OP_WORDS
from jetlake.wire.protocol import FULL, MAX_CONTROL_LINE, MAX_PAYLOAD, NEED_MORE, OTHER, ProtocolError, stop_error
from jetlake.wire.verbs import Event, parse_line

Tokenizer = Callable[..., tuple[int, int, int, int]]


class Pub(NamedTuple):
    """An operation with the bytes that it points to."""

    subject: bytes
    payload: bytes
    reply: bytes = b""
    headers: bytes = b""
    flags: int = 0


def pubs_of(data: bytes | bytearray, ops: array[int], count: int) -> list[Pub]:
    found = []
    for at in range(0, count * OP_WORDS, OP_WORDS):
        op = ops[at : at + OP_WORDS]
        subject, reply, headers, payload = (bytes(data[op[i] : op[i] + op[i + 1]]) for i in range(0, 8, 2))
        assert op[8] == 0
        found.append(Pub(subject, payload, reply, headers, op[9]))
    return found


@dataclass
class Conversation:
    """Takes bytes as they come; keeps what it understood, and the error that ended it."""

    tokenize: Tokenizer
    count_max: int = 4
    max_payload: int = MAX_PAYLOAD
    max_control_line: int = MAX_CONTROL_LINE
    headers: bool = True
    data: bytearray = field(default_factory=bytearray)
    offset: int = 0
    needed: int = 0
    seen: list[Pub | Event] = field(default_factory=list)
    reason: int = NEED_MORE
    error: ProtocolError | None = None

    def feed(self, piece: bytes) -> None:
        self.data += piece
        ops = array("I", bytes(4 * OP_WORDS * self.count_max))
        while self.error is None:
            count, offset, self.reason, size = self.tokenize(
                self.data, self.offset, len(self.data), ops, self.count_max, self.max_payload, self.max_control_line,
                self.headers,
            )  # fmt: skip
            if count and self.needed:
                assert self.needed == self.message_size(ops), "the tokenizer knew the size beforehand"
            self.seen += pubs_of(self.data, ops, count)
            self.needed, self.offset = size if self.reason == NEED_MORE else 0, offset
            if self.reason == NEED_MORE:
                assert not size or size > len(self.data) - offset
                return
            if self.reason == FULL:
                continue
            self.other(size) if self.reason == OTHER else self.fail(stop_error(self.reason))

    def message_size(self, ops: array[int]) -> int:
        return ops[6] + ops[7] + 2 - self.offset

    def other(self, size: int) -> None:
        line = self.data[self.offset : self.offset + size]
        assert line.endswith(b"\n")
        self.offset += size
        try:
            self.seen.append(parse_line(line))
        except ProtocolError as error:
            self.fail(error)

    def fail(self, error: ProtocolError) -> None:
        self.error = error


class Outcome(NamedTuple):
    seen: list[Pub | Event]
    reason: int
    text: str | None
    is_open: bool


def converse(tokenize: Tokenizer, pieces: Iterable[bytes], **settings: int) -> Outcome:
    talk = Conversation(tokenize, **settings)
    for piece in pieces:
        talk.feed(piece)
    return Outcome(talk.seen, talk.reason, talk.error.text if talk.error else None, talk.error is None)


def three_ways(tokenize: Tokenizer, stream: bytes, **settings: int) -> Outcome:
    """The outcome of a stream of whole lines and messages, or of one that ends in an error: however it arrives."""
    whole = converse(tokenize, [stream], **settings)
    assert converse(tokenize, [bytes([byte]) for byte in stream], **settings) == whole
    followed = converse(tokenize, [stream + b"PUB tail 4\r\nTA"], **settings)
    if whole.is_open:
        assert followed.seen == whole.seen and followed.is_open
    else:
        assert followed == whole
    return whole

"""What a stream owes to those who wait until something is durable: acks to publishers, answers to who asked for it.

And what a client hears whose request reaches nobody (`no_responders`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from jetlake.jetstream.errors import ApiError

if TYPE_CHECKING:
    from jetlake.broker.client import Client
    from jetlake.broker.subscription import Msg

Failed = Callable[[ApiError], None]


class Acks(NamedTuple):
    """Acks of a run of messages, ready to be sent."""

    client: Client
    frames: bytes


class Ack(NamedTuple):
    """The answer to one message."""

    reply: bytes
    body: bytes


class Waiting(NamedTuple):
    """Somebody who waits for what was done to be durable; one of the two is called."""

    done: Callable[[], None]
    failed: Failed


Answer = Acks | Ack | Waiting


def refused_acks(frames: bytes, body: bytes) -> bytes:
    """Ack frames that were made in good faith, with another body."""
    heads = frames.split(b"\r\n")[:-1:2]
    return b"".join(b"%s %d\r\n%s\r\n" % (head.rpartition(b" ")[0], len(body), body) for head in heads)


def no_responders(msg: Msg) -> None:
    """Nobody is there to answer: the client hears so, if it wants to."""
    if msg.client is not None and msg.client.options.no_responders:
        msg.client.no_responders(msg)

"""What a client says about a message it got, and about which one.

An ack is published to the reply subject of the delivery, in one of two forms:

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>
    $JS.ACK.<domain>.<account hash>.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>[.…]
"""

from __future__ import annotations

import hashlib
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from jetlake.jetstream.json.shape import DURATION, BadShape, Place, Struct
from jetlake.jetstream.json.syntax import BadJson, parse_values
from jetlake.jetstream.streams.durations import parse_duration

_OLD_TOKENS = 9
_NEW_TOKENS_MIN = 11
_NUMBER_SIZE_MAX = 19
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HASH_SIZE = 8
_NAK_OPTIONS = Struct("ConsumerNakOptions", {"delay": DURATION})


class AckKind(Enum):
    ACK = auto()
    NEXT = auto()  # and the next message, please
    NAK = auto()
    PROGRESS = auto()
    TERM = auto()
    UNKNOWN = auto()


class Delivery(NamedTuple):
    """Which delivery an ack is about."""

    deliveries: int
    seq: int
    consumer_seq: int


def is_ack_subject(subject: bytes) -> bool:
    """Whether a subject has as many tokens as that of an ack; nobody listens to others."""
    count = subject.count(b".") + 1
    return count == _OLD_TOKENS or count >= _NEW_TOKENS_MIN


def parse_subject(subject: bytes) -> Delivery | None:
    """The delivery that an ack subject names; None when it names none."""
    tokens = subject.split(b".")
    if len(tokens) == _OLD_TOKENS:
        numbers = tokens[4:7]
    elif len(tokens) >= _NEW_TOKENS_MIN:
        numbers = tokens[6:9]
    else:
        return None
    if any(len(number) > _NUMBER_SIZE_MAX or not number.isdigit() for number in numbers):
        return None
    return Delivery(*map(int, numbers))


def parse_payload(payload: bytes) -> tuple[AckKind, bytes]:
    """What an ack says, and the argument behind it."""
    if payload in (b"", b"+ACK", b"+OK"):
        return AckKind.ACK, b""
    if payload == b"+WPI":
        return AckKind.PROGRESS, b""
    for prefix, kind in ((b"+NXT", AckKind.NEXT), (b"-NAK", AckKind.NAK), (b"+TERM", AckKind.TERM)):
        if payload.startswith(prefix):
            return kind, payload[len(prefix) :]
    return AckKind.UNKNOWN, b""


def nak_delay_ns(argument: bytes) -> int | None:
    """How long a message that was refused should rest: `{"delay":ns}` or 2s; None for not at all."""
    text = argument.strip()
    if text.startswith(b"{"):
        try:
            nodes = parse_values(text)
            fields = _NAK_OPTIONS.read(nodes[0], Place(_NAK_OPTIONS.go_name), False)
        except (BadJson, BadShape):
            return None
        delay: int = fields.get("delay", 0)
        return delay if len(nodes) == 1 else None
    return parse_duration(text.decode("utf-8", "replace")) if text else None


@lru_cache(maxsize=64)
def account_hash(name: str) -> str:
    """The short form of an account's name in subjects."""
    digest = hashlib.sha256(name.encode()).digest()
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:_HASH_SIZE])

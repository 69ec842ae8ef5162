"""What servers say to each other over a link: the lines of a leaf node's protocol, read and written.

    LS+ subject | LS+ subject queue weight      somebody here wants these messages; a queue's weight is its total
    LS- subject | LS- subject queue             nobody does any more
    LMSG, HMSG                                  messages: `link_tokenize` finds them, `broker.frames` writes them
    INFO, CONNECT, PING, PONG, -ERR             as clients have them

Bad arguments close a link without a word, an unknown verb with an -ERR: as nats-server has it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from jetlake.wire.protocol import ERROR_TEXTS, UNKNOWN_OPERATION, ProtocolError
from jetlake.wire.verbs import Ping, Pong, parse_object

LINE_SIZE_MAX = (
    1024 * 1024
)  # of everything but messages' payloads: CONNECT holds a token, INFO the servers of a cluster
_WEIGHT_DIGITS_MAX = 9


class Interest(NamedTuple):
    """LS+: the other side wants messages. `weight` is for queues."""

    subject: bytes
    queue: bytes | None
    weight: int


class NoInterest(NamedTuple):
    """LS-: it wants them no longer."""

    subject: bytes
    queue: bytes | None


class Info(NamedTuple):
    fields: LinkInfo


class LinkConnect(NamedTuple):
    fields: dict[str, Any]


class Err(NamedTuple):
    text: str


class Subjects(msgspec.Struct, frozen=True):
    """A list of what is allowed and one of what is denied."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None


class LinkInfo(msgspec.Struct, frozen=True):
    """What the other server says of itself; only what matters here. A missing field has Go's zero value."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    headers: bool = False
    tls_required: bool = False
    jetstream: bool = False
    domain: str = ""
    cluster: str = ""
    client_id: int = 0
    nonce: str = ""
    info_on_connect: bool = False
    connect_info: bool = False
    leafnode_urls: tuple[str, ...] | None = None
    remote_account: str = ""
    acc_is_sys: bool = False
    max_payload: int = 0
    imports: Subjects | None = msgspec.field(default=None, name="import")
    exports: Subjects | None = msgspec.field(default=None, name="export")


Event = Interest | NoInterest | Info | LinkConnect | Err | Ping | Pong | None

_VERBS = (b"LS+", b"LS-", b"PING", b"PONG", b"INFO", b"CONNECT", b"-ERR", b"+OK")


def parse_link_line(line: bytes) -> Event:
    """The event of a line that is no message; None for one that says nothing. Raises ProtocolError."""
    text = line.strip()
    head = text[:7].upper()
    for verb in _VERBS:
        if head.startswith(verb):
            return _parse(verb, text[len(verb) :])
    raise ProtocolError(ERROR_TEXTS[UNKNOWN_OPERATION], f"line {line[:32]!r}")


def _parse(verb: bytes, rest: bytes) -> Event:
    match verb:
        case b"LS+":
            return _parse_interest(_args(rest))
        case b"LS-":
            return _parse_no_interest(_args(rest))
        case b"PING":
            return Ping()
        case b"PONG":
            return Pong()
        case b"INFO":
            return Info(_convert(parse_object(rest.strip())))
        case b"CONNECT":
            return LinkConnect({name: msgspec.json.decode(value) for name, value in parse_object(rest.strip()).items()})
        case b"-ERR":
            return Err(rest.strip().strip(b"'").decode("utf-8", "replace"))
    return None


def _args(rest: bytes) -> list[bytes]:
    if rest[:1] not in (b" ", b"\t"):
        raise ProtocolError(ERROR_TEXTS[UNKNOWN_OPERATION], "no space after the verb")
    return rest.split()


def _parse_interest(args: list[bytes]) -> Interest:
    match args:
        case [subject]:
            return Interest(subject, None, 1)
        case [subject, queue, weight]:
            is_number = weight.isdigit() and len(weight) <= _WEIGHT_DIGITS_MAX
            return Interest(subject, queue, max(int(weight), 1) if is_number else 1)
    raise ProtocolError(None, f"LS+ with {len(args)} arguments")


def _parse_no_interest(args: list[bytes]) -> NoInterest:
    match args:
        case [subject]:
            return NoInterest(subject, None)
        case [subject, queue]:
            return NoInterest(subject, queue)
    raise ProtocolError(None, f"LS- with {len(args)} arguments")


def _convert(fields: dict[str, msgspec.Raw]) -> LinkInfo:
    known = {field.encode_name for field in msgspec.structs.fields(LinkInfo)}
    try:
        said = {name: msgspec.json.decode(value) for name, value in fields.items() if name in known}
        return msgspec.convert({name: value for name, value in said.items() if value is not None}, LinkInfo)
    except msgspec.DecodeError as error:  # it names the field and the types, never the value
        raise ProtocolError(None, f"INFO: {error}") from None


def interest(subject: bytes, queue: bytes | None, weight: int) -> bytes:
    """LS+."""
    return b"LS+ %s\r\n" % subject if queue is None else b"LS+ %s %s %d\r\n" % (subject, queue, weight)


def no_interest(subject: bytes, queue: bytes | None) -> bytes:
    """LS-."""
    return b"LS- %s\r\n" % subject if queue is None else b"LS- %s %s\r\n" % (subject, queue)


def connect(fields: dict[str, Any]) -> bytes:
    """CONNECT."""
    return b"CONNECT %s\r\n" % msgspec.json.encode(fields)

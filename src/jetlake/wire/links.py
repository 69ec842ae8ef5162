"""What servers say to each other over a link: the lines of a leaf node's protocol, read and written.

Those of a route are in `jetlake.wire.routes`; what both have in common is here.

    LS+ subject | LS+ subject queue weight      somebody here wants these messages; a queue's weight is its total
    LS- subject | LS- subject queue             nobody does any more
    LMSG, HMSG                                  messages: `link_tokenize` finds them, `broker.frames` writes them
    INFO, CONNECT, PING, PONG, -ERR             as clients have them

Bad arguments close a link without a word, an unknown verb with an -ERR: as nats-server has it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from jetlake.wire.protocol import ERROR_TEXTS, UNKNOWN_OPERATION, ProtocolError
from jetlake.wire.verbs import Ping, Pong, parse_object

LINE_SIZE_MAX = (
    1024 * 1024
)  # of everything but messages' payloads: CONNECT holds a token, INFO the servers of a cluster
_WEIGHT_DIGITS_MAX = 9
T = TypeVar("T", bound=msgspec.Struct)


class Interest(NamedTuple):
    """LS+: the other side wants messages. `weight` is for queues."""

    subject: bytes
    queue: bytes | None
    weight: int
    account: bytes = b""  # of a route; a leaf has one account


class NoInterest(NamedTuple):
    """LS-: it wants them no longer."""

    subject: bytes
    queue: bytes | None
    account: bytes = b""


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
    proto: int = 0
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


SharedEvent = Interest | NoInterest | LinkConnect | Err | Ping | Pong | None
Event = SharedEvent | Info

SHARED_VERBS = (b"PING", b"PONG", b"INFO", b"CONNECT", b"-ERR", b"+OK")
_VERBS = (b"LS+", b"LS-", *SHARED_VERBS)


def parse_link_line(line: bytes) -> Event:
    """The event of a line that is no message; None for one that says nothing. Raises ProtocolError."""
    verb, rest = split_verb(line, _VERBS)
    match verb:
        case b"LS+":
            return parse_interest(args_of(rest))
        case b"LS-":
            return parse_no_interest(args_of(rest))
        case b"INFO":
            return Info(read_info(parse_object(rest.strip()), LinkInfo))
    return parse_shared(verb, rest)


def split_verb(line: bytes, verbs: tuple[bytes, ...]) -> tuple[bytes, bytes]:
    """The verb that a line begins with, and what follows it. Raises ProtocolError."""
    text = line.strip()
    head = text[:7].upper()
    for verb in verbs:
        if head.startswith(verb):
            return verb, text[len(verb) :]
    raise ProtocolError(ERROR_TEXTS[UNKNOWN_OPERATION], f"line {line[:32]!r}")


def parse_shared(verb: bytes, rest: bytes) -> SharedEvent:
    """The event of a line that all links have, but for INFO. Raises ProtocolError."""
    match verb:
        case b"PING":
            return Ping()
        case b"PONG":
            return Pong()
        case b"CONNECT":
            return LinkConnect({name: msgspec.json.decode(value) for name, value in parse_object(rest.strip()).items()})
        case b"-ERR":
            return Err(rest.strip().strip(b"'").decode("utf-8", "replace"))
    return None


def args_of(rest: bytes) -> list[bytes]:
    """What follows a verb, in words. Raises ProtocolError."""
    if rest[:1] not in (b" ", b"\t"):
        raise ProtocolError(ERROR_TEXTS[UNKNOWN_OPERATION], "no space after the verb")
    return rest.split()


def parse_interest(args: list[bytes], account: bytes = b"") -> Interest:
    """The arguments of LS+, or those of RS+ behind the account. Raises ProtocolError."""
    match args:
        case [subject]:
            return Interest(subject, None, 1, account)
        case [subject, queue, weight]:
            is_number = weight.isdigit() and len(weight) <= _WEIGHT_DIGITS_MAX
            return Interest(subject, queue, max(int(weight), 1) if is_number else 1, account)
    raise ProtocolError(None, f"interest with {len(args)} arguments")


def parse_no_interest(args: list[bytes], account: bytes = b"") -> NoInterest:
    """The arguments of LS-, or those of RS- behind the account. Raises ProtocolError."""
    match args:
        case [subject]:
            return NoInterest(subject, None, account)
        case [subject, queue]:
            return NoInterest(subject, queue, account)
    raise ProtocolError(None, f"end of interest with {len(args)} arguments")


def read_info(fields: dict[str, msgspec.Raw], kind: type[T]) -> T:
    """What matters of an INFO. Raises ProtocolError."""
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    try:
        said = {name: msgspec.json.decode(value) for name, value in fields.items() if name in known}
        return msgspec.convert({name: value for name, value in said.items() if value is not None}, kind)
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

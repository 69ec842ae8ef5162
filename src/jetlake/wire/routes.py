"""What servers of a cluster say to each other: the lines of nats-server's route protocol, read and written.

    RS+ account subject | RS+ account subject queue weight      somebody here wants these messages
    RS- account subject | RS- account subject queue             nobody does any more
    RMSG, HMSG                                                  messages: `link_tokenize`, `broker.frames`
    INFO, CONNECT, PING, PONG, -ERR                             as clients and leaf nodes have them

A route has one connection for all accounts, so every line names its account. INFO goes both ways. One that comes later
is about the server itself (`ldm`: it is about to go), or about another one that it is linked with (gossip).

    RAFT node epoch | COPY json                                 from now on this connection carries something else

These two are JetLake's own. What follows them is not of this protocol: whoever wants such connections says so
(`Routes.on_switch`), and only to servers whose INFO has the key `jetlake`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from jetlake.wire.links import (
    SHARED_VERBS,
    SharedEvent,
    args_of,
    parse_interest,
    parse_no_interest,
    parse_shared,
    read_info,
    split_verb,
)
from jetlake.wire.protocol import ProtocolError
from jetlake.wire.verbs import parse_object

# Whether a server that is told of another one tells others in turn.
GOSSIP_USUAL, GOSSIP_NONE, GOSSIP_ALWAYS = 0, 1, 2


class RouteInfo(msgspec.Struct, frozen=True):
    """What the other server says of itself; only what matters here. A missing field has Go's zero value."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: int = 0
    headers: bool = False
    host: str = ""
    port: int = 0
    ip: str = ""  # the URL to reach it by, if it has said one
    cluster: str = ""
    cluster_dynamic: bool = False
    auth_required: bool = False
    tls_required: bool = False
    max_payload: int = 0
    jetstream: bool = False
    domain: str = ""
    connect_urls: tuple[str, ...] | None = None
    ws_connect_urls: tuple[str, ...] | None = None
    leafnode_urls: tuple[str, ...] | None = None
    ldm: bool = False
    gossip_mode: int = GOSSIP_USUAL
    route_pool_size: int = 0
    route_account: str = ""
    jetlake: dict[str, Any] | None = None  # what JetLake servers tell each other besides


class Info(NamedTuple):
    """INFO: what is understood of it, and all of it, to be passed on."""

    fields: RouteInfo
    said: dict[str, msgspec.Raw]


class Switch(NamedTuple):
    """RAFT or COPY: the connection is for something else from now on."""

    kind: str
    args: bytes


Event = SharedEvent | Info | Switch
_SWITCHES = (b"RAFT", b"COPY")
_VERBS = (b"RS+", b"RS-", *SHARED_VERBS, *_SWITCHES)


def parse_route_line(line: bytes) -> Event:
    """The event of a line that is no message; None for one that says nothing. Raises ProtocolError."""
    verb, rest = split_verb(line, _VERBS)
    match verb:
        case b"RS+":
            account, *args = _with_account(rest)
            return parse_interest(args, account)
        case b"RS-":
            account, *args = _with_account(rest)
            return parse_no_interest(args, account)
        case b"INFO":
            said = parse_object(rest.strip())
            return Info(read_info(said, RouteInfo), said)
    if verb in _SWITCHES:
        return Switch(verb.decode(), rest.strip())
    return parse_shared(verb, rest)


def _with_account(rest: bytes) -> list[bytes]:
    args = args_of(rest)
    if not args:
        raise ProtocolError(None, "interest without an account")
    return args


def interest(account: bytes, subject: bytes, queue: bytes | None, weight: int) -> bytes:
    """RS+."""
    if queue is None:
        return b"RS+ %s %s\r\n" % (account, subject)
    return b"RS+ %s %s %s %d\r\n" % (account, subject, queue, weight)


def no_interest(account: bytes, subject: bytes, queue: bytes | None) -> bytes:
    """RS-."""
    return b"RS- %s %s\r\n" % (account, subject) if queue is None else b"RS- %s %s %s\r\n" % (account, subject, queue)

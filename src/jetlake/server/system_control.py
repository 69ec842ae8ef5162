"""Requests of the system account that do something, or count: kick, lame duck, reload, subscribers.

    $SYS.REQ.SERVER.<id>.KICK {"cid": 7}            hang up on a client
    $SYS.REQ.SERVER.<id>.LDM {"cid": 7}             tell a client to look for another server
    $SYS.REQ.SERVER.<id>.RELOAD                     read the configuration again
    $SYS.REQ.ACCOUNT.NSUBS {"acc": …, "subject": …} how many subscriptions of clients a subject has
    $SYS.DEBUG.SUBSCRIBERS <subject> [<queue>]      the same, of the system account

What is not understood is not answered, as in nats-server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from jetlake.broker.account import Account
from jetlake.broker.client import Client
from jetlake.broker.subscription import ClientSubscription
from jetlake.errors import BadSubject
from jetlake.subjects import check_filter, decode_subject, encode_subject, is_literal, is_subset
from jetlake.wire import writer

if TYPE_CHECKING:
    from jetlake.server.server import Server


class _CountRequest(msgspec.Struct):
    acc: str = ""
    subject: str = ""
    queue: bytes = b""  # as base64


_COUNT = msgspec.json.Decoder(_CountRequest)
_OBJECT = msgspec.json.Decoder(dict[str, Any])
KICKED = "Kicked"


class NoSuchClient(Exception):
    """A client that is not there."""


def kick(server: Server, payload: bytes) -> bool:
    """Hang up on a client; False when the request makes no sense. Raises NoSuchClient."""
    cid = _cid(payload)
    if cid is None:
        return False
    _client(server, cid, "no such client or leafnode id").close(KICKED)
    return True


def lame_duck(server: Server, payload: bytes) -> bool:
    """Tell one client to look for another server; False when the request makes no sense. Raises NoSuchClient."""
    cid = _cid(payload)
    if cid is None:
        return False
    client = _client(server, cid, "no such client id")
    client.send(writer.info({**server.broker.info(client, connect_info=True), "ldm": True}))
    return True


def _cid(payload: bytes) -> int | None:
    """Which client is meant: 0 when none is named, None when this is no request."""
    try:
        found = _OBJECT.decode(payload).get("cid", 0)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, int) and found >= 0 else None


def _client(server: Server, cid: int, problem: str) -> Client:
    client = server.broker.clients.get(cid)
    if client is None:
        raise NoSuchClient(problem)
    return client


class Asked(NamedTuple):
    """Whose subscribers are to be counted."""

    account: Account
    subject: str
    queue: bytes | None


def read_asked(server: Server, payload: bytes) -> Asked | None:
    """What a request for a number is about; None when it makes no sense."""
    try:
        asked = _COUNT.decode(payload)
    except msgspec.DecodeError:
        return None
    account = server.broker.accounts.get(asked.acc)
    return Asked(account, asked.subject, asked.queue or None) if account is not None else None


def subscribers(asked: Asked) -> Iterator[bool]:
    """For each subscription that may be meant, whether it is: it would get the message, or the pattern covers it."""
    try:
        check_filter(asked.subject)
    except BadSubject:
        return
    is_pattern = not is_literal(asked.subject)
    for sub in asked.account.sublist.overlapping(encode_subject(asked.subject)):
        is_meant = isinstance(sub, ClientSubscription) and asked.queue in (None, sub.queue)
        yield is_meant and not (is_pattern and not is_subset(decode_subject(sub.subject), asked.subject))

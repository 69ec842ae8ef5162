"""/connz: connections, open and closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from jetlake.broker.broker import GLOBAL_ACCOUNT
from jetlake.broker.client import Client
from jetlake.broker.subscription import ClientSubscription, Subscription
from jetlake.clock import go_duration
from jetlake.errors import BadSubject
from jetlake.server.connection import ClientConnection
from jetlake.server.observe.page import items
from jetlake.server.observe.process import uptime
from jetlake.server.observe.query import BadQuery, Query
from jetlake.subjects import encode_subject
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.server.server import Server

_STATES = {"": "open", "open": "open", "closed": "closed", "any": "all", "all": "all"}

# How to sort: by what, and whether the largest comes first.
_ORDERS: dict[str, tuple[Callable[[Client], Any], bool]] = {
    "cid": (lambda client: client.cid, False),
    "start": (lambda client: client.cid, False),
    "subs": (lambda client: len(client.subs), True),
    "pending": (lambda client: client.connection.pending_size(), True),
    "msgs_to": (lambda client: client.out_msgs, True),
    "msgs_from": (lambda client: client.in_msgs, True),
    "bytes_to": (lambda client: client.out_bytes, True),
    "bytes_from": (lambda client: client.in_bytes, True),
    "last": (lambda client: client.active_ns, True),
    "idle": (lambda client: client.active_ns, False),
    "uptime": (lambda client: client.start_ns, False),
    "stop": (lambda client: client.stop_ns, True),
    "reason": (lambda client: client.close_reason, False),
    "rtt": (lambda client: client.rtt_ns, True),
}


class _Details(NamedTuple):
    """What is shown of a connection beside the usual."""

    has_auth: bool
    subs: str  # empty, "list" or "detail"


def connz(server: Server, query: Query) -> dict[str, Any]:
    """The page. Raises BadQuery."""
    details = _Details(query.flag("auth"), _subs(query))
    if query.text("filter_subject") and not query.text("acc"):
        raise BadQuery("filter by subject only valid with account filtering")
    clients = _clients(server, _state(query), query.text("acc"))
    total, limit = len(clients), query.limit
    if cid := query.id("cid"):
        clients, limit = [client for client in clients if client.cid == cid], 1
    if user := query.text("user"):
        clients = [client for client in clients if client.user_name == user]
    if query.text("mqtt_client"):
        clients = []  # none speaks MQTT
    if subject := query.text("filter_subject"):
        found = _subscribers(server, query.text("acc"), subject)
        clients = [client for client in clients if client.cid in found]
    key, is_descending = _order(query)
    clients.sort(key=key, reverse=is_descending)
    shown = clients[query.offset : query.offset + limit]
    now_ns = server.clock()
    return {
        "server_id": server.server_id,
        "now": format_time(now_ns),
        "num_connections": len(shown),
        "total": total,
        "offset": query.offset,
        "limit": limit,
        "connections": items((_connection(client, details, now_ns) for client in shown), len(shown)),
    }


def _subscribers(server: Server, account: str, subject: str) -> set[int]:
    """The open clients with a subscription that has something in common with a subject or pattern."""
    found = server.broker.accounts.get(account)
    try:
        subs = found.sublist.overlapping(encode_subject(subject)) if found is not None else ()
    except BadSubject as error:
        raise BadQuery(str(error)) from None
    return {sub.client.cid for sub in subs if isinstance(sub, ClientSubscription)}


def _state(query: Query) -> str:
    text = query.text("state")
    if text.lower() not in _STATES:
        raise BadQuery(f"Error decoding state for {text}")
    return _STATES[text.lower()]


def _order(query: Query) -> tuple[Callable[[Client], Any], bool]:
    name = query.text("sort") or "cid"
    if name not in _ORDERS:
        raise BadQuery(f"invalid sorting option: {name}")
    if name in ("stop", "reason") and _state(query) != "closed":
        raise BadQuery(f"sort by {name} only valid on closed connections")
    return _ORDERS[name]


def _clients(server: Server, state: str, account: str) -> list[Client]:
    clients: list[Client] = []
    if state in ("open", "all"):
        clients += server.broker.clients.values()
    if state in ("closed", "all"):
        clients += server.closed
    return [client for client in clients if client.account.name == account] if account else clients


def _subs(query: Query) -> str:
    if query.text("subs").lower() == "detail":
        return "detail"
    return "list" if query.flag("subs") else ""


def _connection(client: Client, details: _Details, now_ns: int) -> dict[str, Any]:
    until_ns = client.stop_ns or now_ns
    info: dict[str, Any] = {
        "cid": client.cid,
        "kind": "Client",
        "type": client.type,
        "ip": client.host,
        "port": client.port,
        "start": format_time(client.start_ns),
        "last_activity": format_time(client.active_ns),
    }
    if client.is_closed:
        info |= {"stop": format_time(client.stop_ns), "reason": client.close_reason}
    info |= {
        "rtt": go_duration(client.rtt_ns // 1000 * 1000),
        "uptime": uptime(until_ns - client.start_ns),
        "idle": uptime(until_ns - client.active_ns),
        "pending_bytes": client.connection.pending_size(),
        "in_msgs": client.in_msgs,
        "out_msgs": client.out_msgs,
        "in_bytes": client.in_bytes,
        "out_bytes": client.out_bytes,
        "subscriptions": len(client.subs),
    }
    optional: dict[str, Any] = {"name": client.name, "lang": client.lang, "version": client.version}
    if isinstance(client.connection, ClientConnection):
        optional |= client.connection.tls_details()
    if client.proxy:
        optional["proxy"] = {"key": client.proxy}
    who = _who(client) if details.has_auth else {}
    tag = {"name_tag": client.account.name_tag} if who and not client.is_closed else {}
    optional |= who | _subscriptions(client, details.subs) | tag
    return info | {name: value for name, value in optional.items() if value}


def _who(client: Client) -> dict[str, Any]:
    account, token = client.account.name, client.user.token if client.user is not None else None
    who = {"authorized_user": client.user_name, "account": account if account != GLOBAL_ACCOUNT else ""}
    if token is None:
        return who
    return who | {"jwt": token.text, "issuer_key": token.issuer, "tags": list(token.tags)}


def _subscriptions(client: Client, subs: str) -> dict[str, Any]:
    if subs == "detail":
        return {"subscriptions_list_detail": items(map(sub_detail, list(client.subs.values())), len(client.subs))}
    if subs == "list":
        subjects = (_readable(sub.subject) for sub in list(client.subs.values()))
        return {"subscriptions_list": items(subjects, len(client.subs))}
    return {}


def sub_detail(sub: Subscription) -> dict[str, Any]:
    """A subscription, as pages show it."""
    detail: dict[str, Any] = {"subject": _readable(sub.subject)}
    if sub.queue is not None:
        detail["qgroup"] = _readable(sub.queue)
    if not isinstance(sub, ClientSubscription):
        return detail | {"sid": "", "msgs": 0, "cid": 0}
    detail |= {"sid": _readable(sub.sid), "msgs": sub.delivered}
    if sub.max_msgs:
        detail["max"] = sub.max_msgs
    return detail | {"cid": sub.client.cid}


def _readable(subject: bytes) -> str:
    return subject.decode("utf-8", "replace")

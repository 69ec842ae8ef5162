"""A client as events and services hear of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.broker.client import Client


def client_info(client: Client) -> dict[str, Any]:
    """What there is to say of a client."""
    info = {
        "start": format_time(client.start_ns),
        "host": client.host,
        "id": client.cid,
        "acc": client.account.name,
        "user": client.user_name,
        "name": client.name,
        "lang": client.lang,
        "ver": client.version,
        "rtt": client.rtt_ns,
        "kind": "Client",
        "client_type": client.type,
    }
    return {name: value for name, value in info.items() if value}

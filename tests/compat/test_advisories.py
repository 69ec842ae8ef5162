"""What JetStream announces of itself: advisories and account info. Both servers say the same."""

from __future__ import annotations

import json
from typing import Any

from tests.compat.conftest import Pair
from tests.compat.peer import Peer
from tests.compat.script import Script, assert_same

VARY = {"id", "timestamp", "rtt", "start", "server", "host"}


def heard(listener: Peer, count: int) -> list[Any]:
    """So many advisories, without what differs by nature."""
    return [(message.subject, without_varying(message.json)) for message in (listener.message() for _ in range(count))]


def without_varying(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: None if key in VARY else without_varying(member) for key, member in value.items()}
    return value


def test_streams_are_announced(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        with Peer(script.server) as listener:
            listener.subscribe(f"$JS.EVENT.ADVISORY.STREAM.*.{script.name}")
            script.create()
            script.update(description="new")
            script.publish("S.a")
            script.api("STREAM.PURGE.S")
            script.api("STREAM.DELETE.S")
            script.note("advisories", heard(listener, 3))

    assert_same(pair, name, act)


def test_requests_are_audited(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        with Peer(script.server) as listener, Peer(script.server, name="asker", lang="test", version="1") as asker:
            listener.subscribe("$JS.EVENT.ADVISORY.API")
            script.peer = asker
            requests = {"STREAM.CREATE.S": {"name": "S"}, "STREAM.INFO.S": None, "STREAM.DELETE.none": None}
            for request, body in requests.items():
                script.api(request, body)
                ((subject, audit),) = heard(listener, 1)
                audit["client"]["id"] = None
                audit["response"] = script.normal(json.loads(audit["response"]))
                script.note("audit", (subject, audit))
            script.api("STREAM.DELETE.S")

    assert_same(pair, name, act)


def test_account_info_counts(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        before = script.peer.api("INFO")
        script.create()
        script.publish("S.a", b"x" * 100)
        script.api("STREAM.INFO.none")
        after = script.peer.api("INFO")
        script.note("shape", sorted(after))
        script.note("limits", after["limits"])
        script.note("grown", {key: after[key] - before[key] for key in ("streams", "storage", "memory", "consumers")})
        script.note("api", {key: after["api"][key] - before["api"][key] for key in ("total", "errors")})

    assert_same(pair, name, act)

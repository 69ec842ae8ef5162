"""The monitoring pages of a server that is in a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetlake.server.observe.healthz import healthz
from jetlake.server.observe.jsz import jsz
from jetlake.server.observe.query import Query
from jetlake.server.observe.raftz import raftz
from tests.cluster.small_cluster import SmallCluster
from tests.server.harness import Running, running


def give_cluster(server: Running) -> None:
    """Put a cluster's leader, with three streams on three servers, in place of a server's own JetStream."""
    cluster = SmallCluster()
    for name in ("S", "T", "U"):
        cluster.create(name)
        body = {"stream_name": name, "config": {"name": "D", "durable_name": "D", "ack_policy": "explicit"}}
        cluster.one(f"CONSUMER.CREATE.{name}.D", body)
    server.cluster, server.jetstream = cluster.leader, cluster.leader.service


async def test_jsz_has_the_keys_of_nats_server_in_its_order(tmp_path: Path) -> None:
    async with running(store=tmp_path) as server:
        own = server.jetstream
        give_cluster(server)
        plain = jsz(server, Query({}))
        full = jsz(server, Query({"acc": "A", "streams": "1", "consumers": "1", "raft": "1"}))
        details = next(iter(full["account_details"]))
        stream = next(iter(details["stream_detail"]))
        server.cluster, server.jetstream = None, own
        assert "meta_cluster" not in jsz(server, Query({}))
    assert list(plain) == [
        "memory", "storage", "reserved_memory", "reserved_storage", "accounts", "ha_assets", "api", "server_id", "now",
        "config", "limits", "streams", "consumers", "messages", "bytes", "meta_cluster", "total",
    ]  # fmt: skip
    assert [key for key in full if key not in plain] == ["streams_leader", "consumers_leader", "account_details"]
    assert list(full)[11:15] == ["streams", "streams_leader", "consumers", "consumers_leader"]
    assert (full["streams_leader"], full["consumers_leader"], full["ha_assets"]) == (1, 1, 1)
    assert list(stream)[-2:] == ["stream_raft_group", "consumer_raft_groups"]
    assert stream["stream_raft_group"].startswith("S-R1F-") and stream["cluster"] == {"name": "C1", "leader": "n1"}
    assert [each["name"] for each in stream["consumer_raft_groups"]] == ["D"]


async def test_raftz_shows_the_meta_group(tmp_path: Path) -> None:
    async with running(store=tmp_path) as server:
        assert raftz(server, Query({})) == {}
        server.cluster = SmallCluster().leader
        assert list(raftz(server, Query({}))["$SYS"]) == ["_meta_"]
        assert raftz(server, Query({"acc": "A"})) == {}
        server.cluster = None


@pytest.mark.parametrize("query", [{}, {"js-meta-only": "1"}])
async def test_health_needs_a_meta_leader(tmp_path: Path, query: dict[str, str]) -> None:
    async with running(store=tmp_path) as server:
        cluster = SmallCluster()
        server.cluster = cluster.leader
        assert healthz(server, Query(query)) == (200, {"status": "ok"})
        cluster.group.depose()
        problem = "JetStream has not established contact with a meta leader"
        assert healthz(server, Query(query)) == (503, {"status": "unavailable", "error": problem})
        details = {"status": "error", "errors": [{"type": "JETSTREAM", "error": problem}]}
        assert healthz(server, Query({**query, "details": "1"})) == (503, details)
        assert healthz(server, Query({"js-enabled-only": "1"})) == (200, {"status": "ok"})
        server.cluster = None

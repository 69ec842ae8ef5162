"""Streams of one server, used by clients of another one of the cluster that has no JetStream.

Requests, publishes and acks cross by interest, as all messages do. nats-server's JetStream is clustered where its
servers are, so the one with streams is a JetLake here; the other one is of either kind.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from tests.compat.peer import Peer
from tests.compat.routes import NO_POOL, POOL, Cluster, cluster_config, cluster_port, wait_wanted
from tests.compat.servers import JETLAKE, NATS_SERVER, Server, wait_until

OTHERS = {"jetlake": (JETLAKE, NO_POOL), "nats": (NATS_SERVER, NO_POOL), "nats-pool": (NATS_SERVER, POOL)}
_names = itertools.count(1)


@pytest.fixture(scope="module", params=OTHERS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A has streams, B has none."""
    kind, pool = OTHERS[request.param]
    directory = tmp_path_factory.mktemp("js")
    with ExitStack() as stack:
        config = cluster_config(JETLAKE, "A", rest="jetstream: true")
        first = stack.enter_context(Server(JETLAKE, directory / "A", (), config))
        config = cluster_config(kind, "B", [cluster_port(first)], pool=pool)
        found = Cluster([first, stack.enter_context(Server(kind, directory / "B", (), config))]).wait()
        wait_wanted(found[1], "$JS.API.>")
        yield found


@pytest.fixture
def name() -> str:
    return f"J{next(_names)}"


def run(cluster: Cluster, name: str, work: Any) -> None:
    """Let a client of B use a stream."""

    async def use() -> None:
        client = await nats.connect(cluster[1].url)
        try:
            js = client.jetstream()
            await js.add_stream(name=name, subjects=[f"{name}.>"])
            await asyncio.to_thread(wait_wanted, cluster[1], f"{name}.>")
            await work(client, js)
        finally:
            await client.close()

    asyncio.run(use())


def test_a_stream_is_made_published_to_and_asked_about(cluster: Cluster, name: str) -> None:
    async def work(client: Any, js: Any) -> None:
        acks = [await js.publish(f"{name}.{number}", b"%d" % number, headers={"A": "b"}) for number in range(5)]
        assert [(ack.stream, ack.seq) for ack in acks] == [(name, seq) for seq in range(1, 6)]
        info = await js.stream_info(name)
        assert info.state.messages == 5
        stored = await js.get_msg(name, 3)
        assert (stored.subject, stored.data, stored.headers) == (f"{name}.2", b"2", {"A": "b"})
        assert (await js.get_last_msg(name, f"{name}.4")).seq == 5

    run(cluster, name, work)


def test_a_pull_consumer_delivers_and_takes_acks(cluster: Cluster, name: str) -> None:
    async def work(client: Any, js: Any) -> None:
        for number in range(100):
            await client.publish(f"{name}.{number}", b"%d" % number)
        await js.publish(f"{name}.last", b"")
        sub = await js.pull_subscribe(f"{name}.>", "D")
        found: list[Any] = []
        while len(found) < 101:
            found += await sub.fetch(40, timeout=5)
        assert [msg.subject for msg in found[:100]] == [f"{name}.{number}" for number in range(100)]
        assert [msg.metadata.sequence.stream for msg in found] == list(range(1, 102))
        await found[-1].ack_sync()
        for msg in found[:-2]:
            await msg.ack()
        await found[-2].ack_sync()
        info = await sub.consumer_info()
        assert (info.num_ack_pending, info.num_pending, info.ack_floor.stream_seq) == (0, 0, 101)

    run(cluster, name, work)


def test_a_push_consumer_waits_for_its_subscriber_at_another_server(cluster: Cluster, name: str) -> None:
    async def work(client: Any, js: Any) -> None:
        for number in range(50):
            await js.publish(f"{name}.{number}", b"%d" % number)
        config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.EXPLICIT)
        sub = await js.subscribe(f"{name}.>", durable="P", config=config, manual_ack=True)
        for number in range(50):
            msg = await sub.next_msg(timeout=5)
            assert (msg.subject, msg.data) == (f"{name}.{number}", b"%d" % number)
            await msg.ack()
        await client.flush()
        assert (await sub.consumer_info()).delivered.stream_seq == 50

    run(cluster, name, work)


def test_an_ordered_consumer_with_flow_control_gets_everything(cluster: Cluster, name: str) -> None:
    async def work(client: Any, js: Any) -> None:
        for number in range(200):
            await client.publish(f"{name}.{number}", b"x" * 10_000)
        await js.publish(f"{name}.last", b"")
        sub = await js.subscribe(f"{name}.>", ordered_consumer=True)
        seen = [(await sub.next_msg(timeout=5)).metadata.sequence.stream for _ in range(201)]
        assert seen == list(range(1, 202))

    run(cluster, name, work)


def test_keys_are_kept_and_watched(cluster: Cluster, name: str) -> None:
    async def work(client: Any, js: Any) -> None:
        bucket = await js.create_key_value(bucket=name)
        await asyncio.to_thread(wait_wanted, cluster[1], f"$KV.{name}.>")
        watcher = await bucket.watchall()
        assert await watcher.updates(timeout=5) is None
        assert await bucket.put("a", b"1") == 1
        assert await bucket.update("a", b"2", last=1) == 2
        assert [(await watcher.updates(timeout=5)).value for _ in range(2)] == [b"1", b"2"]
        assert (await bucket.get("a")).value == b"2"
        await bucket.delete("a")
        with pytest.raises(nats.js.errors.KeyNotFoundError):
            await bucket.get("a")

    run(cluster, name, work)


def test_a_message_of_either_server_is_stored_once(cluster: Cluster, name: str) -> None:
    async def work(client: Any, js: Any) -> None:
        with Peer(cluster[0]) as near:
            near.publish(f"{name}.near", b"1")
            near.ask()
        ack = await js.publish(f"{name}.far", b"2")
        assert ack.seq == 2

    run(cluster, name, work)


def test_two_servers_with_jetstream_are_one(tmp_path: Path) -> None:
    """The second one joins the first, which began alone; requests are answered once, whoever is asked."""
    rest = "jetstream: true"
    with ExitStack() as stack:
        first = stack.enter_context(Server(JETLAKE, tmp_path / "A", (), cluster_config(JETLAKE, "A", rest=rest)))
        config = cluster_config(JETLAKE, "B", [cluster_port(first)], rest=rest)
        second = stack.enter_context(Server(JETLAKE, tmp_path / "B", (), config))
        both = (first, second)
        Cluster([*both]).wait()
        for server in both:
            wait_until(lambda s=server: s.get("/jsz")["meta_cluster"]["cluster_size"] == 2, "a meta group of two")
        for place, server in enumerate(both):
            with Peer(server) as peer:
                made = peer.api(f"STREAM.CREATE.S{place}", {"name": f"S{place}", "subjects": [f"s{place}.>"]})
                assert made["did_create"] is True and peer.ask() == []
        for server in both:
            with Peer(server) as peer:
                assert peer.api("STREAM.NAMES")["streams"] == ["S0", "S1"] and peer.ask() == []
                wait_until(lambda peer=peer: peer.request("s1.x", b"").json["stream"] == "S1", "a stored message")

"""Real servers on loopback, and what becomes of streams when some of them are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest

from jetlake.cluster.engine import WHY_NOT
from tests.cluster.process_cluster import ProcessCluster, insist
from tests.compat.peer import Peer
from tests.compat.servers import Server, wait_until

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"the consensus engine is not built: {WHY_NOT}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path) as found:
        yield found


@asynccontextmanager
async def connected(server: Server) -> Any:
    client = await nats.connect(server.url)
    try:
        yield client.jetstream(timeout=2)
    finally:
        await client.close()


async def publish(js: Any, subject: str, payload: bytes) -> int:
    return int((await insist(lambda: js.publish(subject, payload, timeout=0.5))).seq)


async def payloads(js: Any, stream: str) -> list[bytes]:
    state = (await insist(lambda: js.stream_info(stream))).state
    found = []
    for seq in range(state.first_seq, state.last_seq + 1):
        found.append((await insist(partial(js.get_msg, stream, seq))).data)
    return found


def test_three_servers_are_one_jetstream(cluster: ProcessCluster) -> None:
    async def work() -> None:
        for name in cluster.names:
            async with connected(cluster[name]) as js:
                made = await js.add_stream(name=f"R1-{name}", subjects=[f"r1.{name}.>"])
                assert made.cluster.name == "C1" and made.cluster.leader in cluster.names
                assert await publish(js, f"r1.{name}.x", b"1") == 1
        holders = set()
        for name in cluster.names:
            async with connected(cluster[name]) as js:
                found = await js.streams_info()
                assert [each.config.name for each in found] == ["R1-n1", "R1-n2", "R1-n3"]
                assert [each.state.messages for each in found] == [1, 1, 1]
                holders = {each.cluster.leader for each in found}
                await js.account_info()
        assert holders == set(cluster.names), "equal servers take turns"
        async with connected(cluster["n1"]) as js:
            for name in cluster.names:
                assert await js.delete_stream(f"R1-{name}")
            assert await js.streams_info() == []

    asyncio.run(work())


def test_what_was_acknowledged_survives_the_leader(cluster: ProcessCluster) -> None:
    async def work() -> None:
        async with connected(cluster["n1"]) as js:
            made = await js.add_stream(name="S", subjects=["s.>"], num_replicas=3)
            leader = made.cluster.leader
        async with connected(cluster[cluster.others(leader)[0]]) as js:
            acked = {await publish(js, "s.x", b"%d" % number): b"%d" % number for number in range(50)}
            cluster.kill(leader)
            acked |= {await publish(js, "s.x", b"%d" % number): b"%d" % number for number in range(50, 100)}
            info = await js.stream_info("S")
            assert info.cluster.leader != leader
            stored = await payloads(js, "S")
            assert [stored[seq - 1] for seq in sorted(acked)] == [acked[seq] for seq in sorted(acked)]
            cluster.start(leader)
            cluster.wait_equal("S", info.state.messages)

    asyncio.run(work())


def test_streams_are_made_while_the_meta_leader_is_killed(cluster: ProcessCluster) -> None:
    async def work() -> None:
        leader = cluster.meta_leader
        async with connected(cluster[cluster.others(leader)[0]]) as js:

            async def make(number: int) -> None:
                await insist(lambda: js.add_stream(name=f"M{number}", subjects=[f"m.{number}"], num_replicas=3))

            for number in range(5):
                await make(number)
            cluster.kill(leader)
            for number in range(5, 10):
                await make(number)
            for number in range(10):
                assert await publish(js, f"m.{number}", b"") >= 1
            names = sorted(each.config.name for each in await insist(js.streams_info))
            assert names == [f"M{number}" for number in range(10)]
        cluster.start(leader)
        cluster.wait_whole()
        for number in range(10):
            wait_until(lambda number=number: len(set(cluster.states(f"M{number}"))) == 1, "equal replicas")

    asyncio.run(work())


def test_everything_is_there_when_all_servers_were_killed(cluster: ProcessCluster) -> None:
    async def work() -> None:
        async with connected(cluster["n2"]) as js:
            await js.add_stream(name="S", subjects=["s.>"], num_replicas=3)
            await js.add_stream(name="R", subjects=["r.>"])
            for number in range(50):
                assert await publish(js, "s.x", b"%d" % number) == await publish(js, "r.x", b"") == number + 1
        cluster.kill(*cluster.names)
        cluster.start(*cluster.names)
        async with connected(cluster["n3"]) as js:
            assert await publish(js, "s.x", b"50") == 51
            assert await payloads(js, "S") == [b"%d" % number for number in range(51)]
            assert await publish(js, "r.x", b"") == 51
        cluster.wait_equal("S", 51)

    asyncio.run(work())


def test_a_clean_stop_of_all_and_a_start_lose_nothing(cluster: ProcessCluster) -> None:
    async def work() -> None:
        async with connected(cluster["n1"]) as js:
            await js.add_stream(name="S", subjects=["s.>"], num_replicas=3)
            for number in range(20):
                await publish(js, "s.x", b"%d" % number)
        for name in cluster.names:
            assert cluster[name].stop() == 0
        cluster.start(*cluster.names)
        async with connected(cluster["n2"]) as js:
            assert await publish(js, "s.x", b"20") == 21
            assert await payloads(js, "S") == [b"%d" % number for number in range(21)]
        cluster.wait_equal("S", 21)

    asyncio.run(work())


def test_leaders_step_down_on_request(cluster: ProcessCluster) -> None:
    def leader_of(peer: Peer) -> str:
        return str(peer.api("STREAM.INFO.S")["cluster"].get("leader", ""))

    with Peer(cluster["n1"]) as peer, Peer(cluster["n1"], user="admin", **{"pass": "admin"}) as admin:
        made = peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3})
        target = cluster.others(made["cluster"]["leader"])[0]
        assert peer.api("STREAM.LEADER.STEPDOWN.S", {"placement": {"preferred": target}})["success"] is True
        wait_until(lambda: leader_of(peer) == target, "another leader of the stream")
        before = cluster.meta_leader
        assert admin.request("$JS.API.META.LEADER.STEPDOWN", b"").json["success"] is True
        wait_until(lambda: cluster.meta_leader != before, "another leader of the meta group")


def test_consumers_follow_the_leader_of_their_stream(cluster: ProcessCluster) -> None:
    async def work() -> None:
        async with connected(cluster["n1"]) as js:
            made = await js.add_stream(name="S", subjects=["s.>"], num_replicas=3, retention="workqueue")
            leader = made.cluster.leader
        async with connected(cluster[cluster.others(leader)[0]]) as js:
            for number in range(10):
                await publish(js, "s.x", b"%d" % number)
            consumer = await js.pull_subscribe("s.>", "work", stream="S")
            for msg in await consumer.fetch(5, timeout=5):
                await msg.ack_sync(timeout=5)
            cluster.kill(leader)
            got = [msg.data for msg in await insist(lambda: consumer.fetch(5, timeout=1))]
            assert set(got) <= {b"%d" % number for number in range(5, 10)}, "what was acknowledged does not come again"

    asyncio.run(work())


def test_a_password_between_servers_is_for_consensus_too(tmp_path: Path) -> None:
    more = "authorization { user: route, password: secret }"
    with ProcessCluster(tmp_path, user="route:secret@", more=more) as cluster, Peer(cluster["n3"]) as peer:
        made = peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3})
        assert made["did_create"] is True and len(made["cluster"]["replicas"]) == 2


def test_a_server_without_its_names_is_refused(tmp_path: Path) -> None:
    config = 'jetstream: true\ncluster { name: C1, listen: "127.0.0.1:-1" }'
    server = Server("jetlake", tmp_path, (), config)
    server.spawn()
    assert server.wait() != 0
    assert "jetstream cluster requires `server_name` to be set" in server.log()


def test_streams_of_a_single_server_become_those_of_the_cluster(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path)
    server = cluster["n2"]
    config, server.config = server.config, "accounts { A { jetstream: enabled, users: [{ user: a, password: a }] } }"
    server.config += "\nno_auth_user: a"
    with server, Peer(server) as peer:
        peer.api("STREAM.CREATE.OLD", {"name": "OLD", "subjects": ["old.>"]})
        assert peer.request("old.x", b"kept").json["seq"] == 1
        assert server.stop() == 0
    server.config = config
    with cluster, Peer(cluster["n1"]) as peer:
        wait_until(lambda: peer.api("STREAM.NAMES")["streams"] == ["OLD"], "the stream in the cluster")
        assert peer.api("STREAM.INFO.OLD")["cluster"] == {"name": "C1", "leader": "n2"}
        wait_until(lambda: peer.request("old.x", b"").json["seq"] > 1, "a stored message")

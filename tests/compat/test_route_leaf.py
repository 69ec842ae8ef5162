"""A leaf of a server in a cluster: it reaches the clients of all servers, and finds another one when that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.compat import leafs
from tests.compat.leafs import LISTEN, leaf_config, leaf_port
from tests.compat.peer import Peer
from tests.compat.routes import Cluster, start_cluster, wait_wanted
from tests.compat.servers import JETLAKE, LOOPBACK, NATS_SERVER, Server, wait_until

KINDS = {
    "nats": ((NATS_SERVER, NATS_SERVER), NATS_SERVER),
    "jetlake": ((JETLAKE, JETLAKE), JETLAKE),
    "jetlake-nats-jetlake": ((JETLAKE, NATS_SERVER), JETLAKE),
    "nats-jetlake-nats": ((NATS_SERVER, JETLAKE), NATS_SERVER),
}


class Hubs:
    """A cluster of two, and a leaf that connected to the first of them."""

    def __init__(self, cluster: Cluster, leaf: Server) -> None:
        self.cluster, self.leaf = cluster, leaf


@pytest.fixture(params=KINDS)
def hubs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hubs]:
    kinds, leaf_kind = KINDS[request.param]
    with ExitStack() as stack:
        cluster = start_cluster(stack, tmp_path, kinds, rest=f"leafnodes {{ {LISTEN} }}")
        config = leaf_config(leaf_port(cluster[0]))
        leaf = stack.enter_context(Server(leaf_kind, tmp_path / "leaf", (), config))
        wait_until(lambda: cluster[0].get("/leafz")["leafnodes"] == 1, "the leaf")
        yield Hubs(cluster, leaf)


def test_a_leaf_reaches_the_clients_of_all_servers(hubs: Hubs) -> None:
    with Peer(hubs.leaf) as below, Peer(hubs.cluster[1]) as above:
        below.subscribe("down")
        above.subscribe("up")
        wait_wanted(hubs.cluster[1], "down")
        leafs.wait_wanted(hubs.leaf, "up")
        above.publish("down", b"1")
        below.publish("up", b"2")
        assert (below.message().payload, above.message().payload) == (b"1", b"2")
        assert below.ask() == above.ask() == []


def test_a_leaf_finds_another_server_when_its_own_is_gone(hubs: Hubs) -> None:
    with Peer(hubs.leaf) as below, Peer(hubs.cluster[1]) as above:
        below.subscribe("down")
        wait_wanted(hubs.cluster[1], "down")
        hubs.cluster[0].kill()
        wait_until(lambda: hubs.cluster[1].get("/leafz")["leafnodes"] == 1, "the leaf", 20)
        leafs.wait_wanted(hubs.cluster[1], "down")
        above.publish("down", b"3")
        assert below.message().payload == b"3"


def test_leafs_are_told_of_all_servers(hubs: Hubs) -> None:
    ports = {leaf_port(server) for server in hubs.cluster.servers}
    with leafs.RawLeaf(leaf_port(hubs.cluster[0])) as leaf:
        assert set(leaf.info["leafnode_urls"]) == {f"{LOOPBACK}:{port}" for port in ports}
        assert leaf.info["cluster"] == "C"

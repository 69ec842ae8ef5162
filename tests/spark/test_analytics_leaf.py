"""The guide `docs/analytics-leaf.md`, run: its configurations, its mirror, its query, and the link cut and mended."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")

from tests.compat.cable import Cable
from tests.compat.leafs import leaf_port
from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, LOOPBACK, NATS_SERVER, Server, wait_until
from tests.compat.tokens import STREAMS, Operator, User

PAGE = (Path(__file__).parents[2] / "docs" / "analytics-leaf.md").read_text()
CREDS = """-----BEGIN NATS USER JWT-----
{token}
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""
BATCH = 300


class World(NamedTuple):
    """Production, JetLake beside it, and what is between them."""

    hub: Server
    shop: User
    cable: Cable
    jetlake: Server
    page: dict[str, Any]  # the functions of the guide


def config_of(name: str) -> str:
    """A configuration of the guide."""
    found = re.search(rf"^```conf\n# {re.escape(name)}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def with_parts(text: str, parts: dict[str, str]) -> str:
    """A text of the guide with the addresses and paths of this test, each of which has to be in it."""
    for old, new in parts.items():
        assert old in text, f"the guide has no {old}"
        text = text.replace(old, new)
    return text


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    operator = Operator()
    shop = operator.account("SHOP")
    user, analytics = shop.user("shop"), shop.user("analytics")
    creds = tmp_path / "analytics.creds"
    creds.write_text(CREDS.format(token=analytics.token, seed=analytics.key.seed))
    hub_text = with_parts(config_of("hub.conf"), {"0.0.0.0:7422": f"{LOOPBACK}:-1"})
    with ExitStack() as stack:
        config = operator.config(shop.token(limits=STREAMS), more=f"server_name: hub\n{hub_text}")
        hub = stack.enter_context(Server(NATS_SERVER, tmp_path / "hub", (), config))
        cable = stack.enter_context(Cable(leaf_port(hub)))
        leaf_text = with_parts(
            config_of("analytics.conf"),
            {
                "hub.example.com:7422": f"{LOOPBACK}:{cable.port}",
                "./analytics.creds": str(creds),
                # The hub tells of its own port, which leads around the cable.
                "remotes: [ {": "remotes: [ {ignore_discovered_servers: true, ",
                "reconnect: 1s": "reconnect: 100ms",
                ', store_dir: "./data"': "",
            },
        )
        jetlake = stack.enter_context(Server(JETLAKE, tmp_path / "jetlake", (), leaf_text))
        yield World(hub, user, cable, jetlake, functions_of_the_guide(jetlake))


def functions_of_the_guide(jetlake: Server) -> dict[str, Any]:
    parts = {"nats://127.0.0.1:4222": jetlake.url, '"./data"': repr(str(jetlake.store))}
    code = "\n".join(re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    page: dict[str, Any] = {}
    exec(compile(with_parts(code, parts), "analytics-leaf.md", "exec"), page)
    return page


def publish_orders(world: World, first: int, stop: int) -> None:
    """Production goes on: orders are published and acked."""
    with world.shop.connect(world.hub) as peer:
        peer.subscribe("_INBOX.acks", "1")
        for number in range(first, stop):
            payload = json.dumps({"amount": number}).encode()
            peer.publish(f"orders.{('eu', 'us')[number % 2]}.{number}", payload, reply="_INBOX.acks")
        assert [peer.message().json["seq"] for _ in range(first, stop)] == list(range(first + 1, stop + 1))


def mirror_state(world: World) -> dict[str, Any]:
    with Peer(world.jetlake) as peer:
        return dict(peer.request("$JS.API.STREAM.INFO.ORDERS").json["state"])


def expected(count: int) -> list[tuple[str, int, int]]:
    """What the query is to give of so many orders."""
    amounts = {"eu": range(0, count, 2), "us": range(1, count, 2)}
    return [(region, len(found), sum(found)) for region, found in amounts.items()]


def test_production_is_queried_beside_production_also_while_the_link_is_cut(spark: Any, world: World) -> None:
    with world.shop.connect(world.hub) as peer:
        made = peer.request("$JS.API.STREAM.CREATE.ORDERS", b'{"name": "ORDERS", "subjects": ["orders.>"]}').json
        assert "error" not in made
    publish_orders(world, 0, BATCH)
    wait_until(lambda: world.jetlake.get("/leafz")["leafnodes"] == 1, "the link")
    asyncio.run(world.page["mirror_orders"]())
    wait_until(lambda: mirror_state(world)["messages"] == BATCH, "the mirror")
    assert world.page["revenue"]() == expected(BATCH)

    world.cable.cut()
    wait_until(lambda: world.jetlake.get("/leafz")["leafnodes"] == 0, "the link to be gone")
    publish_orders(world, BATCH, 2 * BATCH)
    assert world.page["revenue"]() == expected(BATCH)

    world.cable.mend()
    wait_until(lambda: mirror_state(world)["messages"] == 2 * BATCH, "the mirror to catch up", 60)
    assert mirror_state(world)["last_seq"] == 2 * BATCH
    assert world.page["revenue"]() == expected(2 * BATCH)


def test_the_link_is_cut_again_and_again_under_load_and_nothing_is_lost_or_doubled(world: World) -> None:
    with world.shop.connect(world.hub) as peer:
        peer.request("$JS.API.STREAM.CREATE.ORDERS", b'{"name": "ORDERS", "subjects": ["orders.>"]}')
    asyncio.run(world.page["mirror_orders"]())
    for number in range(5):
        publish_orders(world, number * BATCH, (number + 1) * BATCH)
        world.cable.cut()
        world.cable.mend()
    wait_until(lambda: mirror_state(world)["messages"] == 5 * BATCH, "the mirror to catch up", 60)
    with Peer(world.jetlake) as ours, world.shop.connect(world.hub) as theirs:
        for seq in (1, BATCH, BATCH + 1, 3 * BATCH, 5 * BATCH):
            asked = b'{"seq": %d}' % seq
            got = [peer.request("$JS.API.STREAM.MSG.GET.ORDERS", asked).json["message"] for peer in (ours, theirs)]
            assert got[0] == got[1]
    assert mirror_state(world)["last_seq"] == 5 * BATCH

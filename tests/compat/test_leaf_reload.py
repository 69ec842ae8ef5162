"""Reloads of the `leafnodes` block: remotes come, go and are disabled; all else takes a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.conftest import Start
from tests.compat.leafs import hub_config, leaf_port
from tests.compat.servers import LOOPBACK, NATS_SERVER, Server, wait_until


def config(*remotes: str, more: str = "") -> str:
    return f"server_name: LEAF\nleafnodes {{ reconnect: 100ms\n {more}\n remotes: [ {', '.join(remotes)} ] }}"


def remote(hub: Server, more: str = "") -> str:
    return f'{{ url: "nats-leaf://{LOOPBACK}:{leaf_port(hub)}", {more} }}'


def linked_to(server: Server) -> set[str]:
    return {leaf["name"] for leaf in server.get("/leafz")["leafs"]}


def wait_linked(server: Server, *names: str) -> None:
    wait_until(lambda: linked_to(server) == set(names), f"links to {names}")


def test_remotes_come_and_go(start: Start, tmp_path: Path) -> None:
    with (
        Server(NATS_SERVER, tmp_path / "one", (), hub_config("ONE")) as one,
        Server(NATS_SERVER, tmp_path / "two", (), hub_config("TWO")) as two,
    ):
        leaf = start(config(remote(one)))
        wait_linked(leaf, "ONE")
        cid = leaf.get("/leafz")["leafs"][0]["id"]
        leaf.reload(config(remote(one), remote(two)))
        wait_linked(leaf, "ONE", "TWO")
        assert cid in {found["id"] for found in leaf.get("/leafz")["leafs"]}
        leaf.reload(config(remote(two)))
        wait_linked(leaf, "TWO")
        leaf.reload(config(remote(two, "disabled: true")))
        wait_linked(leaf)
        leaf.reload(config(remote(two)))
        wait_linked(leaf, "TWO")


@pytest.mark.parametrize(
    "change",
    [
        "leafnodes { reconnect: 100ms, no_advertise: true }",
        "leafnodes { reconnect: 100ms, authorization { user: a, password: b } }",
        "leafnodes { reconnect: 100ms, isolate_leafnode_interest: true }",
        "leafnodes { reconnect: 100ms, remotes: [ {url: 'nats-leaf://127.0.0.1:1', hub: true} ] }",
    ],
)
def test_what_takes_a_restart_is_refused_and_changes_nothing(start: Start, change: str) -> None:
    before = "leafnodes { reconnect: 100ms, remotes: [ {url: 'nats-leaf://127.0.0.1:1'} ] }"
    server = start(before)
    server.refuse_reload(change)
    server.reload(before + "\nmax_payload: 1000")
    assert server.get("/varz")["max_payload"] == 1000

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jetlake.server import system as system_module
from jetlake.server import turns
from tests.server.harness import Peer, Running, running

ACCOUNTS = """
server_name: alpha
accounts {
  $SYS { users: [{user: s, password: p}] }
  A { jetstream: enabled, users: [{user: a, password: p}, {user: limited, password: p, permissions: {
    publish: {allow: [b, a, "$SYS.>"], deny: c}, subscribe: "_INBOX.>", allow_responses: true}}] }
}
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(ACCOUNTS, tmp_path) as server:
        yield server


async def as_user(server: Running, name: str) -> Peer:
    return await Peer.connect(server, user=name, **{"pass": "p"})


async def test_users_learn_who_they_are(server: Running) -> None:
    answer = await (await as_user(server, "a")).request("$SYS.REQ.USER.INFO")
    assert answer["data"] == {"user": "a", "account": "A", "account_name": "A"}
    identity = answer["server"]
    assert (identity["name"], identity["id"], identity["ver"]) == ("alpha", server.server_id, "2.15.1")
    assert identity["jetstream"] is True and identity["time"].endswith("Z")


async def test_users_learn_what_they_may(server: Running) -> None:
    answer = await (await as_user(server, "limited")).request("$SYS.REQ.USER.INFO")
    assert answer["data"]["permissions"] == {
        "publish": {"allow": ["$SYS.>", "a", "b"], "deny": ["c"]},
        "subscribe": {"allow": ["_INBOX.>"]},
        "responses": {"max": 1, "ttl": 120_000_000_000},
    }


async def test_anybody_without_a_name_is_told_so() -> None:
    async with running() as server:
        answer = await (await Peer.connect(server)).request("$SYS.REQ.USER.INFO")
        assert answer["data"] == {"user": "", "account": "$G", "account_name": "$G"}
        assert answer["server"]["jetstream"] is False


@pytest.mark.parametrize(
    "page", ["VARZ", "CONNZ", "SUBSZ", "JSZ", "HEALTHZ", "ACCOUNTZ", "ROUTEZ", "GATEWAYZ", "LEAFZ"]
)
async def test_the_system_account_sees_the_pages(server: Running, page: str) -> None:
    system = await as_user(server, "s")
    for who in ("PING", server.server_id):
        answer = await system.request(f"$SYS.REQ.SERVER.{who}.{page}")
        assert answer["server"]["id"] == server.server_id and answer["data"]


async def test_the_system_account_gets_statistics(server: Running) -> None:
    system = await as_user(server, "s")
    for subject in ("PING", "PING.STATSZ"):
        stats = (await system.request(f"$SYS.REQ.SERVER.{subject}"))["statsz"]
        assert stats["connections"] == 1 and stats["jetstream"]["stats"]["accounts"] == 1
    assert (await system.request("$SYS.REQ.SERVER.PING.IDZ"))["id"] == server.server_id


async def test_requests_carry_options(server: Running) -> None:
    system = await as_user(server, "s")
    peers = [await as_user(server, "a") for _ in range(3)]
    for peer in peers:
        await peer.ask("SUB x 1\r\n")
    body = '{"limit": 1, "acc": "A", "auth": true, "subscriptions": true, "state": 0}'
    answer = (await system.request("$SYS.REQ.SERVER.PING.CONNZ", body))["data"]
    assert (answer["num_connections"], answer["total"], answer["limit"]) == (1, 3, 1)
    assert answer["connections"][0]["subscriptions_list"] == ["x"]
    detail = await system.request("$SYS.REQ.SERVER.PING.CONNZ", '{"subscriptions_detail": true, "user": "a"}')
    assert detail["data"]["connections"][0]["subscriptions_list_detail"][0]["subject"] == "x"


async def test_requests_that_make_no_sense_get_an_error(server: Running) -> None:
    system = await as_user(server, "s")
    assert (await system.request("$SYS.REQ.SERVER.PING.CONNZ", "{"))["error"]["code"] == 400
    assert (await system.request("$SYS.REQ.SERVER.PING.CONNZ", '{"sort": "colour"}'))["error"]["code"] == 500
    assert "503" in await system.request("$SYS.REQ.SERVER.PING.NOTHING")


async def test_the_system_account_sees_other_accounts(server: Running) -> None:
    system = await as_user(server, "s")
    peer = await as_user(server, "a")
    await peer.ask("SUB x 1\r\n")
    assert (await system.request("$SYS.REQ.ACCOUNT.A.CONNZ"))["data"]["total"] == 1
    assert (await system.request("$SYS.REQ.ACCOUNT.A.INFO"))["data"]["client_connections"] == 1
    assert (await system.request("$SYS.REQ.ACCOUNT.A.JSZ"))["data"]["name"] == "A"
    assert (await system.request("$SYS.REQ.ACCOUNT.A.STATZ"))["data"]["account_statz"][0]["conns"] == 1
    subjects = [
        sub["subject"] for sub in (await system.request("$SYS.REQ.ACCOUNT.A.SUBSZ"))["data"]["subscriptions_list"]
    ]
    assert "x" in subjects
    assert (await system.request("$SYS.REQ.ACCOUNT.B.INFO"))["error"]["code"] == 500


async def test_others_see_their_own_account_only(server: Running) -> None:
    system = await as_user(server, "s")
    await system.ask()
    peer = await as_user(server, "a")
    assert (await peer.request("$SYS.REQ.ACCOUNT.PING.CONNZ"))["data"]["total"] == 1
    for subject in ("$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.ACCOUNT.$SYS.CONNZ"):
        assert "503" in await peer.request(subject)


async def test_answers_that_are_too_long_for_a_turn_come_one_after_the_other(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_NS", 0)
    monkeypatch.setattr(system_module, "WAITING_MAX", 2)
    user, system = await as_user(server, "a"), await as_user(server, "s")
    await user.ask("".join(f"SUB q.{number} {number}\r\n" for number in range(300)))
    body = '{"subscriptions":true,"account":"A"}'
    system.send("SUB in.* 1\r\n" + f"PUB $SYS.REQ.SERVER.PING.SUBSZ in.1 {len(body)}\r\n{body}\r\n" * 3)
    refused, *answers = [json.loads(await payload(system)) for _ in range(3)]
    assert refused["error"] == {"code": 503, "description": "too many requests"}
    for answer in answers:
        subjects = [sub["subject"] for sub in answer["data"]["subscriptions_list"]]
        assert answer["data"]["total"] == len(subjects) and subjects[-1] == "q.299"


async def payload(peer: Peer) -> str:
    """What the next message says."""
    while not (await peer.line()).startswith("MSG"):
        pass
    return await peer.line()

"""`jetlake compact --url`: a running server gives back the room of deleted messages."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jetlake.cli.app import app
from jetlake.spark.jobs.compact import compact
from jetlake.store.verify.check import check_store
from jetlake.table.errors import ServerError
from tests.compat.peer import Peer, publication
from tests.compat.servers import JETLAKE, NATS_SERVER, Server

PAYLOAD = b"x" * 10_000
COMPACT = "$JETLAKE.API.STREAM.COMPACT."
ACCOUNTS = """
    jetstream: enabled
    accounts {
      A { jetstream: enabled, users: [{user: a, password: a}] }
      B { jetstream: enabled, users: [
        {user: b, password: b}
        {user: limited, password: b, permissions: {publish: {deny: ["$JETLAKE.>"]}}}
      ] }
    }
"""


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with Server(JETLAKE, tmp_path) as server:
        yield server


def fill(peer: Peer, count: int = 60) -> None:
    """A stream of which every other message was deleted."""
    assert "error" not in peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for number in range(count):
        peer.request("s.x", b"%d " % number + PAYLOAD)
    delete(peer, range(1, count, 2))


def delete(peer: Peer, seqs: range) -> None:
    for seq in seqs:
        assert peer.api("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": True})["success"]


def messages(peer: Peer) -> dict[int, bytes]:
    """What direct gets find."""
    last = peer.api("STREAM.INFO.S")["state"]["last_seq"]
    found = {seq: peer.api("STREAM.MSG.GET.S", {"seq": seq}) for seq in range(1, last + 1)}
    return {seq: answer["message"]["data"] for seq, answer in found.items() if "message" in answer}


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["compact", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_a_busy_stream_is_compacted_and_keeps_every_message(server: Server, tmp_path: Path) -> None:
    with Peer(server) as peer:
        fill(peer)
        peer.subscribe("in.*")
        peer.send(
            publication(f"{COMPACT}S", b'{"dead":0.1}', reply="in.compacted")
            + b"".join(publication("s.x", PAYLOAD, reply=f"in.{number}") for number in range(50))
        )
        answers = {answer.subject: answer.json for answer in (peer.message() for _ in range(51))}
        compacted = answers.pop("in.compacted")
        assert compacted["blocks"] == 1 and sorted(ack["seq"] for ack in answers.values()) == list(range(61, 111))
        delete(peer, range(2, 111, 8))
        again = peer.request(f"{COMPACT}S").json  # the block of before, and the one that was filled since
        assert again["blocks"] == 2
        before = messages(peer)
    server.signal(signal.SIGKILL)
    server.wait()
    (directory,) = server.store.glob("jetstream/*/streams/S/msgs")
    report = check_store(str(directory))
    assert report.ok, report.problems
    server.start()
    with Peer(server) as peer:
        assert messages(peer) == before and len(before) == 110 - 30 - 14


def test_the_command_goes_through_a_server_and_says_so_when_the_directory_is_in_use(server: Server) -> None:
    with Peer(server) as peer:
        fill(peer)
        peer.api("STREAM.CREATE.M", {"name": "M", "subjects": ["m"], "storage": "memory"})
        before = messages(peer)
        assert "--url nats://host:port" in run(str(server.store), code=2)
        results = {result["stream"]: result for result in json.loads(run("--url", server.url, "--json"))}
        assert results["S"]["blocks"] == 1 and results["S"]["size_after"] < results["S"]["size_before"] * 0.7
        assert results["M"]["blocks"] == 0
        assert "S: 0 blocks written anew" in run("--url", server.url, "--stream", "S")
        assert messages(peer) == before
    assert "no stream NOPE*" in run("--url", server.url, "--stream", "NOPE*", code=2)
    assert "there is no stream NOPE" in run("--url", server.url, "--stream", "NOPE", code=2)
    assert "either a directory or --url" in run(code=2)
    assert "either a directory or --url" in run(str(server.store), "--url", server.url, code=2)


def test_a_server_that_is_not_jetlake_says_so(tmp_path: Path) -> None:
    with Server(NATS_SERVER, tmp_path) as server, Peer(server) as peer:
        fill(peer, 2)
        assert "not a JetLake server" in run("--url", server.url, code=2)
        peer.api("STREAM.CREATE.T", {"name": "T", "subjects": ["$JETLAKE.>"]})
        assert "not a JetLake server" in run("--url", server.url, "-s", "S", code=2)


def test_accounts_and_permissions_hold(tmp_path: Path) -> None:
    with Server(JETLAKE, tmp_path, config=ACCOUNTS) as server:
        with Peer(server, user="a", **{"pass": "a"}) as peer:
            fill(peer)
        with Peer(server, user="b", **{"pass": "b"}) as peer:
            assert peer.request(f"{COMPACT}S").json["error"]["err_code"] == 10059
            peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        login = ("-o", "user=limited", "-o", "password=b")
        assert "Permissions Violation" in run("--url", server.url, *login, code=2)
        (result,) = json.loads(run("--url", server.url, "-o", "user=a", "-o", "password=a", "--json"))
        assert result["blocks"] == 1


def test_a_server_that_refuses_is_an_error_with_its_words(server: Server) -> None:
    with Peer(server) as peer:
        fill(peer, 2)
    with pytest.raises(ServerError, match="not a number from 0 to 1"):
        compact(url=server.url, stream="S", dead_part_max=2)


def test_a_question_that_nobody_knows_has_no_responders(server: Server) -> None:
    with Peer(server) as peer:
        assert peer.request("$JETLAKE.API.STREAM.NOPE.S").status == "503"

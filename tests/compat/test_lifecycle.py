"""Start, stop, restart, signals: what a server keeps, and what it says on its way out."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.compat.conftest import Start
from tests.compat.peer import Closed, Peer, header_block
from tests.compat.servers import JETLAKE, Server, command, wait_until

CONFIGS: dict[str, dict[str, object]] = {
    "file": {},
    "compressed": {"compression": "s2"},
    "limited": {"max_msgs": 50, "max_msgs_per_subject": 20},
    "keys": {"discard": "new", "max_msgs_per_subject": 1, "allow_rollup_hdrs": True},
}


def fill(peer: Peer, stream: str, **config: object) -> None:
    peer.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], "allow_direct": True, **config})
    for number in range(100):
        peer.request(f"{stream}.{number % 5}", b"payload %d" % number, header_block(Nats_Msg_Id=f"{stream}-{number}"))
    if "max_msgs" not in config:  # after a kill, nats-server brings evicted messages back in place of deleted ones
        for seq in (70, 71, 95):
            peer.api(f"STREAM.MSG.DELETE.{stream}", {"seq": seq})


def contents(peer: Peer, stream: str) -> list[object]:
    info = peer.api(f"STREAM.INFO.{stream}", {"subjects_filter": ">", "deleted_details": True})
    del info["ts"]
    answers = peer.requests(f"$JS.API.DIRECT.GET.{stream}", b'{"seq":1,"batch":1000}', b"", -1)
    return [info, *answers]


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_restart_keeps_everything(start: Start, ending: str) -> None:
    server = start("", "-js", "-n", "keeper")
    with Peer(server) as peer:
        for stream, config in CONFIGS.items():
            fill(peer, stream, **config)
        before = {stream: contents(peer, stream) for stream in CONFIGS}
    server.stop() if ending == "stop" else server.kill()
    server.start()
    with Peer(server) as peer:
        assert peer.api("STREAM.NAMES")["streams"] == sorted(CONFIGS)
        assert {stream: contents(peer, stream) for stream in CONFIGS} == before
        for stream in CONFIGS:  # the ids are still known, the sequences go on
            ack = peer.request(f"{stream}.0", b"", header_block(Nats_Msg_Id=f"{stream}-99")).json
            assert ack == {"stream": stream, "seq": 100, "duplicate": True}
            assert peer.request(f"{stream}.0", b"").json == {"stream": stream, "seq": 101}


def test_memory_streams_are_gone_after_a_restart(start: Start) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        peer.api("STREAM.CREATE.M", {"name": "M", "storage": "memory"})
        peer.request("M", b"x")
    server.stop()
    with Peer(server.start()) as peer:
        names = peer.api("STREAM.NAMES")["streams"]
        state = peer.api("STREAM.INFO.M").get("state", {"messages": 0})
        assert names in (None, ["M"]) and state["messages"] == 0


def test_deleted_streams_stay_deleted(start: Start) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        for stream in ("A", "B"):
            fill(peer, stream)
        assert peer.api("STREAM.DELETE.A")["success"]
    server.kill()
    with Peer(server.start()) as peer:
        assert peer.api("STREAM.NAMES")["streams"] == ["B"]
        assert "error" not in peer.api("STREAM.CREATE.A", {"name": "A", "subjects": ["A.>"]})
        assert peer.request("A.x").json == {"stream": "A", "seq": 1}


def test_updates_purges_and_sequences_survive(start: Start) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        fill(peer, "A")
        peer.api("STREAM.UPDATE.A", {"name": "A", "subjects": ["A.>", "more"], "description": "new"})
        peer.api("STREAM.PURGE.A")
        before = peer.api("STREAM.INFO.A")
    server.kill()
    with Peer(server.start()) as peer:
        after = peer.api("STREAM.INFO.A")
        assert after["config"] == before["config"] and after["created"] == before["created"]
        assert (after["state"]["first_seq"], after["state"]["last_seq"]) == (101, 100)
        assert peer.request("more").json == {"stream": "A", "seq": 101}


def test_restart_with_discard_new_removes_nothing(start: Start) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        fill(peer, "A")
        peer.api("STREAM.UPDATE.A", {"name": "A", "subjects": ["A.>"], "discard": "new", "max_msgs": 2})
    for end in (server.stop, server.kill):
        end()
        with Peer(server.start()) as peer:
            assert peer.api("STREAM.INFO.A")["state"]["messages"] == 97
            assert peer.request("A.x").json["error"]["err_code"] == 10077


def test_sigterm_ends_with_a_clean_exit(start: Start) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        assert peer.ask() == []
        code = server.stop()
        peer.rest()
        assert peer.is_closed
    assert code in (0, 1), "nats-server ends with 1 after SIGTERM"
    assert list(server.directory.glob("*.ports")) == []


def test_sigint_ends(start: Start) -> None:
    server = start()
    server.signal(signal.SIGINT)
    assert server.wait() == 0


def test_log_tells_that_the_server_is_ready(start: Start) -> None:
    server = start("", "-js")
    wait_until(lambda: "Server is ready" in server.log(), "the log line")
    log = server.log()
    assert f"[INF] Listening for client connections on 127.0.0.1:{server.port}" in log
    assert "[INF] Server is ready" in log


def test_pid_file(start: Start, tmp_path: Path) -> None:
    server = start("", "-P", str(tmp_path / "pid"))
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the pid file")
    assert int((tmp_path / "pid").read_text()) == server.pid


def test_log_file_is_reopened(start: Start, tmp_path: Path) -> None:
    server = start("", "-l", str(tmp_path / "server.log"))
    wait_until(lambda: "Server is ready" in (tmp_path / "server.log").read_text(), "the log line")
    (tmp_path / "server.log").rename(tmp_path / "old.log")
    server.signal(signal.SIGUSR1)
    wait_until(lambda: (tmp_path / "server.log").exists(), "the new log file")


def test_lame_duck_tells_its_clients(start: Start) -> None:
    server = start('lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"')
    with Peer(server) as peer, Peer(server, protocol=0) as old:
        assert peer.ask() == [] and old.ask() == []
        server.signal(signal.SIGUSR2)
        while not peer.info.get("ldm"):
            peer.frame()
        wait_until(lambda: refuses_connections(server), "the listener to close")
        assert peer.ask() == [], "it serves until the grace period is over"
        assert not old.info.get("ldm")
    assert server.wait() == 0, "without clients it ends at once"


def refuses_connections(server: Server) -> bool:
    try:
        Peer(server).socket.close()
    except (ConnectionError, Closed):
        return True
    return False


def test_port_in_use(start: Start, tmp_path: Path) -> None:
    first = start()
    second = Server(first.kind, tmp_path / "second", (), port=first.port)
    process = second.spawn()
    assert process.wait(20) != 0
    assert "[FTL]" in second.log() and "address already in use" in second.log().lower()


def test_configuration_that_is_wrong(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.conf"
    path.write_text("port: -1\nprot: 4222\n")
    run = subprocess.run([*command(kind), "-c", str(path)], capture_output=True, text=True, timeout=20)
    assert run.returncode != 0
    assert "bad.conf:2:" in run.stderr + run.stdout and "prot" in run.stderr + run.stdout
    if kind == JETLAKE:
        assert "port" in run.stderr + run.stdout


def test_configuration_is_tested(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "good.conf"
    path.write_text("port: -1\n")
    run = subprocess.run([*command(kind), "-c", str(path), "-t"], capture_output=True, text=True, timeout=20)
    assert run.returncode == 0 and "is valid" in run.stderr + run.stdout


def test_version(kind: str) -> None:
    run = subprocess.run([*command(kind), "--version"], capture_output=True, text=True, timeout=20)
    assert run.returncode == 0 and run.stdout.strip() == "nats-server: v2.15.1"


def test_a_json_file_is_a_configuration(start: Start) -> None:
    server = start(json.dumps({"max_payload": 1000, "jetstream": {"max_mem": 1000000}}))
    with Peer(server) as peer:
        assert peer.info["max_payload"] == 1000 and peer.info["jetstream"] is True


def test_domain(start: Start) -> None:
    server = start("jetstream { domain: hub }")
    with Peer(server) as peer:
        assert peer.info["domain"] == "hub"
        assert peer.api("INFO")["domain"] == "hub"
        assert peer.request("$JS.hub.API.INFO").json["domain"] == "hub"
        assert "domain" not in peer.api("STREAM.CREATE.S", {"name": "S"})
        assert peer.api("STREAM.INFO.S")["domain"] == "hub"
        assert peer.request("S").payload == b'{"stream":"S","domain":"hub","seq":1}'


def test_strict_mode_can_be_turned_off(start: Start) -> None:
    with Peer(start("jetstream { strict: false }")) as peer:
        assert "error" not in peer.api("STREAM.CREATE.S", {"name": "S", "colour": "blue"})


def test_server_limits_are_kept(start: Start) -> None:
    with Peer(start("jetstream { max_mem: 10KB, max_file: 20KB }")) as peer:
        too_big = peer.api("STREAM.CREATE.S", {"name": "S", "max_bytes": 30_000})
        assert too_big["error"]["err_code"] == 10047
        assert "error" not in peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        acks = [peer.request("s", b"x" * 1000).json for _ in range(25)]
        assert acks[0]["seq"] == 1 and acks[-1]["error"]["err_code"] in (10023, 10047, 10002)


def test_a_second_server_on_the_same_directory(start: Start, tmp_path: Path) -> None:
    """JetLake refuses; nats-server does not look, so that is asked of JetLake alone."""
    first = start("", "-js")
    if first.kind != JETLAKE:
        print("nats-server does not notice another server on its directory")
        return
    second = Server(first.kind, tmp_path / "second", ("-js", "-sd", str(first.store)))
    assert second.spawn().wait(20) != 0
    assert "[FTL]" in second.log() and str(first.store) in second.log()
    with Peer(first) as peer:
        assert "error" not in peer.api("INFO")

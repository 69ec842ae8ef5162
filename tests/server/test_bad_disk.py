"""The disk is full or fails under a running server: one stream says so, the others go on, and in the end so does it."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jetlake.store.verify.check import check_store
from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, Server, wait_until

PAYLOAD = b"x" * 50_000
FILE_SIZE_MAX = 1_000_000
CONFIG = "jetstream { max_file_store: 10GB }"  # by itself the server would stop short of the end of a small disk


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    directory.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "jetlake-test", str(directory)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system takes privileges")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def enlarge(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


def limit_files(server: Server, size: int) -> None:
    """No file of the server may grow beyond this size: a write that would fails with EFBIG."""
    _, most = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, most))


def create(peer: Peer, name: str, **config: object) -> None:
    answer = peer.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})
    assert "error" not in answer


def publish_until_refused(peer: Peer, subject: str, payload: bytes = PAYLOAD) -> tuple[int, dict[str, Any]]:
    """The last sequence that was acknowledged, and the error that came next."""
    for seq in range(1, 5000):
        ack = peer.request(subject, payload).json
        if "error" in ack:
            assert (ack["stream"], ack["seq"]) == (subject.partition(".")[0], 0)
            return seq - 1, ack["error"]
        assert ack["seq"] == seq
    raise AssertionError("the disk has no end")


def is_stored(peer: Peer, subject: str, payload: bytes = PAYLOAD) -> bool:
    return "error" not in peer.request(subject, payload).json


def check_whole(server: Server, peer: Peer, stream: str, acked: int) -> None:
    """What was acknowledged before and after is there, no sequence is missing, and the files are sound."""
    state = peer.api(f"STREAM.INFO.{stream}")["state"]
    assert state["messages"] == state["last_seq"] > acked
    assert server.stop() == 0
    for store in server.store.rglob("msgs"):
        assert check_store(str(store)).ok
    server.start()
    with Peer(server) as again:
        assert again.api(f"STREAM.INFO.{stream}")["state"]["last_seq"] == state["last_seq"]
        assert again.api(f"STREAM.MSG.GET.{stream}", {"seq": acked})["message"]["seq"] == acked


def test_a_full_disk_refuses_messages_until_there_is_room(tmp_path: Path) -> None:
    server = Server(JETLAKE, tmp_path / "server", ["-js"], CONFIG)
    with small_disk(server.store, "4m") as disk, server, Peer(server) as peer:
        create(peer, "FULL"), create(peer, "MEMORY", storage="memory")
        acked, error = publish_until_refused(peer, "FULL.a")
        assert acked and error == {"code": 503, "err_code": 10023, "description": "insufficient resources"}
        assert is_stored(peer, "MEMORY.a")
        assert peer.api("STREAM.CREATE.NEW", {"name": "NEW"})["error"]["err_code"] == 10049
        assert peer.api("STREAM.MSG.GET.FULL", {"seq": acked})["message"]["seq"] == acked
        assert peer.api("STREAM.NAMES")["streams"] == ["FULL", "MEMORY"]
        enlarge(disk, "16m")
        wait_until(lambda: is_stored(peer, "FULL.a"), "the stream to write again")
        create(peer, "NEW")
        assert "stream cannot write name=FULL" in server.log() and "stream writes again name=FULL" in server.log()
        check_whole(server, peer, "FULL", acked)


@pytest.mark.parametrize("size", [800, 50_000])  # few bytes are committed in another way than many
def test_a_failing_file_stops_its_stream_only_and_not_for_ever(tmp_path: Path, size: int) -> None:
    payload = b"x" * size
    with Server(JETLAKE, tmp_path) as server, Peer(server) as peer:
        create(peer, "BIG", allow_direct=True), create(peer, "SMALL")
        limit_files(server, FILE_SIZE_MAX)
        acked, error = publish_until_refused(peer, "BIG.a", payload)
        assert acked > 10 and error["err_code"] == 10077 and str(tmp_path) not in error["description"]
        assert [is_stored(peer, "SMALL.a", b"small") for _ in range(5)] == [True] * 5
        assert peer.request("$JS.API.DIRECT.GET.BIG", b'{"seq":%d}' % acked).payload == payload
        limit_files(server, resource.RLIM_INFINITY)
        wait_until(lambda: is_stored(peer, "BIG.a", payload), "the stream to write again")
        check_whole(server, peer, "BIG", acked)


def test_requests_to_a_stream_that_cannot_write_are_refused(tmp_path: Path) -> None:
    with Server(JETLAKE, tmp_path) as server, Peer(server) as peer:
        create(peer, "BIG")
        limit_files(server, FILE_SIZE_MAX)
        publish_until_refused(peer, "BIG.a")
        for subject, body in (("STREAM.PURGE.BIG", None), ("STREAM.MSG.DELETE.BIG", {"seq": 1, "no_erase": True})):
            wait_until(lambda subject=subject, body=body: is_refused(peer, subject, body), "the refusal")
        assert peer.api("STREAM.DELETE.BIG")["success"]
        create(peer, "BIG")
        assert is_stored(peer, "BIG.a")


def is_refused(peer: Peer, subject: str, body: object) -> bool:
    """Fill the stream, which may just have opened its files again; then it can do nothing for two seconds."""
    while is_stored(peer, "BIG.a"):
        pass
    return peer.api(subject, body).get("error", {}).get("code") in (500, 503)


def test_consumers_go_on_while_their_state_cannot_be_written(tmp_path: Path) -> None:
    with Server(JETLAKE, tmp_path) as server, Peer(server) as peer:
        create(peer, "S")
        for _ in range(5):
            assert is_stored(peer, "S.a", b"small")
        config = {"durable_name": "c", "ack_policy": "explicit", "metadata": {"size": "x" * 100_000}}
        assert "error" not in peer.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
        limit_files(server, 50_000)  # more than the log needs, and less than the consumer's file
        for _ in range(5):
            msg = peer.request("$JS.API.CONSUMER.MSG.NEXT.S.c")
            peer.publish(msg.reply, b"+ACK")
        wait_until(lambda: "consumer state not written name=c" in server.log(), "the failure")
        assert peer.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == 5
        limit_files(server, resource.RLIM_INFINITY)
        assert server.stop() == 0
        server.start()
        with Peer(server) as again:
            assert again.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == 5

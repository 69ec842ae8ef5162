"""Logs that go to a syslog server."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.conftest import Start
from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, LOOPBACK, Server

LINE = re.compile(rb"<(\d+)>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d) \S+ (\S+)\[\d+\]: ([^\n]*)\n")


def read_until(receive: Callable[[], bytes], text: bytes) -> bytes:
    got, stop = b"", time.monotonic() + 10
    while text not in got:
        assert time.monotonic() < stop, got
        got += receive()
    return got


def check(kind: str, got: bytes) -> None:
    lines = LINE.findall(got)
    assert len(lines) == got.count(b"\n") > 3
    assert {name for _, name, _ in lines} == {kind.encode()}
    assert (b"5", b"Server is ready") in {(priority, text) for priority, _, text in lines}


def test_a_syslog_server_over_udp(kind: str, start: Start) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind((LOOPBACK, 0))
        sink.settimeout(10)
        server = start(f'remote_syslog: "udp://{LOOPBACK}:{sink.getsockname()[1]}"')
        check(kind, read_until(lambda: sink.recv(65_536), b"Server is ready"))
        assert server.log() == ""
        with Peer(server, user="x") as peer:
            peer.ask()


@pytest.mark.parametrize("network", ["tcp", "unix"])
def test_a_syslog_server_over_a_stream(kind: str, start: Start, tmp_path: Path, network: str) -> None:
    if network == "tcp":
        listener = socket.create_server((LOOPBACK, 0))
        url = f"tcp://{LOOPBACK}:{listener.getsockname()[1]}"
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        url = f"unix://{tmp_path / 's'}"
    with listener:
        listener.settimeout(10)
        start(f'remote_syslog: "{url}"')
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(10)
            got = read_until(lambda: peer.recv(65_536), b"Server is ready")
            if network == "tcp":
                check(kind, got)
            else:
                assert re.search(
                    rb"<5>[A-Z][a-z]{2} [ \d]\d [\d:]{8} %s\[\d+\]: Server is ready\n" % kind.encode(), got
                )


def test_errors_are_more_severe(kind: str, start: Start) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind((LOOPBACK, 0))
        sink.settimeout(10)
        words = f'remote_syslog: "udp://{LOOPBACK}:{sink.getsockname()[1]}"\nauthorization {{ token: t }}'
        with Peer(start(words)) as peer:
            assert peer.ask() != []
        got = read_until(lambda: sink.recv(65_536), b"authentication error")
        assert next(line for line in LINE.findall(got) if b"authentication error" in line[2])[0] == b"3"


def test_a_log_file_comes_first(start: Start, tmp_path: Path) -> None:
    server = start(f'log_file: "{tmp_path / "file"}"\nremote_syslog: "udp://{LOOPBACK}:9"')
    assert "Server is ready" in (tmp_path / "file").read_text() and server.log() == ""


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "127.0.0.1:514", "tcp://127.0.0.1:1"])
def test_a_server_that_cannot_log_does_not_start(start: Start, url: str) -> None:
    with pytest.raises(AssertionError, match="did not start"):
        start(f'remote_syslog: "{url}"')


def test_a_syslog_server_that_does_not_read_holds_nobody(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        words = f'remote_syslog: "tcp://{LOOPBACK}:{listener.getsockname()[1]}"'
        with Server(JETLAKE, tmp_path, ("-DV",), words) as server, Peer(server) as peer:
            connected, _ = listener.accept()
            for _ in range(200):
                peer.send((b"PUB " + b"x" * 3000 + b" 0\r\n\r\n") * 20)
            assert peer.ask() is not None
            connected.close()
            with Peer(server) as other:
                assert other.ask(b"SUB a 1\r\nPUB a 0\r\n\r\n") == [b"MSG a 1 0\r\n\r\n"]

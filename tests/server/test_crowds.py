"""Thousands of peers that say nothing, or only half of something, cost a bounded amount of memory each."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, Server, wait_until

CROWD = min(4000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 2)
IDLE_SIZE_MAX = 16 * 1024  # of memory for each; about 6 KiB are used
HALF_COUNT, HALF_SIZE, HALF_SIZE_MAX = 300, 1_000_000, 64 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Server(JETLAKE, tmp_path_factory.mktemp("crowds")) as server:
        yield server
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory(server: Server) -> int:
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def connections(server: Server) -> int:
    count: int = server.get("/varz")["connections"]
    return count


@contextmanager
def crowd(server: Server, count: int, said: bytes) -> Iterator[None]:
    """So many connections that have said this much."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(Peer(server)).send(said)
        wait_until(lambda: connections(server) == count, "all to be there", 60)
        yield
    wait_until(lambda: connections(server) == 0, "all to be gone", 60)


def check_service(server: Server) -> None:
    with Peer(server) as peer:
        peer.subscribe("crowds")
        assert len(peer.ask(b"PUB crowds 0\r\n\r\n" * 100)) == 100


def test_thousands_that_say_nothing(server: Server) -> None:
    before = memory(server)
    with crowd(server, CROWD, b"PING\r\nSUB idle 1\r\n"):
        assert memory(server) - before < CROWD * IDLE_SIZE_MAX
        check_service(server)
    check_service(server)


def test_hundreds_that_promise_much_and_send_little(server: Server) -> None:
    before = memory(server)
    with crowd(server, HALF_COUNT, b"PUB half %d\r\n%s" % (HALF_SIZE, b"x" * 1000)):
        assert memory(server) - before < HALF_COUNT * HALF_SIZE_MAX
        check_service(server)


def test_hundreds_that_never_end_their_line(server: Server) -> None:
    before = memory(server)
    with crowd(server, HALF_COUNT, b"PUB " + b"x" * 4000):
        assert memory(server) - before < HALF_COUNT * HALF_SIZE_MAX
        check_service(server)

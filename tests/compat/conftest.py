"""Every test here runs on nats-server and on JetLake: what misunderstands NATS fails on the real one first.

`JETLAKE_COMPAT=nats-server` (or `jetlake`) runs one kind only; the test's name says which it was.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, KINDS, NATS_SERVER, Server

ONLY = os.environ.get("JETLAKE_COMPAT")
Start = Callable[..., Server]
Shared = Callable[..., Server]
_names = itertools.count(1)


class Pair(NamedTuple):
    """The two servers that are to give the same answers."""

    real: Server
    ours: Server


@pytest.fixture(scope="session", params=[kind for kind in KINDS if ONLY in (None, kind)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """One JetStream server of each kind (or several copies) for all tests, started when first asked for."""
    running: dict[tuple[str, int], Server] = {}
    with ExitStack() as stack:

        def of_kind(kind: str, copy: int = 1) -> Server:
            if (kind, copy) not in running:
                server = Server(kind, tmp_path_factory.mktemp(kind), ["-js", "-n", "compat"])
                running[kind, copy] = stack.enter_context(server)
            return running[kind, copy]

        yield of_kind


@pytest.fixture
def server(kind: str, shared: Shared) -> Server:
    """A server with JetStream that all tests share: streams and subjects need names of their own (`name`)."""
    return shared(kind)


@pytest.fixture
def pair(shared: Shared) -> Pair:
    """Both servers, to compare their answers. With JETLAKE_COMPAT set, two servers of that kind must agree, too."""
    if ONLY:
        return Pair(shared(ONLY), shared(ONLY, copy=2))
    return Pair(shared(NATS_SERVER), shared(JETLAKE))


@pytest.fixture
def peer(server: Server) -> Iterator[Peer]:
    """A connection to the shared server."""
    with Peer(server) as peer:
        yield peer


@pytest.fixture
def name() -> str:
    """A name for a stream or a prefix for subjects that no other test uses."""
    return f"T{next(_names)}"


@pytest.fixture
def start(kind: str, tmp_path: Path) -> Iterator[Start]:
    """Start servers with a configuration of their own: `start(config, *flags)`."""
    numbers = itertools.count(1)
    with ExitStack() as stack:

        def run(config: str = "", *flags: str, **environment: str) -> Server:
            server = Server(kind, tmp_path / f"{kind}-{next(numbers)}", flags, config, environment)
            return stack.enter_context(server)

        yield run

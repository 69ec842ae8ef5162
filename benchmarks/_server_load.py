"""Servers under load: nats-server and JetLake started alike, and the generator of _server_load.c between us and them.

The generator is compiled when a benchmark starts. It uses a few per cent of a core, which each benchmark shows: what is
measured is the server. A case runs on both servers in turn, round by round, each time into a fresh stream.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, NATS_SERVER, Server

STREAM = {"name": "LOAD", "subjects": ["bench", "bench.>"]}
SYNCED = "jetstream { sync_interval: always }"
UNSYNCED = 'jetstream { sync_interval: "2m" }'
AS_RELEASED = {"JETLAKE_VERIFY": "", "JETLAKE_WATCHDOG_MS": ""}  # without what tests turn on, at a cost for each event
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """What the generator saw, and what the server spent."""

    count: int
    wall_ns: int
    cpu_ns: int  # the generator's
    server_cpu_ns: float
    p50_ns: int = 0
    p99_ns: int = 0

    @property
    def rate(self) -> float:
        return 1e9 * self.count / self.wall_ns


class Generator:
    """The compiled load generator."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
        assert compiler is not None, "a C compiler is needed to build the load generator"
        self._path = directory / "load"
        source = Path(__file__).with_name("_server_load.c")
        subprocess.run([compiler, "-O2", "-o", str(self._path), str(source)], check=True)

    def run(self, server: Server, mode: str, **keys: object) -> Load:
        before = cpu_ns(server.pid)
        arguments = [str(self._path), mode, str(server.port), *(f"{key}={value}" for key, value in keys.items())]
        done = subprocess.run(arguments, capture_output=True, text=True)
        assert done.returncode == 0, f"{server.kind}: {done.stderr.strip()}\n{server.log()[-1000:]}"
        return Load(**json.loads(done.stdout), server_cpu_ns=cpu_ns(server.pid) - before)


def cpu_ns(pid: int) -> float:
    """CPU time of a process so far, the system's share included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1e9 * (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def rss_size(pid: int) -> int:
    """Resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def both_servers(directory: Path, configs: dict[str, str]) -> Iterator[dict[str, Server]]:
    """A nats-server and a JetLake, each with its configuration, killed at the end and their stores removed."""
    with ExitStack() as stack:
        servers = {}
        for kind in (NATS_SERVER, JETLAKE):
            stack.callback(shutil.rmtree, directory / kind, ignore_errors=True)
            server = Server(kind, directory / kind, ("-js",), configs[kind], AS_RELEASED)
            servers[kind] = stack.enter_context(server)
        yield servers


def fresh_stream(server: Server, config: dict[str, object] | None) -> None:
    """Leave no stream but one with this configuration; None is no stream at all."""
    with Peer(server) as peer:
        peer.api("STREAM.DELETE.LOAD")
        if config is not None:
            answer = peer.api("STREAM.CREATE.LOAD", {**STREAM, **config})
            assert "error" not in answer, answer


def message_count(server: Server) -> int:
    with Peer(server) as peer:
        return int(peer.api("STREAM.INFO.LOAD")["state"]["messages"])

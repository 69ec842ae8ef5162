"""Servers of one cluster, and a raw server that speaks to a cluster port."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.compat.peer import ANSWER_S_MAX
from tests.compat.servers import JETLAKE, LOOPBACK, NATS_SERVER, Server, wait_until

NO_POOL = "pool_size: -1, compression: off"  # as JetLake has it; a nats-server that has more does without it
POOL = "pool_size: 3, compression: s2_fast"
PAIRS = {
    "nats-nats": (NATS_SERVER, NATS_SERVER),
    "jetlake-jetlake": (JETLAKE, JETLAKE),
    "nats-jetlake": (NATS_SERVER, JETLAKE),
    "jetlake-nats": (JETLAKE, NATS_SERVER),
}
TRIOS = {
    "nats": (NATS_SERVER, NATS_SERVER, NATS_SERVER),
    "jetlake": (JETLAKE, JETLAKE, JETLAKE),
    "mixed": (JETLAKE, NATS_SERVER, JETLAKE),
    "mixed-nats": (NATS_SERVER, JETLAKE, NATS_SERVER),
}


def cluster_config(
    kind: str,
    name: str,
    routes: Sequence[int] = (),
    cluster: str = "",
    rest: str = "",
    *,
    pool: str = NO_POOL,
    user: str = "",
    port: int = -1,
    cluster_name: str = "name: C",
) -> str:
    """A server of a cluster that connects to others on these ports."""
    urls = ", ".join(f'"nats-route://{user}{LOOPBACK}:{port}"' for port in routes)
    own = pool if kind == NATS_SERVER else ""
    listen = f'listen: "{LOOPBACK}:{port}"'
    block = f"cluster {{\n {cluster_name}\n {listen}\n routes: [{urls}]\n {own}\n {cluster}\n}}"
    return f"server_name: {name}\n{block}\n{rest}"


def cluster_port(server: Server) -> int:
    path = next(server.directory.glob("*.ports"))
    return int(json.loads(path.read_text())["cluster"][0].rpartition(":")[2])


def remotes(server: Server) -> set[str]:
    """The names of the servers that a server is linked with."""
    return {route["remote_name"] for route in server.get("/routez")["routes"]}


def wanted(server: Server) -> list[str]:
    """What other servers want of a server."""
    routes = server.get("/routez?subs=1")["routes"]
    return list(itertools.chain.from_iterable(route.get("subscriptions_list", ()) for route in routes))


def wait_wanted(server: Server, *subjects: str, by: int = 1) -> None:
    """Wait until a server knows that so many others want these."""
    wait_until(
        lambda: all(wanted(server).count(subject) >= by for subject in subjects), f"{server.kind} to know of {subjects}"
    )


class Cluster:
    """Servers that know each other. The first is called A, the next B."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers
        self.names = {server.directory.name: server for server in servers}

    def __getitem__(self, place: int) -> Server:
        return self.servers[place]

    def wait(self) -> Self:
        """Wait until each is linked with all others."""
        names = set(self.names)
        for name, server in self.names.items():
            wait_until(lambda s=server, n=name: remotes(s) == names - {n}, f"{name} {server.kind} to be linked")
        return self


def start_cluster(
    stack: ExitStack, directory: Path, kinds: Sequence[str], cluster: str = "", rest: str = "", **options: Any
) -> Cluster:
    """Start servers of these kinds, each of which knows the one before it, until they are all linked."""
    servers: list[Server] = []
    for kind, name in zip(kinds, "ABCDE", strict=False):
        ports = [cluster_port(servers[-1])] if servers else []
        config = cluster_config(kind, name, ports, cluster, rest, **options)
        servers.append(stack.enter_context(Server(kind, directory / name, (), config)))
    return Cluster(servers).wait()


class RawRoute:
    """A server of the cluster by hand."""

    def __init__(self, at: int, connect: dict[str, Any] | None = None, **info: Any) -> None:
        """Connect to a port; `connect` None says nothing."""
        self.socket = socket.create_connection((LOOPBACK, at), timeout=ANSWER_S_MAX)
        self._file = self.socket.makefile("rb")
        self.info = json.loads(self.line()[5:])
        if connect is not None:
            said = {"verbose": False, "headers": True, "name": "RAWID", "cluster": "C"} | connect
            self.send(b"CONNECT " + json.dumps(said).encode() + b"\r\n")
            own = {"server_id": "RAWID", "server_name": "RAW", "version": "2.15.1", "headers": True, "cluster": "C"}
            own |= {"host": LOOPBACK, "port": 1, "max_payload": 1048576}
            self.send(b"INFO " + json.dumps(own | info).encode() + b"\r\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> bytes:
        """The next line, with the payload of a message; empty at the end."""
        try:
            line = self._file.readline()
        except ConnectionResetError:
            return b""
        if line[:5] in (b"RMSG ", b"HMSG "):
            line += self._file.read(int(line.split()[-1]) + 2)
        return line

    def ask(self, data: bytes = b"") -> list[bytes]:
        """Send, then PING: everything that comes before the PONG or the end, but for the system account's."""
        with contextlib.suppress(OSError):  # it hung up: what it said before can be read
            self.send(data + b"PING\r\n")
        lines = []
        while (line := self.line()) not in (b"PONG\r\n", b""):
            if line != b"PING\r\n" and b" $SYS " not in line:
                lines.append(line)
        return lines

    @property
    def is_closed(self) -> bool:
        """Whether the server has hung up; nothing else is expected."""
        return self.line() == b""

"""Three `jetlake serve` processes on loopback whose JetStream is one."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError

from jetlake.cluster.engine import WHY_NOT
from tests.compat.servers import JETLAKE, LOOPBACK, Server, wait_until

_CONFIG = """
server_name: {name}
jetstream {{ max_file: 1G, max_mem: 100M }}
cluster {{ name: C1, listen: "{host}:{port}", routes: [{routes}], {more} }}
accounts {{
  $SYS {{ users: [{{ user: admin, password: admin }}] }}
  A {{ jetstream: enabled, users: [{{ user: a, password: a }}] }}
}}
no_auth_user: a
"""
START_S_MAX = 30.0


class ProcessCluster:
    """The servers, by name."""

    def __init__(self, directory: Path, count: int = 3, *, user: str = "", more: str = "") -> None:
        self.names = [f"n{number}" for number in range(1, count + 1)]
        ports = [free_port() for _ in self.names]
        routes = ", ".join(f'"nats-route://{user}{LOOPBACK}:{port}"' for port in ports)
        self.servers = {
            name: Server(
                JETLAKE,
                directory / name,
                ["-js"],
                _CONFIG.format(name=name, host=LOOPBACK, port=port, routes=routes, more=more),
            )
            for name, port in zip(self.names, ports, strict=True)
        }
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        assert not WHY_NOT
        self.start(*self.names)
        self.wait_whole()
        return self

    def __exit__(self, *error: object) -> None:
        for server in self.servers.values():
            server.kill()

    def __getitem__(self, name: str) -> Server:
        return self.servers[name]

    def start(self, *names: str) -> None:
        """Start some, all at once."""
        for name in names:
            self[name].spawn()
        for name in names:
            self[name]._await_ports()

    def kill(self, *names: str) -> None:
        for name in names:
            self[name].process.send_signal(9)  # type: ignore[union-attr]
        for name in names:
            self[name].kill()

    def wait_whole(self) -> None:
        """Wait until every server knows a leader, and all servers are members."""
        wait_until(lambda: all(self._is_whole(server) for server in self.servers.values()), "a cluster", START_S_MAX)

    def _is_whole(self, server: Server) -> bool:
        time.sleep(0.02)
        try:
            meta = server.get("/jsz")["meta_cluster"]
            return meta["cluster_size"] == len(self.names) and server.get("/healthz")["status"] == "ok"
        except (URLError, KeyError):
            return False

    @property
    def meta_leader(self) -> str:
        """The name of the server that leads the meta group."""
        for server in self.servers.values():
            if server.process is not None and (leader := server.get("/jsz")["meta_cluster"].get("leader")):
                return str(leader)
        raise AssertionError("nobody knows a leader")

    def others(self, *names: str) -> list[str]:
        return [name for name in self.names if name not in names]

    def states(self, stream: str) -> list[tuple[int, int, int]]:
        """What each server holds of a stream: messages, first and last sequence."""
        found = []
        for server in self.servers.values():
            for account in server.get("/jsz?streams=1&accounts=1").get("account_details", ()):
                for each in account.get("stream_detail") or ():
                    state = each["state"]
                    if each["name"] == stream:
                        found.append((state["messages"], state["first_seq"], state["last_seq"]))
        return found

    def wait_equal(self, stream: str, messages: int, replicas: int = 3) -> None:
        """Wait until all replicas hold so many messages."""

        def is_equal() -> bool:
            time.sleep(0.02)
            states = self.states(stream)
            return len(states) == replicas and len(set(states)) == 1 and states[0][0] == messages

        wait_until(is_equal, f"{replicas} equal replicas of {stream} with {messages} messages", START_S_MAX)


async def insist(work: Any, wait_s: float = START_S_MAX) -> Any:
    """Do something until it works."""
    stop = time.monotonic() + wait_s
    while True:
        try:
            return await work()
        except Exception:
            if time.monotonic() > stop:
                raise
            await asyncio.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])

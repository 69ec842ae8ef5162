"""Servers that are linked, and a raw leaf that speaks to a hub's port."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.compat.peer import ANSWER_S_MAX
from tests.compat.servers import JETLAKE, LOOPBACK, NATS_SERVER, Server, wait_until

ROLES = [(NATS_SERVER, JETLAKE), (JETLAKE, NATS_SERVER), (JETLAKE, JETLAKE), (NATS_SERVER, NATS_SERVER)]
LISTEN = f'listen: "{LOOPBACK}:-1"'


def hub_config(name: str = "HUB", leafnodes: str = "", rest: str = "") -> str:
    """A server that takes leafs."""
    return f"server_name: {name}\nleafnodes {{ {LISTEN}\n {leafnodes} }}\n{rest}"


def leaf_config(port: int, remote: str = "", rest: str = "", name: str = "LEAF", user: str = "") -> str:
    """A server that is a leaf of a hub on a port."""
    url = f'url: "nats-leaf://{user}{LOOPBACK}:{port}"'
    return f"server_name: {name}\nleafnodes {{ reconnect: 100ms, remotes: [ {{ {url}\n {remote} }} ] }}\n{rest}"


def leaf_port(server: Server) -> int:
    return int(server.get("/varz")["leaf"]["port"])


class Linked:
    """A hub and its leaf."""

    def __init__(self, hub: Server, leaf: Server) -> None:
        self.hub, self.leaf = hub, leaf

    def wait(self) -> Self:
        """Wait until both say that they are linked."""
        for server in (self.hub, self.leaf):
            wait_until(lambda server=server: server.get("/leafz")["leafnodes"] > 0, f"{server.kind} to be linked")
        return self


def wanted(server: Server) -> set[str]:
    """What the other sides of a server's links want."""
    found: set[str] = set()
    for leaf in server.get("/leafz?subs=1")["leafs"]:
        found |= set(leaf.get("subscriptions_list", ()))
    return found


def wait_wanted(server: Server, *subjects: str) -> None:
    """Wait until a server knows that these are wanted over a link."""
    wait_until(lambda: set(subjects) <= wanted(server), f"{server.kind} to know of {subjects}")


def link(hub_kind: str, leaf_kind: str, directory: Path, hub: str, leaf: Callable[[int], str]) -> Linked:
    """Start a hub and its leaf with these configurations; the leaf's is made from the hub's port."""
    first = Server(hub_kind, directory / f"hub-{hub_kind}", (), hub).start()
    try:
        second = Server(leaf_kind, directory / f"leaf-{leaf_kind}", (), leaf(leaf_port(first))).start()
    except BaseException:
        first.kill()
        raise
    return Linked(first, second)


class RawLeaf:
    """A leaf by hand."""

    def __init__(self, port: int, connect: dict[str, Any] | None = None, **options: Any) -> None:
        """`connect` None sends no CONNECT."""
        self.socket = socket.create_connection((LOOPBACK, port), timeout=ANSWER_S_MAX)
        self._file = self.socket.makefile("rb")
        self.info = json.loads(self.line()[5:])
        if connect is not None:
            self.send(b"CONNECT " + json.dumps(connect | options).encode() + b"\r\n")

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
        if line[:5] in (b"LMSG ", b"HMSG "):
            line += self._file.read(int(line.split()[-1]) + 2)
        return line

    def ask(self, data: bytes = b"") -> list[bytes]:
        """Send, then PING: everything that comes before the PONG or the end."""
        with contextlib.suppress(OSError):  # it hung up: what it said before can be read
            self.send(data + b"PING\r\n")
        lines = []
        while (line := self.line()) not in (b"PONG\r\n", b""):
            if line != b"PING\r\n":
                lines.append(line)
        return lines

    @property
    def is_closed(self) -> bool:
        """Whether the hub has hung up; nothing else is expected."""
        return self.line() == b""

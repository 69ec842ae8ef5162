"""A cluster of three real nats-servers on loopback, to see what it says."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.compat.peer import Peer
from tests.compat.servers import LOOPBACK, NATS_SERVER, Server, wait_until

TAGS = (("az:1", "ssd"), ("az:2", "ssd"), ("az:2", "hdd"))
_CONFIG = """
server_name: n{number}
server_tags: [{tags}]
jetstream {{ max_file: 1G, max_mem: 100M {jetstream} }}
cluster {{ name: C1, listen: "127.0.0.1:{port}", routes: [{routes}] }}
accounts {{
  $SYS {{ users: [{{ user: admin, password: admin }}] }}
  A {{ jetstream: enabled, users: [{{ user: a, password: a }}] }}
}}
no_auth_user: a
"""


class RealCluster:
    """Three servers that know each other, with a client and an operator connected to the first."""

    def __init__(self, servers: list[Server], client: Peer, admin: Peer) -> None:
        self.servers, self.client, self.admin = servers, client, admin

    def ask(self, subject: str, body: Any = b"", *, system: bool = False) -> Any:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        return (self.admin if system else self.client).request(f"$JS.API.{subject}", payload).json

    def ask_for_all(self, subject: str, body: Any = b"") -> Any:
        """An answer that every server has added its part to: nats-server lists as missing who was too slow."""
        found: list[Any] = []

        def is_whole() -> bool:
            found[:] = [self.ask(subject, body)]
            return "missing" not in found[0]

        wait_until(is_whole, f"all of {subject}", 10)
        return found[0]

    def error(self, subject: str, body: Any = b"", *, system: bool = False) -> tuple[Any, ...]:
        answer = self.ask(subject, body, system=system)
        assert "error" in answer, answer
        return tuple(answer["error"].values())

    def make_current(self, subject: str) -> Any:
        """An info whose replicas are all current."""
        found: list[Any] = []

        def is_current() -> bool:
            found[:] = [self.ask(subject)]
            return all(each["current"] and "lag" not in each for each in found[0]["cluster"]["replicas"])

        wait_until(is_current, f"replicas of {subject}", 20)
        return found[0]

    def meta_leader(self) -> Server:
        name = self.servers[0].get("/jsz")["meta_cluster"]["leader"]
        return self.servers[int(name[1:]) - 1]


@contextmanager
def real_cluster(directory: Path, jetstream: str = "") -> Iterator[RealCluster]:
    """Start the servers and wait until they are one."""
    ports = [_free_port() for _ in range(3)]
    routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in ports)
    with ExitStack() as stack:
        servers = []
        for number, (port, tags) in enumerate(zip(ports, TAGS, strict=True), 1):
            shown = ", ".join(f'"{tag}"' for tag in tags)
            config = _CONFIG.format(number=number, tags=shown, port=port, routes=routes, jetstream=jetstream)
            servers.append(stack.enter_context(Server(NATS_SERVER, directory / f"n{number}", ["-js"], config)))
        wait_until(lambda: all(_is_healthy(server) for server in servers), "three healthy servers", 60)
        client = stack.enter_context(Peer(servers[0]))
        admin = stack.enter_context(Peer(servers[0], user="admin", **{"pass": "admin"}))
        found = RealCluster(servers, client, admin)
        wait_until(lambda: len(servers[0].get("/jsz")["meta_cluster"].get("replicas", [])) == 2, "the meta group", 30)
        yield found


def _is_healthy(server: Server) -> bool:
    try:
        with urlopen(f"http://{LOOPBACK}:{server.http_port}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except HTTPError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def shape(value: Any) -> Any:
    """What a JSON value looks like: keys in their order, and kinds of values. A list is like its items."""
    if isinstance(value, dict):
        return [(key, shape(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [[each] for each in {json.dumps(shape(item)): shape(item) for item in value}.values()]
    return type(value).__name__

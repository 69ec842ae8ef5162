"""The server as its part of a JetStream cluster sees it, and what drives that part: links, and the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jetlake.clock import Clock
from jetlake.cluster.engine import TICK_S
from jetlake.cluster.local import BadCluster, Linked, LocalCluster
from jetlake.config import RemoteOptions, ServerOptions
from jetlake.jetstream.host import CommitUnit, Dialed, Line, Timer
from jetlake.server.links.raft import RaftLinks

if TYPE_CHECKING:
    from jetlake.jetstream.service import JetStream
    from jetlake.server.server import Server

LEAVE_STEP_S, LEAVE_TRIES = 0.01, 50
NO_SERVER_NAME = "jetstream cluster requires `server_name` to be set"
NO_CLUSTER_NAME = "jetstream cluster requires `cluster.name` to be set"


class ClusterPart:
    """The host of a `LocalCluster`, which it starts and stops."""

    def __init__(self, server: Server, jetstream: JetStream) -> None:
        """Raises JetLakeError where the configuration or the installation is not enough for a cluster."""
        options = server.options
        assert options.cluster is not None
        if not options.server_name:
            raise BadCluster(NO_SERVER_NAME)
        if not options.cluster.name:
            raise BadCluster(NO_CLUSTER_NAME)
        self._server = server
        self.local = LocalCluster(self, jetstream, server.broker.system_account, options.cluster.name)
        self.links = RaftLinks(server)
        self._timer: asyncio.TimerHandle | None = None
        self._warned: set[str] = set()

    @property
    def node(self) -> Any:
        return self.local.node

    def start(self) -> None:
        """Take part. JetStream has started."""
        self._server.routes.on_linked = self._linked
        self.local.start()

    def run(self) -> None:
        """The server listens: let time pass."""
        self._timer = self._server.loop.call_later(TICK_S, self._tick)
        self._server.call_soon(self.local.admission.tick)

    def _tick(self) -> None:
        server = self._server
        self._timer = server.loop.call_later(TICK_S, self._tick)
        try:
            self.local.tick()
        except Exception as error:
            server.failed("cluster", error)
        server.flush()

    def _linked(self) -> None:
        """A server was linked, or said something else of itself."""
        own = self.local.identity.cluster_id
        for route in self._server.routes.open.values():
            said = route.info.jetlake if route.info is not None else None
            other = str(said.get("cluster_id") or "") if said else ""
            if own and other and own != other and route.server_name not in self._warned:
                self._warned.add(route.server_name)
                what = f"server {route.server_name} is of JetStream cluster {other}, this one is of {own}"
                self.log("error", f"{what}: their streams stay apart")
        self.links.look()

    async def leave(self) -> None:
        """Let others lead, wait until they do, and take no part any more."""
        self.local.retire()
        for _ in range(LEAVE_TRIES):
            if not self.local.leads_any:
                break
            await asyncio.sleep(LEAVE_STEP_S)
        self.stop()

    def stop(self) -> None:
        """Take no part any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._server.routes.on_linked = lambda: None
        self.local.stop()
        self.links.close()

    # See `cluster.local.ClusterHost`

    def linked(self) -> list[Linked]:
        found = []
        for route in self._server.routes.open.values():
            said = route.info.jetlake if route.info is not None else None
            if said is not None:
                found.append(Linked(route.server_name, str(said.get("cluster_id") or ""), int(said.get("node") or 0)))
        return found

    def is_complete(self) -> bool:
        routes = self._server.routes
        reached = (routes.reached.get(url) for url in routes.options.routes)
        return all(id is not None and (id == self._server.server_id or id in routes.open) for id in reached)

    def identity_changed(self, identity: dict[str, Any]) -> None:
        self._server.routes.tell_identity(identity)
        self._server.call_soon(self.links.look)

    def send(self, node: int, data: bytes) -> None:
        self.links.send(node, data)

    # See `jetstream.host.Host`

    @property
    def clock(self) -> Clock:
        return self._server.clock

    @property
    def options(self) -> ServerOptions:
        return self._server.options

    @property
    def server_id(self) -> str:
        return self._server.server_id

    @property
    def server_name(self) -> str:
        return self._server.server_name

    def call_at(self, time_ns: int, callback: Callable[[], None]) -> Timer:
        return self._server.call_at(time_ns, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._server.call_soon(callback)

    def commit_soon(self, unit: CommitUnit) -> None:
        self._server.commit_soon(unit)

    def flush(self) -> None:
        self._server.flush()

    def dial(self, remote: RemoteOptions, client: Dialed) -> Line:
        return self._server.dial(remote, client)

    def log(self, level: str, line: str) -> None:
        self._server.log(level, line)

    def failed(self, what: str, error: BaseException) -> None:
        self._server.failed(what, error)

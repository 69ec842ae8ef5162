"""Connections for consensus between two servers of a cluster, beside the route that they have.

A server connects to the cluster port of every other one that is in the same cluster, shows that it is of it as a route
does, and says `RAFT <node> <epoch>`; from then on it sends frames of the consensus engine, and hears nothing. What the
other one has to say comes over the connection that it made itself. So a connection that breaks, and one that is
refused, tell both sides at once that a process is gone, and consensus never waits behind messages of clients.

Connections of another kind, for bulk copies, are made the same way (`dial`).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

from jetlake.broker.route import Route
from jetlake.errors import JetLakeError
from jetlake.server.address import join
from jetlake.server.links.connection import RouteConnection
from jetlake.server.links.dial import client_context, connected_socket, verified_name
from jetlake.wire import links

if TYPE_CHECKING:
    from jetlake.cluster.node import Node
    from jetlake.server.server import Server

DIAL_S = 0.5
RETRY_S, RETRY_S_MAX = 0.05, 1.0
INFO_SIZE_MAX = 1024 * 1024
UNSENT_SIZE_MAX = 64 * 1024 * 1024  # what a peer does not take; consensus sends again what was dropped
REST_SIZE_MAX = 256 * 1024 * 1024  # the beginning of a frame


class _Incoming(asyncio.Protocol):
    """A connection that another server made: frames come."""

    def __init__(self, peers: RaftLinks, node: int, epoch: int) -> None:
        self._peers, self.node, self.epoch = peers, node, epoch
        self.transport: asyncio.Transport | None = None
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        node = self._peers.node
        if node is None:
            return
        data = self._rest + data if self._rest else data
        try:
            used = node.receive(self.node, self.epoch, data)
        except ValueError as error:
            self._peers.log("error", f"raft connection of node {self.node} closed: {error}")
            self.close()
            return
        self._rest = data[used:] if used < len(data) else b""
        if len(self._rest) > REST_SIZE_MAX:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.lost(self)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Outgoing(asyncio.Protocol):
    """A connection to another server: frames go."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._head = bytearray()
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """INFO comes first. Anything later is a refusal, which is followed by the end."""
        if not self.greeted.done():
            self._head += data
            if b"\n" in self._head or len(self._head) > INFO_SIZE_MAX:
                self.greeted.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
        if not self.greeted.done():
            self.greeted.set_exception(exc or ConnectionResetError("the connection ended before INFO"))
            self.greeted.exception()


class _Peer:
    """Another server of the cluster."""

    def __init__(self, number: int, url: str) -> None:
        self.number, self.url = number, url
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.wake = asyncio.Event()


class RaftLinks:
    """All connections for consensus of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._peers: dict[int, _Peer] = {}
        self._incoming: dict[int, _Incoming] = {}
        self._epoch = 0
        self._is_closed = False
        server.routes.on_switch["RAFT"] = self._switch

    @property
    def node(self) -> Node | None:
        cluster = self._server.cluster_part
        return cluster.node if cluster is not None else None

    def log(self, level: str, line: str) -> None:
        self._server.log(level, line)

    # To others

    def send(self, number: int, data: bytes) -> None:
        """Send to a peer, in order; nothing when there is no connection."""
        peer = self._peers.get(number)
        if peer is None or peer.transport is None:
            return
        if peer.transport.get_write_buffer_size() > UNSENT_SIZE_MAX:
            self.log("warning", f"raft connection to node {number} takes nothing: closed")
            peer.transport.abort()
            return
        peer.transport.write(data)

    def look(self) -> None:
        """Connect to the servers of the cluster that are linked now."""
        own, node = self._server.routes.identity, self.node
        if node is None or self._is_closed:
            return
        for route in self._server.routes.open.values():
            said = route.info.jetlake if route.info is not None else None
            if not said or said.get("cluster_id") != own.get("cluster_id") or not said.get("node"):
                continue
            self._know(int(said["node"]), url_of(self._server, route))

    def _know(self, number: int, url: str) -> None:
        if number == self._server.routes.identity.get("node"):
            return
        peer = self._peers.get(number)
        if peer is None:
            peer = self._peers[number] = _Peer(number, url)
            peer.task = self._server.loop.create_task(self._run(peer))
        elif peer.url != url:
            peer.url = url
        peer.wake.set()

    async def _run(self, peer: _Peer) -> None:
        """Stay connected to a peer."""
        wait_s = RETRY_S
        while not self._is_closed:
            peer.wake.clear()
            try:
                self._epoch += 1
                own = self._server.routes.identity["node"]
                protocol = await self.dial(peer.url, b"RAFT %d %d\r\n" % (own, self._epoch))
            except ConnectionRefusedError:
                self._refused(peer.number)
            except (OSError, TimeoutError, JetLakeError) as error:
                self.log("debug", f"raft connection to node {peer.number} failed: {error or 'timeout'}")
            except Exception as error:
                self._server.failed("raft connection", error)
            else:
                wait_s = RETRY_S
                peer.transport = protocol.transport
                self._unreachable(peer.number)  # what was sent before has not arrived
                await protocol.ended.wait()
                peer.transport = None
                self._unreachable(peer.number)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(peer.wake.wait(), wait_s)
            wait_s = min(2 * wait_s, RETRY_S_MAX)

    def _refused(self, number: int) -> None:
        if (node := self.node) is not None:
            node.peers.refused(number)
            self._server.flush()

    def _unreachable(self, number: int) -> None:
        if (node := self.node) is not None:
            node.unreachable(number)

    async def dial(self, url: str, line: bytes) -> Any:
        """A connection to another server that is for what a line says. Raises OSError, TimeoutError, JetLakeError."""
        server, found = self._server, urlsplit(url)
        tls, loop = server.routes.options.tls, server.loop
        sock = await asyncio.wait_for(connected_socket(loop, found), DIAL_S)
        protocol = _Outgoing()
        secured: dict[str, Any] = {}
        if tls is not None:
            known = [urlsplit(route) for route in server.routes.options.routes]
            secured = {
                "ssl": client_context(tls, "cluster"),
                "server_hostname": verified_name(found, known),
                "ssl_handshake_timeout": tls.timeout_s,
            }
        try:
            await loop.create_connection(lambda: protocol, sock=sock, **secured)
            await asyncio.wait_for(protocol.greeted, server.routes.info_timeout_s)
        except BaseException:
            sock.close()
            raise
        assert protocol.transport is not None
        protocol.transport.write(links.connect(server.routes.connect_fields(url)) + line)
        return protocol

    # From others

    def _switch(self, kind: str, args: bytes, connection: RouteConnection) -> None:
        number = int(args.split()[0]) if args.split() and args.split()[0].isdigit() else 0
        self._epoch += 1
        incoming = _Incoming(self, number, self._epoch)
        transport, rest = connection.take_over(incoming)
        incoming.transport = transport
        node = self.node
        if not number or node is None or self._is_closed:
            transport.abort()
            return
        old, self._incoming[number] = self._incoming.get(number), incoming
        node.connected(number, incoming.epoch)
        if old is not None:
            old.close()
        if rest:
            incoming.data_received(rest)
        transport.resume_reading()
        if (peer := self._peers.get(number)) is not None:
            peer.wake.set()  # it is there, so it can be connected to

    def lost(self, incoming: _Incoming) -> None:
        """A connection that another server made has ended."""
        if self._incoming.get(incoming.node) is incoming:
            del self._incoming[incoming.node]
            if (node := self.node) is not None:
                node.peers.lost(incoming.node, incoming.epoch)

    def close(self) -> None:
        """End all connections."""
        self._is_closed = True
        for peer in self._peers.values():
            if peer.task is not None:
                peer.task.cancel()
            if peer.transport is not None:
                peer.transport.close()
        for incoming in list(self._incoming.values()):
            incoming.close()


def url_of(server: Server, route: Route) -> str:
    """How a linked server is reached at its cluster port."""
    info, options = route.info, server.routes.options
    if route.url:
        return route.url
    assert info is not None
    found = urlsplit(info.ip) if info.ip else None
    host = found.hostname if found is not None and found.hostname else route.address[0]
    port = found.port if found is not None and found.port else info.port
    user = ""
    if options.username:
        user = f"{quote(options.username, safe='')}:{quote(options.password, safe='')}@"
    return f"nats-route://{user}{join(host, port)}"

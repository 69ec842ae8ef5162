"""The server: listeners, the broker, JetStream, and what they need of the loop.

It is the Host of JetStream: timers, group commit and the log. Everything runs in the loop's thread; what a callback
queued for clients is handed to their sockets at its end (`flush`).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import hashlib
import os
import ssl
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from jetlake import nkeys
from jetlake.broker.auth import Credentials, User
from jetlake.broker.broker import Broker
from jetlake.broker.client import Client
from jetlake.broker.endpoint import Endpoint
from jetlake.clock import SECOND_NS, Clock, system_clock
from jetlake.config import RemoteOptions, ServerOptions
from jetlake.errors import JetLakeError
from jetlake.jetstream.api_level import API_LEVEL
from jetlake.jetstream.host import CommitUnit, Dialed, Timer
from jetlake.server import start_lines, trace
from jetlake.server.address import urls
from jetlake.server.commit_loop import CommitLoop
from jetlake.server.connection import ClientConnection
from jetlake.server.events import Events
from jetlake.server.failures import Failures
from jetlake.server.garbage import IdleCollector
from jetlake.server.lame_duck import lame_duck
from jetlake.server.links.leafs import Leafs
from jetlake.server.links.routes import Routes
from jetlake.server.listeners import ClientListener, WebSocketListener
from jetlake.server.log import Log
from jetlake.server.observe.process import CpuMeter
from jetlake.server.peer_connection import PeerConnection, SharedBuffer, SpareBuffers
from jetlake.server.run_files import RunFiles
from jetlake.server.system import SystemServices
from jetlake.server.tls import Handshakes, make_context
from jetlake.server.vigil import Vigil

if TYPE_CHECKING:
    from jetlake.cluster.view import ClusterView
    from jetlake.jetstream.service import JetStream
    from jetlake.server.auth_callout import AuthCallout
    from jetlake.server.cluster_host import ClusterPart
    from jetlake.server.monitor import Monitor
    from jetlake.server.remotes import RemoteLine
    from jetlake.server.token_accounts import TokenAccounts

NATS_VERSION = "2.15.1"  # the nats-server whose behaviour clients may count on
CLOSED_COUNT_MAX = 1_000  # connections that are remembered when they are over; the oldest goes first
STOP_S_MAX = 2.0  # for clients to take what they were sent last


class Server:
    """One server: start it, and stop it."""

    def __init__(
        self,
        options: ServerOptions,
        log: Log,
        *,
        clock: Clock = system_clock,
        read_options: Callable[[], ServerOptions] | None = None,
    ) -> None:
        """`read_options` reads the configuration again, for a reload. Raises JetLakeError for bad options."""
        self.options, self.clock, self.logger = options, clock, log
        self.failed = Failures(log)
        self._read_options = read_options
        self.key = nkeys.KeyPair(nkeys.SERVER) if options.may_call_out else None
        self.server_id = self.key.public if self.key else "N" + base64.b32encode(os.urandom(35)).decode()[:55]
        self.broker = Broker(options, self.server_id, NATS_VERSION, clock=clock)
        self.broker.log, self.broker.failed, self.broker.call_soon = log, self.failed, self.call_soon
        self.broker.call_at = self.call_at
        self.tls: ssl.SSLContext | None = make_context(options.tls) if options.tls is not None else None
        self.buffer, self.spare_buffers = SharedBuffer(), SpareBuffers()
        self.start_ns = self.config_load_ns = clock()
        self.loop: asyncio.AbstractEventLoop
        self.commits: CommitLoop
        self.vigil: Vigil
        self.jetstream: JetStream | None = None
        self.monitor: Monitor | None = None
        self.handshakes = Handshakes()
        self.listener = ClientListener(self)
        self.websocket_listener = WebSocketListener(self)
        self.files = RunFiles()
        self.system = SystemServices(self)
        self.cpu = CpuMeter()
        self.closed: deque[Client] = deque(maxlen=CLOSED_COUNT_MAX)
        self.events = Events(self)
        self.broker.send_trace = self.system.send_trace
        self.broker.on_joined, self.broker.on_left = self._joined, self._left
        self.tokens: TokenAccounts | None = None
        self.callout: AuthCallout | None = None
        self.xkey = ""  # for what is sealed for this server; empty: nothing is
        self.leafs, self.routes = Leafs(self), Routes(self)
        self.cluster: ClusterView | None = None  # of a server whose JetStream is that of several
        self.cluster_part: ClusterPart | None = None  # the same, as something to start and stop
        self._connections: set[PeerConnection] = set()
        self._last_left: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._reloading = asyncio.Lock()
        self.page_lock = asyncio.Lock()  # one long page at a time: all of them in turns would be a long turn
        self.unapplied: set[str] = set()  # options that changed, in a reload that did not come to its end
        self._is_flushing = self._has_flush = self._is_stopping = False
        self.is_ready = False
        self.stopped = asyncio.Event()
        self.use_options(options)

    @property
    def server_name(self) -> str:
        return self.broker.server_name

    @property
    def port(self) -> int:
        return self.broker.port

    # Life

    async def run(self) -> None:
        """Start, and serve until somebody stops it. Raises JetLakeError or OSError when it cannot start."""
        try:
            await self.start()
        except BaseException:
            await self._abandon()
            raise
        gc.freeze()  # what is there now stays: the collector need not look at it again
        gc.enable()  # a start is sooner without
        IdleCollector(lambda: self.broker.in_msgs + self.broker.total_connections).start(asyncio.get_running_loop())
        await self.stopped.wait()

    async def start(self) -> None:
        """Recover what is stored, and listen."""
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(self._loop_error)
        self.commits = CommitLoop(self.loop, self.flush, self.failed)
        self.vigil = Vigil(self.loop, self.commits.is_idle)
        start_lines.server(self)
        self.files.write_pid(self.options)
        if self.options.http_port or self.options.https_port:
            from jetlake.server.monitor import Monitor  # most servers have none

            self.monitor = Monitor(self)
            await self.monitor.start()
        if self.key is not None:
            from jetlake.sealed_box import BoxKey
            from jetlake.server.auth_callout import AuthCallout  # few servers have one

            box_key = BoxKey()
            self.callout, self.xkey = AuthCallout(self, self.key, box_key), box_key.public
            self.show_features()
        await self._start_operator_mode()
        if self.options.jetstream.enabled:
            self.start_jetstream()
        self.system.serve_accounts()
        await self.leafs.start()
        await self._listen()
        await self.routes.start()
        if self._is_stopping:  # a signal came in the meantime
            return
        self.is_ready = True
        self.events.start()
        self.leafs.solicit()
        self.routes.solicit()
        if self.cluster_part is not None:
            self.cluster_part.run()
        self.log("info", "Server is ready")
        self.files.write_ports(self.options, self.ports(self.options))

    async def _start_operator_mode(self) -> None:
        """Find the accounts that are needed from the beginning."""
        if self.options.operator is None:
            return
        from jetlake.server.claims_api import ClaimsApi  # few servers have one
        from jetlake.server.token_accounts import TokenAccounts

        start_lines.operators(self)
        self.tokens = TokenAccounts(self, self.options.operator)
        await self.tokens.start(self._accounts_with_streams())
        ClaimsApi(self, self.tokens).start()

    def _accounts_with_streams(self) -> list[str]:
        """The accounts of which there is something on disk."""
        from pathlib import Path

        directory = Path(self._store_dir()) / "jetstream"
        if not self.options.jetstream.enabled or not directory.is_dir():
            return []
        return [entry.name for entry in directory.iterdir() if nkeys.is_public(entry.name, nkeys.ACCOUNT)]

    def _store_dir(self) -> str:
        import tempfile  # most servers are told a place

        return self.options.jetstream.store_dir or f"{tempfile.gettempdir()}/jetlake"

    def start_jetstream(self) -> None:
        """Recover streams, and serve them. Raises JetLakeError or OSError, and then there are none."""
        from jetlake.jetstream.service import JetStream  # not needed by a server without streams

        self.log("info", "Starting JetStream")
        if self.options.jetstream.store_dir is None:
            self.log("warning", "Temporary storage directory used, data could be lost on system reboot")
        begin_ns = self.clock()
        jetstream = JetStream(self, self._store_dir())
        part = self._cluster_part(jetstream)
        try:
            jetstream.start(self.broker.accounts.values())
            if part is not None:
                part.start()
        except BaseException:
            jetstream.stop()
            raise
        self.jetstream = jetstream
        if part is not None and self.is_ready:  # a reload enabled it
            part.run()
        self.show_features()
        start_lines.jetstream(self, jetstream, self.clock() - begin_ns)

    def _cluster_part(self, jetstream: JetStream) -> ClusterPart | None:
        """What makes the JetStream of this server that of a cluster, if it is in one. Raises JetLakeError."""
        if self.options.cluster is None or not self.options.cluster.port:
            return None
        from jetlake.server.cluster_host import ClusterPart  # most servers are alone

        part = self.cluster_part = ClusterPart(self, jetstream)
        self.cluster, jetstream.cluster = part.local, part.local.api
        return part

    async def _listen(self) -> None:
        options = self.options
        self.broker.port = self.listener.bind(options.host, options.port)
        await self.listener.start()
        if options.websocket is not None and options.websocket.port:
            await self.websocket_listener.start(options.websocket)
            self.broker.websocket_port = self.websocket_listener.port
        start_lines.listening(self)

    async def stop(self) -> None:
        """Close everything; nothing that was acknowledged is lost, and nobody misses an acknowledgement."""
        if self._is_stopping:
            await self.stopped.wait()
            return
        self._is_stopping = True
        self.log("info", "Initiating Shutdown...")
        for step in (self._leave, self._abandon):
            try:
                await step()
            except Exception as error:  # a server that is told to stop stops
                self.failed("shutdown", error)
        self.log("info", "Server Exiting..")
        self.stopped.set()

    async def _leave(self) -> None:
        """Commit what was taken, and let clients have their answers."""
        self.close_listeners()
        self.routes.close()
        for connection in self._connections:
            connection.hold()
        await self.stop_jetstream()
        self.events.leaving("SHUTDOWN")
        for client in list(self.broker.clients.values()):
            client.close("Server Shutdown")
        self.leafs.close_links("Server Shutdown")
        self.routes.close_links("Server Shutdown")
        self._flush_now()
        await self._until_sent()

    async def stop_jetstream(self) -> None:
        """Commit what streams have taken, tell who waits for it, and stop them."""
        jetstream, self.jetstream = self.jetstream, None
        if jetstream is None:
            return
        self.log("info", "Initiating JetStream Shutdown...")
        if self.cluster_part is not None:
            await self.cluster_part.leave()
            self.cluster_part = self.cluster = None
        jetstream.close()
        await self.commits.drain()
        self.flush()
        self.system.forget_jetstream()
        jetstream.stop()
        self.log("info", "JetStream Shutdown")

    def close_listeners(self) -> None:
        """Accept nobody any more."""
        self.is_ready = False
        self.listener.close()
        self.websocket_listener.close()
        self.leafs.close()

    async def _until_sent(self) -> None:
        """Wait for clients to take what they were sent, but not for long."""
        if self._connections:
            self._last_left = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._last_left.wait(), STOP_S_MAX)

    async def _abandon(self) -> None:
        """Let everything go at once."""
        self.close_listeners()
        self.routes.close()
        for connection in list(self._connections):
            connection.abort()
        if self.monitor is not None:
            await self.monitor.close()
        if self.cluster_part is not None:
            self.cluster_part.stop()
        if self.jetstream is not None:
            self.jetstream.stop()
        if self.tokens is not None:
            self.tokens.close()
        self.commits.close()
        self.files.remove()

    # What signals ask for

    def stop_soon(self) -> None:
        """Stop."""
        self.spawn(self.stop())

    def lame_duck_soon(self) -> None:
        """Enter lame duck mode, unless the server is on its way out already."""
        if self.is_ready and not self._is_stopping:
            self.spawn(lame_duck(self))

    def reload_soon(self) -> None:
        """Read the configuration again."""
        self.spawn(self.reload())

    def reopen_log(self) -> None:
        """Open the log file again."""
        if not self.logger.has_file:
            self.log("info", "File log re-open ignored, not a file logger")
            return
        try:
            self.logger.reopen()
            self.log("info", "File log re-opened")
        except OSError as error:
            self.log("error", f"File log not re-opened: {error}")

    async def reload(self) -> str:
        """Read the configuration again, and take what may change; what is wrong with it, if anything is."""
        from jetlake.server.reload import reload  # few servers ever do

        async with self._reloading:
            try:
                if not self.is_ready:
                    raise JetLakeError("the server is starting or leaving")
                if self.options.config_file is None or self._read_options is None:
                    raise JetLakeError("can only reload config when a file is provided using -c or --config")
                await reload(self, self._read_options())
                self.config_load_ns = self.clock()
                return ""
            except (JetLakeError, OSError) as error:
                problem = str(error)
            except Exception as error:
                self.failed("reload", error)
                problem = "internal error"
            self.log("error", f"Failed to reload server configuration: {problem}")
            return problem

    def use_options(self, options: ServerOptions) -> None:
        """Let other options hold from now on. Raises JetLakeError, and then nothing has changed."""
        self.broker.use_options(options)
        self.options = options
        self.broker.trace = trace.tracer(self.broker, self.logger) if options.trace else None
        self.show_features()

    def show_features(self) -> None:
        """Let INFO say what the server can do now."""
        domain = self.options.jetstream.domain
        jetstream = {"jetstream": True} if self.jetstream is not None else {}
        optional = {"cluster": self.routes.name, "domain": domain, "api_lvl": API_LEVEL, "xkey": self.xkey}
        self.broker.features = jetstream | {name: value for name, value in optional.items() if value}

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Let something run beside all else."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Connections

    async def check(self, client: Client, credentials: Credentials) -> User | None:
        """Who this is. A hash takes its time, and what counts is the configuration that holds at the end of it."""
        while True:
            authenticator = self.broker.authenticator_of(client)
            if self.tokens is not None:
                user = await self.tokens.check(credentials, client.nonce)
            else:
                user = await self.loop.run_in_executor(None, authenticator.check, credentials, client.nonce)
            if self.callout is not None:
                user = await self.callout.check(client, credentials, user)
            if authenticator is self.broker.authenticator_of(client):
                return user

    def tls_details_of(self, client: Client) -> dict[str, Any]:
        """How the connection of a client is secured, as a service hears of it."""
        connection = client.connection
        return connection.tls_claims() if isinstance(connection, ClientConnection) else {}

    def accept(self, connection: ClientConnection, endpoint: Endpoint) -> Client:
        """A client for a new connection."""
        self._connections.add(connection)
        client = self.broker.connect(connection, endpoint)
        if self.options.debug:
            self.log("debug", f"{self.broker.label(client)} - Client connection created")
        return client

    def connected(self, connection: PeerConnection) -> None:
        """Another server has connected, or was connected to."""
        self._connections.add(connection)

    def _joined(self, client: Client) -> None:
        self.events.joined(client)
        user = client.user
        if user is not None and user.expires_ns:
            client.expiry = self.call_at(user.expires_ns, lambda: client.refuse("User Authentication Expired"))

    def _left(self, client: Client) -> None:
        if client.expiry is not None:
            client.expiry.cancel()
        self.closed.append(client)
        self.events.left(client)

    def disconnected(self, connection: PeerConnection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        if self._last_left is not None and not self._connections:
            self._last_left.set()
        self.flush()

    @contextlib.contextmanager
    def reading_held(self) -> Iterator[None]:
        """Read nothing from those who are connected now."""
        held = list(self._connections)
        for connection in held:
            connection.hold()
        try:
            yield
        finally:
            for connection in held:
                connection.release()

    def flush(self) -> None:
        """Hand what clients are to be sent to their sockets."""
        if self._is_flushing:
            return
        self._is_flushing = True
        try:
            while clients := self.broker.take_output():
                for client in clients:
                    client.connection.flush()  # which raises nothing: the others would wait for ever
        finally:
            self._is_flushing = False

    def flush_soon(self) -> None:
        """Flush at the end of the loop's turn."""
        if not self._has_flush:
            self._has_flush = True
            self.loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._has_flush = False
        self.flush()
        for connection in list(self._connections):
            if connection.is_closing:
                connection.flush()

    # The host of JetStream

    def call_at(self, time_ns: int, callback: Callable[[], None]) -> Timer:
        """Call back soon after a time."""
        return self.loop.call_later(max(time_ns - self.clock(), 0) / SECOND_NS, self._call, callback)

    def dial(self, remote: RemoteOptions, client: Dialed) -> RemoteLine:
        """Stay connected to another server, as its client."""
        from jetlake.server.remotes import RemoteLine  # hardly any server needs it

        return RemoteLine(self, remote, client)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back after the current batch of work."""
        self.loop.call_soon(self._call, callback)

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:
            self.failed("timer", error)
        self.flush()

    def commit_soon(self, unit: CommitUnit) -> None:
        """Commit what a stream or consumer changed."""
        self.commits.request(unit)

    def log(self, level: str, line: str) -> None:
        """Write a line to the log."""
        self.logger(level, line)

    def _loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something went wrong that nobody foresaw: it costs one connection or one timer, and is told in full."""
        message, error = context.get("message", "unexpected error"), context.get("exception")
        if isinstance(error, BaseException):
            self.failed(message, error)
        else:
            self.log("error", message)

    # What an observer asks

    def ports(self, options: ServerOptions) -> dict[str, list[str]]:
        """Where the server can be reached with these options, as the ports file says it."""
        is_secure = options.tls is not None and not options.allow_non_tls
        ports = {"nats": urls("tls" if is_secure else "nats", options.host, self.port)}
        if self.monitor is not None:
            scheme = "https" if self.monitor.is_secure else "http"
            ports["monitoring"] = urls(scheme, options.http_host or options.host, self.monitor.port)
        if options.websocket is not None and self.websocket_listener.port:
            scheme = "ws" if options.websocket.tls is None else "wss"
            ports["websocket"] = urls(scheme, options.websocket.host, self.websocket_listener.port)
        if options.cluster is not None and self.routes.listener is not None:
            scheme = "nats" if options.cluster.tls is None else "tls"
            ports["cluster"] = urls(scheme, options.cluster.host, self.routes.listener.port)
        return ports

    def config_digest(self) -> str:
        """A fingerprint of the configuration file."""
        return config_digest(self.options)


def config_digest(options: ServerOptions) -> str:
    """A fingerprint of a configuration file, in brackets; nothing where there is none."""
    if options.config_file is None:
        return ""
    with open(options.config_file, "rb") as file:
        return f"(sha256:{hashlib.sha256(file.read()).hexdigest()})"

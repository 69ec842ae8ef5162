"""The monitoring port: pages over HTTP, for people, test suites and Prometheus.

HTTP is spoken here as far as that takes: GET and HEAD without a body, connections that may be kept. A framework would
do it too, but would take longer to import than the whole server takes to start.

Nobody is locked out: when there are too many connections, a new one replaces the one that was answered least recently,
which is one that is idle, or sends its request or takes its answer very slowly.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from msgspec.structs import replace

from jetlake.config import TlsOptions
from jetlake.errors import JetLakeError
from jetlake.server.address import join, listen, port_of
from jetlake.server.observe.accountz import accountz, accstatz
from jetlake.server.observe.connz import connz
from jetlake.server.observe.healthz import healthz
from jetlake.server.observe.index import index
from jetlake.server.observe.jsz import jsz
from jetlake.server.observe.leafz import leafz
from jetlake.server.observe.nothing import gatewayz
from jetlake.server.observe.page import encode_page
from jetlake.server.observe.query import BadQuery, Query
from jetlake.server.observe.raftz import raftz
from jetlake.server.observe.routez import routez
from jetlake.server.observe.subsz import subsz
from jetlake.server.observe.varz import varz
from jetlake.server.tls import make_context
from jetlake.server.turns import Turns
from jetlake.wire.http_head import BadHead, read_head
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.server.server import Server

HEAD_SIZE_MAX = 16 * 1024
IDLE_S_MAX = 30.0
CONNECTIONS_MAX = 256
_PHRASES = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_OK, _BAD_REQUEST, _NOT_FOUND, _METHOD_NOT_ALLOWED, _INTERNAL_ERROR = 200, 400, 404, 405, 500
_JSON, _TEXT, _HTML = "application/json", "text/plain; charset=utf-8", "text/html; charset=utf-8"

_PAGES: dict[str, Callable[[Server, Query], dict[str, Any]]] = {
    "/varz": varz,
    "/connz": connz,
    "/subsz": subsz,
    "/subscriptionsz": subsz,
    "/jsz": jsz,
    "/accountz": accountz,
    "/accstatz": accstatz,
    "/routez": routez,
    "/gatewayz": gatewayz,
    "/leafz": leafz,
}


class _Request(NamedTuple):
    method: str
    path: str
    query: Query
    is_kept: bool  # whether the connection may be used again


class _Answer(NamedTuple):
    status: int
    kind: str
    body: Sequence[bytes]  # in pieces


_NO_GROUPS = b"No Raft nodes returned, check supplied filters"
_NO_PAGE = _Answer(_NOT_FOUND, _TEXT, (b"404 page not found\n",))


class MonitorFailed(JetLakeError):
    """Options with which there can be no monitoring."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"Can't start monitoring: {problem}")


class Monitor:
    """Answers requests for pages."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, None] = {}  # the one that was answered least recently comes first
        self._context: ssl.SSLContext | None = None
        self.requests: Counter[str] = Counter()
        self.port = 0

    async def start(self) -> None:
        """Listen. Raises ListenFailed."""
        options, tls = self._server.options, self._server.options.tls
        host = options.http_host or options.host
        is_secure = options.https_port != 0
        if is_secure and options.http_port:
            both = f"HTTP ({options.http_port}) and HTTPs ({options.https_port})"
            raise MonitorFailed(f"can't specify both {both} ports")
        if is_secure:
            self.use_certificate(tls)
        sock = listen(host, options.https_port or options.http_port)
        self.port = port_of(sock)
        timeout_s = tls.timeout_s if is_secure and tls is not None else None
        self._listener = await asyncio.start_server(
            self._serve, sock=sock, limit=HEAD_SIZE_MAX, ssl=self._context, ssl_handshake_timeout=timeout_s
        )
        self._server.log("info", f"Starting http{'s' if is_secure else ''} monitor on {join(host, self.port)}")

    def use_certificate(self, options: TlsOptions | None) -> None:
        """Show a certificate from now on; no one is asked of who comes. Raises MonitorFailed or BadCertificate."""
        if options is None:
            raise MonitorFailed("TLS cert and key required for HTTPS")
        made = make_context(replace(options, verify=False))
        if self._context is None:
            self._context = made
        else:  # connections are made with the context that the port was opened with
            self._context.load_cert_chain(options.cert_file, options.key_file or None)
            self._context.sni_callback = made.sni_callback

    @property
    def is_secure(self) -> bool:
        return self._context is not None

    async def close(self) -> None:
        """Let the port go."""
        if self._listener is not None:
            self._listener.close()
        for writer in list(self._connections):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        if len(self._connections) >= CONNECTIONS_MAX:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.transport.abort()
        self._connections[writer] = None
        try:
            while await self._serve_one(reader, writer) and writer in self._connections:
                del self._connections[writer]
                self._connections[writer] = None
        except (OSError, TimeoutError):
            writer.transport.abort()  # the peer is gone or asleep, and will not take the rest either
        finally:
            self._connections.pop(writer, None)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection is over."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), IDLE_S_MAX)
            request = _parse(head)
        except asyncio.IncompleteReadError:
            return False
        except (asyncio.LimitOverrunError, BadHead):
            writer.writelines(_encode(_Answer(_BAD_REQUEST, _TEXT, (b"400 Bad Request",)), is_kept=False))
            await asyncio.wait_for(writer.drain(), IDLE_S_MAX)
            return False
        try:
            answer = await self._answer(request)
        except BadQuery as error:
            answer = _Answer(_BAD_REQUEST, _TEXT, (str(error).encode(),))
        except Exception as error:
            self._server.failed(f"page path={request.path}", error)
            answer = _Answer(_INTERNAL_ERROR, _TEXT, (b"500 internal server error\n",))
        writer.writelines(_encode(answer, request.is_kept, has_body=request.method != "HEAD"))
        await asyncio.wait_for(writer.drain(), IDLE_S_MAX)
        return request.is_kept

    async def _answer(self, request: _Request) -> _Answer:
        if request.method not in ("GET", "HEAD"):
            return _Answer(_METHOD_NOT_ALLOWED, _TEXT, (b"405 method not allowed\n",))
        base = self._server.options.http_base_path.rstrip("/")
        if not request.path.startswith(f"{base}/"):
            return _NO_PAGE
        path = request.path.removeprefix(base)
        async with self._server.page_lock:
            if path == "/metrics":
                self.requests[path] += 1
                return await self._metrics()
            return await self._page(path, request.query)

    async def _metrics(self) -> _Answer:
        in_thread = partial(self._server.loop.run_in_executor, None)  # for what does not look at the server
        module = await in_thread(import_module, "jetlake.server.observe.metrics")
        found = module.Metrics(self._server)
        await Turns().take_all(found.collect())
        return _Answer(_OK, module.CONTENT_TYPE, (await in_thread(found.text),))

    async def _page(self, path: str, query: Query) -> _Answer:
        if path == "/":
            self.requests["/"] += 1
            return _Answer(_OK, _HTML, (index(self._server),))
        if path == "/healthz":
            self.requests[path] += 1
            status, page = healthz(self._server, query)
            if "error" in page:
                self._server.log("warning", f'Healthcheck failed: "{page["error"]}"')
            return _Answer(status, _JSON, (encode_json(page),))
        if path == "/raftz" and self._server.cluster is not None:
            self.requests[path] += 1
            return await self._raftz(query)
        if path not in _PAGES:
            return _NO_PAGE
        self.requests["/subsz" if path == "/subscriptionsz" else path] += 1
        page = _PAGES[path](self._server, query)
        return _Answer(_OK, _JSON, await Turns().take_all(encode_page(page, indent=True)))

    async def _raftz(self, query: Query) -> _Answer:
        page = raftz(self._server, query)
        if not page:
            return _Answer(_NOT_FOUND, _TEXT, (_NO_GROUPS,))
        return _Answer(_OK, _JSON, await Turns().take_all(encode_page(page, indent=True)))


def _parse(head: bytes) -> _Request:
    asked = read_head(head)
    if set(asked.fields.get("content-length", ())) - {"0"} or "transfer-encoding" in asked.fields:
        raise BadHead("a page needs no body, and where one ends is not looked for")
    try:
        url = urlsplit(asked.target)
        query = Query(dict(reversed(parse_qsl(url.query))))  # of two values the first counts
    except ValueError:
        raise BadHead(f"{asked.target[:80]!r} is no target") from None
    is_kept = asked.version == "HTTP/1.1" and asked.get("connection").lower() != "close"
    return _Request(asked.method, url.path, query, is_kept)


def _encode(answer: _Answer, is_kept: bool, *, has_body: bool = True) -> list[bytes]:
    fields = [
        f"HTTP/1.1 {answer.status} {_PHRASES[answer.status]}",
        f"Content-Type: {answer.kind}",
        f"Date: {time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime())}",
        f"Content-Length: {sum(map(len, answer.body))}",
    ]
    if answer.kind == _JSON:
        fields.append("Access-Control-Allow-Origin: *")
    if not is_kept:
        fields.append("Connection: close")
    head = "\r\n".join([*fields, "", ""]).encode("latin-1")
    return [head, *answer.body] if has_body else [head]

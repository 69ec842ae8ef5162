"""TLS for clients: certificates, and how a connection becomes a secure one.

NATS sends INFO in clear and then expects the client's TLS handshake, so the usual way to listen for TLS does not do.
Here a socket is accepted plain, greeted, and looked at: the first byte of a handshake is 0x16. With `handshake_first`
nothing is said in clear; with a fallback, only to those who stay silent for so long. Who sends plain bytes where TLS is
required is hung up on without a word, as nats-server does; a peer that takes longer than the timeout is, too.

A handshake that fails ends with an alert for the peer. The loop drops it with the rest of the connection, so it is kept
by the error, and sent through a second descriptor of the socket.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jetlake.broker.endpoint import Endpoint
from jetlake.config import TlsOptions
from jetlake.errors import JetLakeError
from jetlake.server.address import peer_of
from jetlake.server.connection import ClientConnection
from jetlake.server.peer_connection import PeerConnection
from jetlake.server.proxy_protocol import BLOCK_SIZE_MAX, BadHeader, parse
from jetlake.wire import writer

if TYPE_CHECKING:
    from jetlake.broker.client import Client
    from jetlake.server.server import Server

_HEADER_S_MAX = 5.0
_HEADER_PAUSE_S = 0.01  # between two looks at a header that is not whole yet
HANDSHAKE = b"\x16"
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class Handshakes:
    """How many there were in this second."""

    def __init__(self) -> None:
        self._second = self._count = 0

    def take(self, count_max: int) -> bool:
        """Count one more; False when there may be no more of them. 0: no limit."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        return not 0 < count_max < self._count


class BadCertificate(JetLakeError):
    """A certificate, key or authority that cannot be used."""


class HandshakeFailed(Exception):
    """A peer that did not become a client."""


class HandshakeRefused(ssl.SSLError):
    """A handshake that was ended here, and the alert that says why."""

    alert = b""


class _Session(ssl.SSLObject):
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            refused = HandshakeRefused(*error.args)
            refused.alert = self.outgoing.read()
            raise refused from error


class _Context(ssl.SSLContext):
    sslobject_class = _Session

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> ssl.SSLObject:
        session = super().wrap_bio(incoming, outgoing, *args, **options)
        assert isinstance(session, _Session)
        session.outgoing = outgoing
        return session


def make_context(options: TlsOptions) -> ssl.SSLContext:
    """What a listener needs to speak TLS. Raises BadCertificate.

    Of several certificates a client gets the first one for the name that it asks for, or the first of all.
    """
    context = _make_context(options, options.cert_file, options.key_file)
    if options.more_certs:
        from jetlake.broker.certificates import dns_names, is_for  # few servers have several

        others = [_make_context(options, *pair) for pair in options.more_certs]
        paths = [options.cert_file, *(path for path, _ in options.more_certs)]
        every = [(each, dns_names(path)) for each, path in zip([context, *others], paths, strict=True)]

        def choose(session: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
            found = [known for known, names in every if name and is_for(name.lower(), names)]
            if found:
                session.context = found[0]

        context.sni_callback = choose
    return context


def _make_context(options: TlsOptions, cert_file: str, key_file: str) -> ssl.SSLContext:
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[options.min_version]
    if options.ciphers:
        context.set_ciphers(":".join(options.ciphers))
    elif options.ciphers is not None:  # only such as TLS 1.3 has
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(cert_file, key_file or None)
    except OSError as error:  # ssl.SSLError is one
        files = f"{cert_file} with key {key_file}"
        raise BadCertificate(f"error parsing X509 certificate/key pair: {files}: {_problem(error)}") from error
    if options.curve:
        context.set_ecdh_curve(options.curve)
    if options.verify:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(options.ca_file) if options.ca_file else context.load_default_certs()
        except OSError as error:
            raise BadCertificate(f"error reading ca_file {options.ca_file}: {_problem(error)}") from error
    return context


def _problem(error: OSError) -> str:
    return error.strerror or str(error)


async def welcome(server: Server, sock: socket.socket) -> None:
    """Make a client of an accepted socket, if its peer does its part in time."""
    try:
        host, port = peer_of(sock.getpeername())
    except OSError:  # gone already
        sock.close()
        return
    if server.options.tls is not None and not server.handshakes.take(server.options.tls.connection_rate_limit):
        server.log("error", f"Rate limit of TLS connections exceeded: {host}:{port}")
        sock.close()
        return
    connection = ClientConnection(server)
    client = connection.peer = connection.client = server.accept(connection, Endpoint(host, port))
    try:
        await _greet(server, connection, sock)
    except Exception as error:
        if isinstance(error, OSError | HandshakeFailed | BadHeader | TimeoutError):  # ssl.SSLError is an OSError
            server.log("debug", f"{server.broker.label(client)} - TLS handshake error: {str(error) or 'timeout'}")
        else:
            server.failed(f"TLS handshake cid={client.cid}", error)
        client.close("TLS Handshake Failure")
        server.disconnected(connection)
        sock.close()


async def _greet(server: Server, connection: ClientConnection, sock: socket.socket) -> None:
    options, context, loop = server.options.tls, server.tls, server.loop
    assert connection.client is not None
    if options is None or context is None:  # a proxy may speak first, all else is as without it
        await _send_info(server, connection, sock)
        await _take_header(server, connection.client, sock)
        await loop.connect_accepted_socket(lambda: connection, sock)
        return
    is_first, fallback_s = options.handshake_first, options.handshake_first_fallback_s
    if is_first and fallback_s is not None:
        is_first = await is_readable(loop, sock, fallback_s)
    if not is_first:
        await _send_info(server, connection, sock)
    if server.options.proxy_protocol:
        await _take_header(server, connection.client, sock)
    if server.broker.is_full():
        await loop.connect_accepted_socket(lambda: connection, sock)  # which refuses it
        return
    if await is_readable(loop, sock, options.timeout_s):
        is_tls = sock.recv(1, socket.MSG_PEEK) == HANDSHAKE
    else:
        is_tls = False
        if is_first or not server.options.allow_non_tls:
            raise TimeoutError
    if is_tls:
        await shake_hands(loop, connection, sock, context, options.timeout_s)
        connection.is_tls_first = is_first
    elif server.options.allow_non_tls and not is_first:
        await loop.connect_accepted_socket(lambda: connection, sock)
    else:
        raise HandshakeFailed("first record does not look like a TLS handshake")


async def _send_info(server: Server, connection: ClientConnection, sock: socket.socket) -> None:
    assert connection.client is not None
    info = server.broker.info(connection.client)
    if server.options.proxy_protocol:
        info.pop("client_ip")  # whose it is is not known yet
    await server.loop.sock_sendall(sock, writer.info(info))
    connection.is_greeted = True


async def _take_header(server: Server, client: Client, sock: socket.socket) -> None:
    """Let a proxy say whom it stands for. Raises BadHeader, or TimeoutError when it does not come to an end."""
    until_s = server.loop.time() + _HEADER_S_MAX
    while True:
        if not await is_readable(server.loop, sock, max(until_s - server.loop.time(), 0.001)):
            return  # whoever says nothing has no proxy
        data = sock.recv(BLOCK_SIZE_MAX, socket.MSG_PEEK)
        header = parse(data)
        if header is not None:
            break
        if not data or server.loop.time() > until_s:
            raise TimeoutError
        await asyncio.sleep(_HEADER_PAUSE_S)
    if header.size:
        sock.recv(header.size)
    if header.host:
        client.move_to(header.host, header.port)


async def shake_hands(
    loop: asyncio.AbstractEventLoop,
    connection: PeerConnection,
    sock: socket.socket,
    context: ssl.SSLContext,
    timeout_s: float,
) -> None:
    """Speak TLS with a peer that began to; who is refused is sent the alert that says why."""
    with sock.dup() as second:
        try:
            await loop.connect_accepted_socket(lambda: connection, sock, ssl=context, ssl_handshake_timeout=timeout_s)
        except HandshakeRefused as error:
            with suppress(OSError):
                second.send(error.alert)
            raise


async def is_readable(loop: asyncio.AbstractEventLoop, sock: socket.socket, timeout_s: float) -> bool:
    """Wait until there is something to read, or for so long."""
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await asyncio.wait_for(ready.wait(), timeout_s)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(sock)
    return True

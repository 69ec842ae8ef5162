"""Connecting to other servers: sockets, and TLS towards them."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from urllib.parse import SplitResult

from jetlake.config import TlsOptions
from jetlake.errors import JetLakeError
from jetlake.server.tls import BadCertificate

INFO_SIZE_MAX = 1024 * 1024


class BadHub(JetLakeError):
    """What was connected to is not the server that was expected."""


async def connected_socket(loop: asyncio.AbstractEventLoop, url: SplitResult) -> socket.socket:
    """A socket that is connected to the first address that takes it. Raises OSError."""
    found = await loop.getaddrinfo(url.hostname, url.port, type=socket.SOCK_STREAM)
    problem: OSError = OSError("no addresses")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    raise problem


async def first_line(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bytes:
    """INFO, which comes in clear; nothing may come behind it."""
    received = b""
    while b"\n" not in received:
        piece = await loop.sock_recv(sock, 64 * 1024)
        if not piece or len(received) > INFO_SIZE_MAX:
            raise BadHub("the connection ended before INFO" if not piece else "INFO is too long")
        received += piece
    return received


def client_context(options: TlsOptions | None, whose: str, ca_pem: str = "") -> ssl.SSLContext:
    """What is needed to speak TLS to another server; `ca_pem` are certificates to trust. Raises BadCertificate."""
    try:
        context = ssl.create_default_context(
            cafile=(options.ca_file or None) if options is not None else None, cadata=ca_pem or None
        )
        if options is not None and options.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if options is not None and options.cert_file:
            context.load_cert_chain(options.cert_file, options.key_file or None)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise BadCertificate(f"{whose}: {error}") from error
    return context


def verified_name(url: SplitResult, known: list[SplitResult]) -> str:
    """The name that a server's certificate has to be for: one that was configured, also for servers told of."""
    named = [other.hostname for other in known if other.hostname and not _is_address(other.hostname)]
    name = url.hostname or ""
    return named[0] if _is_address(name) and named else name


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

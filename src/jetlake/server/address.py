"""Addresses: listening sockets, and how addresses are written."""

from __future__ import annotations

import socket

from jetlake.config import RANDOM_PORT
from jetlake.errors import JetLakeError

BACKLOG = 1024
_WILDCARDS = ("", "0.0.0.0", "::")
_MAPPED = "::ffff:"  # how a socket for both families shows an IPv4 address


class ListenFailed(JetLakeError):
    """An address that cannot be listened on."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        problem = (error.strerror or str(error)).lower()
        super().__init__(f'Error listening on port: {join(host, port)}, "listen tcp {join(host, port)}: {problem}"')


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port -1 is a random one. Raises ListenFailed.

    A wildcard means IPv4 and IPv6, as in nats-server, where the machine has both.
    """
    number = 0 if port == RANDOM_PORT else port
    try:
        if host not in _WILDCARDS:
            return _bound(host, number)
        try:
            return _bound("::", number, both_families=True)
        except OSError:
            return _bound("0.0.0.0", number)
    except OSError as error:
        raise ListenFailed(host, port, error) from error


def _bound(host: str, port: int, *, both_families: bool = False) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if both_families:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def is_wildcard(host: str) -> bool:
    """True for a host that means all addresses of the machine."""
    return host in _WILDCARDS


def port_of(sock: socket.socket) -> int:
    """The port that a socket got."""
    return int(sock.getsockname()[1])


def peer_of(name: object) -> tuple[str, int]:
    """The host and port of a peer, from what the system calls its name."""
    if isinstance(name, tuple) and len(name) >= 2:
        return str(name[0]).removeprefix(_MAPPED), int(name[1])
    return "", 0


def join(host: str, port: int) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def urls(scheme: str, host: str, port: int) -> list[str]:
    """Where a listener can be reached from this machine."""
    hosts = ["127.0.0.1", "::1"] if host in _WILDCARDS else [host]
    return [f"{scheme}://{join(name, port)}" for name in hosts]

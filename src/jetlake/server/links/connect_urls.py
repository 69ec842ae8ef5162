"""Which servers clients can connect to: INFO tells them, so that they find another one when theirs is gone.

A server that is alone says nothing of itself. Once others joined it, clients hear of all of them, and again whenever a
server comes or goes. A server that is about to go is left out.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from jetlake.config.cluster import advertised
from jetlake.server.address import is_wildcard, join
from jetlake.wire import writer

if TYPE_CHECKING:
    from jetlake.server.server import Server

URLS_MAX = 4096  # of all other servers
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))  # of documents: nobody is there


class ConnectUrls:
    """The addresses that clients are told."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._others, self._websocket_others = Counter[str](), Counter[str]()
        self._is_leaving = False

    def own(self) -> list[str]:
        """Where clients reach this server."""
        options = self._server.options
        return [] if self._is_leaving else _urls(options.client_advertise, options.host, self._server.port)

    def own_websocket(self) -> list[str]:
        """Where clients that speak WebSocket do."""
        options, port = self._server.options.websocket, self._server.websocket_listener.port
        return _urls(options.advertise, options.host, port) if options is not None and port else []

    def add(self, urls: Iterable[str], websocket_urls: Iterable[str]) -> None:
        """Another server is there."""
        if _count(self._others, urls, 1) | _count(self._websocket_others, websocket_urls, 1):
            self._tell()

    def remove(self, urls: Iterable[str], websocket_urls: Iterable[str]) -> None:
        """Another server is gone, or will be soon."""
        if _count(self._others, urls, -1) | _count(self._websocket_others, websocket_urls, -1):
            self._tell()

    def leave(self) -> None:
        """Say nothing of this server any more: it is about to go."""
        self._is_leaving = True
        broker = self._server.broker
        broker.connect_urls, broker.websocket_connect_urls = list(self._others), list(self._websocket_others)

    def _tell(self) -> None:
        broker = self._server.broker
        broker.connect_urls = [*self.own(), *self._others]
        broker.websocket_connect_urls = [*self.own_websocket(), *self._websocket_others]
        for client in list(broker.clients.values()):
            if client.is_connected and client.options.protocol >= 1:
                client.send(writer.info(broker.info(client)))
        self._server.flush_soon()


def _count(counts: Counter[str], urls: Iterable[str], by: int) -> bool:
    """Count some URLs; True when there are others than before."""
    before = len(counts)
    for url in urls:
        if url in counts or (by > 0 and len(counts) < URLS_MAX):
            counts[url] += by
            if counts[url] <= 0:
                del counts[url]
    return len(counts) != before


def _urls(advertise: str, host: str, port: int) -> list[str]:
    if advertise:
        name, number = advertised(advertise)
        return [join(name, number or port)]
    return [join(name, port) for name in (_own_addresses() if is_wildcard(host) else [host])]


def _own_addresses() -> list[str]:
    """The addresses that this machine has towards others; nothing is sent to find out."""
    found = []
    for family, address in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((address, 9))
                found.append(str(sock.getsockname()[0]))
        except OSError:
            continue  # no such network here
    return found

"""Lines for a syslog server: the one of this machine, or one that a URL names.

    over a path       <priority>Jan  2 15:04:05 jetlake[pid]: text
    over a network    <priority>2006-01-02T15:04:05Z host jetlake[pid]: text

A line is handed over at once or not at all: a log server that does not read costs lines, and nobody's time. A lost
connection is made anew with the next line, but not more than once a second.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

from jetlake.config.syslog_url import PORT_DEFAULT, split_syslog_url

TAG = "jetlake"
CONNECT_S_MAX = 2.0
RETRY_S = 1.0
PENDING_SIZE_MAX = 1024 * 1024  # that a server over TCP has not taken yet
LOCAL_PATHS = ("/dev/log", "/var/run/syslog", "/var/run/log")
_DAEMON = 3 << 3
_SEVERITIES = {"info": 5, "warning": 4, "error": 3, "fatal": 2, "debug": 7, "trace": 5}


class Syslog:
    """A connection to a syslog server."""

    def __init__(self, url: str = "") -> None:
        """Without a URL the server of this machine. Raises OSError."""
        self._url, self._is_remote = url, bool(url) and split_syslog_url(url).scheme != "unix"
        self._facility = 0 if url else _DAEMON
        self._host = socket.gethostname()
        self._pending = b""
        self._tried_s = time.monotonic()
        self._socket: socket.socket | None = self._connect()

    def write(self, level: str, text: str) -> None:
        """Hand over a line."""
        line = self._line(level, text).encode("utf-8", "replace")
        if self._socket is None and time.monotonic() - self._tried_s >= RETRY_S:
            self._tried_s = time.monotonic()
            with contextlib.suppress(OSError):
                self._socket = self._connect()
        if self._socket is not None and not self._send(self._socket, line):
            self.close()

    def close(self) -> None:
        """Let the connection go."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._pending = None, b""

    def _send(self, sock: socket.socket, line: bytes) -> bool:
        """Send a line, behind what waits to be sent; False when the connection is lost."""
        if sock.type == socket.SOCK_DGRAM:
            with contextlib.suppress(BlockingIOError, ConnectionRefusedError):  # nobody listens: not for now
                sock.send(line)
            return True
        if len(self._pending) + len(line) <= PENDING_SIZE_MAX:
            self._pending += line
        try:
            self._pending = self._pending[sock.send(self._pending) :]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def _line(self, level: str, text: str) -> str:
        severity, now_s = _SEVERITIES[level], time.time()
        if self._is_remote:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
            return f"<{severity}>{stamp} {self._host} {TAG}[{os.getpid()}]: {text}\n"
        parts = time.localtime(now_s)
        stamp = f"{time.strftime('%b', parts)} {parts.tm_mday:2d} {time.strftime('%H:%M:%S', parts)}"
        return f"<{self._facility | severity}>{stamp} {TAG}[{os.getpid()}]: {text}\n"

    def _connect(self) -> socket.socket:
        if not self._url:
            return _local()
        url = split_syslog_url(self._url)
        if url.scheme == "unix":
            sock = _unix(url.path, socket.SOCK_STREAM)
        elif url.scheme == "tcp":
            sock = socket.create_connection((url.hostname or "", url.port or PORT_DEFAULT), CONNECT_S_MAX)
        else:
            family, kind, protocol, _, address = socket.getaddrinfo(
                url.hostname, url.port or PORT_DEFAULT, type=socket.SOCK_DGRAM
            )[0]
            sock = socket.socket(family, kind, protocol)
            sock.connect(address)
        sock.setblocking(False)
        return sock


def _local() -> socket.socket:
    """The server of this machine, wherever it listens. Raises OSError."""
    for path in LOCAL_PATHS:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            with contextlib.suppress(OSError):
                sock = _unix(path, kind)
                sock.setblocking(False)
                return sock
    raise OSError("Unix syslog delivery error")


def _unix(path: str, kind: socket.SocketKind) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        sock.settimeout(CONNECT_S_MAX)
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock

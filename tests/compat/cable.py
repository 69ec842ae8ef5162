"""A TCP connection between two servers that a test can cut and mend."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

from tests.compat.servers import LOOPBACK


class Cable:
    """A port that leads to another port, while it is whole."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._is_cut = False
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End every connection, in the middle of whatever it carries, and refuse new ones."""
        with self._lock:
            self._is_cut = True
            ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def mend(self) -> None:
        """Let new connections through."""
        with self._lock:
            self._is_cut = False

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed: the test is over
            while True:
                near, _ = self._listener.accept()
                self._lead_on(near)

    def _lead_on(self, near: socket.socket) -> None:
        with self._lock:
            if self._is_cut:
                near.close()
                return
            try:
                far = socket.create_connection((LOOPBACK, self._target))
            except OSError:
                near.close()
                return
            self._ends += [near, far]
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

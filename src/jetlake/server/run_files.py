"""The files by which others find a running server: its pid, and its ports.

The ports file has the name that nats-server gives it, since test suites look for that one. Both files are written
whole or not at all, and removed at the end.
"""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from jetlake.config import ServerOptions


class RunFiles:
    """Writes the files, and knows what is to be removed."""

    def __init__(self) -> None:
        self._pid_file = self._ports_file = ""

    def write_pid(self, options: ServerOptions) -> None:
        """Write the pid file, where one is asked for. Raises OSError."""
        if options.pid_file:
            _write(options.pid_file, str(os.getpid()).encode())
            self._pid_file = options.pid_file

    def write_ports(self, options: ServerOptions, ports: dict[str, list[str]]) -> None:
        """Write the ports file, where one is asked for. Raises OSError."""
        self._remove_ports()
        if options.ports_file_dir:
            path = os.path.join(options.ports_file_dir, f"nats-server_{os.getpid()}.ports")
            _write(path, msgspec.json.encode(ports))
            self._ports_file = path

    def remove(self) -> None:
        """Remove what was written."""
        self._remove_ports()
        if self._pid_file:
            _remove(self._pid_file)

    def _remove_ports(self) -> None:
        if self._ports_file:
            _remove(self._ports_file)
            self._ports_file = ""


def _write(path: str, data: bytes) -> None:
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.new")
    with open(temporary, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)

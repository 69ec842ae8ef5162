"""The files by which others find a running server: its pid, and its ports.

The ports file has the name that nats-server gives it, since test suites look for that one. Both files are written
whole or not at all, and removed at the end.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from jetlake.config import ServerOptions


class RunFiles:
    """Writes the files, and knows what is to be removed."""

    def __init__(self) -> None:
        self._pid_file: Path | None = None
        self._ports_file: Path | None = None

    def write_pid(self, options: ServerOptions) -> None:
        """Write the pid file, where one is asked for. Raises OSError."""
        if options.pid_file:
            _write(Path(options.pid_file), str(os.getpid()).encode())
            self._pid_file = Path(options.pid_file)

    def write_ports(self, options: ServerOptions, ports: dict[str, list[str]]) -> None:
        """Write the ports file, where one is asked for. Raises OSError."""
        self._remove_ports()
        if options.ports_file_dir:
            path = Path(options.ports_file_dir) / f"nats-server_{os.getpid()}.ports"
            _write(path, msgspec.json.encode(ports))
            self._ports_file = path

    def remove(self) -> None:
        """Remove what was written."""
        self._remove_ports()
        if self._pid_file is not None:
            self._pid_file.unlink(missing_ok=True)

    def _remove_ports(self) -> None:
        if self._ports_file is not None:
            self._ports_file.unlink(missing_ok=True)
            self._ports_file = None


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(data)
    temporary.replace(path)

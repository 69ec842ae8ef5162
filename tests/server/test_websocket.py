"""WebSocket connections of a server in the same process: turns, ends, and bytes of any kind."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
import zlib
from contextlib import suppress

from jetlake.server import websocket
from jetlake.server.websocket import COMPRESS_AT_ONCE, REQUEST_SIZE_MAX
from tests.compat.ws_peer import BINARY, COMPRESSED, FINAL, OFFER, deflated, masked, request
from tests.server.harness import LOOPBACK, Peer, Running, running, until

LISTEN = f"websocket {{ host: {LOOPBACK}, port: -1, no_tls: true, compression: true }}"
CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
HASH = "$2a$04$L1Ts1UsrYz8ffZcu5sTKdOCk0vh8ykMhrwnmN5rBjWnVSCqWL8SA6"
DEFLATE = {"Sec_WebSocket_Extensions": OFFER}


async def open_socket(server: Running, **fields: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection behind its handshake and INFO."""
    reader, writer = await asyncio.open_connection(LOOPBACK, server.websocket_listener.port)
    writer.write(request(**fields))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    await frame(reader)
    return reader, writer


async def frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The next frame: its first byte, and what it carries."""
    head = await asyncio.wait_for(reader.readexactly(2), 10)
    size = head[1]
    if size >= 126:
        size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
    return head[0], await reader.readexactly(size)


async def test_a_batch_of_deliveries_is_one_frame() -> None:
    async with running(LISTEN) as server:
        reader, writer = await open_socket(server)
        writer.write(masked(CONNECT + b"SUB a 1\r\n" + b"PUB a 2\r\nhi\r\n" * 50))
        assert await frame(reader) == (FINAL | BINARY, b"MSG a 1 2\r\nhi\r\n" * 50)


async def test_what_was_compressed_before_the_end_still_counts() -> None:
    async with running(LISTEN) as server:
        peer = await Peer.connect(server)
        await peer.ask("SUB a 1\r\n")
        _, writer = await open_socket(server, **DEFLATE)
        publishes = b"".join(b"PUB a 5\r\n%05d\r\n" % number for number in range(20_000))
        writer.write(masked(deflated(CONNECT + publishes), FINAL | COMPRESSED | BINARY))
        writer.close()
        got = [line for line in [await peer.line() for _ in range(40_001)] if line[:4] not in ("INFO", "MSG ")]
        assert got == [f"{number:05d}" for number in range(20_000)]


async def test_much_output_is_compressed_in_pieces() -> None:
    async with running(LISTEN) as server:
        reader, writer = await open_socket(server, **DEFLATE)
        payload = random.Random(1).randbytes(COMPRESS_AT_ONCE)
        writer.write(masked(CONNECT + b"SUB a 1\r\nPING\r\n"))
        await frame(reader)
        peer = await Peer.connect(server, max_payload=-1)
        for _ in range(8):
            peer.send(b"PUB a %d\r\n%s\r\n" % (len(payload), payload))
        line = b"MSG a 1 %d\r\n%s\r\n" % (len(payload), payload)
        got = b""
        while len(got) < 8 * len(line):
            first, packed = await frame(reader)
            got += inflated(packed) if first & COMPRESSED else packed
        assert got == 8 * line


def inflated(packed: bytes) -> bytes:
    return zlib.decompressobj(-15).decompress(packed)


async def test_a_client_that_goes_during_a_login_is_forgotten() -> None:
    users = f"authorization {{ user: a, password: {HASH} }}"
    async with running(f"{LISTEN}\n{users}") as server:
        _, writer = await open_socket(server, **DEFLATE)
        writer.write(masked(deflated(b'CONNECT {"user":"a","pass":"x"}\r\n'), FINAL | COMPRESSED | BINARY))
        writer.transport.abort()
        await until(lambda: not server.broker.clients, "the client to be forgotten")


async def test_an_endless_request_is_hung_up_on() -> None:
    async with running(LISTEN) as server:
        reader, writer = await asyncio.open_connection(LOOPBACK, server.websocket_listener.port)
        writer.write(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * REQUEST_SIZE_MAX)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert not server.broker.clients


async def test_a_large_frame_is_a_promise_that_costs_nothing() -> None:
    async with running(LISTEN) as server:
        tracemalloc.start()
        sockets = [await open_socket(server) for _ in range(20)]
        for _, writer in sockets:
            writer.write(masked(CONNECT, size=(1 << 63) - 1))
        await until(lambda: all(client.is_connected for client in server.broker.clients.values()), "the logins")
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
        tracemalloc.stop()


async def test_random_bytes_cost_their_sender_alone() -> None:
    """Frames, right ones and wrong ones, with bytes changed, in random pieces; with and without compression."""
    async with running(LISTEN) as server:
        good = await Peer.connect(server)
        for seed in range(150):
            await send_noise(server, random.Random(seed))
        assert await good.ask("SUB a 1\r\nPUB a 2\r\nhi\r\n") == ["MSG a 1 2", "hi"]
        await until(lambda: len(server.broker.clients) == 1, "the others to leave")
        assert not [line for line in server.log_lines.lines if "Internal" in line or "Traceback" in line]


async def send_noise(server: Running, choose: random.Random) -> None:
    fields = DEFLATE if choose.random() < 0.5 else {}
    reader, writer = await open_socket(server, **fields)
    lines = [CONNECT, b"PING\r\n", b"SUB x.* 1\r\n", b"PUB x.a 3\r\nabc\r\n", b"PUB x.b 9\r\nabc", b"UNSUB 1\r\n"]
    noise = bytearray()
    for _ in range(choose.randint(1, 12)):
        payload = b"".join(choose.choices(lines, k=choose.randint(0, 5)))
        first = choose.choice([0x82, 0x82, 0x81, 0x02, 0x80, 0x00, 0x89, 0x8A, 0x88, 0xC2, 0xC2, 0x42, 0xFF])
        packed = deflated(payload) if first & COMPRESSED and choose.random() < 0.8 else payload
        noise += masked(packed[:125] if first & 0x08 else packed, first)
    for _ in range(choose.choice([0, 0, 1, 3])):
        noise[choose.randrange(len(noise))] = choose.randrange(256)
    while noise:
        size = choose.randint(1, len(noise))
        writer.write(bytes(noise[:size]))
        del noise[:size]
        await asyncio.sleep(0)
    with suppress(OSError):  # it may be closed by now
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 10)
    writer.close()


def test_every_reason_has_a_code_that_may_be_sent() -> None:
    assert all(1000 <= code < 1012 and code not in (1005, 1006) for code in websocket._CODES.values())

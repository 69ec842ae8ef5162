"""What ends a connection, and what must not."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from pathlib import Path

import pytest

from jetlake.server.peer_connection import SpareBuffers
from jetlake.testing.server import run_server
from tests.server.certificates import Certificates
from tests.server.harness import LOOPBACK, Peer, get, page, running, until


async def test_info_comes_first_and_again_after_the_first_ping() -> None:
    async with running() as server:
        peer = await Peer.connect(server)
        assert peer.info["client_id"] == 1 and "connect_info" not in peer.info
        await peer.ask()
        await peer.ask()
        assert peer.info["connect_info"] and peer.info["remote_account"] == "$G"


async def test_a_nonce_is_sent_only_where_nkeys_may_log_in() -> None:
    nkey = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR"
    async with running() as plain, running(f"authorization {{ users: [{{nkey: {nkey}}}] }}") as keyed:
        assert "nonce" not in (await Peer.open(plain)).info
        nonces = {(await Peer.open(keyed)).info["nonce"] for _ in range(3)}
        assert len(nonces) == 3


async def test_connections_beyond_the_limit_get_info_and_a_refusal() -> None:
    async with running("max_connections: 1") as server:
        first = await Peer.connect(server)
        second = await Peer.open(server)
        assert await second.rest() == ["-ERR 'maximum connections exceeded'"]
        assert await first.ask() == []
        await first.close()
        await until(lambda: not server.broker.clients, "the first to be gone")
        assert await (await Peer.connect(server)).ask() == []


async def test_connections_beyond_the_limit_of_an_account_are_refused() -> None:
    text = "accounts { A { users: [{user: a, password: p}], limits { max_connections: 1 } } }"
    async with running(text) as server:
        login = {"user": "a", "pass": "p"}
        first = await Peer.connect(server, **login)
        assert await first.ask() == []
        second = await Peer.connect(server, **login)
        assert await second.rest() == ["-ERR 'maximum account active connections exceeded'"]
        assert server.closed[-1].close_reason == "Maximum Account Connections Exceeded"


async def test_limits_of_an_account_hold_for_each_of_its_clients() -> None:
    text = "accounts { A { users: [{user: a, password: p}], limits { max_subscriptions: 1, max_payload: 4 } } }"
    async with running(text) as server:
        peer = await Peer.connect(server, user="a", **{"pass": "p"})
        assert await peer.ask("SUB a 1\r\nSUB b 2\r\n") == ["-ERR 'maximum subscriptions exceeded'"]
        assert await peer.ask("PUB x 4\r\n1234\r\n") == []
        assert peer.info["max_payload"] == 4
        assert await peer.ask("PUB x 5\r\n12345\r\n") == ["-ERR 'Maximum Payload Violation'"]


async def test_subjects_with_too_many_tokens_are_refused() -> None:
    async with running("max_sub_tokens: 2") as server:
        said = await (await Peer.connect(server)).ask("SUB a.b 1\r\nSUB a.b.c 2\r\nPUB a.b.c 1\r\nx\r\n")
        assert said == ["""-ERR 'Permissions Violation for Subscription to "a.b.c", too many tokens'"""]


async def test_an_account_in_connect_is_refused() -> None:
    async with running() as server:
        assert await (await Peer.connect(server, account="A")).rest() == ["-ERR 'Authorization Violation'"]


async def test_another_connect_is_another_login() -> None:
    users = "A { users: [{user: a, password: p}] }, B { users: [{user: b, password: p}] }"
    async with running(f"accounts {{ {users} }}") as server:
        peer = await Peer.connect(server, user="a", **{"pass": "p"})
        await peer.ask("SUB x 1\r\n")
        await peer.login(user="b", **{"pass": "p"})
        assert (await peer.request("$SYS.REQ.USER.INFO"))["data"]["account"] == "B"
        assert not server.broker.account("A").clients and len(server.broker.account("B").clients) == 1
        assert b"x" not in [sub.subject for sub in server.broker.account("A").sublist]
        await peer.login(user="b", **{"pass": "guess"})
        assert "-ERR 'Authorization Violation'" in await peer.rest()


async def test_who_does_not_log_in_in_time_is_cut_off() -> None:
    async with running('authorization { user: a, password: p, timeout: "100ms" }') as server:
        assert await (await Peer.open(server)).rest() == ["-ERR 'Authentication Timeout'"]


async def test_who_does_not_answer_pings_is_stale() -> None:
    async with running('ping_interval: "50ms"\nping_max: 2') as server:
        peer = await Peer.connect(server)
        assert await peer.rest() == ["PING", "PING", "-ERR 'Stale Connection'"]
        assert server.broker.stale_connections == 1


async def test_who_keeps_sending_is_not_asked() -> None:
    async with running('ping_interval: "400ms"') as server:
        peer = await Peer.connect(server)
        assert await peer.line() == "PING"  # the first one, to learn the round-trip time
        peer.send("PONG\r\n")
        for _ in range(10):
            await asyncio.sleep(0.1)
            peer.send("PUB a 0\r\n\r\n")
        peer.send("PING\r\n")
        assert (await peer.line()) == "PONG"


async def test_a_half_closed_peer_gets_its_answers() -> None:
    async with running() as server:
        peer = await Peer.connect(server)
        peer.send("SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n")
        peer.writer.write_eof()
        assert await peer.rest() == ["MSG a 1 2", "hi", "PONG"]
        await until(lambda: not server.broker.clients, "the connection to be gone")


async def test_a_peer_that_resets_costs_nobody_else() -> None:
    async with running() as server:
        other = await Peer.connect(server)
        peer, sublist = await Peer.connect(server), server.broker.default_account.sublist
        count = sublist.count
        await peer.ask("SUB a 1\r\n")
        sock = peer.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        peer.writer.transport.abort()
        await until(lambda: len(server.broker.clients) == 1, "the peer to be gone")
        assert await other.ask("PUB a 2\r\nhi\r\n") == []
        assert sublist.count == count


async def test_a_subscriber_that_takes_nothing_is_cut_off_and_memory_is_bounded() -> None:
    async with running('max_pending: 2000000\nmax_payload: 500000\nwrite_deadline: "10s"') as server:
        slow, fast = await Peer.connect(server), await Peer.connect(server)
        await slow.ask("SUB flood 1\r\n")
        slow.writer.transport.pause_reading()
        message = "PUB flood 400000\r\n" + "x" * 400_000 + "\r\n"
        most = 0
        for _ in range(60):
            assert await fast.ask(message) == []
            most = max(most, *(client.connection.pending_size() for client in server.broker.clients.values()))
            if server.broker.slow_consumers:
                break
        assert server.broker.slow_consumers == 1 and most < 3_000_000
        assert server.closed[-1].close_reason == "Slow Consumer (Pending Bytes)"
        assert await fast.ask() == []


async def test_a_subscriber_that_stops_reading_is_cut_off_at_the_write_deadline() -> None:
    async with running('write_deadline: "200ms"') as server:
        slow, fast = await Peer.connect(server), await Peer.connect(server)
        await slow.ask("SUB flood 1\r\n")
        slow.writer.transport.pause_reading()
        for _ in range(20):
            await fast.ask("PUB flood 1000000\r\n" + "x" * 1_000_000 + "\r\n")
        await until(lambda: server.broker.slow_consumers == 1, "the cut")
        assert server.closed[-1].close_reason == "Slow Consumer (Write Deadline)"
        assert await fast.ask() == []


async def test_a_refused_peer_that_reads_nothing_does_not_linger() -> None:
    async with running('write_deadline: "200ms"') as server:
        peer = await Peer.connect(server)
        await peer.ask("SUB flood 1\r\n")
        peer.writer.transport.pause_reading()
        other = await Peer.connect(server)
        await other.ask("PUB flood 900000\r\n" + "x" * 900_000 + "\r\n")
        client = next(iter(server.broker.clients.values()))
        client.refuse("Stale Connection")
        server.flush()
        await until(lambda: len(server._connections) == 1, "the connection to be dropped")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ("NONSENSE\r\n", "Protocol Violation"),
        ("PUB a 99999999\r\n", "Maximum Message Payload Exceeded"),
        ("PUB " + "a" * 5000 + " 1\r\n", "Maximum Control Line Exceeded"),
    ],
)
async def test_why_a_connection_ended_is_known(sent: str, reason: str) -> None:
    async with running("http: 127.0.0.1:-1") as server:
        peer = await Peer.connect(server)
        peer.send(sent)
        assert len(await peer.rest()) == 1
        (closed,) = (await page(server, "/connz?state=closed"))["connections"]
        assert closed["reason"] == reason


async def test_a_message_in_many_pieces_arrives_whole() -> None:
    async with running() as server:
        peer = await Peer.connect(server)
        payload = "0123456789" * 100_000
        await peer.ask("SUB big 1\r\n")
        await peer.ask()  # after which the second INFO is out of the way
        data = f"PUB big {len(payload)}\r\n{payload}\r\n".encode()
        for start in range(0, len(data), 70_001):
            peer.send(data[start : start + 70_001])
            await peer.writer.drain()
        assert await peer.line() == f"MSG big 1 {len(payload)}"
        assert await asyncio.wait_for(peer.reader.readexactly(len(payload)), 10) == payload.encode()


async def test_a_slow_password_check_holds_one_client_only() -> None:
    import bcrypt

    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(10)).decode()
    async with running(
        f'authorization {{ users: [{{user: a, password: "{hashed}"}}, {{user: b, password: p}}] }}'
    ) as server:
        slow = await Peer.connect(server, user="a", **{"pass": "secret"})
        slow.send("SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n")
        quick = await Peer.connect(server, user="b", **{"pass": "p"})
        assert await quick.ask() == []
        assert [await slow.line() for _ in range(3)] == ["MSG a 1 2", "hi", "PONG"]
        wrong = await Peer.connect(server, user="a", **{"pass": "guess"})
        assert await wrong.rest() == ["-ERR 'Authorization Violation'"]


async def test_hundreds_of_idle_connections_come_and_go() -> None:
    async with running("http: 127.0.0.1:-1") as server:
        peers = [await Peer.connect(server) for _ in range(300)]
        for peer in peers:
            assert await peer.ask() == []
        assert (await page(server, "/varz"))["connections"] == 300
        for peer in peers:
            await peer.close()
        await until(lambda: not server.broker.clients, "all to be gone")


async def test_traced_lines_show_no_password() -> None:
    async with running("trace: true\nauthorization { user: a, password: hush }") as server:
        peer = await Peer.connect(server, user="a", lang="test", version="1", name="me", **{"pass": "hush"})
        await peer.ask("SUB a.b q 7\r\nPUB a.b 5\r\nhello\r\n")
        trace = "\n".join(server.log_lines.lines)
        assert 'cid:1 - "v1:test:me" - "$G/user:a" - <<- [SUB a.b q 7]' in trace and "<<- [PUB a.b 5]" in trace
        assert "hush" not in trace and "hello" not in trace


async def test_an_error_of_ours_costs_one_connection_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("http: 127.0.0.1:-1") as server:
        peer, other = await Peer.connect(server), await Peer.connect(server)
        await peer.ask(), await other.ask()
        monkeypatch.setattr(server.broker.clients[1], "_take_line", lambda line: 1 / 0)
        peer.send("PING\r\n")
        assert await peer.rest() == []
        assert server.log_lines.has("ZeroDivisionError")
        assert await other.ask() == []
        status, _, body = await get(server, "/healthz")
        assert status == 200 and json.loads(body) == {"status": "ok"}
        reader, _ = await asyncio.open_connection(LOOPBACK, server.port)
        assert (await reader.readline()).startswith(b"INFO")


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
def test_a_subscriber_that_reads_steadily_is_not_cut_off(tmp_path: Path, is_secure: bool) -> None:
    """It has more waiting than it reads within the write deadline, and reads all of it."""
    certificates = Certificates(tmp_path)
    config = tmp_path / "server.conf"
    config.write_text('write_deadline: "1s"\n' + (certificates.block() if is_secure else ""))
    size, count = 500_000, 24
    with run_server(tmp_path / "store", "-c", str(config)) as url:
        port = int(url.rpartition(":")[2])
        context = certificates.context() if is_secure else None
        reader, publisher = SteadyPeer(port, context), SteadyPeer(port, context)
        reader.ask(b"SUB flood 1\r\n")
        for _ in range(count):
            publisher.ask(b"PUB flood %d\r\n%s\r\n" % (size, b"x" * size))
        wanted = count * (len(b"MSG flood 1 %d\r\n\r\n" % size) + size)
        while wanted > 0:  # 4 MB/s: three times the deadline
            chunk = reader.socket.recv(min(65536, wanted))
            assert chunk, f"cut off with {wanted} bytes to read"
            wanted -= len(chunk)
            time.sleep(len(chunk) / 4_000_000)
        reader.ask(b"")


class SteadyPeer:
    """A blocking connection with a small receive buffer: what it does not read waits in the server."""

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self.socket.settimeout(20)
        self.socket.connect((LOOPBACK, port))
        assert self.socket.recv(65536).startswith(b"INFO ")
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.ask(b'CONNECT {"verbose":false}\r\n')

    def ask(self, data: bytes) -> None:
        self.socket.sendall(data + b"PING\r\n")
        heard = b""
        while not heard.endswith(b"PONG\r\n"):
            chunk = self.socket.recv(65536)
            assert chunk, heard
            heard += chunk


async def test_what_takes_long_is_done_in_slices_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetlake.broker.client.TURN_NS", 0)  # one thing at a time
    async with running() as server:
        busy, other = await Peer.connect(server), await Peer.connect(server)
        await other.ask()
        turns = 0

        def count_turns() -> None:
            nonlocal turns
            turns += 1
            server.loop.call_soon(count_turns)

        server.loop.call_soon(count_turns)
        subs = "".join(f"SUB a.{number} {number}\r\nPUB a.{number} 1\r\nx\r\n" for number in range(100))
        heard = await busy.ask(subs)
        assert heard == [line for number in range(100) for line in (f"MSG a.{number} {number} 1", "x")]
        assert turns > 100
        assert await other.ask() == []


async def test_what_was_received_is_done_though_the_peer_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetlake.broker.client.TURN_NS", 0)
    async with running() as server:
        listener, peer = await Peer.connect(server), await Peer.connect(server)
        await listener.ask("SUB a 1\r\n")
        await peer.ask()
        peer.send("PUB a 1\r\nx\r\n" * 50)
        peer.writer.transport.abort()
        await until(lambda: len(server.broker.clients) == 1, "the peer to be gone")
        assert await listener.ask() == ["MSG a 1 1", "x"] * 50


async def test_a_chunk_of_costly_lines_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as server:
        peer = await Peer.connect(server)
        await peer.ask()
        client = next(iter(server.broker.clients.values()))
        slices = 0
        receive = client.receive

        def counted(data: bytearray, start: int, end: int) -> int:
            nonlocal slices
            slices += 1
            return receive(data, start, end)

        monkeypatch.setattr(client, "receive", counted)
        await peer.ask("".join(f"SUB a.{number} {number}\r\n" for number in range(20_000)))
        assert slices > 5 and len(client.subs) == 20_000


async def test_large_messages_that_follow_each_other_arrive_whole() -> None:
    async with running() as server:
        peers = [await Peer.connect(server) for _ in range(2)]
        for peer in peers:
            await peer.ask("SUB big 1\r\n")
            await peer.ask()
        payloads = [bytes([65 + number]) * size for number, size in enumerate((600_000, 300_000, 700_000, 131_072))]
        for payload in payloads:
            peers[0].send(b"PUB big %d\r\n%s\r\n" % (len(payload), payload))
        for peer in peers:
            for payload in payloads:
                assert await peer.line() == f"MSG big 1 {len(payload)}"
                assert await asyncio.wait_for(peer.reader.readexactly(len(payload) + 2), 10) == payload + b"\r\n"
        assert server.spare_buffers.take(600_000) is not None


def test_a_spare_buffer_has_room_for_what_is_asked() -> None:
    spare = SpareBuffers()
    small, large = bytearray(10), bytearray(20)
    spare.give(small)
    spare.give(large)
    assert spare.take(11) is large and spare.take(11) is None and spare.take(10) is small


def test_spare_buffers_are_bounded_in_size() -> None:
    spare = SpareBuffers(size_max=30)
    for _ in range(2):
        spare.give(bytearray(20))
    assert spare.take(1) is not None and spare.take(1) is None
    spare.give(bytearray(20))
    assert spare.take(1) is not None

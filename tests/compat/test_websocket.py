"""WebSocket: handshake, frames, compression, who may connect, how it ends; bare frames, nats-py and nats.js."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from jetlake.broker.certificates import key_digest
from tests.compat.conftest import Start
from tests.compat.peer import Closed, Peer
from tests.compat.servers import JETLAKE, LOOPBACK, Server
from tests.compat.test_other_clients import cached_copy, prepare, skip
from tests.compat.test_tls import Certificates, certificates
from tests.compat.ws_peer import (
    BINARY,
    CLOSE,
    COMPRESSED,
    CONTINUATION,
    FINAL,
    OFFER,
    PING,
    PONG,
    TEXT,
    Frame,
    WsPeer,
    deflated,
    masked,
    request,
)

__all__ = ["certificates"]
LISTEN = f"host: {LOOPBACK}, port: -1"
PLAIN = f"websocket {{ {LISTEN}, no_tls: true, compression: true }}"
DEFLATE: dict[str, str | None] = {"Sec_WebSocket_Extensions": OFFER}
VIOLATION = b"-ERR 'Authorization Violation'\r\n"


def ws_port(server: Server) -> int:
    ports = json.loads(next(server.directory.glob("*.ports")).read_text())
    return int(ports["websocket"][0].rpartition(":")[2])


@pytest.fixture(scope="session")
def shared_ws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """A server of each kind that listens for WebSocket, started when first asked for."""
    running: dict[str, Server] = {}
    yield running
    for server in running.values():
        server.kill()


@pytest.fixture
def server(kind: str, shared_ws: dict[str, Server], tmp_path_factory: pytest.TempPathFactory) -> Server:
    if kind not in shared_ws:
        shared_ws[kind] = Server(kind, tmp_path_factory.mktemp(f"ws-{kind}"), ["-js"], PLAIN).start()
    return shared_ws[kind]


@pytest.fixture
def port(server: Server) -> int:
    return ws_port(server)


def answer(port: int, data: bytes) -> bytes:
    """What the server says to a request, up to the end of its head, or until it hangs up."""
    with socket.create_connection((LOOPBACK, port), timeout=10) as sock:
        sock.sendall(data)
        got = b""
        while b"\r\n\r\n" not in got and (chunk := sock.recv(1 << 16)):
            got += chunk
        return got


def login(port: int, fields: dict[str, str | None] | None = None, **options: str) -> bool:
    with WsPeer(port, fields=fields, **options) as peer:
        said = peer.ask()
        assert said in ([], [VIOLATION])
        return not said


# The handshake


def test_a_client_is_greeted_behind_the_handshake(server: Server, port: int) -> None:
    with WsPeer(port) as peer:
        assert peer.info["port"] == port and peer.info["host"] == LOOPBACK and "tls_required" not in peer.info
        assert set(peer.socket.fields) == {"upgrade", "connection", "sec-websocket-accept"}
        assert peer.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n") == [b"MSG a 1 2\r\nhi\r\n"]
        assert {frame.first for frame in peer.socket.frames} == {FINAL | BINARY}
        (shown,) = (c for c in server.get("/connz")["connections"] if c["cid"] == peer.info["client_id"])
        assert shown["type"] == "websocket" and shown["kind"] == "Client"
    websocket = server.get("/varz")["websocket"]
    assert websocket == {"host": LOOPBACK, "port": port, "no_tls": True, "compression": True}


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (request(Upgrade="h2c"), 400),
        (request(Connection="close"), 400),
        (request(Sec_WebSocket_Key=None), 400),
        (request(Sec_WebSocket_Key="AAAA"), 400),
        (request(Sec_WebSocket_Version="12"), 400),
        (request(Host=None), 400),
        (request("/mqtt"), 404),
        (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"GARBAGE\r\n\r\n", 400),
        (request("/any/path", Connection="keep-alive, upgrade"), 101),
        (request("/leafnode"), 101),
    ],
)
def test_requests_are_answered_by_their_status(port: int, asked: bytes, status: int) -> None:
    assert answer(port, asked).startswith(f"HTTP/1.1 {status} ".encode())


def test_frames_before_the_answer_close_the_connection(port: int) -> None:
    assert answer(port, request() + masked(b"PING\r\n")) == b""


def test_half_a_request_is_not_waited_for(start: Start) -> None:
    port = ws_port(start(f"websocket {{ {LISTEN}, no_tls: true, handshake_timeout: 100ms }}"))
    assert answer(port, b"GET / HTTP/1.1\r\nHost: a\r\n") == b""


def test_headers_of_the_configuration(start: Start) -> None:
    port = ws_port(start(f"websocket {{ {LISTEN}, no_tls: true, headers {{ X-One: a, X-Two: b }} }}"))
    with WsPeer(port) as peer:
        assert peer.socket.fields["x-one"] == "a" and peer.socket.fields["x-two"] == "b"


def test_origins(start: Start) -> None:
    allowed = ws_port(
        start(f'websocket {{ {LISTEN}, no_tls: true, allowed_origins: ["https://a.com", "http://b:81"] }}')
    )
    for origin, status in (
        (None, 101),
        ("https://a.com", 101),
        ("https://a.com:443", 101),
        ("http://a.com", 403),
        ("http://b:81", 101),
        ("http://b", 403),
    ):
        assert answer(allowed, request(Origin=origin)).startswith(f"HTTP/1.1 {status} ".encode()), origin
    same = ws_port(start(f"websocket {{ {LISTEN}, no_tls: true, same_origin: true }}"))
    for origin, status in ((None, 101), ("http://127.0.0.1", 101), ("http://127.0.0.1:81", 403), ("https://x", 403)):
        assert answer(same, request(Origin=origin)).startswith(f"HTTP/1.1 {status} ".encode()), origin


def test_tls(start: Start, certificates: Certificates) -> None:
    server = start(f"websocket {{ {LISTEN}\n{certificates.block()} }}")
    with WsPeer(ws_port(server), tls=certificates.context()) as peer:
        assert peer.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n") == [b"MSG a 1 2\r\nhi\r\n"]
        big = b"x" * 900_000
        peer.publish("a", big)
        assert peer.message().payload == big
        (shown,) = server.get("/connz")["connections"]
        assert shown["type"] == "websocket" and shown["tls_version"] == "1.3"
    with Peer(server) as peer:  # others need none
        assert peer.ask() == []
    assert not answer(ws_port(server), request()).startswith(b"HTTP/1.1 101")


def test_a_certificate_says_who_the_user_is(start: Start, certificates: Certificates) -> None:
    ca = f'ca_file: "{certificates.path("ca", "crt")}", verify_and_map: true'
    for user, said in (("CN=client", []), ("somebody", [VIOLATION])):
        server = start(
            f'websocket {{ {LISTEN}\n{certificates.block(ca)} }}\nauthorization {{ users: [{{user: "{user}"}}] }}'
        )
        with WsPeer(ws_port(server), tls=certificates.context("client"), user="somebody") as peer:
            assert peer.ask() == said
        with Peer(server) as plain:  # the certificates of other listeners say nothing
            assert plain.ask() == [VIOLATION]


def test_pinned_certificates(start: Start, certificates: Certificates) -> None:
    digest = key_digest(ssl.PEM_cert_to_DER_cert(certificates.path("client", "crt").read_text()))
    ca = f'ca_file: "{certificates.path("ca", "crt")}", verify: true'
    for pinned, is_let_in in ((digest.upper(), True), ("0" * 64, False)):
        words = certificates.block(f'{ca}, pinned_certs: ["{pinned}"]')
        server = start(f"websocket {{ {LISTEN}\n{words} }}")
        is_let_in |= server.kind != JETLAKE  # nats-server does not look at them here
        try:
            with WsPeer(ws_port(server), tls=certificates.context("client")) as peer:
                assert peer.ask() == [] and is_let_in
        except (Closed, OSError):
            assert not is_let_in


def test_tls_or_none_has_to_be_chosen(start: Start) -> None:
    with pytest.raises(AssertionError, match=r"requires TLS configuration"):
        start(f"websocket {{ {LISTEN} }}")


# Frames


def test_where_frames_begin_and_end_means_nothing(port: int) -> None:
    with WsPeer(port) as peer:
        raw = peer.socket.socket
        peer.ask(b"SUB a 1\r\n")
        for frames in (
            masked(b"PUB a 2\r\nhi\r\nPUB a ") + masked(b"2\r\nhi\r\n", FINAL | TEXT),
            masked(b"PUB a", BINARY) + masked(b" 2\r\nhi\r", CONTINUATION) + masked(b"\nPUB a 2\r\nhi\r\n", FINAL),
            b"".join(masked(bytes((byte,))) for byte in b"PUB a 2\r\nhi\r\nPUB a 2\r\nhi\r\n"),
            masked(b"") + masked(b"PUB a 2\r\nhi\r\n" * 2) + masked(b"", BINARY) + masked(b"", FINAL),
        ):
            raw.sendall(frames)
            assert peer.ask() == [b"MSG a 1 2\r\nhi\r\n"] * 2


def test_messages_of_every_size(port: int) -> None:
    with WsPeer(port) as peer:
        peer.subscribe("big")
        for size in (0, 100, 126, 5_000, 65_536, 300_000, 1_048_576):
            payload = (bytes(range(256)) * (size // 256 + 1))[:size]
            peer.publish("big", payload)
            assert peer.message().payload == payload


def test_a_large_message_in_small_frames(port: int) -> None:
    with WsPeer(port) as peer:
        peer.subscribe("big")
        payload = b"0123456789" * 50_000
        whole = b"PUB big %d\r\n%s\r\n" % (len(payload), payload)
        peer.socket.socket.sendall(b"".join(masked(whole[at : at + 999]) for at in range(0, len(whole), 999)))
        assert peer.message().payload == payload


def test_browsers_get_small_frames(port: int) -> None:
    with WsPeer(port, fields={"User_Agent": "Mozilla/5.0 (X11)"}) as peer:
        peer.subscribe("a")
        peer.publish("a", b"x" * 10_000)
        assert peer.message().payload == b"x" * 10_000
        frames = peer.socket.frames[-3:]
        assert [frame.first for frame in frames] == [FINAL | BINARY] * 3
        assert [len(frame.payload) for frame in frames[:2]] == [4096, 4096]


def test_pings_are_answered_also_between_fragments(port: int) -> None:
    with WsPeer(port) as peer:
        peer.socket.socket.sendall(masked(b"PI", BINARY) + masked(b"hello", FINAL | PING) + masked(b"NG\r\n", FINAL))
        while Frame(FINAL | PONG, b"hello") not in peer.socket.frames:
            peer.socket.frame()
        assert peer.ask() == []


def test_masks_can_be_left_out_where_it_is_agreed_on(port: int) -> None:
    with WsPeer(port, None, fields={"Nats_No_Masking": "true"}) as peer:
        assert peer.socket.fields["nats-no-masking"] == "true"
        peer.socket.socket.sendall(masked(b'CONNECT {"verbose":false}\r\nPING\r\n', is_masked=False))
        assert peer.frame() == b"PONG\r\n"


WRONG = [
    masked(b"PING\r\n", is_masked=False),
    masked(b"x" * 126, FINAL | PING),
    masked(b"x", PING),
    masked(b"x", FINAL | 3),
    masked(b"x", FINAL | CONTINUATION),
    masked(b"x", FINAL | 0x20 | BINARY),
    masked(b"x", FINAL | COMPRESSED | BINARY),
    masked(b"P", BINARY) + masked(b"P"),
    masked(b"x", size=1 << 63),
    masked(b"\x03", FINAL | CLOSE),
    masked(b"\x03\xed", FINAL | CLOSE),
    masked(b"GARBAGE\r\n"),
    b"\xff" * 100,
]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_wrong_frames_close_the_connection(port: int, wrong: bytes) -> None:
    with WsPeer(port) as peer:
        peer.ask()
        peer.socket.socket.sendall(wrong)
        closing = peer.socket.close_frame()  # nats-server mostly hangs up before it is sent
        assert closing is None or closing.startswith((1002).to_bytes(2, "big"))
        assert peer.socket.frame() is None


@pytest.mark.parametrize(
    ("sent", "answer"),
    [(b"\x03\xe8bye", b"\x03\xe8bye"), (b"", b""), (b"\x03\xe8\xff", b"\x03\xefinvalid utf8 body in close frame")],
)
def test_a_close_is_answered(port: int, sent: bytes, answer: bytes) -> None:
    with WsPeer(port) as peer:
        peer.subscribe("a")
        peer.socket.socket.sendall(masked(b"PUB a 2\r\nhi\r\n") + masked(sent, FINAL | CLOSE) + masked(b"PING\r\n"))
        assert peer.message().payload == b"hi"
        assert peer.socket.close_frame() == answer and peer.socket.frame() is None


def test_a_payload_that_is_too_large(port: int) -> None:
    with WsPeer(port) as peer:
        peer.socket.sendall(b"PUB a 2000000\r\n")
        assert peer.socket.close_frame() == b"\x03\xf1Maximum Message Payload Exceeded"
        assert b"-ERR 'Maximum Payload Violation'\r\n" in [frame.payload for frame in peer.socket.frames]


def test_half_a_frame_disturbs_nobody(port: int) -> None:
    halves = [WsPeer(port) for _ in range(5)]
    for number, half in enumerate(halves):
        half.socket.socket.sendall(masked(b"PUB a 5\r\nhello\r\n", size=(1 << 63) - 1)[: 3 + 4 * number])
    with WsPeer(port) as peer:
        assert peer.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n") == [b"MSG a 1 2\r\nhi\r\n"]
    for half in halves:
        half.socket.close()


def test_the_end_of_the_server_is_told(start: Start) -> None:
    server = start(PLAIN)
    with WsPeer(ws_port(server)) as peer:
        peer.ask()
        server.stop()
        closing = peer.socket.close_frame()
        assert closing is None or closing == b"\x03\xe9Server Shutdown"


# Compression


def test_messages_are_compressed_in_both_directions(port: int) -> None:
    with WsPeer(port, fields=DEFLATE) as peer:
        assert peer.socket.fields["sec-websocket-extensions"] == OFFER
        assert peer.socket.frames[0].first == FINAL | COMPRESSED | BINARY  # INFO
        peer.socket.is_compressing = True
        peer.subscribe("a")
        for payload in (b"x" * 200, b"y" * 300_000, bytes(range(256)) * 1000):
            peer.publish("a", payload)
            assert peer.message().payload == payload
        sizes = [len(frame.payload) for frame in peer.socket.frames if frame.first & COMPRESSED]
        assert sum(sizes) < 20_000


def test_small_messages_are_sent_as_they_are(port: int) -> None:
    with WsPeer(port, fields=DEFLATE) as peer:
        peer.ask()
        peer.subscribe("a")
        peer.publish("a", b"hi")
        assert peer.message().payload == b"hi"
        assert peer.socket.frames[-1] == Frame(FINAL | BINARY, b"MSG a 1 2\r\nhi\r\n")


def test_compressed_fragments_and_plain_messages_between(port: int) -> None:
    with WsPeer(port, fields=DEFLATE) as peer:
        peer.subscribe("a")
        packed = deflated(b"PUB a 2\r\nhi\r\n" * 20)
        raw = peer.socket.socket
        raw.sendall(masked(packed[:9], COMPRESSED | BINARY) + masked(b"", FINAL | PING) + masked(packed[9:], FINAL))
        raw.sendall(masked(b"PUB a 2\r\nhi\r\n"))
        assert peer.ask() == [b"MSG a 1 2\r\nhi\r\n"] * 21


@pytest.mark.parametrize("unit", [b"\0", b"PING\r\n", b"PUB a 0\r\n\r\n"], ids=["zeros", "pings", "publishes"])
def test_a_bomb_is_not_inflated(port: int, server: Server, unit: bytes) -> None:
    bomb = masked(deflated(unit * 5_000_000), FINAL | COMPRESSED | BINARY)
    with WsPeer(port, fields=DEFLATE) as peer, WsPeer(port) as other:
        peer.socket.socket.sendall(bomb)
        assert other.ask(b"SUB a.b 1\r\nPUB a.b 2\r\nhi\r\n") == [b"MSG a.b 1 2\r\nhi\r\n"]
        while (frame := peer.socket.frame()) is not None:
            assert frame.opcode != CLOSE or frame.payload[:2] in (b"\x03\xe9", b"\x03\xea", b"\x03\xf1")
    if server.kind == JETLAKE:
        assert not server.stalls(cpu_ms=40.0)


# Who may connect


def test_users_by_the_way_they_connect(start: Start) -> None:
    server = start(f"""
        {PLAIN}
        authorization {{ users: [
          {{user: ws, password: p, allowed_connection_types: [WEBSOCKET]}}
          {{user: tcp, password: p, allowed_connection_types: [STANDARD]}}
          {{user: both, password: p}}
        ] }}
    """)
    port = ws_port(server)
    assert [login(port, user=user, **{"pass": "p"}) for user in ("ws", "tcp", "both")] == [True, False, True]
    for user, is_in in (("ws", False), ("tcp", True), ("both", True)):
        with Peer(server, user=user, **{"pass": "p"}) as peer:
            assert peer.ask() == ([] if is_in else [VIOLATION])


def test_a_failed_login_is_told_by_its_code(start: Start) -> None:
    port = ws_port(start(f"{PLAIN}\nauthorization {{ user: a, password: p }}"))
    with WsPeer(port, user="a", **{"pass": "wrong"}) as peer:
        assert peer.info["auth_required"] is True
        assert peer.socket.close_frame() == b"\x03\xf0Authentication Failure"
        assert VIOLATION in [frame.payload for frame in peer.socket.frames]


def test_a_login_has_its_own_timeout(start: Start) -> None:
    block = f"websocket {{ {LISTEN}, no_tls: true, authorization {{ user: w, password: p, timeout: 0.1 }} }}"
    server = start(f"{block}\nauthorization {{ user: a, password: p, timeout: 30 }}")
    with WsPeer(ws_port(server), None) as peer:
        assert peer.socket.close_frame() == b"\x03\xf0Authentication Timeout"
        assert b"-ERR 'Authentication Timeout'\r\n" in [frame.payload for frame in peer.socket.frames]
    assert login(ws_port(server), user="w", **{"pass": "p"})
    assert not login(ws_port(server), user="a", **{"pass": "p"})
    with Peer(server, user="a", **{"pass": "p"}) as peer:
        assert peer.ask() == []


def test_a_no_auth_user_of_its_own(start: Start) -> None:
    block = f"websocket {{ {LISTEN}, no_tls: true, no_auth_user: guest }}"
    server = start(f"{block}\nauthorization {{ users: [{{user: guest, password: g}}, {{user: a, password: p}}] }}")
    with WsPeer(ws_port(server)) as peer:
        assert peer.info["auth_required"] is True and peer.ask() == []
        assert peer.request("$SYS.REQ.USER.INFO").json["data"]["user"] == "guest"
    with Peer(server) as peer:
        assert peer.ask() == [VIOLATION]


def test_cookies_stand_in_for_what_connect_leaves_out(start: Start) -> None:
    cookies = "user_cookie: u, pass_cookie: p, token_cookie: t"
    users = "authorization { users: [{user: a, password: pa}, {user: b, password: pb}] }"
    port = ws_port(start(f"websocket {{ {LISTEN}, no_tls: true, {cookies} }}\n{users}"))
    assert login(port, {"Cookie": 'x=1; u=a; p="pa"'})
    assert not login(port, {"Cookie": "u=a; p=wrong"}) and not login(port, {"Cookie": "x=1"})
    assert login(port, {"Cookie": "u=a; p=pa"}, user="b", **{"pass": "pb"})
    assert not login(port, {"Cookie": "u=a; p=pa"}, user="b")
    port = ws_port(start(f"websocket {{ {LISTEN}, no_tls: true, {cookies} }}\nauthorization {{ token: secret }}"))
    assert login(port, {"Cookie": "t=secret"}) and not login(port, {"Cookie": "t=other"})


# Clients


async def test_nats_py(port: int, name: str) -> None:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed: nats-py cannot speak WebSocket")
    client = await nats.connect(f"ws://{LOOPBACK}:{port}")
    sub = await client.subscribe(f"{name}.>")
    for number in range(100):
        await client.publish(f"{name}.{number}", b"%d" % number * 1000)
    assert [len((await sub.next_msg(5)).data) for _ in range(100)] == [len(str(n)) * 1000 for n in range(100)]
    stream = await client.jetstream().add_stream(name=name, subjects=[f"s{name}"])
    assert (await client.jetstream().publish(f"s{name}", b"kept")).seq == 1 and stream.config.name == name
    await client.close()


@pytest.mark.parametrize("part", ["core", "streams", "kv", "consumers"])
def test_nats_js(port: int, part: str, name: str) -> None:
    node = node_with_websocket()
    run = subprocess.run([*node, f"ws://{LOOPBACK}:{port}", part, name], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.strip().endswith(f"{part} ok")


def node_with_websocket() -> list[str]:
    """How to run the JavaScript program in a node that has WebSocket."""
    flag = "--experimental-websocket"
    try:
        if subprocess.run(["node", flag, "-e", "new WebSocket('ws://x').onerror = () => {}"]).returncode:
            skip("this node has no WebSocket: nats.js is not tried over it")
    except OSError:
        skip("node is not installed: nats.js is not tried")
    directory: Path = cached_copy("js")
    prepare(directory, ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"])
    return ["node", flag, "--no-warnings", str(directory / "compat.js")]

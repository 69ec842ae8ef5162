"""The same random bytes to both servers: the same answers, and the same connections closed.

A case follows from its seed: some lines and messages, right ones and wrong ones, then mutated (a byte changed, dropped,
doubled, or a piece cut out) and sent in random pieces. `JETLAKE_FUZZ_CASES` and `JETLAKE_FUZZ_SEED` widen the search.
"""

from __future__ import annotations

import os
import random
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

import pytest

from tests.compat.conftest import Pair
from tests.compat.servers import LOOPBACK, Server

CASES = int(os.environ.get("JETLAKE_FUZZ_CASES", "400"))
SEED = int(os.environ.get("JETLAKE_FUZZ_SEED", "1"))
AT_ONCE = 100
SETTLE_S, ANSWER_S_MAX = 0.3, 6.0
CPU_MS_MAX = 50.0  # of one turn of the loop

_TOKENS = [b"a", b"b", b"c", b"*", b">", b"a.b", b"a.*", b"a.>", b"", b"a..b", b"\xc3\xa9", b"$X", b"x" * 40]
_BLOCKS = [
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0\r\nA: b\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"",
    b"x",
    b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n",
]
_LINES = [
    b"PING\r\n", b"ping\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'x'\r\n", b"FOO\r\n", b"\r\n", b"INFO {}\r\n",
    b"UNSUB 1\r\n", b"UNSUB 2 1\r\n",
    b"UNSUB 1 3\r\n", b"UNSUB 99\r\n", b"UNSUB\r\n", b"SUB\r\n", b"PUB\r\n", b"PUB a\r\n", b"PUB a -1\r\n",
    b"PUB a 1x\r\n", b"HPUB a 1\r\n",
    b"HPUB a 5 2\r\n", b"SUB a\r\n", b"SUB a b c d\r\n", b"CONNECT {\r\n", b"CONNECT {}\r\n",
    b'CONNECT {"verbose":false}\r\n',
    b'CONNECT {"verbose":true,"pedantic":true}\r\n', b'CONNECT {"echo":false,"verbose":false}\r\n',
    b'CONNECT {"protocol":7}\r\n',
    b'CONNECT {"headers":false,"no_responders":true}\r\n', b"PUB a 9999999\r\n", b"PUB %s 1\r\nx\r\n" % (b"y" * 4100),
]  # fmt: skip


class Case(NamedTuple):
    """What is sent, in pieces, and the prefix that keeps its subjects apart from other cases."""

    number: int
    prefix: bytes
    pieces: list[bytes]


def make_case(number: int) -> Case:
    rng = random.Random(SEED * 1_000_003 + number)
    prefix = b"f%dx%d." % (SEED, number)
    data = b"".join(_operation(rng, prefix) for _ in range(rng.randrange(1, 12)))
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        data = _mutate(rng, data)
    return Case(number, prefix, _pieces(rng, data))


def _operation(rng: random.Random, prefix: bytes) -> bytes:
    kind = rng.randrange(10)
    subject, sid = prefix + rng.choice(_TOKENS), b"%d" % rng.randrange(1, 4)
    reply = rng.choice([b"", b"", prefix + rng.choice(_TOKENS) + b" "])
    if kind < 4:
        payload = rng.randbytes(rng.choice([0, 1, 5, 60])).replace(b"\r", b"r")
        return b"PUB %s %s%d\r\n%s\r\n" % (subject, reply, len(payload), payload)
    if kind < 5:
        block, payload = rng.choice(_BLOCKS), b"p" * rng.randrange(4)
        return b"HPUB %s %s%d %d\r\n%s%s\r\n" % (subject, reply, len(block), len(block) + len(payload), block, payload)
    if kind < 8:
        return b"SUB %s %s%s\r\n" % (subject, rng.choice([b"", b"", b"q%s " % sid]), sid)
    return rng.choice(_LINES)


def _mutate(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(5)
    if kind == 0:
        return data[:at] + rng.choice([b" ", b"\t", b"0", b"9", b"\x00", b"\xff", b"P", b".", b"*"]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + data[at + 1 :]
    if kind == 2:
        return data[:at] + data[at : at + 1] + data[at:]
    if kind == 3:
        return data[:at] + data[at + rng.randrange(30) :]
    return data[:at] + rng.choice([b"  ", b"\t", b"+OK\r\n", b"PING\r\n"]) + data[at:]


def _pieces(rng: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice([0, 0, 1, 3, 20])))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if start < end]


class Talk:
    """One case on one server."""

    def __init__(self, server: Server, case: Case) -> None:
        self.case = case
        self.socket = socket.create_connection((LOOPBACK, server.port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(
            b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB %s> 1\r\nPING\r\n' % case.prefix
        )
        self.said, self.is_open = b"", True
        while not self.said.endswith(b"PONG\r\n"):
            self.said += self.socket.recv(65536)
        self.said = b""
        self.socket.setblocking(False)

    def send(self, piece: bytes) -> None:
        with suppress(OSError):  # the server may have hung up, which `listen` will find
            self.socket.send(piece)

    def listen(self) -> None:
        try:
            while self.is_open:
                chunk = self.socket.recv(1 << 16)
                self.said += chunk
                self.is_open = bool(chunk)
        except BlockingIOError:
            pass
        except OSError:
            self.is_open = False

    def outcome(self) -> tuple[list[bytes], bool]:
        """What was said, but for what differs from run to run on nats-server itself, and whether it is still open."""
        found: list[bytes] = []
        for frame in frames(self.said):
            if frame.startswith((b"MSG ", b"HMSG ")) and not frame.split()[1].startswith(self.case.prefix):
                continue  # a changed byte made it listen to what others say, sooner or later
            # When a read ends within a message, nats-server looks at its subject, and complains, once more.
            if not frame.startswith((b"INFO ", b"PING")) and not (frame == COMPLAINT and found[-1:] == [COMPLAINT]):
                found.append(frame)
        # It complains of a subject before it has the payload; JetLake waits for the whole message, which may not come.
        is_last_word = found[-1:] == [COMPLAINT]
        if is_last_word or (found[-2:-1] == [COMPLAINT] and found[-1].startswith(b"-ERR ")):
            del found[-1 if is_last_word else -2]
        return sorted_deliveries(found), self.is_open


COMPLAINT = b"-ERR 'Invalid Publish Subject'\r\n"
_DELIVERY = re.compile(rb"(H?MSG \S+) (\S+)( .*?)0*(\d+\r\n.*)", re.DOTALL)


def frames(said: bytes) -> Iterator[bytes]:
    """Lines, and messages with their payload."""
    while said:
        size = said.find(b"\r\n") + 2
        if said.startswith((b"MSG ", b"HMSG ")):
            size += int(said[:size].split()[-1]) + 2
        yield said[:size]
        said = said[size:]


def sorted_deliveries(found: list[bytes]) -> list[bytes]:
    """Several subscriptions of one client get a message in any order. nats-server also repeats the zeros of a size."""
    parts = [_DELIVERY.fullmatch(frame) for frame in found]
    keys = [
        (part[1] + part[3] + part[4], part[2]) if part else (frame, b"")
        for part, frame in zip(parts, found, strict=True)
    ]
    return [sid + b" " + rest for _, group in groupby(keys, lambda key: key[0]) for rest, sid in sorted(group)]


def has_line_end_in_arguments(case: Case) -> bool:
    """JetLake closes where a line end got into the arguments of a PUB (see jetlake/wire/tokenize.py)."""
    data = b"".join(case.pieces)
    return bool(re.search(rb"(?i)PUB[ \t]*[\r\n]+[^\r\n]|PUB[ \t][^\r\n]*\r[^\n]", data))


@pytest.mark.parametrize("first", range(0, CASES, AT_ONCE))
def test_both_servers_make_the_same_of_random_bytes(pair: Pair, first: int) -> None:
    cases = [
        case
        for case in map(make_case, range(first, min(first + AT_ONCE, CASES)))
        if not has_line_end_in_arguments(case)
    ]
    talks = [(Talk(pair.real, case), Talk(pair.ours, case)) for case in cases]
    try:
        for real, ours in talks:
            for piece in real.case.pieces:
                real.send(piece)
                ours.send(piece)
        differing = _wait(talks)
        assert [(one.case.number, one.case.pieces, one.outcome(), two.outcome()) for one, two in differing] == []
        assert pair.ours.stalls(CPU_MS_MAX) == []
    finally:
        for pair_of_talks in talks:
            for talk in pair_of_talks:
                talk.socket.close()


def _wait(talks: list[tuple[Talk, Talk]]) -> list[tuple[Talk, Talk]]:
    """The cases whose outcomes still differ when there was time enough."""
    stop = time.monotonic() + ANSWER_S_MAX
    while True:
        time.sleep(SETTLE_S)
        for pair_of_talks in talks:
            for talk in pair_of_talks:
                talk.listen()
        differing = [(real, ours) for real, ours in talks if real.outcome() != ours.outcome()]
        if not differing or time.monotonic() > stop:
            return differing


def test_cases_are_neither_all_right_nor_all_wrong(pair: Pair) -> None:
    """The search is worth something: a good part of the cases ends in an error, and a good part does not."""
    cases = [make_case(number) for number in range(AT_ONCE)]
    talks = [Talk(pair.real, case) for case in cases]
    for talk in talks:
        for piece in talk.case.pieces:
            talk.send(piece)
    time.sleep(1)
    for talk in talks:
        talk.listen()
        talk.socket.close()
    closed = sum(not talk.is_open for talk in talks)
    assert 0.2 * AT_ONCE < closed < 0.9 * AT_ONCE
    assert sum(b"MSG " in talk.said for talk in talks) > 0.2 * AT_ONCE

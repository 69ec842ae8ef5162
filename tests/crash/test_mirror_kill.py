"""Both sides of a mirror and a source are killed again and again while messages come in. At rest, nothing is missing.

The copies are made by client credentials, from JetLake and from nats-server. `JETLAKE_KILL_ROUNDS` sets the number of
kills.
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.compat.peer import Closed, Peer, publication
from tests.compat.servers import JETLAKE, KINDS, Server, wait_until
from tests.compat.test_remotes import AUTH, origin_peer, put

ROUNDS = int(os.environ.get("JETLAKE_KILL_ROUNDS", "4"))
WINDOW = 40  # publishes that are sent together
PAUSE_S = 0.01
ORIGIN = {"name": "O", "external": {"api": "$JETLAKE.REMOTE.prod", "deliver": ""}}


class Publisher(threading.Thread):
    """Publishes numbers, whether the origin is there or not, until it is told to end; keeps what was acknowledged."""

    def __init__(self, origin: Server) -> None:
        super().__init__(daemon=True)
        self.origin, self.is_over, self.acked = origin, False, dict[int, bytes]()
        self._number = 0

    def run(self) -> None:
        while not self.is_over:
            try:
                with origin_peer(self.origin) as peer:
                    peer.subscribe("_INBOX.pub")
                    while not self.is_over:
                        self._window(peer)
                        time.sleep(PAUSE_S)
            except (OSError, Closed, AssertionError):
                time.sleep(0.05)  # the origin was killed

    def _window(self, peer: Peer) -> None:
        sent = [b"%d %s" % (self._number + place, b"x" * (place * 17 % 200)) for place in range(WINDOW)]
        self._number += WINDOW
        peer.send(b"".join(publication(f"o.{at % 5}", each, reply="_INBOX.pub") for at, each in enumerate(sent)))
        for each in sent:
            self.acked[peer.message().json["seq"]] = each


class Found(NamedTuple):
    """A stored message."""

    subject: bytes
    time: bytes
    payload: bytes


def read(peer: Peer, stream: str, last_seq: int) -> dict[int, Found]:
    """All messages of a stream; a source's by the sequences of the origin, each of which may come once."""
    found: dict[int, Found] = {}
    next_seq = 1
    while next_seq <= last_seq:
        body = b'{"seq":%d,"batch":500}' % next_seq
        for msg in peer.requests(f"$JS.API.DIRECT.GET.{stream}", body, b"", -1)[:-1]:
            fields = dict(line.split(b": ", 1) for line in msg.headers.split(b"\r\n") if b": " in line)
            next_seq = int(fields[b"Nats-Sequence"]) + 1
            source = fields.get(b"Nats-Stream-Source")
            seq = int(source.split(b" ")[1]) if source is not None else next_seq - 1
            assert seq not in found, f"{stream} has {seq} twice"
            found[seq] = Found(fields[b"Nats-Subject"], fields[b"Nats-Time-Stamp"], msg.payload)
    return found


def last_seq_of(peer: Peer, stream: str) -> int:
    return int(peer.api(f"STREAM.INFO.{stream}")["state"]["last_seq"])


@pytest.mark.timeout(300 + 10 * ROUNDS)
@pytest.mark.parametrize("kind", KINDS)
def test_kills_of_either_side_leave_no_gap_and_nothing_twice(tmp_path: Path, kind: str) -> None:
    chance = random.Random(ROUNDS)
    with ExitStack() as stack:
        origin = stack.enter_context(Server(kind, tmp_path / "origin", ["-js"], AUTH))
        copy = stack.enter_context(Server(JETLAKE, tmp_path / "copy"))
        with origin_peer(origin) as theirs, Peer(copy) as ours:
            theirs.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"], "allow_direct": True})
            assert "error" not in put(ours, origin)
            ours.api("STREAM.CREATE.M", {"name": "M", "mirror": ORIGIN, "allow_direct": True})
            ours.api("STREAM.CREATE.T", {"name": "T", "sources": [ORIGIN], "allow_direct": True})
        publisher = Publisher(origin)
        publisher.start()
        for _ in range(ROUNDS):
            time.sleep(chance.uniform(0.2, 1.2))
            killed = chance.choice([origin, copy])
            killed.kill()
            time.sleep(chance.uniform(0, 0.3))
            killed.start()
        time.sleep(0.5)
        publisher.is_over = True
        publisher.join()
        with origin_peer(origin) as theirs, Peer(copy) as ours:
            last_seq = last_seq_of(theirs, "O")
            for name in "MT":
                wait_until(lambda name=name: last_seq_of(ours, name) >= last_seq, f"{name} to catch up", 120)
            expected, mirrored = read(theirs, "O", last_seq), read(ours, "M", last_seq)
            sourced = read(ours, "T", last_seq_of(ours, "T"))
    assert len(expected) == last_seq
    assert mirrored == expected
    assert [(seq, each[::2]) for seq, each in sourced.items()] == [(seq, each[::2]) for seq, each in expected.items()]
    assert publisher.acked and {seq: expected[seq].payload for seq in publisher.acked} == publisher.acked

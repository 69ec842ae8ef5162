"""A mirror of a remote's stream under kills, restarts and cuts of both sides: at rest it equals its origin.

Each run is a random script from a seed, which the test's name says.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, KINDS, NATS_SERVER, Server, wait_until
from tests.compat.test_remotes import AUTH, MIRROR, Make, caught_up, origin_peer, payloads, put

STEP_COUNT = 14


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as stack:
        yield lambda kind, name, config="": stack.enter_context(Server(kind, tmp_path / name, ["-js"], config))


def publish(origin: Server, chance: random.Random) -> None:
    with origin_peer(origin) as peer:
        for _ in range(chance.randrange(1, 400)):
            peer.publish(f"o.{chance.randrange(5)}", chance.randbytes(chance.randrange(300)))
        peer.request("o.last", b"acked")


def step(origin: Server, copy: Server, chance: random.Random) -> None:
    kind = chance.choice(["publish", "publish", "publish", "delete", "purge", "origin", "copy", "freeze"])
    if kind == "publish":
        publish(origin, chance)
    elif kind in ("delete", "purge"):
        with origin_peer(origin) as peer:
            last = peer.api("STREAM.INFO.O")["state"]["last_seq"]
            if kind == "delete" and last:
                peer.api("STREAM.MSG.DELETE.O", {"seq": chance.randrange(1, last + 1)})
            elif kind == "purge":
                peer.api("STREAM.PURGE.O", {"filter": f"o.{chance.randrange(5)}"})
    elif kind == "origin":
        origin.stop() if origin.kind == NATS_SERVER else origin.kill()
        time.sleep(chance.random())
        origin.start()
    elif kind == "copy":
        copy.kill()
        publish(origin, chance)
        copy.start()
    else:
        origin.signal(signal.SIGSTOP)
        time.sleep(chance.random())
        origin.signal(signal.SIGCONT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_mirror_equals_its_origin_at_rest(make: Make, kind: str, seed: int) -> None:
    chance = random.Random(seed)
    origin, copy = make(kind, "origin", AUTH), make(JETLAKE, "copy")
    with origin_peer(origin) as theirs, Peer(copy) as ours:
        theirs.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
        put(ours, origin)
        ours.api("STREAM.CREATE.M", MIRROR)
    for _ in range(STEP_COUNT):
        step(origin, copy, chance)
    publish(origin, chance)
    with origin_peer(origin) as theirs, Peer(copy) as ours:
        last = theirs.api("STREAM.INFO.O")["state"]["last_seq"]
        wait_until(lambda: caught_up(ours, last), "the copy", 60)
        expected, found = payloads(theirs, "O", last), payloads(ours, "M", last)
    assert {seq: found.get(seq) for seq in expected} == expected
    assert set(found) - set(expected) <= set(range(1, last + 1))  # what left the origin stays in the copy

"""The same random conversation with a consumer on both servers: messages, statuses and numbers are the same.

Waits are long, so that nothing depends on how fast a server is. A failing conversation is repeated with its seed.
Purges are left out: nats-server counts what is pending wrongly after some of them, which JetLake does not imitate.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.compat.conftest import Pair
from tests.compat.consumer_script import MS, ConsumerScript, same

SEEDS = range(int(os.environ.get("JETLAKE_RANDOM_SEEDS", "4")))
STEPS = 40
SUBJECTS = ("S.a", "S.b", "S.c")


def configuration(chance: random.Random, stream: str) -> dict[str, object]:
    """A pull consumer of any kind."""
    config: dict[str, object] = {
        "ack_policy": chance.choice(["explicit", "explicit", "all", "none"]),
        "ack_wait": 60_000 * MS,
        "max_deliver": chance.choice([-1, 2, 3]),
        "headers_only": chance.random() < 0.2,
        "deliver_policy": chance.choice(["all", "all", "last", "new", "last_per_subject"]),
    }
    if config["ack_policy"] == "none":
        del config["ack_wait"]
    else:
        config["max_ack_pending"] = chance.choice([1, 3, 1000])
    wanted = [f"{stream}.{letter}" for letter in chance.sample("abc", chance.randrange(1, 3))]
    if config["deliver_policy"] == "last_per_subject" or chance.random() < 0.6:
        config["filter_subjects"] = wanted
    return config


def converse(script: ConsumerScript, seed: int) -> None:
    chance = random.Random(seed)
    retention = chance.choice(["limits", "limits", "interest"])
    script.script.create(storage=chance.choice(["file", "memory"]), retention=retention)
    for _ in range(chance.randrange(6)):
        script.publish(b"before", subject=chance.choice(SUBJECTS))
    config = configuration(chance, script.name)
    script.consumer(**config)
    for _ in range(STEPS):
        step(script, chance, config)
        script.info()
    script.state()


def step(script: ConsumerScript, chance: random.Random, config: dict[str, object]) -> None:
    acks = config["ack_policy"] != "none" and script.replies
    match chance.randrange(10):
        case 0 | 1 | 2:
            script.publish(b"%d" % chance.randrange(1000), subject=chance.choice(SUBJECTS))
        case 3 | 4 | 5:
            script.next({"batch": chance.randrange(1, 5), "expires": 30 * MS}, wait_s=0.15)
        case 6 | 7 if acks:
            script.ack(chance.randrange(len(script.replies)), chance.choice([b"", b"+ACK", b"+TERM"]), answer=True)
        case 8 if acks:
            script.ack(chance.randrange(len(script.replies)), chance.choice([b"-NAK", b"+WPI"]), answer=True)
        case 9 if config["ack_policy"] != "all":  # there nats-server takes a deletion for an ack of all before it
            script.script.api("STREAM.MSG.DELETE.S", {"seq": chance.randrange(1, 15)})
            script.listen()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_conversation(pair: Pair, name: str, seed: int) -> None:
    same(pair, name, lambda script: converse(script, seed))

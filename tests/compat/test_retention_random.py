"""Random work with interest streams and work queues on both servers, over restarts: they keep the same messages.

Consumers are made, get other filters, are reset and deleted; some acks come late. After every step the messages that
are left and the numbers of all consumers are the same. A failing run is repeated with its seed. Resets beyond the end
of the stream are left out: nats-server forgets them at a restart.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, NATS_SERVER, Server

SEEDS = range(int(os.environ.get("JETLAKE_RANDOM_SEEDS", "2")))
STEPS = 30
FLUSH_S = 1.2  # nats-server writes the state of consumers now and then, and not all of it when it stops
SETTLE_S = 0.02  # it acts on acks and deletions a moment after it has answered
LOOKS_MAX = 20
NAMES = "xyz"


class Side:
    """One of the servers, and what the script knows of it."""

    def __init__(self, server: Server, stream: str) -> None:
        self.server, self.stream = server, stream
        self.replies: dict[str, list[str]] = {}
        self.connect()

    def connect(self) -> None:
        self.peer, self.puller = Peer(self.server), Peer(self.server)
        self.puller.subscribe("in")

    def close(self) -> None:
        self.peer.socket.close()
        self.puller.socket.close()

    def restart(self) -> None:
        self.close()
        self.server.stop()
        self.server.start()
        self.connect()

    def api(self, subject: str, body: object = None) -> Any:
        return self.peer.api(subject, body)

    def publish(self, subject: str) -> int:
        return int(self.peer.request(f"{self.stream}.{subject}", b"x").json["seq"])

    def pull(self, consumer: str, count: int) -> list[str]:
        """What comes: deliveries, stream and consumer sequence of each message, then perhaps a status."""
        body = json.dumps({"batch": count, "no_wait": True}).encode()
        self.puller.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{consumer}", body, reply="in")
        found: list[str] = []
        while len(found) < count and not (found and found[-1].startswith("4")):
            message = self.puller.message()
            if message.reply:
                self.replies.setdefault(consumer, []).append(message.reply)
            found.append(message.status or ".".join(message.reply.split(".")[4:7]))
        return found

    def ack(self, consumer: str, place: int, payload: bytes) -> None:
        self.peer.request(self.replies[consumer][place], payload)

    def live(self) -> list[int]:
        state = self.peer.api(f"STREAM.INFO.{self.stream}", {"deleted_details": True})["state"]
        gone = set(state.get("deleted") or ())
        return [
            seq for seq in range(state["first_seq"], state["last_seq"] + 1) if seq not in gone and state["messages"]
        ]

    def numbers(self, consumer: str) -> dict[str, Any]:
        info = self.peer.api(f"CONSUMER.INFO.{self.stream}.{consumer}")
        positions = {key: (info[key]["consumer_seq"], info[key]["stream_seq"]) for key in ("delivered", "ack_floor")}
        return positions | {key: info[key] for key in ("num_ack_pending", "num_redelivered", "num_pending")}


class Run:
    """One random script on two servers."""

    def __init__(self, servers: list[Server], retention: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.stream = f"{retention}{seed}"
        self.sides = [Side(server, self.stream) for server in servers]
        self.is_work_queue, self.is_changing = retention == "workqueue", retention == "changing"
        self.retention = "limits" if self.is_changing else retention
        self.consumers: dict[str, dict[str, Any]] = {}
        self.last_seq = 0
        self.log: list[str] = []

    def run(self) -> None:
        self.both("create", lambda side: side.api(f"STREAM.CREATE.{self.stream}", self.config).get("error"))
        for _ in range(STEPS):
            self.step()
            self.both("look", self.look, tries=LOOKS_MAX)
        for side in self.sides:
            side.api(f"STREAM.DELETE.{self.stream}")
            side.close()

    @property
    def config(self) -> dict[str, Any]:
        return {"name": self.stream, "subjects": [f"{self.stream}.>"], "retention": self.retention}

    def look(self, side: Side) -> dict[str, Any]:
        """The messages that are left, and the numbers of all consumers.

        What left an interest stream while it was pending, by a change of filters, is pending for some time still: not
        for the same in both servers.
        """
        time.sleep(SETTLE_S)
        found: dict[str, Any] = {"live": side.live()}
        for name in self.consumers:
            numbers = side.numbers(name)
            keys = numbers if self.is_work_queue else ("delivered", "num_pending")
            found[name] = {key: numbers[key] for key in keys}
        return found

    def both(self, what: str, act: Callable[[Side], Any], tries: int = 1) -> Any:
        """Do the same on both servers, perhaps a few times until it has the same outcome."""
        for _ in range(tries):
            real, ours = (act(side) for side in self.sides)
            if real == ours:
                break
        self.log.append(f"{what}: {real}")
        if real != ours:
            pytest.fail("\n".join([*self.log[-20:], f"ours: {ours}"]), pytrace=False)
        return real

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [(4, self.publish), (3, self.put_consumer), (1, self.restart)]
        if self.consumers:
            steps += [(4, self.pull), (4, self.ack), (1, self.reset), (1, self.delete)]
        if self.retention == "limits":
            steps.append((1, self.change))
        self.chance.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()

    def publish(self) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            subject = self.chance.choice("abc")
            self.last_seq = self.both(f"publish {subject}", lambda side, to=subject: side.publish(to))  # type: ignore[misc]

    def put_consumer(self) -> None:
        name = self.chance.choice(NAMES)
        others = [other for key, other in self.consumers.items() if key != name and self.is_work_queue]
        taken = {filter[-1] for other in others for filter in other["filter_subjects"]}
        free = sorted(set("abc") - taken)
        if not free:
            return
        config = self.consumers.get(name) or self.new_config(name)
        letters = sorted(self.chance.sample(free, self.chance.randrange(1, len(free) + 1)))
        config = {**config, "filter_subjects": [f"{self.stream}.{letter}" for letter in letters]}
        body = {"stream_name": self.stream, "config": config}
        error = self.both(
            f"put {config}", lambda side: side.api(f"CONSUMER.CREATE.{self.stream}.{name}", body).get("error")
        )
        if error is None:
            self.consumers[name] = config

    def new_config(self, name: str) -> dict[str, Any]:
        config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": 600 * 10**9}
        if self.is_work_queue:
            return config
        config["deliver_policy"] = self.chance.choice(["all", "all", "new", "last"])
        # Those without acks take no notice of a change of retention in nats-server.
        if self.chance.random() < 0.2 and not self.is_changing:
            return {**config, "ack_policy": "none", "ack_wait": 0}
        return config

    def pull(self) -> None:
        name, count = self.chance.choice(sorted(self.consumers)), self.chance.randrange(1, 5)
        self.both(f"pull {name} {count}", lambda side: side.pull(name, count))

    def ack(self) -> None:
        name, payload = self.chance.choice(sorted(self.consumers)), self.chance.choice([b"", b"", b"+TERM", b"-NAK"])
        replies = self.sides[0].replies.get(name, ())
        if not replies or self.consumers[name]["ack_policy"] == "none":
            return
        place = self.chance.randrange(len(replies))
        if int(replies[place].split(".")[5]) > self.sides[0].numbers(name)["delivered"][1]:
            return  # not delivered, after a reset: no answer would come
        self.both(f"ack {replies[place]} {payload!r}", lambda side: side.ack(name, place, payload))

    def reset(self) -> None:
        name, seq = self.chance.choice(sorted(self.consumers)), self.chance.randrange(self.last_seq + 2)
        subject = f"CONSUMER.RESET.{self.stream}.{name}"
        self.both(f"reset {name} {seq}", lambda side: side.api(subject, {"seq": seq}).get("error"))

    def delete(self) -> None:
        name = self.chance.choice(sorted(self.consumers))
        del self.consumers[name]
        self.both(f"delete {name}", lambda side: side.api(f"CONSUMER.DELETE.{self.stream}.{name}").get("error"))
        for side in self.sides:
            side.replies.pop(name, None)

    def change(self) -> None:
        self.retention = "interest"
        self.both("change", lambda side: side.api(f"STREAM.UPDATE.{self.stream}", self.config).get("error"))

    def restart(self) -> None:
        time.sleep(FLUSH_S)
        self.both("restart", Side.restart)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    directory: Path = tmp_path_factory.mktemp("retention")
    with Server(NATS_SERVER, directory / NATS_SERVER) as real, Server(JETLAKE, directory / JETLAKE) as ours:
        yield [real, ours]


@pytest.mark.parametrize("retention", ["workqueue", "interest", "changing"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_messages_are_kept(servers: list[Server], retention: str, seed: int) -> None:
    Run(servers, retention, seed).run()

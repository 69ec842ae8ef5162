"""Random scripts through three replicas with leader changes: every answer is that of one server which got, in their
order, the requests that took effect; and at rest all replicas hold what that server holds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from jetlake.clock import SECOND_NS
from jetlake.cluster.codec import decode
from jetlake.cluster.replica import ReplicatedLog
from jetlake.jetstream.streams.commands import Append, Command, Put
from jetlake.ops import OP_WORDS
from jetlake.testing.clock import FakeClock
from tests.cluster.test_replica import START_NS, Cluster, Server, config_of

SUBJECTS = ["s.a", "s.b", "s.c"]
CONFIGS: list[dict[str, Any]] = [
    {},
    {"storage": "memory"},
    {"max_msgs": 4},
    {"max_msgs": 4, "discard": "new"},
    {"max_bytes": 200, "discard": "new", "max_msgs_per_subject": 2},
    {"max_bytes": 200},
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 2, "discard": "new", "discard_new_per_subject": True},
    {"max_age": 3 * SECOND_NS, "allow_msg_ttl": True, "subject_delete_marker_ttl": 2 * SECOND_NS},
    {"allow_msg_counter": True},
    {"storage": "memory", "max_msgs": 5, "max_msgs_per_subject": 2},
]
HEADERS = [
    "",
    "",
    "Nats-Msg-Id: one",
    "Nats-Msg-Id: two",
    "Nats-Expected-Last-Sequence: 2",
    "Nats-Expected-Last-Sequence: 5",
    "Nats-Expected-Last-Subject-Sequence: 0",
    "Nats-Expected-Last-Subject-Sequence: 3",
    "Nats-Expected-Last-Msg-Id: one",
    "Nats-Rollup: sub",
    "Nats-Rollup: all",
    "Nats-TTL: 2s",
    "Nats-TTL: never",
    "Nats-Incr: 2",
]


def script(seed: int, count: int = 60, *, has_cuts: bool = False) -> Iterator[tuple[str, Any]]:
    """Steps, mostly publishes and entries on their way; in some scripts servers lose their power.

    Such a server forgets the ids of messages that are gone, as one server does. So ids are for the others.
    """
    draw = random.Random(seed)
    headers = [line for line in HEADERS if not (has_cuts and "Msg-Id" in line)]
    makers: list[tuple[int, str, Callable[[], Any]]] = [
        (10, "publish", lambda: [(draw.choice(SUBJECTS), draw.choice(headers)) for _ in range(draw.randint(1, 5))]),
        (1, "purge", lambda: draw.choice([{}, {"filter": "s.a"}, {"filter": "s.*"}, {"keep": draw.randint(1, 3)}])),
        (1, "purge", lambda: {"seq": draw.randint(1, 30)}),
        (2, "delete", lambda: {"seq": draw.randint(1, 30), "no_erase": draw.random() < 0.5}),
        (1, "update", lambda: {"max_msgs": draw.randint(1, 6)}),
        (1, "expire", lambda: None),
        (7, "copy", lambda: (draw.randint(1, 3), draw.choice([0, 1, 2, 99]))),
        (2, "elect", lambda: draw.randint(1, 3)),
        (1, "wait", lambda: draw.randint(1, 2)),
    ]
    if has_cuts:
        makers += [
            (2, "checkpoint", lambda: draw.randint(1, 3)),
            (1, "restart", lambda: (draw.randint(1, 3), draw.choice(["none", "all"]))),
        ]
    for _ in range(count):
        _, kind, make = draw.choices(makers, [weight for weight, _, _ in makers])[0]
        yield kind, make()


class Request(NamedTuple):
    """Something that a client, or a timer, asked of a leader."""

    term: int  # of its office
    number: int
    kind: str
    value: Any
    now_ns: int


class Tracer:
    """Which requests led to which entries, apart from messages, which tell by themselves."""

    def __init__(self) -> None:
        self.current = 0
        self.of_command: dict[int, tuple[Command, int]] = {}
        self.of_entry: dict[tuple[int, int], int] = {}  # by term and index


class TracedLog(ReplicatedLog):
    """Notes where its entries come from."""

    tracer: Tracer

    def defer(self, decide: Callable[[], None]) -> None:
        number = self.tracer.current

        def run() -> None:
            self.tracer.current = number
            decide()

        super().defer(run)

    def submit(self, command: Command, then: Any = None) -> None:
        self.tracer.of_command.setdefault(id(command), (command, self.tracer.current))
        super().submit(command, then)

    def _propose(self, command: Command, then: Any, *, is_barrier: bool) -> None:
        super()._propose(command, then, is_barrier=is_barrier)
        member: Any = self._group
        index = self._flight.entries[-1].index
        assert index and member.log[index - 1][0] == member.term
        if not isinstance(command, Put):
            self.tracer.of_entry[(member.term, index)] = self.tracer.of_command[id(command)][1]


class Run:
    """One script through a cluster."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.tracer = config, Tracer()
        self.cluster = Cluster(config_of(**config), make_log=self._make_log)
        self.requests: list[Request] = []
        self.number = 0

    def _make_log(self, *parts: Any) -> TracedLog:
        log = TracedLog(*parts)
        log.tracer = self.tracer
        return log

    def step(self, which: int, kind: str, value: Any) -> None:
        cluster = self.cluster
        if kind == "copy":
            cluster.copy(*value)
        elif kind == "elect":
            cluster.elect(value)
        elif kind == "checkpoint":
            cluster.checkpoint(value)
        elif kind == "restart":
            cluster.restart(*value)
        elif kind == "wait":
            cluster.settle()
            cluster.clock.advance(value)
        else:
            leaders = [server for server in cluster.servers.values() if server.stream.log.is_leading]
            if leaders:  # one that was not told yet may be among them
                self.request(leaders[which % len(leaders)], kind, value)

    def request(self, server: Server, kind: str, value: Any) -> None:
        assert server.member is not None
        first = self.tracer.current = self.number + 1
        self.number += len(value) if kind == "publish" else 1
        singles = value if kind == "publish" else [value]
        for number, single in enumerate(singles, first):
            self.requests.append(Request(server.member.term, number, kind, single, self.cluster.clock()))
        do(server, kind, value, first, self.config)

    def settle(self) -> None:
        self.cluster.settle()

    def answers(self) -> dict[int, bytes]:
        return {number: body for server in self.cluster.servers.values() for number, body in server.answers.items()}

    def effective(self) -> list[Request]:
        """The requests that took effect, and those that were answered without one, in their order."""
        took = set(self._stored()) | self.answers().keys()
        for index, (term, _) in enumerate(self.cluster.group.members[1].log, 1):
            took.add(self.tracer.of_entry.get((term, index), 0))
        return [request for request in sorted(self.requests) if request.number in took]

    def _stored(self) -> Iterator[int]:
        """The numbers of all messages that were agreed on, which are in their reply subjects' place: the payloads."""
        for data in self.cluster.group.committed:
            command = decode(data) if data else None
            if isinstance(command, Append):
                for at in range(0, len(command.ops), OP_WORDS):
                    start, size = command.ops[at + 6 : at + 8]
                    yield _number(bytes(command.data[start : start + size]))
            elif isinstance(command, Put):
                yield _number(command.payload)


def _number(payload: bytes) -> int:
    return int(payload[1:]) if payload.startswith(b"x") else 0


def do(server: Server, kind: str, value: Any, number: int, config: dict[str, Any]) -> None:
    """Ask something of a server."""
    if kind == "publish":
        server.publish(value, number)
    elif kind == "expire":
        server.stream._expire()
        server.host.settle()
    elif kind == "update":
        server.stream.update(server.js.checked(config_of(**config | value), pedantic=False))
        server.host.settle()
    else:
        server.ask({"purge": "STREAM.PURGE", "delete": "STREAM.MSG.DELETE"}[kind], value, number)


def compare(run: Run) -> None:
    """Let one server do the same, and look at both."""
    clock = FakeClock(START_NS)
    model = Server(clock, config_of(**run.config))
    for request in run.effective():
        clock.advance(ns=request.now_ns - clock())
        value = [request.value] if request.kind == "publish" else request.value
        do(model, request.kind, value, request.number, run.config)
    for number, body in run.answers().items():
        assert body == model.answers[number], f"request {number}: {body!r}, alone {model.answers[number]!r}"
    now_ns = run.cluster.clock()
    expected = model.look(now_ns)
    for number, server in run.cluster.servers.items():
        assert server.look(now_ns) == expected, f"replica {number}"
    model.stop()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: "-".join(config) or "plain")
def test_replicas_do_as_one_server_does(config: dict[str, Any], seed: int) -> None:
    run = Run(config)
    for number, (kind, value) in enumerate(script(seed)):
        run.step(number, kind, value)
    run.settle()
    compare(run)
    run.cluster.stop()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("config", [config for config in CONFIGS if "storage" not in config], ids="-".join)
def test_replicas_that_lose_their_power_do_as_one_server_does(config: dict[str, Any], seed: int) -> None:
    run = Run(config)
    for number, (kind, value) in enumerate(script(seed, has_cuts=True)):
        run.step(number, kind, value)
    run.settle()
    compare(run)
    run.cluster.stop()

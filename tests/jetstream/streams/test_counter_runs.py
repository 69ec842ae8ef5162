"""Runs of increments: each adds to the last message of its subject, whatever happened to it since."""

from __future__ import annotations

import json
import random
from array import array
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.jetstream.streams import totals
from jetlake.ops import OP_ADMITTED, OP_WORDS, append_op
from tests.broker.sessions import FakeConnection, connect, make_broker
from tests.jetstream.harness import FakeHost
from tests.twins import load_twin, needs_kernels

TWINS = "jetlake.jetstream.streams._totals"
TABLES = "jetlake.store.index._subject_table"
INCREMENTS = [
    "+1",
    "1",
    "-3",
    "0",
    "007",
    "99999999999999999",
    "-99999999999999999",
    "9" * 18,
    "+",
    "1_0",
    "",
    "x",
    " 5",
]


def block(increment: str, more: bytes = b"") -> bytes:
    return b"NATS/1.0\r\nA: b\r\nNats-Incr: %s\r\n%s\r\n" % (increment.encode(), more)


def batch(*messages: tuple[bytes, bytes, bytes, bytes]) -> tuple[bytearray, array[int]]:
    data, ops = bytearray(b"before"), array("I")
    for subject, reply, headers, payload in messages:
        append_op(ops, data, subject, payload, headers, reply)
    return data, ops


class Twin:
    """A table with some subjects, and their totals."""

    def __init__(self, kind: str) -> None:
        self.module: ModuleType = load_twin(TWINS, kind)
        self.table: Any = load_twin(TABLES, kind).SubjectTable()
        for seq, subject in enumerate((b"a", b"b", b"c"), 1):
            self.table.add(self.table.intern(subject), seq)
        self.totals: Any = self.module.Totals(self.table)
        self.totals.put(b"a", 1, 7)
        self.totals.put(b"b", 2, -(4 * 10**18))
        self.totals.put(b"c", 1, 5)  # not where its last message is
        self.totals.put(b"none", 9, 5)


@pytest.fixture(params=["py", pytest.param("c", marks=needs_kernels)])
def twin(request: pytest.FixtureRequest) -> Twin:
    return Twin(request.param)


@needs_kernels
def test_the_compiled_twin_is_loaded() -> None:
    assert totals.COMPILED and totals.Totals is load_twin(TWINS, "c").Totals


def test_a_total_is_known_while_its_message_is_the_last(twin: Twin) -> None:
    assert [twin.totals.get(subject) for subject in (b"a", b"b", b"c", b"none")] == [7, -(4 * 10**18), None, None]
    twin.table.add(twin.table.find(b"a"), 4)
    assert twin.totals.get(b"a") is None
    twin.totals.put(b"a", 4, 5 * 10**18)
    assert twin.totals.get(b"a") is None


def test_a_run_adds_up_and_makes_payloads_operations_and_acks(twin: Twin) -> None:
    data, ops = batch(*((b"a", b"in.%d" % number, block("+2"), b"") for number in range(3)), (b"x", b"", b"", b""))
    end, payloads, least, greatest, words = twin.totals.count(data, ops, 0, 4, 10, -1)
    assert (end, payloads) == (3, b'{"val":"9"}{"val":"11"}{"val":"13"}')
    whole = bytes(data[least:greatest]) + payloads
    parts = [[whole[words[at] : words[at] + words[at + 1]] for at in (row, row + 4, row + 6)] for row in (0, OP_WORDS)]
    assert parts == [[b"a", block("+2"), b'{"val":"9"}'], [b"a", block("+2"), b'{"val":"11"}']]
    assert words[9] & OP_ADMITTED
    frames, stop = twin.module.total_frames(data, ops, 0, 3, b"in.", False, b"1", b'{"seq":', 10, payloads, words)
    assert stop == 3 and frames.startswith(
        b'MSG in.0 1 20\r\n{"seq":10,"val":"9"}\r\nMSG in.1 1 21\r\n{"seq":11,"val":"11"}'
    )
    twin.totals.clear()
    assert twin.totals.get(b"a") is None


MESSAGE = st.tuples(
    st.sampled_from([b"a", b"a", b"b", b"c", b"d"]),
    st.sampled_from([b"", b"in.1", b"in.x.y", b"in..", b"out.1", b"in.b.1.fail.1.0.$FI"]),
    st.builds(block, st.sampled_from(INCREMENTS), st.sampled_from([b"", b"", b"Nats-Msg-Id: 1\r\n", b"X: y\r\n"]))
    | st.sampled_from([b"", b"NATS/1.0 503\r\n\r\n"]),
    st.sampled_from([b"", b"", b"", b"payload"]),
)


@needs_kernels
@given(st.lists(MESSAGE, max_size=6), st.integers(0, 2), st.integers(-1, 80), st.booleans())
def test_the_twins_agree(
    messages: list[tuple[bytes, bytes, bytes, bytes]], first: int, size_max: int, has_dots: bool
) -> None:
    data, ops = batch(*messages)
    first = min(first, len(messages))
    found = []
    for kind in ("py", "c"):
        twin = Twin(kind)
        counted = twin.totals.count(data, ops, first, len(messages), 10, size_max)
        facts = (b"in.", has_dots, b"1", b"{", 10)
        frames = twin.module.total_frames(data, ops, first, counted[0], *facts, counted[1], counted[4])
        again = twin.totals.count(data, ops, first, len(messages), 10, size_max)
        found.append((counted, frames, again))
    assert found[0] == found[1]


class Bench:
    """A server's stream of counters, and what it ought to hold."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.directory, self.host, self.config = str(directory), FakeHost(), config
        self.counts: dict[int, tuple[bytes, int]] = {}  # by sequence
        self.last_seq = 0
        self.start()
        config = {"name": "S", "subjects": ["s.>"], "allow_msg_counter": True, **config}
        payload = json.dumps(config).encode()
        self.client.say(b"PUB $JS.API.STREAM.CREATE.S in.0 %d\r\n%s\r\n" % (len(payload), payload))
        self.host.settle()
        self.client.heard()

    def start(self) -> None:
        from jetlake.jetstream.service import JetStream

        broker = make_broker()
        self.service = JetStream(self.host, self.directory)
        self.service.start([broker.default_account])
        self.client: FakeConnection = connect(broker)
        self.client.say(b"SUB in.* 1\r\n")

    @property
    def stream(self) -> Any:
        return self.service.accounts["$G"].streams["S"]

    def publish(self, increments: list[tuple[bytes, int]]) -> None:
        """Publish a run, and compare its acks with what they ought to say."""
        text, expected = b"", []
        for number, (subject, increment) in enumerate(increments):
            headers = block(str(increment))
            text += b"HPUB %s in.%d %d %d\r\n%s\r\n" % (subject, number, len(headers), len(headers), headers)
            total = max(((seq, value) for seq, (name, value) in self.counts.items() if name == subject), default=(0, 0))
            self.last_seq += 1
            self.counts[self.last_seq] = (subject, total[1] + increment)
            expected.append((self.last_seq, str(total[1] + increment)))
            for seq in self.trimmed(subject):
                del self.counts[seq]
        self.client.say(text)
        self.host.settle()
        acks = [json.loads(line) for line in self.client.heard().split(b"\r\n") if line.startswith(b"{")]
        assert [(ack["seq"], ack["val"]) for ack in acks] == expected

    def trimmed(self, subject: bytes) -> list[int]:
        of_subject = sorted(seq for seq, (name, _) in self.counts.items() if name == subject)
        per_subject, most = self.config.get("max_msgs_per_subject", 0), self.config.get("max_msgs", 0)
        return of_subject[:-per_subject] if per_subject else sorted(self.counts)[:-most] if most else []


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("config", [{}, {"max_msgs_per_subject": 1}, {"storage": "memory"}, {"max_msgs": 5}], ids=str)
def test_runs_agree_with_a_model(tmp_path: Path, config: dict[str, Any], seed: int) -> None:
    rng, bench = random.Random(seed), Bench(tmp_path, **config)
    for _ in range(40):
        subjects = [b"s.%d" % rng.randrange(4) for _ in range(rng.choice((1, 2, 9)))]
        bench.publish([(subject, rng.choice((1, -5, 10**16, 10**19))) for subject in subjects])
        if bench.counts and rng.random() < 0.3:
            seq = rng.choice(sorted(bench.counts))
            bench.stream.delete_message(seq, erase=False, done=lambda removed: None, failed=pytest.fail)
            del bench.counts[seq]
        if rng.random() < 0.1:
            bench.stream.purge("s.1")
            bench.counts = {seq: count for seq, count in bench.counts.items() if count[0] != b"s.1"}
        if rng.random() < 0.1 and config.get("storage") != "memory":
            bench.host.settle()
            bench.service.stop()
            bench.start()
    bench.service.stop()

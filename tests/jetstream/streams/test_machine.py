"""The same commands make the same stream: what rules decided in one place is applied in two others, and compared."""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetlake.clock import SECOND_NS
from jetlake.jetstream.streams.commands import Append, Command, Put, Remove, Skip, Truncate
from jetlake.jetstream.streams.config import limits
from jetlake.jetstream.streams.log import LocalLog, Then
from jetlake.jetstream.streams.machine import StreamMachine
from jetlake.ops import OP_MSG_ID, append_op
from jetlake.store import FileOptions, FileStore, MemStore, StreamLimits
from jetlake.testing.clock import FakeClock
from tests.jetstream.harness import FakeHost, InProcess

SUBJECTS = ["s.a", "s.b", "s.c"]
CONFIGS: list[dict[str, Any]] = [
    {},
    {"max_msgs": 4},
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 2, "discard": "new", "discard_new_per_subject": True},
    {"max_age": 3 * SECOND_NS, "allow_msg_ttl": True, "subject_delete_marker_ttl": 2 * SECOND_NS},
    {"retention": "interest"},
    {"allow_msg_schedules": True, "allow_msg_ttl": True},
]
HEADERS = [
    "",
    "Nats-Msg-Id: one",
    "Nats-Msg-Id: two",
    "Nats-Expected-Last-Sequence: 2",
    "Nats-Expected-Last-Subject-Sequence: 0",
    "Nats-Rollup: sub",
    "Nats-Rollup: all",
    "Nats-TTL: 2s",
    "Nats-TTL: never",
    "Nats-Schedule: @every 1s\r\nNats-Schedule-Target: s.z",
    "Nats-Schedule: @at 2023-01-01T00:00:00Z\r\nNats-Schedule-Target: s.y\r\nNats-TTL: 2s",
    "Nats-Schedule-Next: purge\r\nNats-Scheduler: s.a",
]
BATCHES = st.lists(st.tuples(st.sampled_from(SUBJECTS), st.sampled_from(HEADERS)), min_size=1, max_size=6)
STEPS = st.one_of(
    st.tuples(st.just("publish"), BATCHES),
    st.tuples(st.just("batch"), BATCHES),
    st.tuples(st.just("purge"), st.fixed_dictionaries({}, optional={"filter": st.sampled_from(["s.a", "s.*"])})),
    st.tuples(st.just("purge"), st.fixed_dictionaries({"keep": st.integers(1, 3)})),
    st.tuples(st.just("purge"), st.fixed_dictionaries({"seq": st.integers(1, 12)})),
    st.tuples(st.just("delete"), st.fixed_dictionaries({"seq": st.integers(1, 12), "no_erase": st.booleans()})),
    st.tuples(st.just("update"), st.fixed_dictionaries({"max_msgs": st.integers(1, 6)})),
    st.tuples(st.just("wait"), st.integers(1, 3)),
)


class Recorder:
    """What the rules of one server decided."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def submit(self, log: LocalLog, command: Command, then: Then | None = None) -> None:
        self.commands.append(command)
        _submit(log, command, then)

    def append(self, log: LocalLog, command: Append) -> int:
        done = _append(log, command)
        self.commands.append(command._replace(data=bytes(command.data), ops=command.ops[:], stop=done))
        return done


_submit, _append = LocalLog.submit, LocalLog.append


def publish(server: InProcess, messages: list[tuple[str, str]]) -> None:
    """Publish as one chunk that a client sent."""
    data, ops = bytearray(), array("I")
    for subject, line in messages:
        block = f"NATS/1.0\r\n{line}\r\n\r\n".encode() if line else b""
        flags = 1 | (OP_MSG_ID if line.startswith("Nats-Msg-Id") else 0) if line else 0
        append_op(ops, data, subject.encode(), b"x", block, b"_INBOX.1", flags)
    server.js.streams["S"].ingest(None, data, ops, 0, len(messages))
    server.host.settle()


def publish_batch(server: InProcess, messages: list[tuple[str, str]]) -> None:
    """Publish as an atomic batch."""
    members = []
    for number, (subject, line) in enumerate(messages, 1):
        lines = [line, "Nats-Batch-Id: b", f"Nats-Batch-Sequence: {number}"]
        lines += ["Nats-Batch-Commit: 1"] if number == len(messages) else []
        members.append((subject, "\r\n".join(filter(None, lines))))
    publish(server, members)


def run(server: InProcess, clock: FakeClock, steps: list[tuple[str, Any]], config: dict[str, Any]) -> None:
    fields = {"name": "S", "subjects": ["s.*"], "allow_rollup_hdrs": True, "duplicate_window": 2 * SECOND_NS}
    fields |= {"allow_atomic": True} | config
    server.request("$JS.API.STREAM.CREATE.S", json.dumps(fields).encode())
    if "retention" in config:
        consumer = {
            "stream_name": "S",
            "config": {"durable_name": "C", "filter_subject": "s.a", "ack_policy": "explicit"},
        }
        server.request("$JS.API.CONSUMER.CREATE.S.C.s.a", json.dumps(consumer).encode())
    for kind, value in steps:
        if kind == "publish":
            publish(server, value)
        elif kind == "batch":
            publish_batch(server, value)
        elif kind == "wait":
            clock.advance(value)
            server.js.streams["S"]._expire()
            if server.js.streams["S"].scheduler is not None:
                server.js.streams["S"].scheduler._wake()
            server.host.settle()
        elif kind == "update":
            server.request("$JS.API.STREAM.UPDATE.S", json.dumps(fields | value).encode())
        else:
            name = {"purge": "STREAM.PURGE", "delete": "STREAM.MSG.DELETE"}[kind]
            server.request(f"$JS.API.{name}.S", json.dumps(value).encode())


def look(machine: StreamMachine, now_ns: int) -> tuple[Any, ...]:
    """All that can be asked."""
    store = machine.store
    ids = [machine.find_msg_id(msg_id, now_ns) for msg_id in (b"one", b"two")]
    live = [
        each for each in machine.schedules.entries() if store.queries.last_seq(store.queries.filter(each[0])) == each[1]
    ]
    return list(store.messages()), store.state(), store.subjects_state(), store.next_expiry_ns(), ids, sorted(live)


@settings(max_examples=60, deadline=None)
@given(config=st.sampled_from(CONFIGS), steps=st.lists(STEPS, max_size=14))
def test_commands_that_rules_decided_make_the_same_stream_elsewhere(
    config: dict[str, Any], steps: list[tuple[str, Any]]
) -> None:
    compare_elsewhere(config, steps, lambda command: command)


def compare_elsewhere(
    config: dict[str, Any], steps: list[tuple[str, Any]], carry: Callable[[Command], Command]
) -> None:
    """Let rules decide; then apply what they decided, carried somehow, to other stores, and compare."""
    clock, recorder = FakeClock(1_700_000_000 * SECOND_NS), Recorder()
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalLog, "submit", lambda log, command, then=None: recorder.submit(log, command, then))
        patch.setattr(LocalLog, "append", lambda log, command: recorder.append(log, command))
        server = InProcess(f"{directory}/server", FakeHost(clock=clock))
        run(server, clock, steps, config)
        origin = server.js.streams["S"].machine
        made = limits(server.js.streams["S"].config) if not any(kind == "update" for kind, _ in steps) else None
        at_first = made or _limits_at_first(config)
        stopped = FakeClock(0)  # nothing that is applied looks at it
        options = FileOptions(block_size_max=4096)
        for store in (
            MemStore(at_first, clock=stopped, autocommit=False),
            FileStore(f"{directory}/other", at_first, options, clock=stopped, autocommit=False),
        ):
            machine = StreamMachine(store, 2 * SECOND_NS)
            machine.msg_ids.is_loaded = True
            for command in recorder.commands:
                machine.replay(carry(command))
            ours, theirs = look(machine, clock()), look(origin, clock())
            assert _sizes_apart(ours) == _sizes_apart(theirs)
            store.stop()


def _limits_at_first(config: dict[str, Any]) -> StreamLimits:
    with tempfile.TemporaryDirectory() as directory:
        server = InProcess(directory, FakeHost(clock=FakeClock(SECOND_NS)))
        run(server, FakeClock(SECOND_NS), [], config)
        return limits(server.js.streams["S"].config)


def _sizes_apart(seen: tuple[Any, ...]) -> tuple[Any, ...]:
    """Memory and disk count the bytes of a message differently."""
    seen[1].bytes = 0
    return seen


def machine_in_memory() -> StreamMachine:
    machine = StreamMachine(MemStore(StreamLimits(), clock=FakeClock(0)), SECOND_NS)
    machine.msg_ids.is_loaded = True
    return machine


def test_a_roll_up_and_what_it_replaces_are_one_command() -> None:
    machine = machine_in_memory()
    for seq in (1, 2):
        machine.apply(Put(seq, 5, "s.a", b"", b"old"))
    machine.apply(Put(3, 6, "s.a", b"", b"new", replaces="s.a"))
    assert [(message.seq, message.payload) for message in machine.store.messages()] == [(3, b"new")]


def test_a_command_that_does_not_follow_is_refused() -> None:
    machine = machine_in_memory()
    with pytest.raises(AssertionError, match="sequence 2 does not follow 0"):
        machine.apply(Put(2, 5, "s.a", b"", b""))


def test_skipped_and_truncated_ids_are_known_and_forgotten() -> None:
    machine = machine_in_memory()
    machine.apply(Put(1, 5, "s.a", b"", b""))
    machine.apply(Skip(2, 6, b"skipped"))
    assert machine.find_msg_id(b"skipped", 6) == 2 and machine.next_seq == 3
    machine.apply(Truncate(1))
    assert machine.find_msg_id(b"skipped", 6) == 0 and machine.next_seq == 2


def test_removing_tells_how_many_there_were() -> None:
    machine = machine_in_memory()
    machine.apply(Put(1, 5, "s.a", b"", b""))
    assert (machine.apply(Remove((1, 7))), machine.apply(Remove((1,)))) == (1, 0)

"""A store that is synced by checkpoints alone: the power fails at every single operation on the disk. It is cut at the
last checkpoint, the commands after it are applied again, and it equals a store that was never cut."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from jetlake.clock import SECOND_NS
from jetlake.errors import BadRequest
from jetlake.jetstream.streams.commands import (
    Append,
    Command,
    Configure,
    Copy,
    Erase,
    Expire,
    Purge,
    PurgeSome,
    Put,
    Remove,
    Skip,
)
from jetlake.jetstream.streams.machine import StreamMachine
from jetlake.ops import OP_MSG_ID, append_op
from jetlake.store import FileOptions, MemStore, StreamLimits
from jetlake.store.verify.check import check_store
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles, PowerCut
from tests.crash.test_power_cut import what_is_left
from tests.crash.workload import ENVELOPES, KEYS, ThriftyStore
from tests.jetstream.streams.test_machine import look

WINDOW_NS = 100 * SECOND_NS
CHECKPOINT = "checkpoint"
TTL = StreamLimits(max_age_ns=50 * SECOND_NS, subject_delete_marker_ttl_ns=20 * SECOND_NS)
Step = Command | str


class Script:
    """Commands, as a leader would number and time them."""

    def __init__(self) -> None:
        self.seq, self.time_ns = 0, SECOND_NS

    def append(self, count: int, subject: str = "a") -> Append:
        data, ops, first = bytearray(), array("I"), self.seq + 1
        for number in range(first, first + count):
            headers = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number if number % 2 else b""
            name = b"%s.%d" % (subject.encode(), number % 3)
            append_op(ops, data, name, b"p" * (number % 9), headers, flags=OP_MSG_ID if headers else 0)
        self.seq, self.time_ns = self.seq + count, self.time_ns + 10
        return Append(first, self.time_ns, bytes(data), ops, 0, count)

    def put(self, subject: str, replaces: str = "", ttl_ns: int = 0) -> Put:
        self.seq, self.time_ns = self.seq + 1, self.time_ns + 10
        expires_ns = self.time_ns + ttl_ns if ttl_ns else 0
        return Put(self.seq, self.time_ns, subject, b"", b"put", expires_ns, b"id%d" % self.seq, replaces)

    def skip(self, count: int) -> Skip:
        self.seq += count
        return Skip(self.seq, self.time_ns, b"skipped")

    def copy(self, *seqs: int) -> Copy:
        data, ops = bytearray(), array("I")
        for seq in seqs:
            append_op(ops, data, b"copy", b"%d" % seq)
        self.seq = seqs[-1]
        return Copy(bytes(data), ops, array("Q", seqs), array("q", [self.time_ns] * len(seqs)))

    def expire(self, after_ns: int, markers: int) -> Expire:
        self.time_ns += after_ns
        self.seq += markers
        return Expire(self.time_ns, 500)

    def configure(self, limits: StreamLimits) -> Configure:
        return Configure(limits, WINDOW_NS, self.time_ns)


def script() -> Iterator[Step]:
    """All that can happen to a stream, and checkpoints in between."""
    make = Script()
    yield make.append(9)
    yield make.append(4, "b")
    yield CHECKPOINT
    yield Remove((3, 5))
    yield Erase(6)
    yield make.append(9)
    yield Purge("a.1")
    yield make.put("a.1", ttl_ns=5 * SECOND_NS)
    yield CHECKPOINT
    yield make.skip(4)
    yield make.append(12)
    yield make.put("b.2", replaces="b.2")
    yield Purge("a.0", keep=2)
    yield CHECKPOINT
    yield CHECKPOINT
    yield make.configure(StreamLimits(max_msgs_per_subject=3))
    yield make.append(30)
    yield CHECKPOINT
    yield make.copy(make.seq + 3, make.seq + 5, make.seq + 6)
    yield PurgeSome("a.*", 1, 60, 4)
    yield Erase(make.seq)
    yield make.append(3)
    yield make.configure(TTL)
    yield make.put("t.1", ttl_ns=5 * SECOND_NS)
    yield make.put("t.2", ttl_ns=5 * SECOND_NS)
    yield make.expire(6 * SECOND_NS, 2)
    yield CHECKPOINT
    yield make.append(5)
    yield make.configure(StreamLimits(max_msgs=6))
    yield make.append(40)  # blocks are filled and emptied before they are written
    yield make.append(3)
    yield CHECKPOINT
    yield Purge()
    yield make.append(2)
    yield CHECKPOINT
    yield make.append(20)
    yield Purge(below_seq=make.seq - 2)
    yield make.append(1)


@dataclass
class Mark:
    """What the log knows of the last checkpoint."""

    index: int = 0  # of the command after it
    cut: tuple[int, int] = (0, 0)
    limits: StreamLimits = field(default_factory=StreamLimits)


class Life:
    """A store, and the log that its commands are in."""

    def __init__(self, files: MemFiles, options: FileOptions, *, commit_each: int) -> None:
        self.files, self.options, self.commit_each = files, replace(options, sync=CHECKPOINT), commit_each
        self.mark = Mark()
        self.clock = FakeClock(0)  # nothing that is applied looks at it

    def open(self) -> StreamMachine:
        self.store = ThriftyStore(
            "s", self.mark.limits, self.options, files=self.files, clock=self.clock, autocommit=False, cut=self.mark.cut
        )
        self.machine = StreamMachine(self.store, WINDOW_NS)
        self.machine.load_ids()
        return self.machine

    def live(self, steps: list[Step]) -> None:
        """Open it, and do all of it."""
        self.open()
        self.run(steps)

    def run(self, steps: list[Step]) -> None:
        """Apply the commands after the last checkpoint; raises what the file system raises."""
        for index in range(self.mark.index, len(steps)):
            step = steps[index]
            if isinstance(step, str):
                self.checkpoint(index + 1)
            else:
                self.machine.replay(step)
                if index % self.commit_each == 0:
                    self.store.commit()

    def checkpoint(self, index: int) -> None:
        store = self.store

        def marked(block_id: int, offset: int) -> None:
            self.mark = Mark(index, (block_id, offset), store.limits)

        commit = store.prepare_checkpoint(marked)
        commit.run()
        store.complete_commit(commit)


def expected(steps: list[Step]) -> tuple[Any, ...]:
    """What a store in memory makes of the commands."""
    machine = StreamMachine(MemStore(StreamLimits(), clock=FakeClock(0), autocommit=False), WINDOW_NS)
    machine.load_ids()
    for step in steps:
        if not isinstance(step, str):
            machine.replay(step)
    return seen(machine)


def seen(machine: StreamMachine) -> tuple[Any, ...]:
    found = look(machine, machine.store.catalog.last_time_ns)
    found[1].bytes = 0  # memory and disk count the bytes of a message differently
    return found


@pytest.mark.parametrize("commit_each", [1, 4])
@pytest.mark.parametrize("envelope", ["none-none", "zstd-aes_256_gcm"])
def test_a_store_without_a_cut_is_what_commands_make_of_it(envelope: str, commit_each: int) -> None:
    steps = list(script())
    life = Life(MemFiles(), ENVELOPES[envelope], commit_each=commit_each)
    life.live(steps)
    assert seen(life.machine) == expected(steps)


@pytest.mark.parametrize(("envelope", "commit_each"), [("none-none", 2), ("none-aes_256_gcm", 5)])
def test_after_a_power_cut_at_any_operation_the_commands_since_the_checkpoint_make_the_same_store(
    envelope: str, commit_each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JETLAKE_VERIFY", raising=False)  # every store is checked below, once is enough
    steps = list(script())
    whole = Life(MemFiles(), ENVELOPES[envelope], commit_each=commit_each)
    whole.live(steps)
    wanted = seen(whole.machine)
    at_checkpoint = {index: expected(steps[:index])[:3] for index in range(len(steps) + 1)}
    for number in range(1, whole.files.op_count + 1):
        life = Life(MemFiles(), ENVELOPES[envelope], commit_each=commit_each)
        life.files.cut(number)
        with pytest.raises(PowerCut):
            life.live(steps)
        for label, files in what_is_left(life.files, number):
            try:
                again(life, files, steps, at_checkpoint[life.mark.index], wanted)
            except BaseException as error:
                pytest.fail(f"cut at operation {number} ({life.files.ops[-1]}), {label}: {error!r}")


def again(
    life: Life, files: MemFiles, steps: list[Step], at_checkpoint: tuple[Any, ...], wanted: tuple[Any, ...]
) -> None:
    """Open what is left, apply the rest, and compare; then once more, from a checkpoint at the end."""
    other = Life(files, life.options, commit_each=life.commit_each)
    other.mark = life.mark
    other.open()
    assert other.store.damage == []
    assert seen(other.machine)[:3] == at_checkpoint
    other.run(steps)
    assert seen(other.machine) == wanted
    other.checkpoint(len(steps))
    report = check_store("s", files=files, keys=KEYS)
    assert report.ok, report.problems
    other.store.release()
    other.open()
    assert seen(other.machine)[:4] == wanted[:4]


@pytest.mark.parametrize("number", range(1, 12, 2))
def test_a_power_cut_while_it_is_being_cut_changes_nothing(number: int) -> None:
    steps = list(script())
    life = Life(MemFiles(), ENVELOPES["none-none"], commit_each=1)
    life.live(steps)
    files = life.files.after_cut(keep="all")
    files.cut(number)
    other = Life(files, life.options, commit_each=1)
    other.mark = life.mark
    try:
        other.open()
    except PowerCut:
        for _, left in what_is_left(files, number):
            again(life, left, steps, expected(steps[: life.mark.index])[:3], seen(life.machine))


def test_what_a_cut_could_not_undo_is_refused() -> None:
    life = Life(MemFiles(), ENVELOPES["none-none"], commit_each=1)
    life.open()
    life.run(list(script())[:2])
    for change in (lambda: life.store.truncate(3), lambda: life.store.erase(3), life.store.compact_files):
        with pytest.raises(BadRequest, match="synced by checkpoints cannot"):
            change()


def test_erased_bytes_are_gone_after_the_checkpoint() -> None:
    life = Life(MemFiles(), ENVELOPES["none-none"], commit_each=1)
    life.open()
    life.machine.apply(Put(1, 5, "s", b"", b"a secret"))
    life.machine.apply(Put(2, 5, "s", b"", b"another"))
    life.store.commit()
    life.machine.apply(Erase(1))
    life.store.commit()
    assert b"a secret" in b"".join(life.files.snapshot().values())
    life.checkpoint(0)
    assert b"a secret" not in b"".join(life.files.snapshot().values())
    assert [message.payload for message in life.store.messages()] == [b"another"]

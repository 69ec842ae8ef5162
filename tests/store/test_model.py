"""Random lives of a store, compared with the plain model after every step: every message, every query."""

from __future__ import annotations

import os
from array import array

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jetlake.errors import LimitExceeded
from jetlake.ops import append_op
from jetlake.store import (
    NEVER_NS,
    Cipher,
    Compression,
    Discard,
    FileOptions,
    KeySource,
    MemStore,
    Pending,
    SimpleState,
    StreamLimits,
)
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from tests.crash.workload import ThriftyStore
from tests.store.model import Model

SUBJECTS = ["a", "b", "a.b", "a.c", "a.b.c", "x.b.c", "b.a"]
FILTERS = [[">"], ["a"], ["a.*"], ["a.>"], ["*.b.c"], ["x.b.c"], ["*"], ["a.b", "b.>"], ["zzz"]]
SECOND = 1_000_000_000
KEYS = (KeySource.key(bytes(range(32))),)
OPTIONS = {
    "plain": FileOptions(block_size_max=300),
    "snappy": FileOptions(block_size_max=300, compression=Compression.SNAPPY),
    "zstd+chacha": FileOptions(
        block_size_max=300, compression=Compression.ZSTD, cipher=Cipher.CHACHA20_POLY1305, keys=KEYS
    ),
    "aes": FileOptions(block_size_max=300, cipher=Cipher.AES_256_GCM, keys=KEYS),
}
LIMITS = st.builds(
    StreamLimits,
    max_msgs=st.sampled_from([-1, -1, 3, 8]),
    max_bytes=st.sampled_from([-1, -1, 150, 400]),
    max_age_ns=st.sampled_from([0, 0, 5 * SECOND]),
    max_msgs_per_subject=st.sampled_from([-1, -1, 1, 3]),
    discard=st.sampled_from([Discard.OLD, Discard.OLD, Discard.NEW]),
)
SUBJECT = st.sampled_from(SUBJECTS)
PAYLOAD = st.binary(max_size=60)
HEADERS = st.sampled_from([b"", b"", b"NATS/1.0\r\nA: b\r\n\r\n"])


class StoreMachine(RuleBasedStateMachine):
    """What MemStore and FileStore have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()

    def open(self) -> None:
        raise NotImplementedError

    @initialize(limits=LIMITS)
    def start(self, limits: StreamLimits) -> None:
        self.open()
        self.store.update(limits)
        self.model = Model(self.store.size_fixed, self.store.size_headers, limits)

    @rule(subject=SUBJECT, payload=PAYLOAD, headers=HEADERS, ttl=st.sampled_from([0, 0, 0, 3 * SECOND, NEVER_NS]))
    def append(self, subject: str, payload: bytes, headers: bytes, ttl: int) -> None:
        self.clock.advance(ns=7)
        if self.model.refuses(subject, payload, headers):
            with pytest.raises(LimitExceeded):
                self.store.append(subject, payload, headers, ttl_ns=ttl)
            return
        seq = self.store.append(subject, payload, headers, ttl_ns=ttl)
        assert seq == self.model.last + 1
        now = max(self.clock(), self.model.last_time_ns)
        expires = 0 if not ttl else NEVER_NS if ttl == NEVER_NS else now + ttl
        self.model.store(seq, subject, payload, headers, now, expires)

    @rule(batch=st.lists(st.tuples(SUBJECT, PAYLOAD, HEADERS), min_size=1, max_size=6))
    def append_batch(self, batch: list[tuple[str, bytes, bytes]]) -> None:
        self.clock.advance(ns=7)
        ops, data = array("I"), bytearray()
        for subject, payload, headers in batch:
            append_op(ops, data, subject.encode(), payload, headers)
        now, refused = max(self.clock(), self.model.last_time_ns), self.model.refuses(*batch[0])
        if refused:
            with pytest.raises(LimitExceeded):
                self.store.append_batch(data, ops)
            return
        first_seq, done = self.store.append_batch(data, ops)
        assert first_seq == self.model.last + 1
        for number, (subject, payload, headers) in enumerate(batch):
            refused = refused or self.model.refuses(subject, payload, headers)
            assert (number >= done) == refused
            if refused:
                break
            self.model.store(self.model.last + 1, subject, payload, headers, now)

    @rule(subject=SUBJECT, payload=PAYLOAD, ahead=st.integers(1, 4))
    def append_at(self, subject: str, payload: bytes, ahead: int) -> None:
        self.clock.advance(ns=7)
        seq, now = self.model.last + ahead, max(self.clock(), self.model.last_time_ns)
        self.store.append_at(seq, now, subject, payload)
        if ahead > 1:
            self.model.skip(ahead - 1)
        self.model.store(seq, subject, payload, b"", now)

    @rule(count=st.sampled_from([1, 3, 10, 2**40]))
    def skip(self, count: int) -> None:
        self.store.skip(count)
        self.model.skip(count)

    @rule(data=st.data(), erase=st.booleans())
    def remove(self, data: st.DataObject, erase: bool) -> None:
        seq = data.draw(self.any_seq())
        assert (self.store.erase if erase else self.store.remove)(seq) == self.model.drop(seq)

    @rule(data=st.data())
    def remove_many(self, data: st.DataObject) -> None:
        seqs = data.draw(st.lists(self.any_seq(), max_size=8))
        assert self.store.remove_many(seqs) == sum([self.model.drop(seq) for seq in seqs])

    @rule(data=st.data(), filter=st.sampled_from([">", "a.*", "a", "zzz"]), keep=st.integers(0, 3))
    def purge(self, data: st.DataObject, filter: str, keep: int) -> None:
        seq = data.draw(st.one_of(st.just(0), self.any_seq())) if not keep else 0
        assert self.store.purge(filter, seq=seq, keep=keep) == self.model.purge(filter, seq, keep)

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        seq = data.draw(self.any_seq())
        assert self.store.compact(seq) == self.model.compact(seq)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        seq = min(data.draw(self.any_seq()), self.model.last)
        if seq < self.model.last:
            self.store.truncate(seq)
            self.model.truncate(seq)

    @rule(limits=LIMITS)
    def update(self, limits: StreamLimits) -> None:
        self.store.update(limits)
        self.model.update(limits)
        self.model.expire(self.clock())

    @rule(seconds=st.sampled_from([1, 2, 6]))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds)
        assert self.store.expire() == self.model.expire(self.clock())

    def any_seq(self) -> st.SearchStrategy[int]:
        last = self.model.last
        seqs = [*self.model.msgs, last, last + 1, last + 2, 1, self.model.first]
        return st.sampled_from(sorted(set(seqs)))

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "model"):
            return
        store, model = self.store, self.model
        state = store.state()
        unused = model.last == 0 and model.first == 1
        assert (state.msgs, state.bytes) == (len(model.msgs), model.total())
        assert (state.first_seq, state.last_seq) == (0 if unused else model.first, model.last)
        assert state.num_deleted == model.last - model.first + 1 - len(model.msgs) == state.deleted.count
        assert all(seq not in state.deleted for seq in model.msgs)
        assert not state.lost
        assert state.last_time_ns == model.last_time_ns
        for seq, message in model.msgs.items():
            assert store.load(seq) == message
            assert store.subject_of(seq) == message.subject
        starts = sorted({0, 1, model.first, model.last, model.last + 1, *list(model.msgs)[:4], *list(model.msgs)[-4:]})
        for filters in FILTERS:
            self.compare_filters(filters, starts)
        for message in model.msgs.values():
            times = [other.seq for other in model.msgs.values() if other.time_ns >= message.time_ns]
            assert store.seq_from_time(message.time_ns) == min(times)
        assert store.seq_from_time(model.last_time_ns + 1) == model.last + 1
        assert store.all_last_seqs() == model.last_by_subject([">"])

    def compare_filters(self, filters: list[str], starts: list[int]) -> None:
        store, model = self.store, self.model
        assert store.subjects_state(filters) == model.subjects(filters)
        assert store.subjects_totals(filters) == {
            subject: state.msgs for subject, state in model.subjects(filters).items()
        }
        everything = model.match(filters)
        assert _seq(store.load_last(filters)) == (everything[-1] if everything else None)
        for start in starts:
            found = model.match(filters, start)
            before = [seq for seq in everything if seq <= start]
            assert _seq(store.load_next(start, filters)) == (found[0] if found else None)
            assert _seq(store.load_prev(start, filters)) == (before[-1] if before else None)
            assert store.num_pending(start, filters) == Pending(len(found), model.last)
            last = [seq for seq in model.last_by_subject(filters) if seq >= start]
            assert store.num_pending(start, filters, last_per_subject=True).msgs == len(last)
            expected = SimpleState(len(found), found[0], found[-1]) if found else SimpleState(0, 0, 0)
            assert store.filtered_state(start, filters) == expected
            assert store.multi_last_seqs(filters, start) == model.last_by_subject(filters, start)


def _seq(message: object) -> int | None:
    return None if message is None else message.seq  # type: ignore[attr-defined]


class MemMachine(StoreMachine):
    def open(self) -> None:
        self.store = MemStore(clock=self.clock, block_size_max=300)


class FileMachine(StoreMachine):
    """Also stops, crashes and is compacted."""

    options = OPTIONS["plain"]

    def open(self) -> None:
        self.files = MemFiles()
        self.reopen(StreamLimits())

    def reopen(self, limits: StreamLimits) -> None:
        self.store = ThriftyStore("s", limits, self.options, files=self.files, clock=self.clock)
        assert self.store.damage == []

    @rule()
    def stop_and_open(self) -> None:
        self.store.stop()
        self.reopen(self.model.limits)
        self.model.expire(self.clock())

    @rule(keep=st.sampled_from(["none", "all"]))
    def crash(self, keep: str) -> None:
        self.files = self.files.after_cut(keep=keep)
        self.reopen(self.model.limits)
        self.model.expire(self.clock())

    @rule()
    def lose_sidecars(self) -> None:
        for name in self.files.list("s"):
            if name.endswith(".idx"):
                self.files.remove(f"s/{name}")
        self.files.sync_dir("s")

    @rule()
    def compact_files(self) -> None:
        self.store.compact_files()

    @rule(data=st.data(), subject=SUBJECT, payload=PAYLOAD)
    def change_while_a_commit_runs(self, data: st.DataObject, subject: str, payload: bytes) -> None:
        self.store.autocommit = False
        self.remove(data, erase=False)
        commit = self.store.prepare_commit()
        self.remove(data, erase=False)
        self.append(subject, payload, b"", 0)
        if commit is not None:
            commit.run()
            self.agrees()
            self.store.complete_commit(commit)
        self.agrees()
        self.store.commit()
        self.store.autocommit = True

    @precondition(lambda self: self.options.cipher)
    @rule()
    def rotate_keys(self) -> None:
        self.store.rotate_keys(self.options)


def _settings(examples: int) -> settings:
    scale = int(os.environ.get("JETLAKE_HYPOTHESIS_SCALE", "1"))
    return settings(
        max_examples=examples * scale,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    )


TestMemStore = MemMachine.TestCase
TestMemStore.settings = _settings(12)

for _name, _options in OPTIONS.items():
    _machine = type(f"FileMachine_{_name}", (FileMachine,), {"options": _options})
    _case = _machine.TestCase
    _case.settings = _settings(12)
    globals()[f"TestFileStore_{_name}"] = _case
del _case

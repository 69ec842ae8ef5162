"""Damage met by any reader of an open store costs the damaged record or frame, and nothing else.

The store that is damaged is compared with one of which the same messages were removed: once somebody met the damage,
both give the same answers to every question, before and after a restart. Whoever meets it first gets no error.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jetlake.errors import MessageNotFound
from jetlake.ops import append_op
from jetlake.store import FileOptions, FileStore, StreamLimits
from jetlake.store.format import HEADER_SIZE
from jetlake.store.verify.check import check_store
from jetlake.store.view import StreamView
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from tests.crash.workload import ENVELOPES

pytestmark = pytest.mark.damages

SECOND = 1_000_000_000
COUNT, BATCH = 60, 4  # messages, and how many of them are stored, and put into a frame, at once
SUBJECTS = [f"s.{number}" for number in range(5)]
FILTERS = [">", "s.*", "s.1", ["s.1", "s.3"], "other"]
ENVELOPE_NAMES = ["none-none", "snappy-none", "none-chacha20_poly1305", "zstd-aes_256_gcm"]
DAMAGED_SEQS = [1, 2, 22, 60]  # of which one is the first, and one the last of the active block
LIMITS = StreamLimits(max_age_ns=1000 * SECOND)


class ThriftyStore(FileStore):
    rewrite_size_min = 100


class Damaged:
    """A store of sixty messages, one batch a second, of which one is damaged after it was opened."""

    def __init__(self, envelope: str, seq: int, limits: StreamLimits = LIMITS) -> None:
        options = ENVELOPES[envelope]
        self.options = FileOptions(
            block_size_max=900, compression=options.compression, cipher=options.cipher, keys=options.keys
        )
        self.limits, self.clock, self.files = limits, FakeClock(), MemFiles()
        self.start_ns = self.clock()
        store = self.open(self.files, StreamLimits())
        for first in range(0, COUNT, BATCH):
            ops, data = array("I"), bytearray()
            for number in range(first, first + BATCH):
                append_op(ops, data, SUBJECTS[number % 5].encode(), b"payload %d" % number * 5)
            self.clock.advance(1)
            store.append_batch(data, ops)
        store.stop()
        self.store = self.open(self.files)
        self.lost = self._flip(seq)
        self.intact = [seq for seq in range(1, COUNT + 1) if seq not in self.lost]

    def open(self, files: MemFiles, limits: StreamLimits | None = None) -> FileStore:
        return ThriftyStore("s", limits or self.limits, self.options, files=files, clock=self.clock)

    def _flip(self, seq: int) -> list[int]:
        """Damage a message, or the frame that it lies in; what that costs."""
        store = self.store
        block = store.catalog.block_of(seq)
        assert block is not None
        index, file = store.catalog.index(block), store.block_files[block.id]
        block.chunks, file._decoded = [], type(file._decoded)()  # nothing of it is in memory
        offset, position = index.offsets[index.position(seq)], index.position(seq)
        if file.envelope.is_plain:
            self.files.flip(block.path, 8 * (HEADER_SIZE + offset + 12))
            return [seq]
        frame = next(f for f in file.frames if f.plain_offset <= offset < f.plain_offset + f.plain_size)
        self.files.flip(block.path, 8 * (frame.file_offset + 40))
        end = frame.plain_offset + frame.plain_size
        assert position >= 0
        return [index.seq(i) for i in range(index.count) if frame.plain_offset <= index.offsets[i] < end]

    def reference(self) -> FileStore:
        """A sound store of which the same messages were removed."""
        files = MemFiles()
        store = ThriftyStore("s", StreamLimits(), self.options, files=files, clock=FakeClock())
        for number in range(COUNT):
            time_ns = self.start_ns + (number // BATCH + 1) * SECOND
            store.append_at(number + 1, time_ns, SUBJECTS[number % 5], b"payload %d" % number * 5)
        store.remove_many(self.lost)
        store.limits = self.limits
        return store


def loaded(store: FileStore, seq: int) -> object:
    try:
        return store.load(seq)
    except MessageNotFound:
        return None


def subject(store: FileStore, seq: int) -> object:
    try:
        return store.subject_of(seq)
    except MessageNotFound:
        return None


def numbers(store: FileStore) -> object:
    state = store.state()
    shown = (state.msgs, state.first_seq, state.first_time_ns, state.last_seq, state.last_time_ns, state.num_subjects)
    return *shown, state.num_deleted, list(state.deleted.ranges())


def each_seq(ask: Callable[[FileStore, int], object]) -> Callable[[FileStore], object]:
    return lambda store: [ask(store, seq) for seq in range(COUNT + 2)]


def each_filter(ask: Callable[[FileStore, Any], object]) -> Callable[[FileStore], object]:
    return lambda store: [ask(store, filters) for filters in FILTERS]


def times() -> Iterator[int]:
    start_ns = FakeClock()()
    return iter(range(start_ns, start_ns + 20 * SECOND, SECOND // 2))


# These read messages, and so find out at once; the others answer by what is known.
READERS: dict[str, Callable[[FileStore], object]] = {
    "load": each_seq(loaded),
    "load_next": lambda store: [store.load_next(seq, f) for f in FILTERS for seq in range(COUNT + 2)],
    "load_prev": lambda store: [store.load_prev(seq, f) for f in FILTERS for seq in range(COUNT + 2)],
    "messages": each_filter(lambda store, filters: list(store.messages(1, filters))),
}
ASKERS: dict[str, Callable[[FileStore], object]] = {
    "load_last": each_filter(lambda store, filters: store.load_last(filters)),
    "subject_of": each_seq(subject),
    "seq_from_time": lambda store: [store.seq_from_time(time_ns) for time_ns in times()],
    "state": numbers,
    "next_expiry": lambda store: store.next_expiry_ns(),
    "filtered_state": lambda store: [store.filtered_state(seq, f) for f in FILTERS for seq in range(COUNT + 2)],
    "subjects_state": each_filter(lambda store, filters: store.subjects_state(filters)),
    "subjects_totals": each_filter(lambda store, filters: store.subjects_totals(filters)),
    "last_seqs": lambda store: [store.all_last_seqs(), *(store.multi_last_seqs(["s.*"], seq) for seq in range(1, 62))],
    "num_pending": lambda store: [
        store.num_pending(seq, f, last_per_subject=last)
        for last in (True, False)
        for f in FILTERS
        for seq in range(COUNT + 2)
    ],
    "body_of": lambda store: all(len(store.body_of(block)) == block.body_size for block in store.catalog.blocks),
}
# These change something. What was damaged and is not removed by them is lost; the rest is as they leave it.
CHANGERS: dict[str, Callable[[FileStore], object]] = {
    "nothing": lambda store: None,
    "append": lambda store: store.append("s.1", b"more"),
    "remove": lambda store: [store.remove(seq) for seq in range(1, COUNT, 7)],
    "remove_many": lambda store: store.remove_many(range(1, COUNT, 3)),
    "erase": lambda store: [store.erase(seq) for seq in range(2, COUNT, 9)],
    "purge_filter": lambda store: store.purge("s.1"),
    "purge_keep": lambda store: store.purge("s.2", keep=2),
    "purge_seq": lambda store: store.purge(seq=30),
    "purge_all_but": lambda store: store.purge(keep=20),
    "purge": lambda store: store.purge(),
    "compact": lambda store: store.compact(25),
    "truncate": lambda store: store.truncate(40),
    "max_msgs": lambda store: store.update(StreamLimits(max_msgs=45)),
    "max_bytes": lambda store: store.update(StreamLimits(max_bytes=2500)),
    "max_age": lambda store: store.expire(FakeClock()() + (1000 + 7) * SECOND),
    "per_subject": lambda store: store.update(StreamLimits(max_msgs_per_subject=6)),
    "compact_files": lambda store: (store.remove(20), store.compact_files()),
    "rewrite_all": lambda store: store.rotate_keys(store.options),
}


@pytest.mark.parametrize("seq", DAMAGED_SEQS)
@pytest.mark.parametrize("envelope", ENVELOPE_NAMES)
@pytest.mark.parametrize("first", [*READERS, *ASKERS])
def test_whoever_meets_damage_first_goes_on_and_all_answers_are_as_if_it_had_been_removed(
    envelope: str, seq: int, first: str
) -> None:
    case = Damaged(envelope, seq)
    reference = case.reference()
    answer = (READERS | ASKERS)[first](case.store)
    if first in READERS:
        assert answer == READERS[first](reference)
    assert_only_that_is_missing(case, case.store, reference)
    for files in (case.files.copy(), stopped(case)):
        assert_only_that_is_missing(case, case.open(files), reference)


@pytest.mark.parametrize("change", CHANGERS)
@pytest.mark.parametrize("envelope", ENVELOPE_NAMES)
@pytest.mark.parametrize("seq", DAMAGED_SEQS)
def test_a_change_that_meets_damage_leaves_everything_else_intact(envelope: str, seq: int, change: str) -> None:
    case = Damaged(envelope, seq)
    reference = case.reference()
    CHANGERS[change](case.store)
    if change not in ("max_bytes", "max_msgs", "per_subject", "purge_all_but", "purge_keep"):  # they count it as there
        CHANGERS[change](reference)
        assert READERS["messages"](case.store) == READERS["messages"](reference)
    assert_the_rest_is_intact(case)
    live = list(case.store.messages())
    known = case.store.state().lost
    for files in (case.files.copy(), stopped(case)):
        again = case.open(files, case.store.limits)
        assert list(again.messages()) == live
        assert all(lost in again.state().lost for lost in known)
        assert again.append("s.1", b"next") > case.store.state().last_seq


def assert_only_that_is_missing(case: Damaged, store: FileStore, reference: FileStore) -> None:
    for name, ask in (READERS | ASKERS).items():
        assert ask(store) == ask(reference), name
    assert list(store.state().lost) == case.lost


def assert_the_rest_is_intact(case: Damaged) -> None:
    """What is left is what was stored, and nothing that could be read is listed as lost."""
    for message in case.store.messages():
        if message.seq <= COUNT:
            assert message.payload in (b"payload %d" % (message.seq - 1) * 5, b"more")
    assert set(case.store.state().lost) <= set(case.lost)
    assert sum(case.store.subjects_totals().values()) == case.store.state().msgs == len(list(case.store.messages()))


def stopped(case: Damaged) -> MemFiles:
    case.store.stop()
    return case.files


@pytest.mark.parametrize("envelope", ENVELOPE_NAMES)
def test_views_and_checks_list_what_the_store_lost(envelope: str) -> None:
    case = Damaged(envelope, 22)
    assert list(case.store.messages()) and case.store.append("s.1", b"next")
    catalog = StreamView("s", files=case.files, keys=case.options.keys).refresh()
    assert list(catalog.lost) == case.lost and not any(catalog.is_live(seq) for seq in case.lost)
    assert all(catalog.is_live(seq) for seq in case.intact)
    case.store.stop()
    report = check_store("s", files=case.files, keys=case.options.keys)
    assert list(report.lost) == case.lost and report.messages == len(case.intact) + 1
    assert {problem.kind for problem in report.problems} <= {"checksum", "frame", "lost", "checkpoint"}


@pytest.mark.parametrize("envelope", ENVELOPE_NAMES)
def test_a_loss_is_told_once(envelope: str) -> None:
    case, told = Damaged(envelope, 22), []
    case.store.on_lost = lambda seqs, where: told.append((list(seqs), where))
    for ask in (READERS | ASKERS).values():
        ask(case.store)
    assert [seqs for seqs, _ in told] == [case.lost] and told[0][1].startswith("s/0000")
    assert not case.store.damage


@pytest.mark.parametrize("envelope", ENVELOPE_NAMES)
def test_a_damaged_message_that_is_erased_leaves_no_byte(envelope: str) -> None:
    case = Damaged(envelope, 22)
    before = b"".join(data for name, data in case.files.snapshot().items() if name.endswith(".blk"))
    assert (b"payload 21" in before) == (envelope == "none-none")
    assert case.store.erase(22)
    assert all(b"payload 21" not in data for data in case.files.snapshot().values())
    assert [message.seq for message in case.store.messages()] == case.intact


@pytest.mark.parametrize("first", [*READERS, *ASKERS])
@pytest.mark.parametrize("envelope", ["none-none", "zstd-aes_256_gcm"])
def test_a_damaged_message_whose_sidecar_is_damaged_too_costs_no_more(envelope: str, first: str) -> None:
    case = Damaged(envelope, 22)
    flip_sidecar(case, 22)
    (READERS | ASKERS)[first](case.store)
    assert_only_that_is_missing(case, case.store, case.reference())
    assert_only_that_is_missing(case, case.open(case.files.copy()), case.reference())
    case.store.append("s.1", b"next")
    assert list(case.store.messages(1, "s.1"))[-1].payload == b"next"


@pytest.mark.parametrize("change", CHANGERS)
@pytest.mark.parametrize("envelope", ["none-none", "zstd-aes_256_gcm"])
def test_a_change_that_meets_both_leaves_everything_else_intact(envelope: str, change: str) -> None:
    case = Damaged(envelope, 22)
    flip_sidecar(case, 22)
    CHANGERS[change](case.store)
    assert_the_rest_is_intact(case)


def flip_sidecar(case: Damaged, seq: int) -> None:
    block = case.store.catalog.block_of(seq)
    assert block is not None
    case.store.catalog.let_go(block)
    path = block.path.replace(".blk", ".idx")
    case.files.flip(path, 8 * (case.files.size(path) - 1))


def test_a_sector_that_the_disk_cannot_read_costs_what_lies_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Damaged("none-none", 22)
    block = case.store.catalog.block_of(30)
    assert block is not None
    file = case.store.block_files[block.id]

    def fail(offset: int, size: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file.file, "pread", fail)
    found = [message.seq for message in case.store.messages()]
    assert found == [seq for seq in case.intact if case.store.catalog.block_of(seq) is not block]


def test_damage_that_another_thread_meets_is_left_to_the_writer() -> None:
    import threading

    case = Damaged("none-none", 22)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.extend(READERS["load"](case.store)))  # type: ignore[call-overload]
    thread.start()
    thread.join()
    assert found == READERS["load"](case.reference())
    assert not case.store.state().lost
    case.store.append("s.1", b"next")
    assert list(case.store.state().lost) == [22]

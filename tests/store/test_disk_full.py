"""The disk is full, or nearly. What fits is stored, and what is no longer needed gives its room back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jetlake.errors import StoreFrozen
from jetlake.store import FileOptions, FileStore, StreamLimits
from jetlake.store.verify.check import check_store
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles

MAX_AGE = StreamLimits(max_age_ns=10 * 10**9)


class Disk:
    """A disk with a store, which is filled up to the last byte."""

    def __init__(self, block_size_max: int = 2000, limits: StreamLimits = MAX_AGE) -> None:
        self.files, self.clock = MemFiles(), FakeClock()
        self.options, self.limits = FileOptions(block_size_max=block_size_max), limits
        self.store = self.open()

    def open(self) -> FileStore:
        return FileStore("s", self.limits, self.options, files=self.files, clock=self.clock)

    def fill(self, count: int, free_size: int = 0) -> None:
        """Store messages in one commit, so that nothing is reserved behind them, and let something take the rest."""
        self.store.autocommit = False
        for number in range(count):
            self.store.append("a", b"%050d" % number)
        self.store.commit()
        self.store.autocommit = True
        self.files.capacity = 0
        self.files.capacity = free_size + sum(map(len, self.files.snapshot().values()))

    def assert_sound(self, last_seq: int) -> None:
        self.store.stop()
        report = check_store("s", files=self.files)
        assert report.problems == []
        again = self.open()
        state = again.state()
        assert (state.msgs, state.last_seq, again.damage) == (0, last_seq, [])
        assert not state.lost


def test_a_message_is_stored_as_long_as_there_is_room_for_it() -> None:
    disk = Disk(block_size_max=10**6)
    disk.fill(60, free_size=3000)
    for _ in range(3000 // 140):
        disk.store.append("a", b"x" * 100)
    with pytest.raises(StoreFrozen):
        disk.store.append("a", b"x" * 300)
    assert FileStore("s", files=disk.files.after_cut(keep="all")).state().msgs == 3000 // 140 + 60


def test_what_was_reserved_is_used_up_before_the_disk_counts_as_full() -> None:
    disk = Disk(block_size_max=10**6)
    disk.fill(60, free_size=70_000)
    disk.store.append("a", b"x" * 100)  # which reserves most of what is left
    for _ in range(400):
        disk.store.append("a", b"x" * 100)
    assert disk.store.state().msgs == 461


def test_a_first_message_is_stored_where_there_is_room_for_it_and_the_checkpoint() -> None:
    for free_size in (1000, 65_536 + 200):
        disk = Disk()
        disk.fill(0, free_size)
        disk.store.append("a", b"x" * 100)
        assert FileStore("s", files=disk.files.after_cut()).state().msgs == 1


GIVES_BACK: dict[str, Callable[[Disk], object]] = {
    "expiry": lambda disk: (disk.clock.advance(60), disk.store.expire()),
    "purge": lambda disk: disk.store.purge(),
    "purge of the only subject": lambda disk: disk.store.purge("a"),
    "purge below a sequence": lambda disk: disk.store.purge(seq=disk.store.catalog.last_seq + 1),
    "compact": lambda disk: disk.store.compact(disk.store.catalog.last_seq + 1),
}


@pytest.mark.parametrize("give_back", GIVES_BACK.values(), ids=GIVES_BACK)
@pytest.mark.parametrize("count", [20, 500], ids=["one-block", "many-blocks"])
def test_a_full_disk_gets_the_room_of_messages_back(give_back: Callable[[Disk], object], count: int) -> None:
    disk = Disk()
    disk.fill(count)
    give_back(disk)
    assert disk.store.state().msgs == 0
    assert disk.files.free_size > 50 * count * 3 // 4 or count == 20
    assert disk.store.append("a", b"x") == count + 1
    disk.store.purge()
    disk.assert_sound(count + 1)


def test_expiry_gives_back_a_large_block_that_was_being_written_to() -> None:
    disk = Disk(block_size_max=4 * 1024 * 1024)
    disk.fill(15_000)
    disk.clock.advance(60)
    disk.store.expire()
    assert len(disk.store.block_files) == 1
    assert disk.store.utilisation()[0] < 1000
    disk.assert_sound(15_000)


def test_a_store_whose_only_block_is_small_and_dead_gives_it_back_when_it_is_opened() -> None:
    disk = Disk(block_size_max=10**6)
    disk.fill(100)
    disk.clock.advance(60)
    with pytest.raises(StoreFrozen):
        disk.store.expire()
    disk.store.release()
    disk.store = disk.open()
    assert disk.store.utilisation()[0] < 1000
    assert disk.store.append("a", b"x") == 101
    disk.store.purge()
    disk.assert_sound(101)


@pytest.mark.parametrize("number", range(1, 30))
def test_a_power_cut_while_room_is_made_loses_nothing_and_revives_nothing(number: int) -> None:
    disk = Disk()
    disk.fill(200)
    disk.files.cut(disk.files.op_count + number)
    try:
        disk.clock.advance(60)
        disk.store.expire()
    except BaseException as error:
        assert type(error).__name__ == "PowerCut"
    for keep in ("none", "all"):
        left = FileStore("s", files=disk.files.after_cut(keep=keep), clock=disk.clock)
        state = left.state()
        assert (state.last_seq, left.damage) == (200, [])
        assert not state.lost
        assert state.msgs == 201 - state.first_seq


def test_a_store_opens_on_a_full_disk_and_can_be_read() -> None:
    disk = Disk(limits=StreamLimits())
    disk.fill(100)
    full = disk.files.after_cut(keep="all")
    full.remove("s/000002.idx")
    full.remove("s/stream.state")
    full.capacity = sum(map(len, full.snapshot().values()))
    store = FileStore("s", StreamLimits(max_msgs_per_subject=90), disk.options, files=full, clock=disk.clock)
    assert [message.seq for message in store.messages()] == list(range(11, 101))
    full.capacity = None
    store.release()
    assert FileStore("s", disk.limits, disk.options, files=full, clock=disk.clock).append("a", b"") == 101


def test_a_deleted_store_needs_no_room() -> None:
    disk = Disk()
    disk.fill(100)
    disk.store.delete()
    assert disk.files.snapshot() == {}

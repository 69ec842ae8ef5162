"""Bits flip and files are cut off. What is damaged is lost and listed; everything else is served as before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from jetlake.errors import MessageNotFound
from jetlake.store import FileOptions, FileStore, StoredMsg
from jetlake.store.format import RECORD_SIZE_MIN
from jetlake.store.verify.check import check_store
from jetlake.store.view import StreamView
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from tests.crash.workload import ENVELOPES, HEADERS

pytestmark = pytest.mark.damages

# Of a thousand cases, how many are tried by default; every one with JETLAKE_EVERY_BIT=1.
EVERY_BIT = bool(os.environ.get("JETLAKE_EVERY_BIT"))
PLAIN_STEP, ENVELOPE_STEP = (1, 1) if EVERY_BIT else (3, 41)
ROOM_STEP = 1 if EVERY_BIT else 101


class Original:
    """A small store at rest: its files, and what it holds."""

    def __init__(self, envelope: str, *, clean: bool) -> None:
        self.options, self.clock, files = ENVELOPES[envelope], FakeClock(), MemFiles()
        store = FileStore("s", options=self.options, files=files, clock=self.clock)
        for number in range(9):
            self.clock.advance(1)
            store.append(f"a.{number % 2}", b"payload %d" % number, HEADERS if number % 3 == 0 else b"")
        removed = (1, 4, 8)
        for seq in removed:
            store.remove(seq)
        self.held = {seq: store.load(seq) for seq in range(1, 10) if seq not in removed}
        self.last_seq = 9
        if clean:
            store.stop()
        self.snapshot = files.after_cut(keep="all").snapshot()
        # A frame holds one message here: each was committed by itself. A rewritten or sealed block makes no difference.
        self.lost_max = 1

    def open(self, files: MemFiles) -> FileStore:
        return FileStore("s", options=self.options, files=files, clock=self.clock)

    def names(self) -> list[str]:
        return [name for name in self.snapshot if not name.endswith(".lock")]


def bits(original: Original, step: int) -> Iterator[tuple[str, int]]:
    """Places to flip a bit, spread evenly over every file; a few of the room that a block has reserved for more."""
    places: list[tuple[str, int]] = []
    for name in original.names():
        data = original.snapshot[name]
        written = 8 * min(len(data.rstrip(b"\0")) + RECORD_SIZE_MIN, len(data))
        places += [(name, bit) for bit in (*range(written), *range(written, 8 * len(data), ROOM_STEP))]
    return iter(places[::step])


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("envelope", ENVELOPES)
def test_a_flipped_bit_costs_at_most_the_record_it_lies_in(envelope: str, clean: bool) -> None:
    original = Original(envelope, clean=clean)
    step = PLAIN_STEP if envelope == "none-none" and clean else ENVELOPE_STEP
    for name, bit in bits(original, step):
        files = MemFiles.from_snapshot(original.snapshot)
        files.flip(name, bit)
        with explain(f"bit {bit % 8} of byte {bit // 8} of {name}"):
            lost = assert_damage_is_contained(original, files)
            assert len(lost) <= original.lost_max


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_a_file_cut_off_anywhere_loses_only_what_was_cut_off_and_says_so(envelope: str) -> None:
    original = Original(envelope, clean=True)
    step = 1 if envelope == "none-none" or EVERY_BIT else 11
    for name in original.names():
        for size in range(0, len(original.snapshot[name]), step):
            files = MemFiles.from_snapshot({**original.snapshot, name: original.snapshot[name][:size]})
            with explain(f"{name} cut off at {size}"):
                lost = assert_damage_is_contained(original, files)
                assert not lost or name.endswith(".blk")


@pytest.mark.parametrize("envelope", ["none-none", "zstd-aes_256_gcm"])
def test_a_missing_file_costs_only_what_was_in_it(envelope: str) -> None:
    original = Original(envelope, clean=True)
    for name in original.names():
        files = MemFiles.from_snapshot({other: data for other, data in original.snapshot.items() if other != name})
        with explain(f"{name} missing"):
            lost = assert_damage_is_contained(original, files)
            assert bool(lost) == name.endswith(".blk")


@pytest.mark.parametrize("envelope", ["none-none", "zstd-aes_256_gcm"])
def test_a_killed_store_whose_last_block_is_missing_lists_it_as_lost_and_uses_no_sequence_again(envelope: str) -> None:
    original = Original(envelope, clean=False)
    last_block = max(name for name in original.names() if name.endswith(".blk"))
    files = MemFiles.from_snapshot({name: data for name, data in original.snapshot.items() if name != last_block})
    view = StreamView("s", files=files, keys=original.options.keys).refresh()
    report = check_store("s", files=files, keys=original.options.keys)
    store = original.open(files)
    found, lost = read_all(store), store.state().lost
    missing = original.held.keys() - found.keys()
    assert missing and missing == {seq for seq in original.held if seq in lost}
    assert lost == view.lost == report.lost
    assert any(f"{last_block}: is missing" in text and "deletes" in text for text in store.damage)
    assert store.append("next", b"") == lost.last + 1 == view.last_seq + 1
    store.stop()
    assert original.open(files).state().lost == lost


@pytest.mark.parametrize("count", [1, 300, 5000])
def test_a_first_block_that_is_missing_after_a_kill_is_lost_whatever_was_in_it(count: int) -> None:
    files = MemFiles()
    store = FileStore("s", files=files)
    for _ in range(count):
        store.append("a", b"")
    left = files.after_cut(keep="all")
    left.remove("s/000001.blk")
    again = FileStore("s", files=left)
    assert again.state().lost.count_between(1, count) == count
    assert again.damage
    assert again.append("a", b"") > count


def test_a_last_block_whose_headers_are_both_damaged_is_lost_and_set_aside() -> None:
    files = MemFiles()
    store = FileStore("s", options=FileOptions(block_size_max=300), files=files)
    for _ in range(30):
        store.append("a", b"payload")
    left = files.after_cut(keep="all")
    last, first_seq = store.catalog.active.path, store.catalog.active.first_seq
    for copy in (0, 1):
        left.flip(last, 8 * (128 * copy + 20))
    again = FileStore("s", options=FileOptions(block_size_max=300), files=left)
    assert again.state().lost.count_between(first_seq, 30) == 31 - first_seq
    assert again.state().msgs == first_seq - 1
    assert again.append("a", b"") > 30


def test_a_killed_store_whose_last_record_is_damaged_does_not_reuse_its_sequence() -> None:
    original = Original("none-none", clean=False)
    last_block = max(name for name in original.names() if name.endswith(".blk"))
    data = original.snapshot[last_block]
    at = data.rindex(b"payload 8")
    files = MemFiles.from_snapshot(original.snapshot)
    files.flip(last_block, 8 * at)
    store = original.open(files)
    assert 9 in store.state().lost
    assert store.append("a.0", b"next") == 10


def assert_damage_is_contained(original: Original, files: MemFiles) -> set[int]:
    """Open, read everything, go on. The sequences that were held and are no more."""
    store = original.open(files)
    found = read_all(store)
    for seq, message in found.items():
        assert message == original.held.get(seq), f"sequence {seq} is not what was stored, or was deleted"
    missing = original.held.keys() - found.keys()
    listed = store.state().lost
    assert all(seq in listed for seq in missing), f"{sorted(missing)} missing, {listed} listed"
    assert store.append("next", b"") > original.last_seq
    store.stop()
    again = original.open(files)
    assert all(again.load(seq) == message for seq, message in found.items())
    again.stop()
    return set(missing)


def read_all(store: FileStore) -> dict[int, StoredMsg]:
    """Every message that can be read."""
    found = {}
    for seq in range(1, 10):
        if store.catalog.is_live(seq):
            with suppress(MessageNotFound):
                found[seq] = store.load(seq)
    return found


class explain:
    """Say which case failed."""

    def __init__(self, case: str) -> None:
        self.case = case

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self.case)

"""Bits flip and files are cut off. What is damaged is lost and listed; everything else is served as before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from jetlake.errors import MessageNotFound
from jetlake.store import FileStore, StoredMsg
from jetlake.store.format import CHECKPOINT_NAME, RECORD_SIZE_MIN
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
        self.removed = {seq: store.load(seq) for seq in (1, 4, 8)}
        for seq in self.removed:
            store.remove(seq)
        self.held = {seq: store.load(seq) for seq in range(1, 10) if seq not in self.removed}
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
            lost = assert_damage_is_contained(original, files, deletes_are_safe=clean)
            assert len(lost) <= original.lost_max


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_a_file_cut_off_anywhere_loses_only_what_was_cut_off_and_says_so(envelope: str) -> None:
    original = Original(envelope, clean=True)
    step = 1 if envelope == "none-none" or EVERY_BIT else 11
    for name in original.names():
        for size in range(0, len(original.snapshot[name]), step):
            files = MemFiles.from_snapshot({**original.snapshot, name: original.snapshot[name][:size]})
            with explain(f"{name} cut off at {size}"):
                lost = assert_damage_is_contained(original, files, deletes_are_safe=True)
                assert not lost or name.endswith(".blk")


@pytest.mark.parametrize("envelope", ["none-none", "zstd-aes_256_gcm"])
def test_a_missing_file_costs_only_what_was_in_it(envelope: str) -> None:
    original = Original(envelope, clean=True)
    for name in original.names():
        files = MemFiles.from_snapshot({other: data for other, data in original.snapshot.items() if other != name})
        with explain(f"{name} missing"):
            lost = assert_damage_is_contained(original, files, deletes_are_safe=name != f"s/{CHECKPOINT_NAME}")
            assert bool(lost) == name.endswith(".blk")


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


def assert_damage_is_contained(original: Original, files: MemFiles, *, deletes_are_safe: bool) -> set[int]:
    """Open, read everything, go on. The sequences that were held and are no more."""
    store = original.open(files)
    found = read_all(store)
    for seq, message in found.items():
        if seq in original.removed and not deletes_are_safe:
            assert message == original.removed[seq]
            assert store.damage, "a damaged tombstone is reported"
        else:
            assert message == original.held.get(seq), f"sequence {seq} is not what was stored"
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

"""An atomic batch is found whole or not at all: by the store that is opened again, and by readers of the files."""

from __future__ import annotations

import random
from array import array

import pytest

from jetlake.errors import BadRequest, LimitExceeded
from jetlake.ops import append_op
from jetlake.store import FileOptions, FileStore, MemStore, StreamLimits
from jetlake.store.api import Discard
from jetlake.store.format import HEADER_SIZE, MORE, REST, block_name
from jetlake.store.verify.check import check_store
from jetlake.store.view import StreamView
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles, PowerCut
from tests.crash.workload import ENVELOPES

PLAIN = FileOptions(block_size_max=350)


def batch(count: int, name: str = "b", payload: bytes = b"a member") -> tuple[bytearray, array[int]]:
    data, ops = bytearray(), array("I")
    for number in range(count):
        append_op(ops, data, f"{name}.{number % 3}".encode(), b"%s %d" % (payload, number))
    return data, ops


def payloads(store: FileStore | MemStore) -> list[bytes]:
    return [message.payload for message in store.messages()]


def viewed(files: MemFiles, options: FileOptions) -> int:
    """How many messages a reader of the files finds."""
    catalog = StreamView("s", files=files, keys=options.keys).refresh()
    return sum(block.message_count for block in catalog.blocks)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_batch_has_consecutive_sequences_and_one_time(kind: str) -> None:
    clock = FakeClock()
    store = MemStore(clock=clock) if kind == "memory" else FileStore("s", options=PLAIN, files=MemFiles(), clock=clock)
    store.append("a", b"before")
    store.append_together(*batch(20), clock() + 5, array("q", [2**62] + [0] * 19))
    assert payloads(store) == [b"before", *(b"a member %d" % number for number in range(20))]
    times = {message.time_ns for message in store.messages(2)}
    assert times == {clock() + 5} and store.load(2).expires_ns == 2**62
    assert store.subjects_totals("b.*") == {"b.0": 7, "b.1": 7, "b.2": 6}


def test_a_batch_lies_in_one_block_however_small_blocks_are() -> None:
    store = FileStore("s", options=PLAIN, files=MemFiles(), clock=FakeClock())
    store.append("a", b"before")
    store.append_together(*batch(100), 5)
    store.append("a", b"after")
    assert [(block.first_seq, block.last_seq) for block in store.catalog.blocks] == [(1, 101), (102, 102)]
    record = store.catalog.find
    flags = [record(seq).flags & (MORE | REST) for seq in (1, 2, 3, 101)]  # type: ignore[union-attr]
    assert flags == [0, MORE, MORE | REST, REST]


def test_limits_count_after_the_whole_batch() -> None:
    store = FileStore("s", StreamLimits(max_msgs=5), PLAIN, files=MemFiles(), clock=FakeClock())
    store.append_together(*batch(20), 5)
    assert payloads(store) == [b"a member %d" % number for number in range(15, 20)]


def test_a_batch_with_a_bad_member_is_not_stored() -> None:
    store = MemStore(clock=FakeClock())
    data, ops = batch(3)
    append_op(ops, data, b"", b"no subject")
    with pytest.raises(BadRequest):
        store.append_together(data, ops, 5)
    assert payloads(store) == []


def test_discard_new_counts_the_whole_batch() -> None:
    limits = StreamLimits(max_msgs=5, max_msgs_per_subject=2, discard=Discard.NEW, discard_new_per_subject=True)
    store = MemStore(limits, clock=FakeClock())
    store.append("a", b"")
    store.check_batch(4, 0, b"a", 1)
    for count, subject_count in ((5, 0), (1, 2)):
        with pytest.raises(LimitExceeded):
            store.check_batch(count, 0, b"a", subject_count)


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_a_power_cut_at_any_operation_leaves_a_batch_whole_or_not_at_all(
    envelope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JETLAKE_VERIFY", raising=False)
    sizes, number, is_done = [3, 30, 2, 40, 0], 0, False
    while not is_done:
        number += 1
        files, stored = MemFiles(), [0]
        files.cut(number)
        try:
            store = FileStore("s", options=ENVELOPES[envelope], files=files, clock=FakeClock())
            for size in sizes[:-1]:
                store.append("a", b"alone")
                stored.append(stored[-1] + 1)
                store.append_together(*batch(size), 5)
                stored.append(stored[-1] + size)
            store.stop()
            is_done = True
        except PowerCut:
            for label, left in what_is_left(files, number):
                with FileStore("s", options=ENVELOPES[envelope], files=left.copy(), clock=FakeClock()) as again:
                    found = again.fast_state().msgs
                    allowed = [stored[-1], stored[-1] + (1 if len(stored) % 2 else sizes[len(stored) // 2 - 1])]
                    assert found in allowed, f"cut at {number} ({files.ops[-1]}), {label}: {found} of {stored}"
                    seen = viewed(left, ENVELOPES[envelope]) if left.exists("s") else 0
                    assert seen in allowed, f"cut at {number}, {label}: {seen} seen of {stored}"
                    again.append("a", b"goes on")


def what_is_left(files: MemFiles, number: int) -> list[tuple[str, MemFiles]]:
    rng = random.Random(number)
    torn = [(f"{size} bytes", files.after_cut(torn_bytes=size, keep="all")) for size in (1, 40, 300, 700, 1500)]
    some = [(f"random {turn}", files.after_cut(keep="random", rng=rng)) for turn in range(3)]
    return [("none", files.after_cut()), ("all", files.after_cut(keep="all")), *torn, *some]


def test_wherever_the_file_ends_the_batch_is_there_or_not() -> None:
    files = MemFiles()
    store = FileStore("s", options=FileOptions(), files=files, clock=FakeClock())
    store.append("a", b"before")
    store.append_together(*batch(10), 5)
    size = store.catalog.active.body_size
    content = {path: data for path, data in files.snapshot().items() if path.endswith(".blk")}
    (path,) = content
    whole = content[path][: HEADER_SIZE + size]
    for end in range(HEADER_SIZE + 45, len(whole) + 1):
        cut = MemFiles.from_snapshot({**files.snapshot(), path: whole[:end]})
        expected = 11 if end == len(whole) else 1
        assert viewed(cut, FileOptions()) == expected, f"cut at {end}"
        with FileStore("s", options=FileOptions(), files=cut, clock=FakeClock()) as again:
            assert again.fast_state().msgs == expected and not again.damage
            assert again.append("a", b"next") == expected + 1


def test_a_view_that_lasts_sees_a_batch_when_its_last_byte_is_there() -> None:
    files = MemFiles()
    store = FileStore("s", options=FileOptions(), files=files, clock=FakeClock())
    store.append("a", b"before")
    path = f"s/{block_name(1)}"
    before = files.snapshot()
    store.append_together(*batch(5), 5)
    whole, start = files.snapshot()[path], HEADER_SIZE + 45
    end = HEADER_SIZE + store.catalog.active.body_size
    live = MemFiles.from_snapshot(before)
    view = StreamView("s", files=live)
    with live.open(path, write=True) as file:
        for stop in range(start, end + 1, 7):
            file.pwrite(0, whole[: min(stop, end - 1)])
            assert sum(block.message_count for block in view.refresh().blocks) == 1
        file.pwrite(0, whole[:end])
        assert sum(block.message_count for block in view.refresh().blocks) == 6


@pytest.mark.parametrize("missing", [(0, 1), (1, 2), (2, 5), (7, 9), (0, 9)], ids=str)
def test_a_hole_that_was_never_written_costs_the_whole_batch(missing: tuple[int, int]) -> None:
    files, options = MemFiles(), FileOptions()
    store = FileStore("s", options=options, files=files, clock=FakeClock())
    store.append("a", b"before")
    store.append_together(*batch(10, payload=b"x" * 600), 5)
    store.append("a", b"after")
    offsets = store.catalog.active.index.offsets  # type: ignore[union-attr]
    path = f"s/{block_name(1)}"
    content = bytearray(files.snapshot()[path])
    start, end = (HEADER_SIZE + offsets[1 + number] for number in missing)
    content[start + 30 : end + 20] = bytes(end - start - 10)  # pages do not end where records do
    left = MemFiles.from_snapshot({**files.snapshot(), path: bytes(content)})
    assert viewed(left.copy(), options) == 2
    for _ in range(2):
        with FileStore("s", options=options, files=left, clock=FakeClock()) as again:
            assert [message.seq for message in again.messages()][:2] == [1, 12]
            again.append("a", b"goes on")
    assert list(check_store("s", files=left).lost.ranges()) == [(2, 11)]


def test_a_damaged_member_is_lost_alone() -> None:
    files = MemFiles()
    store = FileStore("s", options=FileOptions(), files=files, clock=FakeClock())
    store.append_together(*batch(10), 5)
    offset = store.catalog.active.index.offsets[4]  # type: ignore[union-attr]
    files.flip(f"s/{block_name(1)}", 8 * (HEADER_SIZE + offset + 12))
    with FileStore("s", options=FileOptions(), files=files.after_cut(), clock=FakeClock()) as again:
        assert [message.seq for message in again.messages()] == [1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_nobody_truncates_into_a_batch() -> None:
    store = FileStore("s", options=PLAIN, files=MemFiles(), clock=FakeClock())
    store.append_together(*batch(5), 5)
    with pytest.raises(BadRequest, match="in the middle of an atomic batch"):
        store.truncate(3)
    store.truncate(5)


def test_members_leave_and_are_erased_one_by_one() -> None:
    files = MemFiles()
    store = FileStore("s", options=PLAIN, files=files, clock=FakeClock())
    store.append_together(*batch(9), 5)
    store.remove(2)
    store.erase(9)
    store.erase(5)
    store.append("a", b"after")
    for _ in range(2):
        store.compact_files()
        store.stop()
        store = FileStore("s", options=PLAIN, files=files, clock=FakeClock())
        assert [message.seq for message in store.messages()] == [1, 3, 4, 6, 7, 8, 10]

"""Taking the oldest messages of many subjects out at once: the same as one by one, in every place they can be in."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest

from jetlake.errors import LimitExceeded
from jetlake.ops import append_op
from jetlake.store import Discard, FileOptions, FileStore, MemStore, StreamLimits
from jetlake.store.blocks import catalog
from jetlake.store.format import HEADER_SIZE, NEVER_NS
from jetlake.store.retention.bulk_removal import oldest_over, remove_all
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles

Store = MemStore | FileStore
Make = Callable[..., Store]
KV = StreamLimits(max_msgs_per_subject=1, discard=Discard.NEW)


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest) -> Make:
    def make(limits: StreamLimits | None = None, **options: Any) -> Store:
        limits = limits or StreamLimits()
        if request.param == "memory":
            return MemStore(limits, clock=FakeClock(), block_size_max=350, **options)
        settings = FileOptions(block_size_max=350)
        return FileStore("s", limits, settings, files=MemFiles(), clock=FakeClock(), **options)

    return make


def fill(store: Store, *subjects: str) -> None:
    for number, subject in enumerate(subjects, 1):
        store.append(subject, b"payload %d" % number)


def put(store: Store, *subjects: bytes, size: int = 9) -> tuple[int, int]:
    """A batch with a message on each of these subjects."""
    data, ops = bytearray(), array("I")
    for subject in subjects:
        append_op(ops, data, subject, bytes(size))
    return store.append_batch(data, ops)


def held(store: Store) -> list[int]:
    return [message.seq for message in store.messages()]


def over(store: Store, count_max: int) -> list[int]:
    table = store.catalog.table
    return list(oldest_over(store.catalog, list(range(table.slot_limit)), count_max))


def test_the_oldest_of_each_subject_are_over_the_limit(make: Make) -> None:
    store = make()
    fill(store, *["a", "b", "a", "c", "a", "b"] * 5)
    assert len(store.catalog.blocks) > 2
    assert over(store, 14) == [1]
    assert over(store, 9) == [1, 2, 3, 5, 7, 9, 11]
    assert over(store, 15) == []


def test_messages_in_blocks_whose_index_was_let_go_are_found(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "INDEX_CACHE_SIZE_MAX", 1)
    store = make()
    fill(store, *["a", "b", "a", "c", "a", "b"] * 5)
    before = over(store, 9)
    if isinstance(store, FileStore):
        store.stop()
        store = FileStore("s", options=store.options, files=store.files, clock=store.clock)
        assert store.catalog.blocks[0].index is None
    assert over(store, 9) == before
    remove_all(store, array("Q", before), are_oldest=True)
    assert held(store) == [seq for seq in range(1, 31) if seq not in before]


def test_removal_at_once_equals_removal_one_by_one(make: Make) -> None:
    stores = make(), make()
    for store in stores:
        fill(store, *["a", "b", "a", "c", "a", "b"] * 6)
        store.remove(4)
        store.skip(3)
        fill(store, "d", "a")
    at_once, one_by_one = stores
    seqs = over(at_once, 3)
    remove_all(at_once, array("Q", seqs), are_oldest=True)
    for seq in seqs:
        one_by_one.remove(seq)
    assert held(at_once) == held(one_by_one)
    assert at_once.state() == one_by_one.state()
    assert at_once.subjects_state() == one_by_one.subjects_state()


def test_what_was_removed_at_once_stays_removed() -> None:
    store = FileStore("s", options=FileOptions(block_size_max=350), files=MemFiles(), clock=FakeClock())
    fill(store, *["a", "b", "a", "c", "a", "b"] * 6)
    remove_all(store, array("Q", over(store, 2)), are_oldest=True)
    store.commit()
    state, messages = store.state(), list(store.messages())
    again = FileStore("s", options=store.options, files=store.files.after_cut(keep="none"), clock=store.clock)
    assert (again.state(), list(again.messages())) == (state, messages)


def test_all_messages_may_leave_at_once(make: Make) -> None:
    store = make()
    fill(store, *["a", "b"] * 10)
    remove_all(store, array("Q", range(1, 21)), are_oldest=True)
    assert (store.state().msgs, store.state().bytes, store.state().first_seq) == (0, 0, 21)
    assert len(store.catalog.blocks) == 1


def test_a_block_that_is_empty_afterwards_is_let_go(make: Make) -> None:
    store = make()
    fill(store, *["keep", *["a"] * 20, "keep"])
    blocks = len(store.catalog.blocks)
    remove_all(store, array("Q", range(2, 22)), are_oldest=True)
    assert held(store) == [1, 22]
    assert 1 < len(store.catalog.blocks) < blocks


def test_messages_with_a_deadline_are_forgotten(make: Make) -> None:
    store = make()
    for ttl_ns in (10**9, NEVER_NS, 10**9):
        store.append("a", b"", ttl_ns=ttl_ns)
    store.append("a", b"")
    remove_all(store, array("Q", [1, 2, 3]), are_oldest=True)
    assert store.next_expiry_ns() is None and not store.expiry.never


@pytest.mark.damages
def test_a_damaged_message_leaves_all_the_same() -> None:
    store = FileStore("s", files=MemFiles(), clock=FakeClock())
    fill(store, *["a", "b"] * 6)
    store._rotate()
    store.commit()
    block = store.catalog.blocks[0]
    place = HEADER_SIZE + store.catalog.index(block).offsets[4] + 10
    store.files.open(block.path, write=True).pwrite(place, b"\xff")
    remove_all(store, array("Q", range(1, 11)), are_oldest=True)
    assert held(store) == [11, 12] and store.state().msgs == 2


def test_a_read_that_fails_leaves_the_stream_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore("s", files=MemFiles(), clock=FakeClock())
    fill(store, *["a", "b"] * 6)
    store._rotate()
    store.commit()
    before = store.state()

    def read_body(start: int, end: int) -> bytes:
        raise OSError("the disk is on fire")

    with monkeypatch.context() as patch:
        patch.setattr(store.catalog.blocks[0], "read_body", read_body)
        with pytest.raises(OSError, match="fire"):
            remove_all(store, array("Q", [1, 2, 3]), are_oldest=True)
    assert store.state() == before and held(store) == list(range(1, 13))


# Batches under limits


def test_a_batch_replaces_what_its_keys_held(make: Make) -> None:
    store = make(KV)
    put(store, b"k.1", b"k.2", b"k.3")
    assert put(store, b"k.2", b"k.4", b"k.2") == (4, 3)
    assert held(store) == [1, 3, 5, 6]
    assert put(store, *[b"k.1"] * 30) == (7, 30)
    assert held(store) == [3, 5, 6, 36]


def test_a_batch_far_from_a_limit_is_stored_in_one_call(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make(StreamLimits(max_msgs_per_subject=1, max_msgs=100, max_bytes=10_000, discard=Discard.NEW))
    monkeypatch.setattr(store, "_append_singly", None)
    assert put(store, b"a", b"b", b"a") == (1, 3)
    assert held(store) == [2, 3]


def test_a_batch_near_a_limit_stops_in_front_of_what_is_refused(make: Make) -> None:
    store = make(StreamLimits(max_msgs=3, discard=Discard.NEW))
    assert put(store, b"a", b"b", b"c", b"d") == (1, 3)
    with pytest.raises(LimitExceeded):
        put(store, b"d")
    store = make(StreamLimits(max_bytes=5 * (store.size_fixed + 10), max_msgs_per_subject=1, discard=Discard.NEW))
    assert put(store, b"a", b"b", b"c", b"d", b"a", b"e", b"f") == (1, 6)
    assert held(store) == [2, 3, 4, 5, 6]


def test_discard_new_per_subject_refuses_the_second(make: Make) -> None:
    limits = StreamLimits(max_msgs_per_subject=1, discard=Discard.NEW, discard_new_per_subject=True)
    assert put(make(limits), b"a", b"b", b"a") == (1, 2)


def test_bytes_and_messages_per_subject_are_enforced_message_by_message(make: Make) -> None:
    limits = StreamLimits(max_msgs_per_subject=2, max_bytes=400)
    at_once, one_by_one = make(limits), make(limits)
    subjects = [b"a", b"b", b"a", b"c", b"a", b"b", b"d", b"e"] * 4
    put(at_once, *subjects)
    for subject in subjects:
        one_by_one.append(subject.decode(), bytes(9))
    assert held(at_once) == held(one_by_one)


def test_what_lies_between_deleted_messages_leaves_at_the_front() -> None:
    for store in (MemStore(), FileStore("s", files=MemFiles())):
        for number in range(80):
            store.append("ab"[number % 2], b"%d" % number)
        store.purge("b")
        assert store.compact(61) == 30
        assert (store.state().first_seq, store.state().msgs) == (61, 10)
        assert store.purge(">", keep=3) == 7
        assert [message.seq for message in store.messages()] == [75, 77, 79]
        assert store.subjects_totals() == {"a": 3}

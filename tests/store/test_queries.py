"""Questions to blocks of many messages, beside plain loops; `test_model.py` asks every question of small blocks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from jetlake.store import FileOptions, FileStore, MemStore
from jetlake.store.queries import Queries
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles

COUNT = 1500
SUBJECTS = ["a.1", "a.2", "b.1", "b.2", "c"]
FILTERS = [">", "a.*", "*.1", "c", "b.2", "rare", "none", "none.>"]
Store = MemStore | FileStore
Live = dict[int, tuple[str, int]]


def rows(seed: int) -> Iterator[tuple[str, int]]:
    """Subjects and steps in time: some messages come at once, others after a while."""
    rng = random.Random(seed)
    for number in range(COUNT):
        yield "rare" if number == COUNT // 2 else rng.choice(SUBJECTS), rng.choice([0, 0, 0, 1, 5, 10_000])


@pytest.fixture(params=["one memory block", "memory blocks", "file blocks"])
def filled(request: pytest.FixtureRequest) -> tuple[Store, Live]:
    """A store with messages of which a third was removed, and what it holds: seq -> (subject, time)."""
    clock, store, live = FakeClock(), None, dict[int, tuple[str, int]]()
    if request.param == "file blocks":
        store = FileStore("s", options=FileOptions(block_size_max=16_000), files=MemFiles(), clock=clock)
    else:
        size = 16_000 if request.param == "memory blocks" else 2**24
        store = MemStore(clock=clock, block_size_max=size)
    for seq, (subject, step_ns) in enumerate(rows(7), 1):
        clock.advance(ns=step_ns)
        store.append(subject, b"x" * (seq % 50))
        live[seq] = subject, clock()
    rng = random.Random(8)
    for seq in [*rng.sample(range(1, COUNT), COUNT // 3), *range(400, 520)]:
        if seq in live and live[seq][0] != "rare":
            store.remove(seq)
            del live[seq]
    return store, live


def matching(live: Live, filter: str) -> list[int]:
    queries = Queries(MemStore().catalog)
    subjects = queries.filter(filter).subjects
    return [seq for seq, (subject, _) in sorted(live.items()) if subjects.matches(subject.encode())]


def some_seqs() -> list[int]:
    return [1, 2, 399, 400, 519, 520, COUNT // 2, COUNT // 2 + 1, COUNT // 2 + 2, *range(3, COUNT + 2, 97), COUNT]


@pytest.mark.parametrize("filter", FILTERS)
def test_pending_messages_are_counted_among_removed_ones(filled: tuple[Store, Live], filter: str) -> None:
    store, live = filled
    seqs = matching(live, filter)
    for start in some_seqs():
        assert store.num_pending(start, filter).msgs == sum(seq >= start for seq in seqs), start


@pytest.mark.parametrize("filter", FILTERS)
def test_subjects_are_counted_by_their_last_message(filled: tuple[Store, Live], filter: str) -> None:
    store, live = filled
    for seq in range(COUNT - 20, COUNT + 1):  # leaves last sequences stale
        if seq in live:
            store.remove(seq)
            del live[seq]
    lasts = {live[seq][0]: seq for seq in matching(live, filter)}
    for start in [1, *some_seqs(), *sorted(lasts.values())]:
        expected = sum(last >= start for last in lasts.values())
        assert store.num_pending(start, filter, last_per_subject=True).msgs == expected, start


@pytest.mark.parametrize("filter", FILTERS)
def test_the_neighbouring_match_is_found_both_ways(filled: tuple[Store, Live], filter: str) -> None:
    store, live = filled
    seqs = matching(live, filter)
    found_by: Any = store.queries
    for start in some_seqs():
        compiled = found_by.filter(filter)
        assert found_by.next_seq(compiled, start) == min((seq for seq in seqs if seq >= start), default=None), start
        assert found_by.prev_seq(compiled, start) == max((seq for seq in seqs if seq <= start), default=None), start


def test_a_sequence_is_found_by_its_time(filled: tuple[Store, Live]) -> None:
    store, live = filled
    times = sorted({time_ns for _, time_ns in live.values()})
    for time_ns in [0, *(time_ns + more for time_ns in times for more in (-1, 0, 1))]:
        expected = min((seq for seq, (_, stored_ns) in live.items() if stored_ns >= time_ns), default=COUNT + 1)
        assert store.seq_from_time(time_ns) == expected, time_ns


def test_a_sequence_is_found_by_its_time_beside_damage(filled: tuple[Store, Live]) -> None:
    store, live = filled
    damaged = set(random.Random(9).sample(sorted(live), len(live) // 3))
    for seq in damaged:
        block = store.catalog.block_of(seq)
        assert block is not None
        index = store.catalog.index(block)
        offset = index.offsets[index.position(seq)]
        for chunk in block.chunks:
            if chunk.base <= offset < chunk.end:
                chunk.data[offset - chunk.base] ^= 0xFF
    for seq in sorted(set(live) - damaged)[::7]:
        found = store.seq_from_time(live[seq][1])
        assert found <= seq and all(
            live[at][1] >= live[seq][1] or at in damaged for at in range(found, seq) if at in live
        )


def test_an_empty_last_block_does_not_hide_earlier_times() -> None:
    clock = FakeClock()
    store = MemStore(clock=clock, block_size_max=400)
    times = []
    for _ in range(30):
        clock.advance(ns=3)
        store.append("a", b"")
        times.append(clock())
    for seq in range(25, 31):
        store.remove(seq)
    assert [store.seq_from_time(time_ns) for time_ns in times[:24]] == list(range(1, 25))
    assert store.seq_from_time(times[24]) == 31


@pytest.fixture
def distant(monkeypatch: pytest.MonkeyPatch) -> tuple[FileStore, list[int]]:
    """A store of many blocks with three messages far apart, opened again; and which sidecars were read since."""
    files = MemFiles()
    with FileStore("s", options=FileOptions(block_size_max=600), files=files) as store:
        for seq in range(1, 601):
            store.append("rare" if seq in (3, 300, 599) else f"often.{seq % 7}", b"x")
    store = FileStore("s", options=FileOptions(block_size_max=600), files=files)
    loaded: list[int] = []
    load_index = store.catalog.load_index
    assert load_index is not None
    monkeypatch.setattr(store.catalog, "load_index", lambda block: (loaded.append(block.id), load_index(block))[1])
    return store, loaded


@pytest.mark.parametrize("filter", ["rare", "*", "seldom"])
def test_a_search_passes_over_blocks_without_a_match(distant: tuple[FileStore, list[int]], filter: str) -> None:
    store, loaded = distant
    assert len(store.catalog.blocks) > 30
    is_known = filter in ("rare", "*")
    assert [message.seq for message in store.messages(1, filter)] == ([3, 300, 599] if is_known else [])
    back = store.load_prev(598, filter)
    assert (back.seq if back is not None else None) == (300 if is_known else None)
    assert store.num_pending(100, filter).msgs == (2 if is_known else 0)
    assert len(loaded) < 12


def test_a_purge_reads_only_blocks_with_a_match(distant: tuple[FileStore, list[int]]) -> None:
    store, loaded = distant
    assert store.purge("rare") == 3
    assert len(loaded) < 10
    assert store.state().msgs == 597


@pytest.mark.parametrize(("seq", "keep"), [(0, 0), (400, 0), (10_000, 0), (0, 25), (0, 10_000)])
def test_a_filter_that_matches_every_subject_is_as_good_as_all(
    distant: tuple[FileStore, list[int]], seq: int, keep: int
) -> None:
    store, loaded = distant
    store.purge("rare")
    loaded.clear()
    left = [message.seq for message in store.messages() if (seq and message.seq >= seq)]
    left = [message.seq for message in store.messages()][-keep:] if keep else left
    loaded.clear()
    assert store.purge("often.>", seq=seq, keep=keep) == 597 - len(left)
    assert [message.seq for message in store.messages()] == left
    assert store.state().last_seq == 600
    assert seq or keep or not loaded


def test_what_matches_every_message_is_counted_without_a_look_at_messages(
    distant: tuple[FileStore, list[int]],
) -> None:
    store, loaded = distant
    store.purge("rare")
    loaded.clear()
    assert store.num_pending(250, "often.*").msgs == 349
    assert not loaded

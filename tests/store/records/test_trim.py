"""The loops of bulk removal: every test on both twins, then the twins against each other."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store import MemStore
from jetlake.store.format import SKIP
from jetlake.store.index._subject_table_py import FIRST_STALE
from jetlake.store.records.record import Record, encode
from jetlake.store.records.varint import U64_MAX
from jetlake.testing.clock import FakeClock
from tests.twins import NO_KERNELS, load_twin, needs_kernels

HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"
NO_RANGES = (array("Q"), array("Q"))


def load(kind: str) -> SimpleNamespace:
    trim = load_twin("jetlake.store.records._trim", kind)
    names = {name: getattr(trim, name) for name in dir(trim) if not name.startswith("_")}
    return SimpleNamespace(
        **names | {"SubjectTable": load_twin("jetlake.store.index._subject_table", kind).SubjectTable}
    )


@pytest.fixture(params=["py", "c"])
def twin(request: pytest.FixtureRequest) -> SimpleNamespace:
    if request.param == "c" and NO_KERNELS:
        pytest.skip("JETLAKE_NO_KERNELS is set")
    return load(request.param)


def table_of(twin: SimpleNamespace, *subjects: bytes) -> Any:
    """A table with a message on each of these subjects, from sequence 1 on."""
    table = twin.SubjectTable()
    for seq, subject in enumerate(subjects, 1):
        table.add(table.intern(subject), seq)
    return table


def needs(need: bytearray) -> list[int]:
    return list(memoryview(need).cast("I"))


# Which messages are too many


def test_the_table_knows_the_first_message_of_a_subject_that_has_one_too_many(twin: SimpleNamespace) -> None:
    table, need = table_of(twin, b"a", b"b", b"a", b"c"), bytearray(12)
    assert twin.oldest_known(table, [0, 1, 2], 1, need) == (array("Q", [1]), 0, U64_MAX)
    assert needs(need) == [0, 0, 0]


def test_what_the_table_does_not_know_is_noted(twin: SimpleNamespace) -> None:
    table, need = table_of(twin, b"a", b"b", b"b", b"a", b"a", b"b", b"b"), bytearray(8)
    assert twin.oldest_known(table, [0, 1], 1, need) == (array("Q"), 5, 1)
    assert needs(need) == [2, 3]
    table.remove(0, 1)
    assert table.flags(0) == FIRST_STALE
    assert twin.oldest_known(table, [0], 1, bytearray(8)) == (array("Q"), 1, 2)


def test_a_slot_named_twice_is_noted_once(twin: SimpleNamespace) -> None:
    table, need = table_of(twin, b"a", b"a", b"a"), bytearray(4)
    assert twin.oldest_known(table, [0, 0], 1, need) == (array("Q"), 2, 1)


def test_need_must_have_a_number_for_each_slot(twin: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="need of 4 bytes for 2 slots"):
        twin.oldest_known(table_of(twin, b"a", b"b"), [0], 1, bytearray(4))


def search(twin: SimpleNamespace, ids: list[int], need: bytearray, left: int, **options: Any) -> list[int]:
    given = {"place": 0, "stop": len(ids), "seqs": None, "base_seq": 1, "starts": NO_RANGES[0], "ends": NO_RANGES[1]}
    given.update(options)
    return list(twin.oldest_in(array("I", ids), *given.values(), need, left))


def need_of(*numbers: int) -> bytearray:
    return bytearray(array("I", numbers).tobytes())


def test_the_oldest_messages_of_each_subject_are_found(twin: SimpleNamespace) -> None:
    need = need_of(2, 0, 1)
    assert search(twin, [0, 1, 2, 2, 0, 0], need, 3) == [1, 3, 5]
    assert needs(need) == [0, 0, 0]


def test_messages_that_are_gone_or_before_the_place_are_not_found(twin: SimpleNamespace) -> None:
    gone = {"starts": array("Q", [1, 4]), "ends": array("Q", [1, 5])}
    assert search(twin, [0, 0, 0, 0, 0, 0, 0], need_of(2), 2, **gone) == [2, 3]
    assert search(twin, [0, 0, 0, 0, 0, 0, 0], need_of(2), 2, place=2, **gone) == [3, 6]


def test_a_block_may_hold_only_some_of_what_is_needed(twin: SimpleNamespace) -> None:
    need = need_of(3, 1)
    assert search(twin, [7, 0, 2], need, 4, seqs=array("I", [0, 5, 9]), base_seq=100) == [105]
    assert needs(need) == [2, 1]


def test_a_range_beyond_the_index_is_refused(twin: SimpleNamespace) -> None:
    for options in ({"place": -1}, {"stop": 3}, {"place": 2, "stop": 1}, {"seqs": array("I", [0])}):
        with pytest.raises(IndexError):
            search(twin, [0, 0], need_of(1), 1, **options)
    with pytest.raises(ValueError, match="1 starts"):
        search(twin, [0, 0], need_of(1), 1, starts=array("Q", [1]))


# Where they lie


def test_sequences_are_located_with_and_without_gaps(twin: SimpleNamespace) -> None:
    assert list(twin.locate(array("Q", [10, 12, 13]), None, 10, 4)) == [0, 2, 3]
    assert list(twin.locate(array("Q", [10, 15, 19]), array("I", [0, 4, 5, 9]), 10, 4)) == [0, 2, 3]


@pytest.mark.parametrize("seqs", [None, array("I", [0, 1, 2])])
@pytest.mark.parametrize("wanted", [9, 13, U64_MAX])
def test_a_sequence_that_is_not_in_the_index_is_an_error(twin: SimpleNamespace, seqs: Any, wanted: int) -> None:
    with pytest.raises(LookupError, match=f"sequence {wanted} is not in the index"):
        twin.locate(array("Q", [10, wanted] if wanted > 10 else [wanted]), seqs, 10, 3)


def test_an_index_shorter_than_its_count_is_refused(twin: SimpleNamespace) -> None:
    with pytest.raises(IndexError):
        twin.locate(array("Q", [10]), array("I", [0]), 10, 2)


# How large they are


class Body:
    """Some messages as they lie in a block, and a table that counts them."""

    def __init__(self, twin: SimpleNamespace, parts: list[tuple[bytes, bytes, bytes]]) -> None:
        self.store, self.twin = MemStore(clock=FakeClock()), twin
        for subject, payload, headers in parts:
            self.store.append(subject.decode(), payload, headers)
        block = self.store.catalog.active
        assert block.index is not None
        self.data, self.index, self.seed = block.read(0, block.body_size), block.index, block.seed
        self.table = table_of(twin, *(subject for subject, _, _ in parts))

    def measure(self, positions: list[int], data: bytes | None = None, base: int = 0, place: int = 0) -> Any:
        """Where it stopped, the slots and the sizes."""
        places, wanted = array("I", positions), array("Q", [position + 1 for position in positions])
        slots, sizes = array("I", bytes(4 * len(places))), array("Q", bytes(8 * len(places)))
        columns = (self.index.offsets, self.index.count, len(self.data), self.seed, places, place, wanted)
        stopped = self.twin.measure_at(
            self.data if data is None else data, base, *columns, self.table, 30, 4, slots, sizes
        )
        return stopped, list(slots), list(sizes)


PARTS = [(b"a", b"one", b""), (b"b", b"", HEADERS), (b"a", b"three", b""), (b"c", b"four", b"")]


def test_messages_are_measured_where_they_lie(twin: SimpleNamespace) -> None:
    body = Body(twin, PARTS)
    assert body.measure([0, 1, 3]) == (3, [0, 1, 2], [34, 30 + 1 + 4 + len(HEADERS), 35])
    start = body.index.offsets[2]
    assert body.measure([2, 3], body.data[start:], start) == (2, [0, 2], [36, 35])


def test_measuring_stops_in_front_of_damage(twin: SimpleNamespace) -> None:
    body = Body(twin, PARTS)
    data = bytearray(body.data)
    data[body.index.offsets[2] + 8] ^= 1
    assert body.measure([0, 2, 3], bytes(data))[0] == 1
    assert body.measure([0, 2, 3], bytes(data), place=2)[0] == 3


def test_measuring_stops_where_the_data_ends_or_has_not_begun(twin: SimpleNamespace) -> None:
    body = Body(twin, PARTS)
    start = body.index.offsets[2]
    assert body.measure([0, 1, 2, 3], body.data[: start + 5])[0] == 2
    assert body.measure([1, 2], body.data[start:], start)[0] == 0
    assert body.measure([0], b"")[0] == 0


def test_measuring_stops_at_another_message_than_is_wanted(twin: SimpleNamespace) -> None:
    body = Body(twin, PARTS)
    body.index.offsets[1] = body.index.offsets[2]
    assert body.measure([0, 1])[0] == 1


def test_measuring_stops_at_a_subject_that_the_table_has_not(twin: SimpleNamespace) -> None:
    body = Body(twin, PARTS)
    body.table.remove(2, 4)
    assert body.measure([0, 3])[0] == 1


def test_positions_beyond_the_index_are_refused(twin: SimpleNamespace) -> None:
    body = Body(twin, PARTS)
    for positions, place in (([4], 0), ([0], 2), ([0], -1)):
        with pytest.raises(IndexError):
            body.measure(positions, place=place)


def test_one_message_is_measured(twin: SimpleNamespace) -> None:
    body = Body(twin, PARTS)
    start, end = body.index.offsets[1], body.index.offsets[2]
    assert twin.message_size(body.data, start, end, body.seed, 30, 4) == 35 + len(HEADERS)
    assert twin.message_size(bytearray(body.data), start, 10**6, body.seed, 16, 0) == 17 + len(HEADERS)
    for bad in (body.data[: end - 1], body.data[:start] + b"\xff" + body.data[start + 1 :], b""):
        assert twin.message_size(bad, start, end, body.seed, 30, 4) == -1
    with pytest.raises(IndexError):
        twin.message_size(body.data, 2, 1, body.seed, 30, 4)


def test_a_record_that_is_no_message_has_no_size(twin: SimpleNamespace) -> None:
    record = encode(Record(SKIP, b"", b"", b"\x01", 1, 0), 42)
    assert twin.message_size(record, 0, len(record), 42, 30, 4) == -1


# How they leave


def test_messages_leave_the_table_and_their_subjects_lose_them(twin: SimpleNamespace) -> None:
    table, subjects = table_of(twin, b"a", b"b", b"a", b"a"), {b"a": (1, 5)}
    slots, seqs, sizes = array("I", [0, 1, 0]), array("Q", [1, 2, 3]), array("Q", [10, 20, 30])
    assert twin.leave(table, slots, seqs, sizes, 0, 3, subjects, True) == 60
    assert subjects == {b"a": (3, 45), b"b": (1, 20)}
    assert (table.total, table.find(b"b"), table.first(0), table.flags(0)) == (1, -1, 4, 0)


@needs_kernels
@given(st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=30), st.booleans(), st.data())
def test_the_twins_agree_on_what_subjects_lose(names: list[bytes], are_oldest: bool, data: st.DataObject) -> None:
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(names))] * 2)))
    found = []
    for kind in ("py", "c"):
        twin = load(kind)
        table, subjects = table_of(twin, *names), dict[bytes, tuple[int, int]]()
        slots = array("I", [table.find(name) for name in names])
        seqs, sizes = array("Q", range(1, len(names) + 1)), array("Q", range(10, 10 + len(names)))
        total = twin.leave(table, slots, seqs, sizes, start, stop, subjects, are_oldest)
        found.append((total, list(subjects.items()), table.total))
    assert found[0] == found[1]


def test_some_messages_leave_without_a_record(twin: SimpleNamespace) -> None:
    table = table_of(twin, b"a", b"a", b"a")
    assert twin.leave(table, array("I", [0, 0]), array("Q", [1, 2]), array("Q", [10, 20]), 1, 2, None, True) == 20
    assert table.count(0) == 2


def test_a_slot_without_messages_has_none_to_leave(twin: SimpleNamespace) -> None:
    table = table_of(twin, b"a")
    with pytest.raises(IndexError, match="slot 0 is not in use"):
        twin.leave(table, array("I", [0, 0]), array("Q", [1, 2]), array("Q", [1, 1]), 0, 2, None, True)
    with pytest.raises(IndexError, match=r"messages 0\.\.2"):
        twin.leave(table, array("I", [0]), array("Q", [1]), array("Q", [1]), 0, 2, None, True)


def test_the_first_message_of_a_subject_leaves_a_bound_behind_it(twin: SimpleNamespace) -> None:
    table = table_of(twin, b"a", b"a", b"a", b"a", b"a")
    table.remove(0, 1)
    table.remove_first(0, 3)  # 2 was the first that is known: it must be gone too
    assert (table.count(0), table.first(0), table.flags(0)) == (3, 4, FIRST_STALE)
    table.remove_first(0, 4)
    table.remove_first(0, 4)
    assert (table.count(0), table.first(0), table.flags(0)) == (1, 5, 0)
    table.remove_first(0, 5)
    assert table.find(b"a") == -1
    with pytest.raises(IndexError):
        table.remove_first(0, 6)
    with pytest.raises(ValueError, match="seq 0"):
        table.remove_first(table.intern(b"b"), 0)
    with pytest.raises(ValueError, match="count 1"):
        table.remove_first(table.intern(b"b"), 7)


def test_losses_are_encoded(twin: SimpleNamespace) -> None:
    assert twin.encode_losses({b"a.b": (1, 5), b"c": (300, 70_000)}) == b"\x03a.b\x01\x05\x01c\xac\x02\xf0\xa2\x04"
    assert twin.encode_losses({}) == b""


def test_losses_are_stepped_over(twin: SimpleNamespace) -> None:
    losses = b"\x02" + twin.encode_losses({b"a.b": (1, 5), b"c": (300, 70_000)})
    assert twin.skip_losses(b"x" + losses + b"more", 1) == 1 + len(losses)
    for size in range(len(losses)):
        with pytest.raises(ValueError):
            twin.skip_losses(losses[:size], 0)


@needs_kernels
@given(st.binary(max_size=30), st.integers(-1, 31))
def test_twins_step_over_the_same_bytes(data: bytes, offset: int) -> None:
    ends = []
    for kind in ("py", "c"):
        try:
            ends.append(load(kind).skip_losses(data, offset))
        except ValueError as error:
            ends.append(str(error))
    assert ends[0] == ends[1]


# The twins


@needs_kernels
@given(
    st.lists(st.integers(0, 4), max_size=40),
    st.lists(st.integers(0, 6), min_size=5, max_size=5),
    st.sets(st.integers(1, 45)),
    st.lists(st.integers(1, 3), min_size=40, max_size=40),
    st.booleans(),
    st.integers(0, 12),
)
def test_twins_find_the_same(
    ids: list[int], numbers: list[int], gone: set[int], steps: list[int], is_gappy: bool, place: int
) -> None:
    distances = [sum(steps[:i]) for i in range(len(ids))]
    options = {
        "seqs": array("I", distances) if is_gappy else None,
        "starts": array("Q", sorted(gone)),
        "ends": array("Q", sorted(gone)),
        "place": min(place, len(ids)),
    }
    found = []
    for kind in ("py", "c"):
        need = need_of(*numbers)
        found.append((search(load(kind), ids, need, sum(numbers), **options), needs(need)))
    assert found[0] == found[1]
    assert not gone.intersection(found[0][0])


@needs_kernels
@given(st.data(), st.lists(st.integers(0, 3), max_size=4))
def test_twins_measure_any_bytes_alike(data: st.DataObject, positions: list[int]) -> None:
    found = []
    flips = data.draw(st.lists(st.tuples(st.integers(0, 150), st.integers(1, 255)), max_size=3))
    base = data.draw(st.integers(0, 60))
    for kind in ("py", "c"):
        body = Body(load(kind), PARTS)
        changed = bytearray(body.data)
        for place, bits in flips:
            changed[place % len(changed)] ^= bits
        window = bytes(changed[base:])
        stopped, slots, sizes = body.measure(positions, window, base)
        found.append((stopped, slots[:stopped], sizes[:stopped]))
    assert found[0] == found[1]

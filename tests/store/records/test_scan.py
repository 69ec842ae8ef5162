"""Walking the records of a block: every test on both twins, then the twins against each other."""

from __future__ import annotations

import importlib
import os
from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store.format import (
    BLOCK_SEQ_SPAN_MAX,
    ERASED,
    EXPIRES,
    FLOOR,
    MSG_ID,
    NEVER_NS,
    NOT_MESSAGE,
    SKIP,
    TOMBSTONE,
)
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.records._record_py import Record, encode
from jetlake.store.records._scan_py import Scan
from jetlake.store.records.varint import encode_varint

NO_KERNELS = bool(os.environ.get("JETLAKE_NO_KERNELS"))
needs_kernels = pytest.mark.skipif(NO_KERNELS, reason="JETLAKE_NO_KERNELS is set")
SEED, OTHER_SEED = 42, 43
SIZE_FIXED, SIZE_HEADERS = 30, 4
UNBOUNDED = 2**63 - 1


def load_twin(suffix: str) -> SimpleNamespace:
    module = importlib.import_module(f"jetlake.store.records._scan_{suffix}")
    table = importlib.import_module(f"jetlake.store.index._subject_table_{suffix}")
    return SimpleNamespace(
        scan=module.scan, uncount=module.uncount, copy_live=module.copy_live, SubjectTable=table.SubjectTable
    )


@pytest.fixture(scope="module", params=["py", "c"])
def twin(request: pytest.FixtureRequest) -> SimpleNamespace:
    if request.param == "c" and NO_KERNELS:
        pytest.skip("JETLAKE_NO_KERNELS is set")
    return load_twin(request.param)


def message(seq: int, subject: bytes = b"a", payload: bytes = b"x", headers: bytes = b"", **fields: int) -> bytes:
    fields = {"flags": 0, "time_ns": 1, "seed": SEED} | fields
    seed = fields.pop("seed")
    return encode(Record(subject=subject, headers=headers, payload=payload, seq=seq, **fields), seed)


def other(flags: int, seq: int, payload: bytes = b"") -> bytes:
    """A record that is not a message."""
    return encode(Record(flags, b"", b"", payload, seq, 0), SEED)


def skip(seq: int, count: int) -> bytes:
    return other(SKIP, seq, encode_varint(count))


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def entries(table: Any) -> dict[bytes, tuple[int, ...]]:
    """The table's subjects with their slots, counts and bounds."""
    found = {}
    for slot in range(table.slot_limit):
        subject = live_subject(table, slot)
        if subject is not None:
            found[subject] = (slot, table.count(slot), table.first(slot), table.last(slot), table.flags(slot))
    return found


def live_subject(table: Any, slot: int) -> bytes | None:
    try:
        return table.subject(slot) if table.count(slot) else None
    except IndexError:
        return None


def walk(twin: SimpleNamespace, data: bytes, start: int = 0, end: int | None = None, prev_seq: int = 0) -> Scan:
    """Scan into a new table."""
    return walk_with_table(twin, data, start, end, prev_seq)[0]


def walk_with_table(
    twin: SimpleNamespace, data: bytes, start: int = 0, end: int | None = None, prev_seq: int = 0
) -> tuple[Scan, Any]:
    table = twin.SubjectTable()
    end = len(data) if end is None else end
    return twin.scan(data, start, end, SEED, prev_seq, table, SIZE_FIXED, SIZE_HEADERS), table


def uncount(
    twin: SimpleNamespace, data: bytes, table: Any, count_max: int = UNBOUNDED, size_max: int = UNBOUNDED
) -> tuple[int, int]:
    return twin.uncount(data, 0, len(data), SEED, table, SIZE_FIXED, SIZE_HEADERS, count_max, size_max)


def seqs(twin: SimpleNamespace, data: bytes, prev_seq: int = 0) -> list[int]:
    return list(walk(twin, data, prev_seq=prev_seq).seqs)


@st.composite
def bodies(draw: st.DrawFn, odd: bool = True) -> bytes:
    """Records of every kind, in and out of order, of this block and of another, whole and damaged, and garbage.

    `odd` says whether there may be messages that no encoder makes: without a subject, or with sequence 0.
    """
    record = st.builds(
        Record,
        flags=st.sampled_from([0, 0, 0, EXPIRES, MSG_ID, TOMBSTONE, SKIP, ERASED, FLOOR, SKIP | ERASED, FLOOR | SKIP]),
        subject=st.sampled_from([b"a", b"b", b"a.b"] + [b""] * odd),
        headers=st.binary(max_size=3),
        payload=st.integers(0, 300).map(encode_varint) | st.binary(max_size=3),
        seq=st.integers(0 if odd else 1, 12) | st.sampled_from([2**32 - 1, 2**32, 2**32 + 1, 2**33, 2**63]),
        time_ns=st.integers(-5, 5),
        expires_ns=st.integers(-5, 5),
    )
    pieces = []
    for _ in range(draw(st.integers(0, 8))):
        piece = encode(draw(record), draw(st.sampled_from([SEED, SEED, SEED, SEED, OTHER_SEED])))
        if draw(st.integers(0, 4)) == 0:
            piece = flipped(piece, draw(st.integers(0, 8 * len(piece) - 1)))
        pieces += [piece, draw(st.just(b"") | st.binary(max_size=40))]
    return b"".join(pieces)


# What a scan finds


def test_messages_are_found_with_their_offsets_subjects_and_sequences(twin: SimpleNamespace) -> None:
    one, two, three = message(1, b"a"), message(2, b"b"), message(3, b"a")
    found, table = walk_with_table(twin, one + two + three)
    assert list(found.offsets) == [0, len(one), len(one + two)]
    assert [table.subject(slot) for slot in found.ids] == [b"a", b"b", b"a"]
    assert list(found.seqs) == [1, 2, 3]
    assert (found.others, found.expiring, found.damage) == ([], [], [])


def test_the_arrays_have_the_types_of_an_index(twin: SimpleNamespace) -> None:
    found = walk(twin, message(1) + message(3))
    assert (found.offsets.typecode, found.ids.typecode, found.seqs.typecode) == ("I", "I", "Q")


def test_sequences_that_follow_each_other_are_a_range(twin: SimpleNamespace) -> None:
    messages = b"".join(message(seq) for seq in range(5, 40))
    assert walk(twin, messages).seqs == range(5, 40)
    assert walk(twin, messages + message(41)).seqs == array("Q", [*range(5, 40), 41])
    assert walk(twin, b"").seqs == range(0)


def test_subjects_that_look_alike_are_counted_apart(twin: SimpleNamespace) -> None:
    """More of them than there are places to look at first, of all sizes, the last eight bytes the same."""
    subjects = [b"%d.x" % number for number in range(10_000)] + [b"%d.12345678" % number for number in range(300)]
    table = twin.SubjectTable()
    body = b"".join(message(seq, subject) for seq, subject in enumerate(subjects * 2, 1))
    found = twin.scan(body, 0, len(body), SEED, 0, table, 30, 4)
    assert [table.subject(slot) for slot in found.ids] == subjects * 2
    assert (table.total, len(table)) == (2 * len(subjects), len(subjects))
    assert {table.count(slot) for slot in found.ids} == {2}


def test_messages_are_counted_in_the_table(twin: SimpleNamespace) -> None:
    _, table = walk_with_table(twin, message(1, b"a") + message(2, b"b") + message(5, b"a"))
    assert entries(table) == {b"a": (0, 2, 1, 5, 0), b"b": (1, 1, 2, 2, 0)}


def test_a_table_that_is_in_use_goes_on_counting(twin: SimpleNamespace) -> None:
    table = twin.SubjectTable()
    table.add(table.intern(b"b"), 1)
    data = message(2, b"a") + message(3, b"b")
    found = twin.scan(data, 0, len(data), SEED, 1, table, 0, 0)
    assert list(found.ids) == [1, 0]
    assert entries(table) == {b"b": (0, 2, 1, 3, 0), b"a": (1, 1, 2, 2, 0)}


def test_the_size_is_what_jetstream_counts(twin: SimpleNamespace) -> None:
    assert walk(twin, message(1, b"ab", b"cde") + message(2, b"ab", b"", b"head")).size == (30 + 5) + (30 + 2 + 4 + 4)


def test_the_earliest_and_the_latest_time_are_found(twin: SimpleNamespace) -> None:
    found = walk(twin, message(1, time_ns=5) + message(2, time_ns=-3) + message(3, time_ns=4) + other(FLOOR, 1))
    assert (found.time_ns_min, found.time_ns_max) == (-3, 5)


def test_nothing_is_found_in_nothing(twin: SimpleNamespace) -> None:
    found = walk(twin, b"", prev_seq=9)
    assert [list(found.offsets), list(found.ids), list(found.seqs)] == [[], [], []]
    assert found[3:] == ([], [], [], 0, 9, 0, 0, 2**63 - 1, -(2**63))


def test_the_end_and_the_hash_are_those_of_the_last_sound_record(twin: SimpleNamespace) -> None:
    data = message(1) + other(FLOOR, 1)
    found = walk(twin, data + b"torn")
    assert (found.end, found.last_hash) == (len(data), int.from_bytes(data[-8:], "little"))


def test_expiring_messages_are_listed(twin: SimpleNamespace) -> None:
    data = message(1) + message(2, flags=EXPIRES, expires_ns=7) + message(3, flags=EXPIRES, expires_ns=NEVER_NS)
    assert walk(twin, data).expiring == [(2, 7), (3, NEVER_NS)]


@pytest.mark.parametrize("flags", [TOMBSTONE, FLOOR, ERASED, SKIP, TOMBSTONE | EXPIRES])
def test_a_record_that_is_not_a_message_is_listed_apart(twin: SimpleNamespace, flags: int) -> None:
    first = message(1)
    found, table = walk_with_table(twin, first + other(flags, 2, b"\1") + message(3))
    assert (list(found.seqs), found.others, found.expiring) == ([1, 3], [len(first)], [])
    assert table.total == 2


@pytest.mark.parametrize("seq", [1, 5, 2**63])
def test_tombstones_and_floors_may_speak_of_any_sequence(twin: SimpleNamespace, seq: int) -> None:
    found = walk(twin, message(4) + other(TOMBSTONE, seq) + other(FLOOR, seq) + message(5))
    assert (list(found.seqs), len(found.others), found.last_seq) == ([4, 5], 2, 5)


def test_an_erased_message_uses_its_sequence(twin: SimpleNamespace) -> None:
    found = walk(twin, message(4) + other(ERASED, 5, b"noise") + message(5))
    assert (list(found.seqs), found.last_seq, found.end) == ([4], 5, len(message(4) + other(ERASED, 5, b"noise")))


def test_skipped_sequences_raise_the_last_one(twin: SimpleNamespace) -> None:
    assert walk(twin, message(1) + skip(2, 100)).last_seq == 101


def test_a_message_inside_skipped_sequences_is_not_sound(twin: SimpleNamespace) -> None:
    data = message(1) + skip(2, 100)
    assert seqs(twin, data + message(101)) == [1]
    assert seqs(twin, data + message(102)) == [1, 102]


@pytest.mark.parametrize("payload", [b"", b"\x80", b"\xff" * 10, b"\xff" * 9 + b"\x02"])
def test_a_skip_without_a_number_is_not_sound(twin: SimpleNamespace, payload: bytes) -> None:
    found = walk(twin, other(SKIP, 1, payload))
    assert (found.others, found.last_seq, found.end) == ([], 0, 0)


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_buffer_can_be_scanned(twin: SimpleNamespace, kind: type) -> None:
    data = message(1) + message(2)
    assert walk(twin, kind(data)) == walk(twin, data)


# What is sound


def test_a_sequence_not_above_the_one_before_is_not_sound(twin: SimpleNamespace) -> None:
    head, bad, tail = message(5), message(5) + message(4), message(6)
    found = walk(twin, head + bad + tail)
    assert list(found.seqs) == [5, 6]
    assert found.damage == [(len(head), len(bad))]


def test_a_sequence_not_above_the_one_before_the_scan_is_not_sound(twin: SimpleNamespace) -> None:
    assert seqs(twin, message(5) + message(6), prev_seq=5) == [6]


@pytest.mark.parametrize(("distance", "count"), [(BLOCK_SEQ_SPAN_MAX, 1), (BLOCK_SEQ_SPAN_MAX + 1, 0)])
def test_a_sequence_too_far_ahead_is_not_sound(twin: SimpleNamespace, distance: int, count: int) -> None:
    assert len(seqs(twin, message(1000 + distance), prev_seq=1000)) == count


def test_a_message_without_a_subject_is_not_sound(twin: SimpleNamespace) -> None:
    assert seqs(twin, message(1, b"") + message(2)) == [2]


def test_a_record_of_another_block_is_not_sound(twin: SimpleNamespace) -> None:
    assert seqs(twin, message(1, seed=OTHER_SEED) + message(2)) == [2]


@pytest.mark.parametrize("forged_seq", [1, 2, 3, 100])
def test_a_record_forged_inside_a_payload_is_never_taken_for_one(twin: SimpleNamespace, forged_seq: int) -> None:
    outer = message(2, payload=message(forged_seq, b"forged", seed=OTHER_SEED))
    for bit in range(8 * len(outer)):
        found, table = walk_with_table(twin, message(1) + flipped(outer, bit) + message(3))
        assert list(found.seqs) == [1, 3]
        assert list(entries(table)) == [b"a"]


def test_only_the_seed_protects_against_a_record_inside_a_payload(twin: SimpleNamespace) -> None:
    outer = message(2, payload=message(2, b"forged", seed=SEED))
    assert b"forged" in entries(walk_with_table(twin, flipped(outer, 0))[1])


# Damage


@given(garbage=st.lists(st.binary(max_size=60), min_size=6, max_size=6))
def test_records_between_garbage_are_all_found_and_the_garbage_too(twin: SimpleNamespace, garbage: list[bytes]) -> None:
    data, damage, ends = b"", [], []
    for seq, piece in enumerate(garbage[:5], 1):
        damage += [(len(data), len(piece))] if piece else []
        data += piece + message(seq)
        ends.append(len(data))
    found = walk(twin, data + garbage[5])
    assert list(found.seqs) == [1, 2, 3, 4, 5]
    assert (found.damage, found.end) == (damage, ends[-1])


def test_a_flipped_bit_costs_the_record_that_it_is_in_and_no_other(twin: SimpleNamespace) -> None:
    one, two, three = message(1), message(2, payload=b"hello"), message(3)
    for bit in range(8 * len(two)):
        found = walk(twin, one + flipped(two, bit) + three)
        assert list(found.seqs) == [1, 3]
        assert found.damage == [(len(one), len(two))]


def test_any_truncation_leaves_a_prefix_of_whole_records(twin: SimpleNamespace) -> None:
    records = [message(1), other(TOMBSTONE, 1, b"x"), message(2, b"b.c", b"hello", b"head"), skip(3, 5), message(8)]
    ends = [len(b"".join(records[:count])) for count in range(len(records) + 1)]
    data = b"".join(records)
    for size in range(len(data) + 1):
        found = walk(twin, data[:size])
        whole = sum(1 for end in ends[1:] if end <= size)
        assert (found.end, len(found.seqs) + len(found.others), found.damage) == (ends[whole], whole, [])


def test_zeros_are_damage(twin: SimpleNamespace) -> None:
    one = message(1)
    found = walk(twin, one + bytes(100) + message(2))
    assert (list(found.seqs), found.damage) == ([1, 2], [(len(one), 100)])


def test_what_follows_the_last_sound_record_is_left_to_the_caller(twin: SimpleNamespace) -> None:
    found = walk(twin, message(1) + b"garbage" * 20)
    assert (found.damage, found.end) == ([], len(message(1)))


# Ranges


def test_only_the_range_is_scanned_and_offsets_count_from_the_buffer(twin: SimpleNamespace) -> None:
    one, two, three = message(1), message(2), message(3)
    found = walk(twin, one + two + three, len(one), len(one + two))
    assert (list(found.seqs), list(found.offsets), found.end) == ([2], [len(one)], len(one + two))


def test_a_record_that_reaches_beyond_the_range_is_not_sound(twin: SimpleNamespace) -> None:
    one, two = message(1), message(2)
    assert list(walk(twin, one + two, 0, len(one + two) - 1).seqs) == [1]


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (0, 5), (3, 2)])
def test_a_range_outside_the_buffer_is_refused(twin: SimpleNamespace, start: int, end: int) -> None:
    with pytest.raises(IndexError, match=rf"scan range {start}\.\.{end} of 4 bytes"):
        walk(twin, bytes(4), start, end)
    with pytest.raises(IndexError, match=rf"scan range {start}\.\.{end} of 4 bytes"):
        twin.uncount(bytes(4), start, end, SEED, twin.SubjectTable(), 0, 0, 1, 1)


# Taking messages out again

MESSAGES = [message(1, b"a"), message(2, b"b", b"12345"), message(3, b"a", b"", b"head"), message(4, b"c")]
SIZES = [32, 36, 39, 32]


def counted(twin: SimpleNamespace, data: bytes) -> Any:
    return walk_with_table(twin, data)[1]


@given(messages=st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.binary(max_size=5)), max_size=20))
def test_uncounting_undoes_a_scan(twin: SimpleNamespace, messages: list[tuple[bytes, bytes]]) -> None:
    data = b"".join(message(seq, subject, payload) for seq, (subject, payload) in enumerate(messages, 1))
    found, table = walk_with_table(twin, data)
    assert uncount(twin, data, table) == (len(messages), found.size)
    assert (table.total, len(table), entries(table)) == (0, 0, {})


@pytest.mark.parametrize("count", range(5))
def test_no_more_messages_are_uncounted_than_asked_for(twin: SimpleNamespace, count: int) -> None:
    data = b"".join(MESSAGES)
    table = counted(twin, data)
    assert uncount(twin, data, table, count_max=count) == (count, sum(SIZES[:count]))
    assert table.total == 4 - count


@pytest.mark.parametrize(("size_max", "count"), [(0, 0), (1, 1), (32, 1), (33, 2), (68, 2), (69, 3), (139, 4)])
def test_uncounting_ends_with_the_message_that_reaches_the_size(
    twin: SimpleNamespace, size_max: int, count: int
) -> None:
    data = b"".join(MESSAGES)
    table = counted(twin, data)
    assert uncount(twin, data, table, size_max=size_max) == (count, sum(SIZES[:count]))


def test_uncounting_leaves_the_bounds_right(twin: SimpleNamespace) -> None:
    data = b"".join(MESSAGES)
    table = counted(twin, data)
    uncount(twin, data, table, count_max=2)
    assert entries(table) == {b"a": (0, 1, 3, 3, 0), b"c": (2, 1, 4, 4, 0)}


def test_uncounting_stops_in_front_of_damage(twin: SimpleNamespace) -> None:
    table = counted(twin, b"".join(MESSAGES))
    for bit in range(0, 8 * len(MESSAGES[1]), 5):
        damaged = MESSAGES[0] + flipped(MESSAGES[1], bit) + MESSAGES[2]
        assert uncount(twin, damaged, table) == (1, SIZES[0])
        table.add(table.intern(b"a"), 1)


def test_uncounting_steps_over_records_that_are_not_messages(twin: SimpleNamespace) -> None:
    data = MESSAGES[0] + other(TOMBSTONE, 1, b"x") + skip(2, 1) + other(FLOOR, 1) + MESSAGES[2]
    assert uncount(twin, data, counted(twin, data)) == (2, SIZES[0] + SIZES[2])


def test_uncounting_stops_at_a_subject_that_is_not_counted(twin: SimpleNamespace) -> None:
    table = counted(twin, MESSAGES[0])
    assert uncount(twin, MESSAGES[0] + MESSAGES[1], table) == (1, SIZES[0])


# The twins


@needs_kernels
@given(data=bodies() | st.binary(max_size=200), cuts=st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_the_twins_find_the_same_in_any_bytes(data: bytes, cuts: tuple[int, int]) -> None:
    start = min(cuts[0], len(data))
    end = max(start, len(data) - cuts[1])
    (c, c_table), (py, py_table) = (walk_with_table(load_twin(suffix), data, start, end, 1) for suffix in ("c", "py"))
    assert c == py
    assert entries(c_table) == entries(py_table)


@needs_kernels
@given(data=bodies(odd=False), bounds=st.tuples(st.integers(0, 5), st.integers(0, 200)))
def test_the_twins_uncount_the_same_from_any_bytes(data: bytes, bounds: tuple[int, int]) -> None:
    results = []
    for twin in (load_twin("c"), load_twin("py")):
        found, table = walk_with_table(twin, data)
        start = found.offsets[0] if found.offsets else 0
        results.append((uncount(twin, data[start:], table, *bounds), entries(table)))
    assert results[0] == results[1]


@needs_kernels
@pytest.mark.parametrize(
    ("data", "prev_seq"),
    [
        pytest.param(message(2**64 - 1), 2**64 - 2, id="a sequence that no table counts"),
        pytest.param(skip(2**64 - 2, 2), 2**64 - 3, id="a skip up to the last sequence"),
        pytest.param(skip(5, 2**64 - 1), 0, id="a skip beyond the last sequence"),
        pytest.param(skip(5, 0), 0, id="a skip of nothing"),
    ],
)
def test_the_twins_agree_at_the_ends_of_the_sequences(data: bytes, prev_seq: int) -> None:
    c, py = (walk(load_twin(suffix), data, prev_seq=prev_seq) for suffix in ("c", "py"))
    assert c == py
    assert c.last_seq < 2**64


def test_no_sequence_comes_after_the_last_one(twin: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="no sequence 18446744073709551615"):
        walk(twin, message(0), prev_seq=2**64 - 1)


@needs_kernels
@pytest.mark.parametrize(
    "record",
    [pytest.param(message(1, b""), id="no subject"), pytest.param(message(0), id="sequence 0")],
)
def test_the_twins_agree_on_uncounting_what_no_scan_would_count(record: bytes) -> None:
    results = []
    for twin in (load_twin("c"), load_twin("py")):
        table = counted(twin, message(1) + message(2))
        results.append((uncount(twin, record, table), entries(table)))
    assert results[0] == results[1]


assert NOT_MESSAGE == TOMBSTONE | SKIP | ERASED | FLOOR, "a new kind of record needs tests here"


# Copying what is live


def copied(
    twin: SimpleNamespace, data: bytes, gone: list[tuple[int, int]], head: bytes = b""
) -> tuple[bytes, list[int]]:
    """What a rewrite would copy of a body."""
    found = twin.scan(data, 0, len(data), SEED, 0, twin.SubjectTable(), 0, 0)
    body, places = twin.copy_live(head, data, found.offsets, found.seqs, SEED, *SequenceSet(gone).arrays)
    return bytes(body), list(places)


def test_live_messages_are_copied_behind_the_head(twin: SimpleNamespace) -> None:
    records = [message(seq, payload=b"p" * seq) for seq in range(1, 7)]
    body, places = copied(twin, b"".join(records), [(1, 1), (4, 5), (9, 99)], b"head")
    assert body == b"head" + records[1] + records[2] + records[5]
    assert places == [4, 4 + len(records[1]), 4 + len(records[1] + records[2])]


def test_what_lies_between_messages_is_not_copied(twin: SimpleNamespace) -> None:
    first, second, third = message(1), message(2), message(5)
    data = first + other(TOMBSTONE, 1, b"xx") + second + b"\xff damage" + third + other(FLOOR, 2)
    assert copied(twin, data, []) == (first + second + third, [0, len(first), len(first + second)])


def test_nothing_is_copied_of_nothing(twin: SimpleNamespace) -> None:
    assert copied(twin, b"", [], b"head") == (b"head", [])
    assert copied(twin, message(1), [(0, 2**64 - 1)]) == (b"", [])


@pytest.mark.parametrize("offsets", [[1], [10**6], [0, 0], [30, 0]])
def test_an_offset_without_a_message_is_refused(twin: SimpleNamespace, offsets: list[int]) -> None:
    data = message(1) + message(2)
    with pytest.raises(ValueError, match="no message at offset"):
        twin.copy_live(b"", data, array("I", offsets), range(1, 1 + len(offsets)), SEED, array("Q"), array("Q"))


def test_columns_of_different_lengths_are_refused(twin: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="1 offsets and 2 sequences"):
        twin.copy_live(b"", message(1), array("I", [0]), range(1, 3), SEED, array("Q"), array("Q"))
    with pytest.raises(ValueError, match="1 starts and 0 ends"):
        twin.copy_live(b"", message(1), array("I", [0]), range(1, 2), SEED, array("Q", [1]), array("Q"))


@needs_kernels
@given(
    st.lists(st.tuples(st.integers(1, 4), st.binary(max_size=40), st.booleans()), max_size=20),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), max_size=6),
)
def test_the_twins_copy_the_same(parts: list[tuple[int, bytes, bool]], gone: list[tuple[int, int]]) -> None:
    seq, records = 0, list[bytes]()
    for step, payload, is_message in parts:
        seq += step
        records.append(message(seq, payload=payload) if is_message else other(TOMBSTONE, seq, payload))
    ranges = [(first, first + more) for first, more in gone]
    results = [copied(load_twin(kind), b"".join(records), ranges, b"h") for kind in ("py", "c")]
    assert results[0] == results[1]

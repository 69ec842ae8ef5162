"""Encoding a batch of messages: every test on both twins, then the twins against each other."""

from __future__ import annotations

import importlib
import os
from array import array
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.errors import BadRequest, MessageTooLarge
from jetlake.ops import OP_FIELDS, OP_MSG_ID, OP_SPECIAL, OP_WORDS, append_op
from jetlake.store.format import HEADERS_SIZE_MAX, MSG_ID, PAYLOAD_SIZE_MAX, SUBJECT_SIZE_MAX
from jetlake.store.records._record_py import Record, decode, encode

NO_KERNELS = bool(os.environ.get("JETLAKE_NO_KERNELS"))
needs_kernels = pytest.mark.skipif(NO_KERNELS, reason="JETLAKE_NO_KERNELS is set")
SEED, TIME_NS = 42, 1_700_000_000_000_000_000
SIZE_FIXED, SIZE_HEADERS = 30, 4
SLOT, FLAGS = OP_FIELDS.index("slot"), OP_FIELDS.index("flags")


def load_twin(suffix: str) -> SimpleNamespace:
    modules = [importlib.import_module(f"jetlake.store.records._{part}_{suffix}") for part in ("encode", "scan")]
    table = importlib.import_module(f"jetlake.store.index._subject_table_{suffix}").SubjectTable
    return SimpleNamespace(encode_batch=modules[0].encode_batch, scan=modules[1].scan, SubjectTable=table)


@pytest.fixture(scope="module", params=["py", "c"])
def twin(request: pytest.FixtureRequest) -> SimpleNamespace:
    if request.param == "c" and NO_KERNELS:
        pytest.skip("JETLAKE_NO_KERNELS is set")
    return load_twin(request.param)


@dataclass
class Batch:
    """Some messages as they arrived, and the place that they are encoded to."""

    data: bytearray = field(default_factory=bytearray)
    ops: array[int] = field(default_factory=lambda: array("I"))
    chunk: bytearray = field(default_factory=lambda: bytearray(4096))
    offsets: array[int] = field(default_factory=lambda: array("I", bytes(4 * 32)))
    ids: array[int] = field(default_factory=lambda: array("I", bytes(4 * 32)))
    over: list[int] = field(default_factory=list)

    def add(self, subject: bytes, payload: bytes = b"x", headers: bytes = b"", flags: int = 0) -> Batch:
        append_op(self.ops, self.data, subject, payload, headers, b"reply", flags)
        return self

    def set(self, number: int, **fields: int) -> Batch:
        """Change fields of an operation."""
        for name, value in fields.items():
            self.ops[number * OP_WORDS + OP_FIELDS.index(name)] = value
        return self

    def slots(self) -> list[int]:
        return list(self.ops[SLOT::OP_WORDS])

    def run(
        self,
        twin: SimpleNamespace,
        table: Any = None,
        *,
        first: int = 0,
        stop: int | None = None,
        used: int = 0,
        base: int = 0,
        count: int = 0,
        seq: int = 1,
        subject_max: int = 0,
    ) -> tuple[int, int, int]:
        return twin.encode_batch(
            self.data,
            self.ops,
            first,
            len(self.ops) // OP_WORDS if stop is None else stop,
            self.chunk,
            used,
            base,
            self.offsets,
            self.ids,
            count,
            twin.SubjectTable() if table is None else table,
            seq,
            TIME_NS,
            SEED,
            SIZE_FIXED,
            SIZE_HEADERS,
            subject_max,
            self.over,
        )


def batch(*subjects: bytes) -> Batch:
    """A batch with a message on each subject."""
    made = Batch()
    for subject in subjects:
        made.add(subject)
    return made


def record(seq: int, subject: bytes = b"a", payload: bytes = b"x", headers: bytes = b"", flags: int = 0) -> bytes:
    return encode(Record(flags, subject, headers, payload, seq, TIME_NS), SEED)


def entries(table: Any) -> dict[bytes, tuple[int, ...]]:
    """The table's live subjects with their slots, counts and bounds."""
    found = {}
    for slot in range(table.slot_limit):
        try:
            if table.count(slot):
                found[table.subject(slot)] = (slot, table.count(slot), table.first(slot), table.last(slot))
        except IndexError:
            continue
    return found


# What is written


def test_each_message_becomes_the_record_that_it_would_become_alone(twin: SimpleNamespace) -> None:
    some = Batch().add(b"a", b"one").add(b"b.c", b"", b"NATS/1.0\r\n\r\n").add(b"a", b"three")
    expected = record(5, b"a", b"one") + record(6, b"b.c", b"", b"NATS/1.0\r\n\r\n") + record(7, b"a", b"three")
    done, used, _ = some.run(twin, seq=5)
    assert (done, bytes(some.chunk[:used])) == (3, expected)


def test_what_is_in_the_chunk_and_behind_it_stays(twin: SimpleNamespace) -> None:
    some = batch(b"a")
    some.chunk = bytearray(b"\xee" * 100)
    _, used, _ = some.run(twin, used=10)
    assert some.chunk == b"\xee" * 10 + record(1) + b"\xee" * (100 - used)


def test_offsets_count_from_the_base_and_stand_from_count_on(twin: SimpleNamespace) -> None:
    some = batch(b"a", b"b")
    some.run(twin, base=1000, used=10, count=3)
    assert list(some.offsets[:6]) == [0, 0, 0, 1010, 1010 + len(record(1)), 0]


def test_ids_are_the_slots_of_the_subjects(twin: SimpleNamespace) -> None:
    some = batch(b"a", b"b", b"a")
    some.run(twin, count=1)
    assert list(some.ids[:5]) == [0, 0, 1, 0, 0]


def test_messages_are_counted_in_the_table(twin: SimpleNamespace) -> None:
    table = twin.SubjectTable()
    batch(b"a", b"b", b"a").run(twin, table, seq=5)
    assert entries(table) == {b"a": (0, 2, 5, 7), b"b": (1, 1, 6, 6)}


def test_the_size_is_what_jetstream_counts(twin: SimpleNamespace) -> None:
    some = Batch().add(b"ab", b"cde").add(b"ab", b"", b"head")
    assert some.run(twin)[2] == (30 + 5) + (30 + 2 + 4 + 4)


def test_a_message_id_is_flagged_in_its_record(twin: SimpleNamespace) -> None:
    some = Batch().add(b"a", flags=OP_MSG_ID).add(b"a")
    _, used, _ = some.run(twin)
    assert bytes(some.chunk[:used]) == record(1, flags=MSG_ID) + record(2)


@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_any_buffer_can_be_encoded_from(twin: SimpleNamespace, kind: type) -> None:
    some = batch(b"a", b"b")
    some.data = kind(bytes(some.data))
    _, used, _ = some.run(twin)
    assert bytes(some.chunk[:used]) == record(1, b"a") + record(2, b"b")


@given(
    messages=st.lists(
        st.tuples(st.binary(min_size=1, max_size=5), st.binary(max_size=20), st.binary(max_size=9)), max_size=20
    )
)
def test_a_scan_gives_back_what_was_encoded(twin: SimpleNamespace, messages: list[tuple[bytes, bytes, bytes]]) -> None:
    some, table = Batch(), twin.SubjectTable()
    for message in messages:
        some.add(*message)
    done, used, size = some.run(twin, table, seq=7)
    scanned = twin.SubjectTable()
    found = twin.scan(bytes(some.chunk[:used]), 0, used, SEED, 6, scanned, SIZE_FIXED, SIZE_HEADERS)
    assert (done, list(found.seqs), found.size) == (len(messages), list(range(7, 7 + done)), size)
    assert (found.offsets, found.ids) == (some.offsets[:done], some.ids[:done])
    assert entries(scanned) == entries(table)
    decoded = [decode(some.chunk, offset, used, SEED)[0] for offset in found.offsets]
    assert [(entry.subject, entry.payload, entry.headers) for entry in decoded] == messages


# Where it stops


@pytest.mark.parametrize("missing", [1, len(record(3)) - 1, len(record(3))])
def test_it_stops_at_the_end_of_the_chunk(twin: SimpleNamespace, missing: int) -> None:
    some, table = batch(b"a", b"a", b"a"), twin.SubjectTable()
    some.chunk = bytearray(3 * len(record(1)) - missing)
    done, used, _ = some.run(twin, table)
    assert (done, used, table.total) == (2, 2 * len(record(1)), 2)
    assert bytes(some.chunk) == (record(1) + record(2)).ljust(len(some.chunk), b"\0")


def test_a_chunk_may_be_filled_to_its_last_byte(twin: SimpleNamespace) -> None:
    some = batch(b"a", b"a")
    some.chunk = bytearray(len(record(1) + record(2)))
    assert some.run(twin)[:2] == (2, len(some.chunk))


def test_a_message_for_which_the_chunk_has_no_room_leaves_no_trace(twin: SimpleNamespace) -> None:
    some, table = batch(b"a"), twin.SubjectTable()
    some.chunk = bytearray(len(record(1)) - 1)
    assert some.run(twin, table) == (0, 0, 0)
    assert (table.slot_limit, some.slots(), any(some.chunk)) == (0, [0], False)


def test_it_stops_at_the_end_of_the_index(twin: SimpleNamespace) -> None:
    some, table = batch(b"a", b"a", b"a"), twin.SubjectTable()
    some.offsets, some.ids = array("I", bytes(16)), array("I", bytes(16))
    assert some.run(twin, table, count=2)[0] == 2
    assert table.total == 2
    assert some.run(twin, table, first=2, count=4) == (2, 0, 0)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_it_stops_in_front_of_a_special_operation(twin: SimpleNamespace, number: int) -> None:
    some = batch(b"a", b"b", b"c").set(number, flags=OP_SPECIAL | OP_MSG_ID)
    assert some.run(twin)[0] == number


def test_a_special_operation_is_not_looked_at(twin: SimpleNamespace) -> None:
    assert batch(b"a").set(0, flags=OP_SPECIAL, payload_start=2**32 - 1).run(twin) == (0, 0, 0)


def test_only_the_operations_asked_for_are_encoded(twin: SimpleNamespace) -> None:
    some = batch(b"a", b"b", b"c", b"d")
    done, used, _ = some.run(twin, first=1, stop=3)
    assert (done, bytes(some.chunk[:used])) == (3, record(1, b"b") + record(2, b"c"))


def test_no_operations_are_no_work(twin: SimpleNamespace) -> None:
    assert Batch().run(twin, used=7) == (0, 7, 0)


# Bad operations

BAD = {
    "subject beyond the buffer": ({"subject_start": 50}, IndexError),
    "subject reaches beyond the buffer": ({"subject_size": 50}, IndexError),
    "headers beyond the buffer": ({"headers_start": 2**32 - 1}, IndexError),
    "headers reach beyond the buffer": ({"headers_size": 2**32 - 1}, IndexError),
    "payload beyond the buffer": ({"payload_start": 50, "payload_size": 0}, IndexError),
    "payload reaches beyond the buffer": ({"payload_size": 8}, IndexError),
    "start and size add up to a place inside": ({"payload_start": 2**32 - 1, "payload_size": 5}, IndexError),
    "empty subject": ({"subject_size": 0}, BadRequest),
}
every_bad = pytest.mark.parametrize("kind", BAD)


def bad(kind: str, *before: bytes) -> Batch:
    """A batch whose last operation is bad."""
    return batch(*before, b"a").set(len(before), **BAD[kind][0])


@every_bad
def test_a_bad_operation_raises_when_it_is_the_first(twin: SimpleNamespace, kind: str) -> None:
    some, table = bad(kind), twin.SubjectTable()
    with pytest.raises(BAD[kind][1]):
        some.run(twin, table)
    assert (table.slot_limit, some.slots(), any(some.chunk)) == (0, [0], False)


@every_bad
def test_a_bad_operation_stops_those_before_it_when_it_is_not_the_first(twin: SimpleNamespace, kind: str) -> None:
    some, table = bad(kind, b"a", b"b"), twin.SubjectTable()
    done, used, _ = some.run(twin, table)
    assert (done, bytes(some.chunk[:used])) == (2, record(1, b"a") + record(2, b"b"))
    with pytest.raises(BAD[kind][1]):
        some.run(twin, table, first=2, used=used, count=2, seq=3)


@pytest.mark.parametrize(
    ("part", "size_max"),
    [("subject", SUBJECT_SIZE_MAX), ("headers", HEADERS_SIZE_MAX), ("payload", PAYLOAD_SIZE_MAX)],
)
def test_a_part_that_is_too_large_is_a_bad_operation(twin: SimpleNamespace, part: str, size_max: int) -> None:
    some = batch(b"a", b"a").set(1, **{f"{part}_start": 0, f"{part}_size": size_max + 1})
    some.data = bytearray(size_max + 1)
    assert some.run(twin)[0] == 1
    with pytest.raises(MessageTooLarge, match=f"{part} of {size_max + 1} bytes exceeds {size_max}"):
        some.run(twin, first=1)


@pytest.mark.parametrize(
    "place", [{"first": -1}, {"first": 2, "stop": 1}, {"stop": 3}, {"used": 4097}, {"count": 33}, {"count": -1}]
)
def test_a_place_that_is_not_there_is_refused(twin: SimpleNamespace, place: dict[str, int]) -> None:
    with pytest.raises(IndexError):
        batch(b"a", b"a").run(twin, **place)


def test_fewer_ids_than_offsets_are_refused(twin: SimpleNamespace) -> None:
    some = batch(b"a")
    some.ids = array("I", bytes(4))
    with pytest.raises(IndexError):
        some.run(twin)


# Hints


def test_the_slot_of_each_subject_is_left_as_a_hint(twin: SimpleNamespace) -> None:
    some = batch(b"a", b"b", b"a", b"c")
    some.run(twin, stop=3)
    assert some.slots() == [1, 2, 1, 0]


def test_a_hint_that_is_right_stays(twin: SimpleNamespace) -> None:
    some, table = batch(b"a", b"b"), twin.SubjectTable()
    some.run(twin, table)
    some.run(twin, table, seq=3)
    assert (some.slots(), entries(table)) == ([1, 2], {b"a": (0, 2, 1, 3), b"b": (1, 2, 2, 4)})


def test_a_hint_whose_slot_was_freed_and_reused_is_not_trusted(twin: SimpleNamespace) -> None:
    some, table = batch(b"a"), twin.SubjectTable()
    some.run(twin, table)
    table.remove(0, 1)
    table.add(table.intern(b"b"), 2)
    some.run(twin, table, seq=3)
    assert entries(table) == {b"b": (0, 1, 2, 2), b"a": (1, 1, 3, 3)}
    assert (some.slots(), some.ids[0]) == ([2], 1)


def test_a_hint_whose_slot_was_freed_is_not_trusted(twin: SimpleNamespace) -> None:
    some, table = batch(b"b", b"a"), twin.SubjectTable()
    some.run(twin, table)
    table.remove(1, 2)
    table.remove(0, 1)
    some.run(twin, table, seq=3)
    assert entries(table) == {b"b": (0, 1, 3, 3), b"a": (1, 1, 4, 4)}


@pytest.mark.parametrize("hint", [1, 2, 3, 4, 100, 2**31, 2**32 - 1])
def test_a_hint_that_is_wrong_in_any_way_is_not_trusted(twin: SimpleNamespace, hint: int) -> None:
    table = twin.SubjectTable()
    for seq, subject in enumerate([b"b", b"aa", b"a.b"], 1):
        table.add(table.intern(subject), seq)
    some = batch(b"a").set(0, slot=hint)
    some.run(twin, table, seq=9)
    assert (some.ids[0], some.slots(), entries(table)[b"a"]) == (3, [4], (3, 1, 9, 9))


# Subjects that come to hold too many


def test_a_subject_over_its_limit_is_reported_once(twin: SimpleNamespace) -> None:
    some = batch(b"a", b"b", b"a", b"a", b"b", b"a", b"c", b"b")
    some.run(twin, subject_max=2)
    assert some.over == [0, 1]


def test_a_subject_at_its_limit_is_not_over_it(twin: SimpleNamespace) -> None:
    some = batch(b"a", b"a")
    some.run(twin, subject_max=2)
    assert some.over == []


def test_a_subject_that_was_over_its_limit_before_is_not_reported_again(twin: SimpleNamespace) -> None:
    some, table = batch(b"a", b"a", b"a"), twin.SubjectTable()
    some.run(twin, table, stop=2, subject_max=1)
    some.run(twin, table, first=2, seq=3, subject_max=1)
    assert some.over == [0]


@pytest.mark.parametrize("subject_max", [0, -1])
def test_without_a_limit_no_subject_is_over_it(twin: SimpleNamespace, subject_max: int) -> None:
    some = batch(b"a", b"a", b"a")
    some.run(twin, subject_max=subject_max)
    assert some.over == []


# The twins

NUMBERS = st.integers(0, 8) | st.sampled_from([2**31, 2**32 - 1])


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Messages, some of them special, hinted or bad, and little room for them."""
    made = Batch(chunk=bytearray(draw(st.integers(1, 250))))
    made.offsets, made.ids = (array("I", bytes(4 * 6)) for _ in range(2))
    for number in range(draw(st.integers(0, 8))):
        subject = draw(st.sampled_from([b"a", b"b", b"a.b"]))
        flags = draw(st.sampled_from([0, 0, 0, OP_MSG_ID, OP_SPECIAL]))
        made.add(subject, draw(st.binary(max_size=30)), draw(st.binary(max_size=5)), flags)
        if draw(st.integers(0, 5)) == 0:
            made.set(number, **{draw(st.sampled_from(OP_FIELDS)): draw(NUMBERS)})
    return made


def everything(twin: SimpleNamespace, some: Batch, **place: int) -> tuple[Any, ...]:
    """All that a call does to its arguments, and its result or what it raises."""
    table = twin.SubjectTable()
    for seq, subject in enumerate([b"b", b"c"], 1):
        table.add(table.intern(subject), seq)
    copy = Batch(some.data[:], some.ops[:], some.chunk[:], some.offsets[:], some.ids[:])
    try:
        result: Any = copy.run(twin, table, seq=3, **place)
    except (IndexError, BadRequest) as error:
        result = (type(error), str(error))
    return result, copy, entries(table)


@needs_kernels
@given(some=batches(), used=st.integers(0, 100), count=st.integers(0, 6), subject_max=st.integers(-1, 2))
def test_the_twins_do_the_same_with_any_batch(some: Batch, used: int, count: int, subject_max: int) -> None:
    place = {"used": min(used, len(some.chunk) - 1), "count": count, "subject_max": subject_max}
    assert everything(load_twin("c"), some, **place) == everything(load_twin("py"), some, **place)


@needs_kernels
def test_the_twins_agree_on_a_bad_operation_where_the_chunk_is_full() -> None:
    some = bad("empty subject")
    place = {"used": len(some.chunk)}
    assert everything(load_twin("c"), some, **place) == everything(load_twin("py"), some, **place)


@needs_kernels
@pytest.mark.parametrize("seq", [0, 2**64 - 1])
def test_the_twins_agree_on_sequences_that_no_table_counts(seq: int) -> None:
    results = []
    for twin in (load_twin("c"), load_twin("py")):
        try:
            results.append(batch(b"a").run(twin, seq=seq))
        except ValueError as error:
            results.append(str(error))
    assert results[0] == results[1]

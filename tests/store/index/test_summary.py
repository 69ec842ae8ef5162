"""Subject summaries of sidecars: every test on both twins, then the twins against each other."""

from __future__ import annotations

import importlib
import os
import tracemalloc
from array import array
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store.format import NO_ID, hash64
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.summary import may_hold
from jetlake.store.records.varint import encode_varint

NO_KERNELS = bool(os.environ.get("JETLAKE_NO_KERNELS"))
needs_kernels = pytest.mark.skipif(NO_KERNELS, reason="JETLAKE_NO_KERNELS is set")
NOTHING = SequenceSet().arrays  # is gone
SUBJECTS = [b"a", b"b", b"a.b", b"\xff\x00", b"x" * 200]


def load_twin(suffix: str) -> SimpleNamespace:
    module = importlib.import_module(f"jetlake.store.index._summary_{suffix}")
    table = importlib.import_module(f"jetlake.store.index._subject_table_{suffix}").SubjectTable
    return SimpleNamespace(
        localize=module.localize,
        encode_subjects=module.encode_subjects,
        merge_subjects=module.merge_subjects,
        subject_bits=module.subject_bits,
        SubjectTable=table,
    )


@pytest.fixture(scope="module", params=["py", "c"])
def twin(request: pytest.FixtureRequest) -> SimpleNamespace:
    if request.param == "c" and NO_KERNELS:
        pytest.skip("JETLAKE_NO_KERNELS is set")
    return load_twin(request.param)


def filled(twin: SimpleNamespace, *messages: tuple[bytes, int]) -> Any:
    """A table with these messages."""
    table = twin.SubjectTable()
    for subject, seq in messages:
        table.add(table.intern(subject), seq)
    return table


def entries(table: Any) -> list[tuple[bytes, int, int, int, int]]:
    """Subject, count, bounds and flags of each slot, in order."""
    slots = range(table.slot_limit)
    return [
        (table.subject(slot), table.count(slot), table.first(slot), table.last(slot), table.flags(slot))
        for slot in slots
    ]


def merged(twin: SimpleNamespace, data: bytes, base_seq: int = 1) -> Any:
    """A new table with an encoded summary in it."""
    table = twin.SubjectTable()
    assert twin.merge_subjects(data, 0, len(data), base_seq, table) == len(data)
    return table


def summary(*numbers: int | bytes) -> bytes:
    """Numbers as varints, and bytes as they are."""
    return b"".join(part if isinstance(part, bytes) else encode_varint(part) for part in numbers)


# A table of one block's own


def test_subjects_get_slots_in_order_of_appearance(twin: SimpleNamespace) -> None:
    table = filled(twin, (b"x", 1), (b"y", 2), (b"z", 3))
    local, ids = twin.localize(table, array("I", [2, 0, 2]), None, 10, *NOTHING)
    assert entries(local) == [(b"z", 2, 10, 12, 0), (b"x", 1, 11, 11, 0)]
    assert ids == array("I", [0, 1, 0])


def test_sequences_count_from_the_base_where_they_are_given(twin: SimpleNamespace) -> None:
    table = filled(twin, (b"x", 1), (b"y", 2))
    local, _ = twin.localize(table, array("I", [0, 1, 0]), array("I", [0, 5, 9]), 100, *NOTHING)
    assert entries(local) == [(b"x", 2, 100, 109, 0), (b"y", 1, 105, 105, 0)]


@pytest.mark.parametrize("seqs", [None, array("I", [0, 1, 2, 3])])
def test_a_message_that_is_gone_stays_nameless_and_is_not_counted(
    twin: SimpleNamespace, seqs: array[int] | None
) -> None:
    table = filled(twin, (b"x", 1), (b"y", 2))
    gone = SequenceSet([(3, 10), (12, 12), (14, 99)])
    local, ids = twin.localize(table, array("I", [1, 0, NO_ID, 0]), seqs, 10, *gone.arrays)
    assert entries(local) == [(b"x", 2, 11, 13, 0)]
    assert ids == array("I", [NO_ID, 0, NO_ID, 0])


def test_no_messages_are_no_subjects(twin: SimpleNamespace) -> None:
    local, ids = twin.localize(twin.SubjectTable(), array("I"), None, 1, *NOTHING)
    assert (entries(local), ids) == ([], array("I"))


def test_the_table_of_the_stream_stays_as_it_is(twin: SimpleNamespace) -> None:
    table = filled(twin, (b"x", 1), (b"y", 2))
    before = entries(table)
    twin.localize(table, array("I", [1, 1]), None, 50, *NOTHING)
    assert entries(table) == before


@pytest.mark.parametrize("slot", [1, 2, NO_ID - 1])
def test_a_slot_that_is_not_there_is_refused(twin: SimpleNamespace, slot: int) -> None:
    table = filled(twin, (b"x", 1), (b"y", 2))
    table.remove(1, 2)
    with pytest.raises(IndexError):
        twin.localize(table, array("I", [0, slot]), None, 1, *NOTHING)


def test_fewer_sequences_than_ids_are_refused(twin: SimpleNamespace) -> None:
    with pytest.raises(IndexError):
        twin.localize(filled(twin, (b"x", 1)), array("I", [0, 0]), array("I", [0]), 1, *NOTHING)


# Its bytes


def test_the_bytes_are_those_of_version_1(twin: SimpleNamespace) -> None:
    table = filled(twin, (b"ab", 5), (b"c", 6), (b"ab", 205))
    assert twin.encode_subjects(table, 5).hex(" ") == "02 02 61 62 02 00 c8 01 01 63 01 01 00"


def test_an_empty_table_is_one_byte(twin: SimpleNamespace) -> None:
    assert twin.encode_subjects(twin.SubjectTable(), 1) == b"\0"


def test_a_table_with_a_free_slot_cannot_be_encoded(twin: SimpleNamespace) -> None:
    table = filled(twin, (b"a", 1), (b"b", 2))
    table.remove(0, 1)
    with pytest.raises(IndexError):
        twin.encode_subjects(table, 1)


@given(messages=st.lists(st.tuples(st.sampled_from(SUBJECTS), st.integers(5, 2**40)), max_size=20))
def test_what_is_encoded_is_merged_into_an_empty_table(
    twin: SimpleNamespace, messages: list[tuple[bytes, int]]
) -> None:
    table = filled(twin, *messages)
    assert entries(merged(twin, twin.encode_subjects(table, 5), 5)) == entries(table)


def test_the_largest_numbers_are_merged(twin: SimpleNamespace) -> None:
    table = twin.SubjectTable()
    table.add_many(table.intern(b"x" * 65535), 2**64 - 2, 1, 2**64 - 2, 0)
    assert entries(merged(twin, twin.encode_subjects(table, 1))) == entries(table)


def test_merging_adds_to_what_is_there(twin: SimpleNamespace) -> None:
    data = twin.encode_subjects(filled(twin, (b"a", 20), (b"b", 21), (b"a", 22)), 20)
    table = filled(twin, (b"b", 3))
    assert twin.merge_subjects(data, 0, len(data), 20, table) == len(data)
    assert entries(table) == [(b"b", 2, 3, 21, 0), (b"a", 2, 20, 22, 0)]


def test_merging_ends_with_the_last_subject(twin: SimpleNamespace) -> None:
    data = twin.encode_subjects(filled(twin, (b"a", 1)), 1)
    table = twin.SubjectTable()
    assert twin.merge_subjects(b".." + data + b"more", 2, len(data) + 6, 1, table) == 2 + len(data)
    assert entries(table) == [(b"a", 1, 1, 1, 0)]


@given(ids=st.lists(st.sampled_from([0, 1, 2, 3, NO_ID]), max_size=30), base_seq=st.integers(1, 2**62))
def test_localized_subjects_come_back_from_their_bytes(twin: SimpleNamespace, ids: list[int], base_seq: int) -> None:
    table = filled(twin, *((subject, seq) for seq, subject in enumerate(SUBJECTS, 1)))
    local, local_ids = twin.localize(table, array("I", ids), None, base_seq, *NOTHING)
    copy = merged(twin, twin.encode_subjects(local, base_seq), base_seq)
    subjects = [None if slot == NO_ID else copy.subject(slot) for slot in local_ids]
    assert subjects == [None if slot == NO_ID else table.subject(slot) for slot in ids]
    assert (entries(copy), copy.total) == (entries(local), len(ids) - ids.count(NO_ID))


# Damaged bytes


def test_a_summary_cut_at_any_byte_is_refused(twin: SimpleNamespace) -> None:
    data = twin.encode_subjects(filled(twin, (b"ab", 5), (b"c", 600), (b"ab", 205)), 5)
    for end in range(len(data)):
        with pytest.raises(ValueError):
            twin.merge_subjects(data[:end], 0, end, 5, twin.SubjectTable())
        with pytest.raises(ValueError):
            twin.merge_subjects(data, 0, end, 5, twin.SubjectTable())


@pytest.mark.parametrize(
    "data",
    [
        summary(1, 0, 1, 0, 0),
        summary(1, 1, b"a", 0, 0, 0),
        summary(1, 2**64 - 1, b"a", 1, 0, 0),
        summary(1, 65536, b"x" * 65536, 1, 0, 0),
        summary(2**64 - 1, 1, b"a", 1, 0, 0),
        summary(1, 1, b"a", 2**64 - 1, 0, 0),
        b"\xff" * 10 + b"\x01",
        b"\xff" * 9 + b"\x02",
    ],
    ids=[
        "no subject",
        "no messages",
        "longer than all there is",
        "subject too long",
        "too few",
        "more messages than sequences",
        "varint too long",
        "varint above 64 bits",
    ],
)
def test_a_summary_that_cannot_be_true_is_refused(twin: SimpleNamespace, data: bytes) -> None:
    with pytest.raises(ValueError):
        twin.merge_subjects(data, 0, len(data), 1, twin.SubjectTable())


@pytest.mark.parametrize(("first", "span"), [(2**64 - 1, 0), (0, 2**64 - 1), (2**64 - 2, 5), (2**63, 2**63)])
@pytest.mark.parametrize("suffix", ["py", pytest.param("c", marks=needs_kernels)])
def test_a_summary_with_sequences_beyond_64_bits_is_refused(suffix: str, first: int, span: int) -> None:
    twin, data = load_twin(suffix), summary(1, 1, b"a", 1, first, span)
    with pytest.raises(ValueError):
        twin.merge_subjects(data, 0, len(data), 10, twin.SubjectTable())


@given(data=st.binary(max_size=80))
def test_arbitrary_bytes_are_merged_or_refused(twin: SimpleNamespace, data: bytes) -> None:
    with suppress(ValueError):
        assert 0 < twin.merge_subjects(data, 0, len(data), 1, twin.SubjectTable()) <= len(data)


@given(
    messages=st.lists(st.tuples(st.sampled_from(SUBJECTS), st.integers(1, 300)), min_size=1, max_size=6),
    bits=st.lists(st.integers(0, 2**16), min_size=1, max_size=3),
)
def test_damaged_summaries_are_merged_or_refused(
    twin: SimpleNamespace, messages: list[tuple[bytes, int]], bits: list[int]
) -> None:
    data = bytearray(twin.encode_subjects(filled(twin, *messages), 1))
    for bit in bits:
        data[bit // 8 % len(data)] ^= 1 << bit % 8
    with suppress(ValueError):
        assert 0 < twin.merge_subjects(bytes(data), 0, len(data), 1, twin.SubjectTable()) <= len(data)


@pytest.mark.parametrize("data", [summary(2**63), summary(1, 2**40), summary(1, 2**62, b"a")])
def test_a_claim_of_many_or_much_allocates_nothing(twin: SimpleNamespace, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError):
            twin.merge_subjects(data, 0, len(data), 1, twin.SubjectTable())
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


# The twins


@needs_kernels
@given(
    ids=st.lists(st.sampled_from([0, 1, 2, 3, 4, NO_ID]), max_size=20),
    gaps=st.lists(st.integers(1, 2**20), min_size=20, max_size=20) | st.none(),
    base_seq=st.integers(1, 2**62),
)
def test_the_twins_localize_and_encode_alike(ids: list[int], gaps: list[int] | None, base_seq: int) -> None:
    results = []
    for twin in (load_twin("c"), load_twin("py")):
        table = filled(twin, *((subject, seq) for seq, subject in enumerate(SUBJECTS, 1)))
        seqs = None if gaps is None else array("I", [sum(gaps[:n]) for n in range(len(ids))])
        local, local_ids = twin.localize(table, array("I", ids), seqs, base_seq, *NOTHING)
        results.append((entries(local), local_ids, twin.encode_subjects(local, base_seq)))
    assert results[0] == results[1]


@needs_kernels
@given(data=st.binary(max_size=60))
def test_the_twins_merge_the_same_or_both_refuse(data: bytes) -> None:
    results: list[Any] = []
    for twin in (load_twin("c"), load_twin("py")):
        table = twin.SubjectTable()
        try:
            results.append((twin.merge_subjects(data, 0, len(data), 1, table), entries(table)))
        except ValueError:
            results.append(None)
    assert results[0] == results[1]


@needs_kernels
@pytest.mark.parametrize(("offset", "end"), [(-1, 1), (2, 1), (0, 3)])
def test_the_twins_refuse_a_range_outside_the_buffer_alike(offset: int, end: int) -> None:
    refusals = []
    for twin in (load_twin("c"), load_twin("py")):
        with pytest.raises((IndexError, ValueError)) as caught:
            twin.merge_subjects(b"\0\0", offset, end, 1, twin.SubjectTable())
        refusals.append(caught.type)
    assert refusals[0] is refusals[1]


@pytest.mark.parametrize("count", [0, 1, 9, 3000, 20_000])
def test_the_bits_hold_every_subject_and_few_others(twin: SimpleNamespace, count: int) -> None:
    data = twin.encode_subjects(filled(twin, *[(b"s.%d" % number, number + 1) for number in range(count)]), 0)
    bits = twin.subject_bits(data, 0, len(data))
    assert 8 <= len(bits) <= 8192
    assert all(may_hold(bits, [hash64(b"s.%d" % number, 0)]) for number in range(count))
    others = sum(may_hold(bits, [hash64(b"t.%d" % number, 0)]) for number in range(1000))
    assert others < 100 or count > 8192
    assert not may_hold(bits, [])


@pytest.mark.parametrize("end", range(1, 8))
def test_bits_of_a_cut_off_summary_are_refused(twin: SimpleNamespace, end: int) -> None:
    data = twin.encode_subjects(filled(twin, (b"a", 1), (b"b", 2)), 0)
    with pytest.raises(ValueError, match="damaged"):
        twin.subject_bits(data, 0, end)
    with pytest.raises(IndexError):
        twin.subject_bits(data, 0, len(data) + 1)


@needs_kernels
@given(st.lists(st.binary(min_size=1, max_size=40), unique=True))
def test_the_twins_make_the_same_bits(subjects: list[bytes]) -> None:
    twins = [load_twin(suffix) for suffix in ("py", "c")]
    messages = [(subject, number + 1) for number, subject in enumerate(subjects)]
    data = twins[0].encode_subjects(filled(twins[0], *messages), 0)
    assert twins[0].subject_bits(data, 0, len(data)) == twins[1].subject_bits(data, 0, len(data))

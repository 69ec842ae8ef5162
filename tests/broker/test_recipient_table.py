"""Recipients of a batch of publishes, in both twins."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.broker import recipient_table
from jetlake.ops import OP_WORDS, append_op
from tests.twins import load_twin, load_twins, needs_kernels

TWINS = "jetlake.broker._recipient_table"

UNKNOWN, NOBODY = recipient_table.UNKNOWN, recipient_table.NOBODY
SUBJECTS = st.lists(st.sampled_from([b"a", b"b", b"*", b">", b"", b"$JS", b"ACK", b"x"]), min_size=1, max_size=4)


def batch(*subjects: bytes) -> tuple[bytearray, array[int]]:
    data, ops = bytearray(), array("I")
    for subject in subjects:
        append_op(ops, data, subject, b"payload")
    return data, ops


@pytest.fixture(params=["py", pytest.param("c", marks=needs_kernels)])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    return load_twin(TWINS, request.param)


@needs_kernels
def test_the_compiled_twin_is_loaded() -> None:
    assert recipient_table.COMPILED and recipient_table.RecipientTable is load_twin(TWINS, "c").RecipientTable


def test_publishes_in_a_row_with_one_route_are_one_run(twin: ModuleType) -> None:
    table = twin.RecipientTable()
    table.clear([([b"orders.>"], 2), ([b"events.*"], 3)], [])
    data, ops = batch(b"orders.1", b"orders.a.b", b"events.1", b"elsewhere")
    assert table.run(data, ops, 0, 4) == (2, 2)
    assert table.run(data, ops, 2, 4) == (3, 3)
    assert table.run(data, ops, 3, 4) == (4, NOBODY)


def test_what_a_subscription_may_want_is_unknown_until_it_is_put(twin: ModuleType) -> None:
    table = twin.RecipientTable()
    table.clear([([b"orders.>"], 2)], [b"orders.eu.*"])
    data, ops = batch(b"orders.us.1", b"orders.eu.1")
    assert table.run(data, ops, 0, 2) == (1, 2)
    assert table.run(data, ops, 1, 2) == (1, UNKNOWN)
    table.put(b"orders.eu.1", 7)
    assert table.run(data, ops, 1, 2) == (2, 7)


def test_everything_new_is_unknown_when_there_is_too_much_to_look_through(twin: ModuleType) -> None:
    table = twin.RecipientTable()
    table.clear([([b"orders.>"], 2)], None)
    data, ops = batch(b"orders.1")
    assert table.run(data, ops, 0, 1) == (0, UNKNOWN)


@pytest.mark.parametrize("subject", [b"a..b", b".a", b"a.", b"a.*", b"a.>", b"*"])
def test_a_subject_that_is_no_literal_is_unknown(twin: ModuleType, subject: bytes) -> None:
    table = twin.RecipientTable()
    table.clear([([b">"], 2)], [])
    data, ops = batch(subject)
    assert table.run(data, ops, 0, 1) == (0, UNKNOWN)


def test_what_begins_with_a_prefix_shares_its_route_and_is_not_remembered(twin: ModuleType) -> None:
    table = twin.RecipientTable()
    table.clear([], [])
    for prefix in (b"$JS.ACK.S.C.", b"$JS.ACK.S.D."):
        table.add_prefix(prefix)
    data, ops = batch(b"$JS.ACK.S.C.1", b"$JS.ACK.S.C.2.3", b"$JS.ACK.S.D.1", b"$JS.ACK.S.E.1", b"$JS.ACK.S.C")
    assert table.run(data, ops, 0, 5) == (0, UNKNOWN)
    table.put_prefix(b"$JS.ACK.S.C.", 7)
    assert table.run(data, ops, 0, 3) == (2, 7)
    table.put_prefix(b"$JS.ACK.S.D.", 8)
    assert table.run(data, ops, 2, 3) == (3, 8)
    assert len(table) == 0
    assert table.run(data, ops, 3, 5) == (5, NOBODY)


def test_a_prefix_has_to_be_found_again_after_clear_and_not_after_its_removal(twin: ModuleType) -> None:
    table = twin.RecipientTable()
    table.add_prefix(b"a.b.")
    table.put_prefix(b"a.b.", 7)
    data, ops = batch(b"a.b.c")
    assert table.run(data, ops, 0, 1) == (1, 7)
    table.clear([], [])
    assert table.run(data, ops, 0, 1) == (0, UNKNOWN)
    table.remove_prefix(b"a.b.")
    assert table.run(data, ops, 0, 1) == (1, NOBODY)
    with pytest.raises(KeyError):
        table.put_prefix(b"a.b.", 7)
    table.add_prefix(b"a.b.")
    assert table.run(data, ops, 0, 1) == (0, UNKNOWN)


@pytest.mark.parametrize("prefix", [b"", b".", b"a", b"a.b", b"a..b.", b"a.*.", b">.", b"a." * 64])
def test_a_prefix_is_a_row_of_tokens(twin: ModuleType, prefix: bytes) -> None:
    with pytest.raises(ValueError):
        twin.RecipientTable().add_prefix(prefix)


def test_a_prefix_is_there_once(twin: ModuleType) -> None:
    table = twin.RecipientTable()
    table.add_prefix(b"a.")
    with pytest.raises(ValueError):
        table.add_prefix(b"a.")


def test_a_full_table_starts_anew(twin: ModuleType) -> None:
    table = twin.RecipientTable(4)
    table.clear([([b"s.*"], 2)], [])
    data, ops = batch(*(b"s.%d" % number for number in range(20)))
    assert table.run(data, ops, 0, 20) == (20, 2)
    assert len(table) <= 4


def test_clear_forgets(twin: ModuleType) -> None:
    table = twin.RecipientTable()
    table.clear([([b"s"], 2)], [])
    data, ops = batch(b"s")
    assert table.run(data, ops, 0, 1) == (1, 2)
    table.clear([], [])
    assert table.run(data, ops, 0, 1) == (1, NOBODY)


def test_an_operation_outside_the_array_or_the_buffer_is_refused(twin: ModuleType) -> None:
    table = twin.RecipientTable()
    data, ops = batch(b"s")
    with pytest.raises(IndexError):
        table.run(data, ops, 0, 2)
    with pytest.raises(IndexError):
        table.run(data, ops, 1, 1)


@needs_kernels
@given(
    st.lists(SUBJECTS, min_size=1, max_size=8),
    st.lists(SUBJECTS, max_size=2),
    st.lists(SUBJECTS, max_size=2),
    st.sets(st.sampled_from([b"a.", b"a.b.", b"b.", b"$JS.ACK.", b"x.x.x."])),
)
def test_the_twins_agree(
    subjects: list[list[bytes]], captured: list[list[bytes]], others: list[list[bytes]], prefixes: set[bytes]
) -> None:
    def valid(patterns: list[list[bytes]]) -> list[bytes]:
        return [b".".join(tokens) for tokens in patterns if b"" not in tokens and b">" not in tokens[:-1]]

    data, ops = batch(*(b".".join(tokens) or b"x" for tokens in subjects))
    results = []
    for twin in load_twins(TWINS):
        table = twin.RecipientTable()
        table.clear([([pattern], 2 + place) for place, pattern in enumerate(valid(captured))], valid(others))
        for place, prefix in enumerate(sorted(prefixes)):
            table.add_prefix(prefix)
            table.put_prefix(prefix, 20 + place)
        found = [table.run(data, ops, first, len(subjects)) for first in range(len(subjects))]
        results.append((found, [table.prefix_of(b".".join(tokens)) for tokens in subjects]))
    assert results[0] == results[1]


@pytest.mark.parametrize("count", [1, 2, 10, 1000])
def test_dealing_gives_each_operation_to_one_member_in_order(twin: ModuleType, count: int) -> None:
    _, ops = batch(*(b"work.%d" % number for number in range(500)))
    hands = twin.deal(ops, 10, 490, count, 7)
    assert len(hands) == count
    starts = [hand[::OP_WORDS].tolist() for hand in hands]
    assert sorted(start for hand in starts for start in hand) == ops[10 * OP_WORDS : 490 * OP_WORDS : OP_WORDS].tolist()
    assert all(hand == sorted(hand) for hand in starts)


def test_dealing_is_fair(twin: ModuleType) -> None:
    _, ops = batch(*[b"work"] * 10_000)
    sizes = [len(hand) // OP_WORDS for hand in twin.deal(ops, 0, 10_000, 10, 99)]
    assert all(800 < size < 1200 for size in sizes)


@needs_kernels
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**64 - 1))
def test_twins_deal_alike(size: int, count: int, seed: int) -> None:
    _, ops = batch(*[b"work"] * size)
    ours, reference = load_twin(TWINS, "c"), load_twin(TWINS, "py")
    assert ours.deal(ops, size // 3, size, count, seed) == reference.deal(ops, size // 3, size, count, seed)


def test_operations_outside_the_array_are_not_dealt(twin: ModuleType) -> None:
    _, ops = batch(b"work")
    with pytest.raises(IndexError):
        twin.deal(ops, 0, 2, 3, 1)


def test_publishes_are_sorted_by_their_recipients_and_keep_their_order_within(twin: ModuleType) -> None:
    table = twin.RecipientTable()
    table.clear([([b"a.*"], 2), ([b"b.*"], 3)], [])
    data, ops = batch(b"a.1", b"b.1", b"a.2", b"b.2", b"a.3")
    end, taken, runs = table.groups(data, ops, 0, 5, b"\0\0\1\1")
    assert (end, runs) == (5, [(2, 0, 3), (3, 3, 5)])
    assert subjects_of(data, taken) == [b"a.1", b"a.2", b"a.3", b"b.1", b"b.2"]


@pytest.mark.parametrize("barrier", [b"elsewhere", b"c.1", b"eu.1"])
def test_publishes_are_not_sorted_across_one_that_others_get(twin: ModuleType, barrier: bytes) -> None:
    table = twin.RecipientTable()
    table.clear([([b"a.*"], 2), ([b"b.*"], 3), ([b"c.*"], 4)], [b"eu.*"])
    data, ops = batch(b"a.1", b"b.1", b"a.2", barrier, b"b.2")
    end, taken, runs = table.groups(data, ops, 1, 5, b"\0\0\1\1\0")
    assert (end, runs, subjects_of(data, taken)) == (3, [(3, 0, 1), (2, 1, 2)], [b"b.1", b"a.2"])


def test_recipients_that_came_after_the_marks_are_not_sorted(twin: ModuleType) -> None:
    table = twin.RecipientTable()
    table.clear([([b"a"], 9)], [])
    data, ops = batch(b"a", b"a")
    assert table.groups(data, ops, 0, 2, b"\1") == (0, array("I"), [])


@needs_kernels
@given(st.lists(st.sampled_from([b"a", b"b", b"c", b"d.e", b"nobody"]), min_size=1, max_size=30), st.binary(max_size=6))
def test_twins_group_alike(subjects: list[bytes], apart: bytes) -> None:
    data, ops = batch(*subjects)
    results = []
    for twin in load_twins(TWINS):
        table = twin.RecipientTable()
        table.clear([([b"a"], 2), ([b"b"], 3), ([b"d.*"], 4)], [b"c"])
        results.append(table.groups(data, ops, len(subjects) // 3, len(subjects), apart))
    assert results[0] == results[1]


def subjects_of(data: bytearray, ops: array[int]) -> list[bytes]:
    places = zip(ops[::OP_WORDS], ops[1::OP_WORDS], strict=True)
    return [bytes(data[start : start + size]) for start, size in places]

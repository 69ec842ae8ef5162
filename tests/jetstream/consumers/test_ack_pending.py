"""Pending acks: both twins, against each other and against what they are for."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.jetstream.consumers import _ack_pending_py as reference
from jetlake.jetstream.consumers import ack_pending
from jetlake.ops import append_op
from jetlake.store.consumer_state import ConsumerState, PackedPending, Pending, encode_state

try:
    from jetlake.jetstream.consumers import _ack_pending_c as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

TWINS = [reference] if compiled is None else [reference, compiled]
PREFIX = b"$JS.ACK.S.C."


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__name__.rsplit("_", 1)[-1])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


def run(*seqs: int) -> array[int]:
    return array("Q", seqs)


def test_the_compiled_twin_is_loaded() -> None:
    assert ack_pending.COMPILED
    assert ack_pending.AckPending is compiled.AckPending


def test_a_run_enters_at_once_with_rising_consumer_sequences(twin: ModuleType) -> None:
    pending = twin.AckPending()
    pending.add_run(run(5, 6, 9), 3, 1000)
    assert pending.entries() == [(5, 3, 1000), (6, 4, 1000), (9, 5, 1000)]
    assert len(pending) == 3 and pending.first() == (5, 3)
    assert pending.consumer_seq(9) == 5 and pending.time_ns(9) == 1000
    assert pending.consumer_seq(7) == 0 and pending.time_ns(7) == 0


def test_it_packs_what_the_file_of_a_consumer_holds(twin: ModuleType) -> None:
    pending = twin.AckPending()
    assert pending.pack(2, 1, 9, 9) == (0, 0, b"")
    pending.add_run(run(5, 6, 300), 3, 1000)
    pending.touch(5, 1300)
    pending.remove(6)
    state = ConsumerState(9, 300, 1, 2, {5: Pending(3, 1300), 300: Pending(5, 1000)})
    packed = PackedPending(*pending.pack(2, 1, 300, 9))
    assert encode_state(ConsumerState(9, 300, 1, 2), b"m", packed) == encode_state(state, b"m")


@pytest.mark.parametrize("bounds", [(5, 1, 9, 9), (2, 3, 9, 9), (2, 1, 8, 9), (2, 1, 9, 4)])
def test_it_packs_nothing_that_could_not_be_read(twin: ModuleType, bounds: tuple[int, int, int, int]) -> None:
    pending = twin.AckPending()
    pending.add_run(run(5, 6, 9), 3, 1000)
    with pytest.raises(ValueError, match="is not where it can be"):
        pending.pack(*bounds)


def test_a_run_must_lie_above_all_before_it(twin: ModuleType) -> None:
    pending = twin.AckPending()
    pending.add_run(run(5), 1, 0)
    for wrong in (run(5), run(4), run(7, 7)):
        with pytest.raises(ValueError, match="does not follow"):
            pending.add_run(wrong, 2, 0)
    assert pending.entries() == [(5, 1, 0)]


def test_the_smallest_one_is_known_after_removals_in_any_order(twin: ModuleType) -> None:
    pending = twin.AckPending()
    pending.add_run(run(1, 2, 3, 4), 1, 0)
    assert (pending.remove(2), pending.remove(2), pending.first()) == (2, 0, (1, 1))
    assert (pending.remove(1), pending.first()) == (1, (3, 3))
    assert (pending.remove(3), pending.remove(4), pending.first(), len(pending)) == (3, 4, (0, 0), 0)


def test_many_leave_at_once_and_those_that_were_pending_move_to_the_front(twin: ModuleType) -> None:
    pending = twin.AckPending()
    pending.add_run(run(1, 3, 5, 7), 1, 0)
    seqs = run(9, 3, 2, 7, 1)
    assert pending.remove_many(seqs, 4) == 2
    assert seqs[:2].tolist() == [3, 7]
    assert [seq for seq, _, _ in pending.entries()] == [1, 5]
    with pytest.raises(IndexError):
        pending.remove_many(seqs, 6)


def test_all_up_to_a_sequence_leave(twin: ModuleType) -> None:
    pending = twin.AckPending()
    pending.add_run(run(1, 3, 5, 7), 1, 0)
    pending.remove(3)
    assert pending.remove_through(6).tolist() == [1, 5]
    assert pending.first() == (7, 4) and pending.remove_through(6).tolist() == []


def test_overdue_finds_old_ones_and_the_next_time(twin: ModuleType) -> None:
    pending = twin.AckPending()
    pending.add_run(run(1, 2), 1, 100)
    pending.add_run(run(4, 6), 3, 200)
    pending.touch(1, 300)
    overdue, earliest_ns = pending.overdue(1, 4, 150)
    assert (overdue.tolist(), earliest_ns) == ([2], 200)
    assert pending.overdue(5, 9, 1000)[0].tolist() == [6]
    assert pending.overdue(7, 9, 0) == (run(), ack_pending.TIME_MAX_NS)
    assert not pending.touch(9, 1)


def test_clearing_lets_lower_sequences_in(twin: ModuleType) -> None:
    pending = twin.AckPending()
    pending.add_run(run(10), 1, 0)
    pending.clear()
    pending.add_run(run(2), 1, 0)
    assert pending.entries() == [(2, 1, 0)]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(1, 4), max_size=80), st.integers(0, 50)),
        st.tuples(st.just("remove"), st.integers(0, 300), st.none()),
        st.tuples(st.just("many"), st.lists(st.integers(0, 300), max_size=60), st.none()),
        st.tuples(st.just("through"), st.integers(0, 300), st.none()),
        st.tuples(st.just("touch"), st.integers(0, 300), st.integers(0, 50)),
        st.tuples(st.just("overdue"), st.integers(0, 300), st.integers(0, 50)),
        st.tuples(st.just("clear"), st.none(), st.none()),
    ),
    max_size=60,
)


@pytest.mark.skipif(compiled is None, reason="the kernel is not built")
@given(OPERATIONS)
def test_twins_agree_on_any_operations(operations: list[tuple[str, object, object]]) -> None:
    twins = [reference.AckPending(), compiled.AckPending()]
    last = consumer_seq = 0
    for name, first, second in operations:
        results = []
        if name == "add":
            seqs = array("Q")
            for step in first:  # type: ignore[attr-defined]
                last += step
                seqs.append(last)
        for pending in twins:
            if name == "add":
                results.append(pending.add_run(seqs, consumer_seq + 1, second))
            elif name == "many":
                given_seqs = array("Q", first)  # type: ignore[arg-type]
                count = pending.remove_many(given_seqs, len(given_seqs))
                results.append(given_seqs[:count])
            elif name == "overdue":
                results.append(pending.overdue(first, first + 100, second))  # type: ignore[operator]
            elif name == "clear":
                results.append(pending.clear())
            elif name == "touch":
                results.append(pending.touch(first, second))
            else:
                results.append({"remove": pending.remove, "through": pending.remove_through}[name](first))
        if name == "add":
            consumer_seq += len(seqs)
        if name == "clear":
            last = 0
        assert results[0] == results[1]
        assert twins[0].entries() == twins[1].entries() and twins[0].first() == twins[1].first()
        assert len(twins[0]) == len(twins[1])


# Acks from the wire


def ack_ops(*messages: tuple[bytes, bytes, bytes, bytes]) -> tuple[bytearray, array[int]]:
    data, ops = bytearray(), array("I")
    for subject, payload, headers, reply in messages:
        append_op(ops, data, subject, payload, headers, reply)
    return data, ops


def parse(
    twin: ModuleType, data: bytearray, ops: array[int], first: int, stop: int
) -> tuple[int, list[int], list[int]]:
    seqs, consumer_seqs = array("Q", bytes(8 * (stop - first))), array("Q", bytes(8 * (stop - first)))
    end = twin.parse_acks(data, ops, first, stop, PREFIX, seqs, consumer_seqs)
    return end, seqs[: end - first].tolist(), consumer_seqs[: end - first].tolist()


def plain(seq: int, payload: bytes = b"") -> tuple[bytes, bytes, bytes, bytes]:
    return (PREFIX + b"1.%d.%d.1700000000000000000.5" % (seq, seq + 100), payload, b"", b"")


def test_plain_acks_are_read_in_one_call(twin: ModuleType) -> None:
    data, ops = ack_ops(plain(7), plain(8, b"+ACK"), plain(9, b"+OK"))
    assert parse(twin, data, ops, 0, 3) == (3, [7, 8, 9], [107, 108, 109])
    assert parse(twin, data, ops, 1, 2) == (2, [8], [108])
    assert parse(twin, data, ops, 3, 3) == (3, [], [])


@pytest.mark.parametrize(
    "other",
    [
        plain(8, b"-NAK"),
        plain(8, b"+ACKs"),
        (PREFIX + b"1.8.8.1.5", b"", b"", b"reply"),
        (PREFIX + b"1.8.8.1.5", b"", b"NATS/1.0\r\n\r\n", b""),
        (PREFIX + b"1.8.8.1", b"", b"", b""),
        (PREFIX + b"1.8.8.1.5.6", b"", b"", b""),
        (PREFIX + b"1..8.1.5", b"", b"", b""),
        (PREFIX + b"1.x.8.1.5", b"", b"", b""),
        (PREFIX + b"1.8.8.1.5.", b"", b"", b""),
        (PREFIX + b"1.12345678901234567890.8.1.5", b"", b"", b""),
        (PREFIX, b"", b"", b""),
        (b"$JS.ACK.S.X.1.8.8.1.5", b"", b"", b""),
        (b"$JS.ACK", b"", b"", b""),
    ],
)
def test_reading_stops_at_anything_else(twin: ModuleType, other: tuple[bytes, bytes, bytes, bytes]) -> None:
    data, ops = ack_ops(plain(7), other, plain(9))
    assert parse(twin, data, ops, 0, 3) == (1, [7], [107])


def test_operations_beyond_the_buffer_are_refused(twin: ModuleType) -> None:
    data, ops = ack_ops(plain(7))
    with pytest.raises(IndexError):
        parse(twin, data[:-1], ops, 0, 1)
    with pytest.raises(IndexError):
        parse(twin, data, ops, 0, 2)
    with pytest.raises(ValueError, match="no room"):
        twin.parse_acks(data, ops, 0, 1, PREFIX, array("Q"), array("Q"))


@pytest.mark.skipif(compiled is None, reason="the kernel is not built")
@given(st.lists(st.tuples(st.text("0123.x", max_size=14), st.sampled_from([b"", b"+ACK", b"+OK", b"x"])), max_size=6))
def test_twins_agree_on_any_subjects(acks: list[tuple[str, bytes]]) -> None:
    messages = [(PREFIX + rest.encode(), payload, b"", b"") for rest, payload in acks]
    data, ops = ack_ops(plain(1), *messages, plain(2))
    stop = len(messages) + 2
    assert parse(reference, data, ops, 0, stop) == parse(compiled, data, ops, 0, stop)

"""Sequences by deadline."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.errors import BadRequest
from jetlake.store.index.time_wheel import I64_MAX, I64_MIN, TimeWheel
from jetlake.store.records.varint import U64_MAX

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
YEAR = 365 * DAY


def wheel_of(entries: Iterable[tuple[int, int]], tick_ns: int = SECOND) -> TimeWheel:
    wheel = TimeWheel(tick_ns)
    for seq, expires_ns in entries:
        wheel.add(seq, expires_ns)
    return wheel


def test_a_new_wheel_has_nothing_to_expire() -> None:
    wheel = TimeWheel()
    assert (len(wheel), wheel.next_expiry(), wheel.expire(I64_MAX)) == (0, None, [])


def test_a_sequence_expires_at_its_deadline_and_not_before() -> None:
    wheel = wheel_of([(1, 5 * SECOND)])
    assert [wheel.expire(5 * SECOND - 1), wheel.expire(5 * SECOND), wheel.expire(6 * SECOND)] == [[], [1], []]


def test_expired_sequences_come_by_deadline_and_then_by_sequence() -> None:
    wheel = wheel_of([(9, 100), (3, 200), (7, 100), (1, 50 * SECOND), (2, 3 * SECOND)])
    assert wheel.expire(DAY) == [7, 9, 3, 2, 1]


def test_only_what_is_due_leaves_a_tick() -> None:
    wheel = wheel_of([(1, 100), (2, 200), (3, 300)])
    assert wheel.expire(200) == [1, 2]
    assert (len(wheel), wheel.next_expiry(), 3 in wheel) == (1, 300, True)


def test_adding_again_moves_the_deadline_later() -> None:
    wheel = wheel_of([(1, 100), (1, DAY)])
    assert (wheel.expire(100), wheel.deadline(1), len(wheel)) == ([], DAY, 1)


def test_adding_again_moves_the_deadline_earlier() -> None:
    wheel = wheel_of([(1, DAY), (1, 100)])
    assert (wheel.expire(100), len(wheel), wheel.expire(DAY)) == ([1], 0, [])


def test_a_deadline_moved_there_and_back_expires_once() -> None:
    wheel = wheel_of([(1, 100), (1, DAY), (1, 100)])
    assert (wheel.expire(DAY), len(wheel)) == ([1], 0)


def test_a_removed_sequence_does_not_expire() -> None:
    wheel = wheel_of([(1, 100), (2, 100)])
    assert [wheel.remove(1), wheel.remove(1)] == [True, False]
    assert wheel.expire(100) == [2]


def test_removing_an_unknown_sequence_says_so() -> None:
    assert not TimeWheel().remove(7)


def test_contains_and_deadline_know_what_is_inside() -> None:
    wheel = wheel_of([(5, 100)])
    assert (5 in wheel, wheel.deadline(5), 6 in wheel, wheel.deadline(6)) == (True, 100, False, None)


def test_next_expiry_is_exact_within_a_tick() -> None:
    assert wheel_of([(1, 999), (2, 998), (3, 5 * SECOND)]).next_expiry() == 998


def test_next_expiry_follows_an_earlier_deadline() -> None:
    wheel = wheel_of([(1, YEAR)])
    found = [wheel.next_expiry()]
    wheel.add(2, SECOND)
    assert [*found, wheel.next_expiry()] == [YEAR, SECOND]


def test_next_expiry_forgets_what_was_removed() -> None:
    wheel = wheel_of([(1, 100), (2, 200), (3, DAY)])
    found = []
    for seq in (1, 2, 3):
        found.append(wheel.next_expiry())
        wheel.remove(seq)
    assert [*found, wheel.next_expiry()] == [100, 200, DAY, None]


def test_a_deadline_in_the_past_is_due_at_once() -> None:
    wheel = wheel_of([(1, DAY)])
    wheel.expire(DAY)
    wheel.add(2, 5)
    assert (wheel.next_expiry(), wheel.expire(DAY)) == (5, [2])


def test_deadlines_before_the_epoch_are_ordinary() -> None:
    assert wheel_of([(1, -1), (2, -DAY)]).expire(0) == [2, 1]


def test_a_clock_that_goes_back_expires_nothing_early_and_loses_nothing() -> None:
    wheel = wheel_of([(1, DAY), (2, 2 * DAY)])
    found = [wheel.expire(DAY)]
    wheel.add(3, DAY // 2)
    found += [wheel.expire(DAY // 4), wheel.expire(DAY // 2), wheel.expire(DAY), wheel.expire(2 * DAY)]
    assert found == [[1], [], [3], [], [2]]


def test_deadlines_years_ahead_are_exact() -> None:
    wheel = wheel_of([(year, year * YEAR) for year in range(1, 101)])
    assert (wheel.expire(YEAR - 1), wheel.next_expiry(), wheel.expire(3 * YEAR)) == ([], YEAR, [1, 2, 3])


def test_a_jump_over_many_ticks_costs_what_is_stored() -> None:
    wheel = wheel_of([(1, 0), (2, 250 * YEAR)], tick_ns=1)  # 8 * 10**18 ticks: walking them would never end
    assert wheel.expire(I64_MAX) == [1, 2]


def test_the_extremes_can_be_stored() -> None:
    wheel = wheel_of([(U64_MAX, I64_MAX), (0, I64_MIN + 1)])
    assert (wheel.expire(I64_MAX - 1), wheel.expire(I64_MAX)) == ([0], [U64_MAX])


@pytest.mark.parametrize(("seq", "expires_ns"), [(-1, 0), (U64_MAX + 1, 0), (1, I64_MAX + 1), (1, I64_MIN)])
def test_what_does_not_fit_is_refused(seq: int, expires_ns: int) -> None:
    wheel = wheel_of([(1, 5)])
    with pytest.raises(BadRequest):
        wheel.add(seq, expires_ns)
    assert wheel.deadline(1) == 5


def test_a_tick_has_a_length() -> None:
    with pytest.raises(BadRequest):
        TimeWheel(0)


def memory_per_entry(entries: list[tuple[int, int]]) -> float:
    tracemalloc.start()
    wheel = wheel_of(entries)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / len(wheel)


def test_dense_sequences_take_24_bytes_each() -> None:
    assert memory_per_entry([(seq, seq * SECOND // 1000) for seq in range(50_000)]) <= 24


def test_scattered_sequences_take_half_a_kilobyte_each() -> None:
    assert memory_per_entry([(seq * 1000, seq * SECOND // 1000) for seq in range(20_000)]) <= 512


def test_a_tick_takes_a_third_of_a_kilobyte() -> None:
    assert memory_per_entry([(seq, seq * SECOND) for seq in range(20_000)]) <= 24 + 340


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("stride_ns", [1, SECOND])
def test_sequences_that_come_and_go_leave_no_memory_behind(stride_ns: int, opened: bool) -> None:
    wheel = wheel_of([(0, 0), (1, DAY)])
    tracemalloc.start()
    for seq in range(2, 20_000):
        wheel.add(seq, DAY + seq * stride_ns)
        wheel.remove(0 if opened else seq - 1)
        assert wheel.next_expiry() in (0, DAY)
        wheel.remove(seq)
        wheel.add(1, DAY)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 20_000


# Against a plain dict

SEQ = st.integers(0, 8) | st.integers(30, 34)
TIME = st.integers(-20, 60) | st.sampled_from([YEAR, YEAR + 1, 99 * YEAR])
STEP = st.one_of(
    st.tuples(st.just("add"), SEQ, TIME),
    st.tuples(st.just("remove"), SEQ, st.just(0)),
    st.tuples(st.just("expire"), st.just(0), TIME),
    st.tuples(st.just("next"), st.just(0), st.just(0)),
)


class Model:
    """The same promises, kept the slow way."""

    def __init__(self) -> None:
        self.deadlines: dict[int, int] = {}

    def expire(self, now_ns: int) -> list[int]:
        due = sorted((expires_ns, seq) for seq, expires_ns in self.deadlines.items() if expires_ns <= now_ns)
        for _, seq in due:
            del self.deadlines[seq]
        return [seq for _, seq in due]


def take(wheel: TimeWheel, model: Model, step: tuple[str, int, int]) -> None:
    """Do one thing to both, and compare what they say about it."""
    name, seq, time_ns = step
    if name == "add":
        wheel.add(seq, time_ns)
        model.deadlines[seq] = time_ns
    elif name == "remove":
        assert wheel.remove(seq) == (model.deadlines.pop(seq, None) is not None)
    elif name == "expire":
        assert wheel.expire(time_ns) == model.expire(time_ns)
    else:
        assert wheel.next_expiry() == min(model.deadlines.values(), default=None)


@given(st.lists(STEP, max_size=80), st.sampled_from([1, 7, 20, SECOND]))
def test_the_wheel_agrees_with_a_sorted_list(steps: list[tuple[str, int, int]], tick_ns: int) -> None:
    wheel, model = TimeWheel(tick_ns), Model()
    for step in steps:
        take(wheel, model, step)
        assert len(wheel) == len(model.deadlines)
        assert {seq: wheel.deadline(seq) for seq in range(40) if seq in wheel} == model.deadlines
    assert wheel.expire(I64_MAX) == model.expire(I64_MAX)


@given(st.randoms(use_true_random=False), st.booleans())
def test_a_slot_that_is_cleaned_up_agrees_too(random: object, asking: bool) -> None:
    wheel, model = TimeWheel(1000), Model()
    for _ in range(400):
        seq, time_ns = random.randrange(60), random.randrange(3000)  # type: ignore[attr-defined]
        take(wheel, model, ("remove", seq, 0))
        take(wheel, model, ("add", seq, time_ns))
        if asking:
            take(wheel, model, ("next", 0, 0))
    assert wheel.expire(1500) == model.expire(1500)
    assert wheel.expire(I64_MAX) == model.expire(I64_MAX)

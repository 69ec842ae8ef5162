"""Flow control, the rate limit and pauses, without a consumer."""

from __future__ import annotations

from jetlake.jetstream.consumers.flow_control import WINDOW_SIZE_MAX, WINDOW_SIZE_MIN, FlowControl, RateLimit
from jetlake.jetstream.consumers.pause import Pause
from jetlake.jetstream.consumers.pull_queue import NEVER_NS

S = 10**9


def test_the_client_is_asked_past_half_of_the_window_and_stalls_past_all_of_it() -> None:
    flow = FlowControl()
    assert not flow.sent(WINDOW_SIZE_MIN // 2)
    assert flow.sent(1)
    flow.ask(b"fc")
    assert not flow.is_stalled
    assert not flow.sent(WINDOW_SIZE_MIN // 2)
    assert flow.is_stalled


def test_an_answer_takes_off_what_was_asked_for_and_doubles_the_window() -> None:
    flow = FlowControl()
    flow.sent(1_500_000)
    flow.ask(b"fc")
    flow.sent(900_000)
    assert not flow.answer(b"other")
    assert flow.answer(b"fc")
    assert flow.outstanding_size == 900_000 and flow.window_size == 2 * WINDOW_SIZE_MIN and not flow.asked
    assert not flow.answer(b"fc")


def test_the_window_grows_to_a_limit() -> None:
    flow = FlowControl()
    for _ in range(10):
        flow.ask(b"fc")
        flow.answer(b"fc")
    assert flow.window_size == WINDOW_SIZE_MAX


def test_what_fits_ends_at_the_next_mark() -> None:
    flow = FlowControl()
    assert flow.room == WINDOW_SIZE_MIN // 2 + 1
    flow.sent(WINDOW_SIZE_MIN // 2 + 10)
    flow.ask(b"fc")
    assert flow.room == WINDOW_SIZE_MIN // 2 - 10 + 1


def test_a_rate_limit_lets_a_burst_through_and_then_waits() -> None:
    rate = RateLimit(8_000, 500, now_ns=0)
    assert rate.wait_ns(0) == 0 and rate.room(0) == 501
    rate.sent(1500)
    assert S - 10 <= rate.wait_ns(0) <= S + 10
    assert rate.wait_ns(2 * S) == 0
    assert rate.room(100 * S) == 501


def test_a_pause_ends_by_itself_once() -> None:
    pause = Pause(None)
    assert not pause.is_on(0) and pause.deadline_ns == NEVER_NS and not pause.ends(0)
    pause.set(10, 5)
    assert pause.is_on(5) and pause.left_ns(5) == 5 and pause.deadline_ns == 10 and not pause.ends(9)
    assert pause.ends(10) and not pause.ends(11) and pause.deadline_ns == NEVER_NS
    assert not pause.is_on(10) and pause.left_ns(10) == 0


def test_a_pause_that_is_over_already_is_none() -> None:
    pause = Pause(None)
    pause.set(10, 20)
    assert not pause.is_on(20) and not pause.ends(20)

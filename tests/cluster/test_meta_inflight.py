"""What is in flight: by account and name, counted, and gone at once when the leadership is."""

from __future__ import annotations

from jetlake.cluster.meta_inflight import Inflight


def test_a_name_is_in_flight_until_its_last_operation_is_applied() -> None:
    flight: Inflight[str] = Inflight()
    flight.track("A", ("S",), "made")
    flight.track("A", ("S",), "changed")
    assert flight.count("A", ("S",)) == 2 and len(flight) == 2
    flight.untrack("A", ("S",))
    assert flight.is_inflight("A", ("S",)) and flight.outcome("A", ("S",), "applied") == "changed"
    flight.untrack("A", ("S",))
    assert not flight.is_inflight("A", ("S",)) and flight.outcome("A", ("S",), "applied") == "applied"


def test_a_removal_in_flight_hides_what_is_applied() -> None:
    flight: Inflight[str] = Inflight()
    flight.track("A", ("S",), None)
    assert flight.outcome("A", ("S",), "applied") is None
    assert list(flight.outcomes("A")) == [(("S",), None)]


def test_accounts_do_not_see_each_other() -> None:
    flight: Inflight[str] = Inflight()
    flight.track("A", ("S",), "made")
    assert not flight.is_inflight("B", ("S",)) and list(flight.outcomes("B")) == []
    flight.track("B", ("S",), "other")
    assert list(flight.all_outcomes()) == [("A", ("S",), "made"), ("B", ("S",), "other")]


def test_all_of_it_is_forgotten_at_once() -> None:
    flight: Inflight[str] = Inflight()
    flight.track("A", ("S",), "made")
    flight.clear()
    assert len(flight) == 0 and flight.outcome("A", ("S",), None) is None
    flight.untrack("A", ("S",))  # a late one is nobody's
    assert len(flight) == 0

"""Assignments: what each kind of entry changes, and what it must not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from jetlake.cluster.assignments import REMOVED_MAX, Assignments, BadAssignment, Desired, Load, Origination, peer_id
from jetlake.jetstream.streams.config import Storage
from tests.cluster.things import N1, N2, N3, TIME_NS, consumer, group, node, stream, with_nodes

NOBODY = Origination()


def held(state: Assignments, index: int = 7, name: str = "S", *peers: str) -> int:
    """Assign a stream; its incarnation."""
    made = state.process_assign_stream(index, stream(name, *peers))
    assert made is not None
    return made.incarnation


def test_a_peer_id_is_that_of_nats_server() -> None:
    assert [peer_id(name) for name in ("n1", "n2", "n3")] == ["fjFyEjc1", "44jzkV9D", "BXScrY9i"]


def test_a_stream_gets_its_incarnation_from_the_entry() -> None:
    state = with_nodes()
    made = state.process_assign_stream(7, stream())
    assert made is not None and made.incarnation == made.group.id == 7
    assert state.stream("A", "S") is made
    assert state.stream("B", "S") is None


def test_a_name_that_is_taken_stays_with_its_stream() -> None:
    state = with_nodes()
    held(state, 7)
    assert state.process_assign_stream(8, stream()) is None
    assert state.stream("A", "S").incarnation == 7  # type: ignore[union-attr]
    assert state.process_assign_stream(9, stream(account="B")) is not None


def test_an_update_changes_the_configuration_and_keeps_the_group() -> None:
    state = with_nodes()
    incarnation = held(state)
    config = replace(stream().config, max_msgs=5)
    made = state.process_update_stream(9, "A", incarnation, config, None, NOBODY)
    assert made is not None and made.config.max_msgs == 5
    assert (made.incarnation, made.group.id) == (7, 7)


def test_an_update_with_another_group_starts_that_group() -> None:
    state = with_nodes()
    incarnation = held(state, 7, "S", N1)
    made = state.process_update_stream(9, "A", incarnation, stream().config, group(name="S-R3F-new"), NOBODY)
    assert made is not None and made.group.id == 9 and made.incarnation == 7
    assert [state.loads[peer].ha_count for peer in (N1, N2, N3)] == [1, 1, 1]


def test_a_stream_may_keep_a_server_that_was_removed_and_gets_no_new_one() -> None:
    state = with_nodes()
    incarnation = held(state, 7, "S", N1, N2)
    state.process_node_removed(N2)
    made = state.process_update_stream(9, "A", incarnation, stream().config, group(N1, N2), NOBODY)
    assert made is not None and made.group.peers == (N1, N2)
    with pytest.raises(BadAssignment, match="unknown peers zzzzzzzz"):
        state.process_update_stream(10, "A", incarnation, stream().config, group(N1, "zzzzzzzz"), NOBODY)
    assert state.loads[N2].stream_count == 1


def test_an_update_of_a_stream_that_is_gone_changes_nothing() -> None:
    state = with_nodes()
    assert state.process_update_stream(9, "A", 7, stream().config, None, NOBODY) is None


def test_the_storage_of_a_stream_can_not_change() -> None:
    state = with_nodes()
    incarnation = held(state)
    with pytest.raises(BadAssignment, match="storage"):
        state.process_update_stream(9, "A", incarnation, stream(storage=Storage.MEMORY).config, None, NOBODY)


def test_a_second_removal_changes_nothing() -> None:
    state = with_nodes()
    incarnation = held(state)
    assert state.process_remove_stream("A", "S", incarnation) is not None
    assert state.process_remove_stream("A", "S", incarnation) is None
    assert state.accounts == {}


def test_a_late_removal_spares_the_next_stream_of_that_name() -> None:
    state = with_nodes()
    first = held(state, 7)
    state.process_remove_stream("A", "S", first)
    second = held(state, 8)
    assert state.process_remove_stream("A", "S", first) is None
    assert state.stream("A", "S").incarnation == second  # type: ignore[union-attr]


def test_removals_are_remembered_up_to_a_bound() -> None:
    state = with_nodes()
    for index in range(1, REMOVED_MAX + 3):
        state.process_remove_stream("A", "S", held(state, index, "S", N1))
    assert len(state.removed) == REMOVED_MAX
    assert 2 not in state.removed and state.removed[3].created_ns == TIME_NS


def test_what_each_peer_holds_is_counted() -> None:
    state = with_nodes()
    state.process_assign_stream(7, replace(stream(max_bytes=5), group=group(preferred=N3)))
    state.process_assign_stream(8, stream("R1", N2, max_bytes=7))
    assert state.loads == {
        N1: Load(1, 1, 0, 0, 5),
        N2: Load(2, 1, 0, 0, 12),
        N3: Load(1, 1, 1, 0, 5),
    }
    state.process_update_stream(9, "A", 8, stream("R1", N2, max_bytes=9).config, None, NOBODY)
    assert state.loads[N2].reserved_store == 14
    state.process_remove_stream("A", "R1", 8)
    assert state.loads[N2] == Load(1, 1, 0, 0, 5)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"account": ""}, "without an account"),
        ({"group": group(name="")}, "without a name"),
        ({"group": replace(group(), peers=())}, "0 peers"),
        ({"group": group(N1, N1)}, "a peer twice"),
        ({"group": group(N1, "zzzzzzzz")}, "unknown peers zzzzzzzz"),
        ({"group": group(N1, preferred=N2)}, "preferred"),
        ({"group": group(storage=Storage.MEMORY)}, "not for storage file"),
        ({"group": replace(group(), peers=tuple("abcdef"))}, "6 peers"),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(change: dict[str, object], problem: str) -> None:
    state = with_nodes()
    with pytest.raises(BadAssignment, match=problem):
        state.process_assign_stream(7, replace(stream(), **change))
    assert list(state.streams()) == [] and not state.loads


# Consumers


def test_a_consumer_belongs_to_one_incarnation_of_a_stream() -> None:
    state = with_nodes()
    incarnation = held(state)
    assert state.process_assign_consumer(8, "A", "S", incarnation + 1, consumer()) is None
    made = state.process_assign_consumer(8, "A", "S", incarnation, consumer())
    assert made is not None and made.incarnation == 8
    assert list(state.stream("A", "S").consumers) == ["C"]  # type: ignore[union-attr]


def test_a_consumer_is_changed_by_the_same_name_and_creation() -> None:
    state = with_nodes()
    incarnation = held(state)
    state.process_assign_consumer(8, "A", "S", incarnation, consumer())
    made = state.process_assign_consumer(9, "A", "S", incarnation, consumer(max_deliver=3))
    assert made is not None and made.config.max_deliver == 3 and made.incarnation == 8
    assert state.process_assign_consumer(10, "A", "S", incarnation, consumer(created_ns=1)) is None


def test_a_consumer_is_removed_once_and_only_the_one_that_is_meant() -> None:
    state = with_nodes()
    incarnation = held(state)
    state.process_assign_consumer(8, "A", "S", incarnation, consumer())
    assert state.process_remove_consumer("A", "S", incarnation, "C", TIME_NS + 1) is None
    assert state.process_remove_consumer("A", "S", incarnation, "C", TIME_NS) is not None
    assert state.process_remove_consumer("A", "S", incarnation, "C", TIME_NS) is None


def test_a_consumer_lives_where_its_stream_does() -> None:
    state = with_nodes()
    incarnation = held(state, 7, "S", N1)
    with pytest.raises(BadAssignment, match="not among those of stream S"):
        state.process_assign_consumer(8, "A", "S", incarnation, consumer("C", N2))


# Servers and moves


def test_a_server_joins_once_and_again_with_what_is_new() -> None:
    state = with_nodes(1)
    assert state.process_node_joined(node(1)) is None
    assert state.process_node_joined(node(1, tags=("ssd",))) is not None
    assert state.nodes[N1].tags == ("ssd",)


def test_a_number_is_never_used_again() -> None:
    state = with_nodes(2)
    assert state.process_node_removed(N2) is not None
    assert state.process_node_removed(N2) is None
    with pytest.raises(BadAssignment, match="number 2 was used before"):
        state.process_node_joined(node(2))
    assert state.process_node_joined(node(2, number=state.next_number())) is not None
    assert state.nodes[N2].number == 3


def test_a_desired_group_is_set_and_cleared() -> None:
    state = with_nodes()
    incarnation = held(state, 7, "S", N1)
    desired = Desired(created_ns=TIME_NS, peers=(N1, N2, N3), cluster="C1")
    made = state.process_set_desired("A", "S", incarnation, desired)
    assert made is not None and made.group.desired == desired
    assert state.process_set_desired("A", "S", incarnation, desired) is None
    assert state.process_set_desired("A", "S", incarnation, None) is not None
    with pytest.raises(BadAssignment, match="unknown peers"):
        state.process_set_desired("A", "S", incarnation, replace(desired, peers=("zzzzzzzz",)))

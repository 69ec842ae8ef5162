"""Meta on several members: proposals, what is in flight, leader changes, snapshots."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from jetlake.cluster import meta as meta_module
from jetlake.cluster.assignments import StreamAssignment
from jetlake.cluster.engine import raft_id
from jetlake.cluster.meta import Meta
from jetlake.cluster.meta_codec import (
    BadEntry,
    NodeRemoved,
    RemoveConsumer,
    RemoveStream,
    SetDesired,
    UpdateStream,
    encode_snapshot,
)
from jetlake.jetstream.errors import ApiError
from tests.cluster.memory_group import MemoryGroup
from tests.cluster.things import N1, TIME_NS, Recorder, assign, assign_consumer, consumer, nodes


class World:
    """A meta group of three, with its servers joined and the first one leading."""

    def __init__(self, count: int = 3) -> None:
        self.heard = [Recorder() for _ in range(count)]
        self.metas = [Meta(heard, heard) for heard in self.heard]
        self.group = MemoryGroup(self.metas)
        self.group.elect(0)
        for entry in nodes(count):
            self.metas[0].propose(entry)
        self.group.settle()
        for heard in self.heard:
            heard.told.clear()

    @property
    def leader(self) -> Meta:
        return next(meta for meta in self.metas if meta.is_leader)

    def make(self, name: str = "S") -> StreamAssignment:
        self.leader.propose(assign(name))
        self.group.settle()
        found = self.leader.stream("A", name)
        assert found is not None
        return found

    def assert_equal(self) -> None:
        states = {encode_snapshot(meta.state) for meta in self.metas}
        assert len(states) == 1


def test_every_member_has_the_same_assignments() -> None:
    world = World()
    world.make("S"), world.make("T")
    world.assert_equal()
    assert [heard.told for heard in world.heard] == [[("assigned", "S"), ("assigned", "T")]] * 3


def test_whoever_proposed_is_called_when_it_is_applied() -> None:
    world, answers = World(), []
    world.leader.propose(assign(), answers.append)
    world.leader.propose(RemoveStream(account="A", name="T", incarnation=1), answers.append)
    assert answers == []
    world.group.commit()
    world.group.members[0].catch_up()
    assert answers == [True, False]


def test_only_the_leader_may_propose() -> None:
    world = World()
    with pytest.raises(ApiError) as caught:
        world.metas[1].propose(assign())
    assert caught.value.err_code == 10008
    world.group.waiting_max = 0
    with pytest.raises(ApiError):
        world.metas[0].propose(assign())
    assert world.metas[0].inflight_count == 0


# In flight


def test_the_leader_sees_what_is_in_flight() -> None:
    world = World()
    leader = world.leader
    index = leader.propose(assign())
    found = leader.stream("A", "S")
    assert found is not None and found.incarnation == found.group.id == index
    assert list(leader.streams_of("A")) == ["S"] and leader.state.stream("A", "S") is None
    world.group.settle()
    applied = leader.stream("A", "S")
    assert applied is not None and applied.incarnation == index and leader.inflight_count == 0


def test_several_operations_on_one_name_are_counted() -> None:
    world = World()
    leader, made = world.leader, world.make()
    config = replace(made.config, max_msgs=1)
    leader.propose(UpdateStream(account="A", incarnation=made.incarnation, config=config))
    leader.propose(RemoveStream(account="A", name="S", incarnation=made.incarnation))
    assert leader.stream("A", "S") is None and leader.streams_of("A") == {}
    world.group.commit(1)
    world.group.deliver()  # the update is applied, the removal is still in flight
    assert leader.stream("A", "S") is None and leader.state.stream("A", "S") is not None
    leader.propose(assign())
    assert leader.stream("A", "S") is not None
    world.group.settle()
    assert leader.stream("A", "S").incarnation > made.incarnation  # type: ignore[union-attr]
    world.assert_equal()


def test_a_stream_and_its_consumer_may_be_in_flight_together() -> None:
    world = World()
    leader = world.leader
    incarnation = leader.propose(assign())
    leader.propose(assign_consumer(incarnation))
    assert list(leader.consumers_of("A", "S")) == ["C"]
    world.group.settle()
    assert list(leader.consumers_of("A", "S")) == ["C"]
    leader.propose(RemoveConsumer(account="A", stream="S", incarnation=incarnation, name="C", created_ns=TIME_NS))
    assert leader.consumer("A", "S", "C") is None
    world.group.settle()
    assert leader.consumer("A", "S", "C") is None


def test_a_consumer_in_flight_is_not_one_of_the_next_stream_of_that_name() -> None:
    world = World()
    leader, made = world.leader, world.make()
    leader.propose(assign_consumer(made.incarnation))
    leader.propose(RemoveStream(account="A", name="S", incarnation=made.incarnation))
    leader.propose(assign())
    assert leader.consumers_of("A", "S") == {}
    world.group.settle()
    assert leader.consumers_of("A", "S") == {}


def test_accounts_are_in_flight_apart() -> None:
    world = World()
    world.leader.propose(assign("S", account="A"))
    assert world.leader.stream("B", "S") is None and world.leader.streams_of("B") == {}


def test_loads_count_what_is_in_flight() -> None:
    world = World()
    leader = world.leader
    made = leader.propose(assign("S", N1, max_bytes=5))
    assert leader.loads()[N1].reserved_store == 5 and leader.state.loads == {}
    world.group.settle()
    leader.propose(RemoveStream(account="A", name="S", incarnation=made))
    assert leader.loads()[N1].stream_count == 0 and leader.state.loads[N1].stream_count == 1
    world.group.settle()
    assert leader.loads()[N1] == leader.state.loads[N1]


# Leaders


def test_a_leader_change_clears_what_is_in_flight_and_is_announced() -> None:
    world, answers, changes = World(), [], []
    old = world.leader
    old.on_leader_change(lambda is_leader, leader: changes.append((is_leader, leader)))
    old.propose(assign(), answers.append)
    world.group.elect(1)
    assert old.inflight_count == 0 and old.stream("A", "S") is None
    assert answers == [] and changes == [(False, 0), (False, raft_id(2, 1))]
    assert world.leader is world.metas[1] and old.leader == nodes()[1].node
    world.group.elect(0)
    assert changes[-1] == (True, 0)


def test_a_proposal_that_survives_its_leader_is_applied_and_not_answered_by_it() -> None:
    world, answers = World(), []
    world.leader.propose(assign("S"), answers.append)
    world.leader.propose(assign("T"), answers.append)
    world.group.elect(1, surviving=1)
    world.group.settle()
    world.assert_equal()
    assert sorted(world.leader.streams_of("A")) == ["S"] and answers == []


def test_a_new_leader_has_applied_everything_before_it_decides() -> None:
    world = World()
    world.leader.propose(assign())
    world.group.commit()  # nobody has applied it yet
    world.group.elect(2)
    assert world.leader.stream("A", "S") is not None


def test_without_a_leader_nobody_knows_one() -> None:
    world = World()
    world.group.depose()
    assert all(meta.is_leaderless and meta.leader is None for meta in world.metas)


def test_malformed_entries_do_not_stop_a_member() -> None:
    world = World()
    world.group.members[0].propose(b"junk!")
    world.make()
    assert [meta.monitor.skipped for meta in world.metas] == [1, 1, 1]
    world.assert_equal()


# Snapshots


class FakeKeeper:
    def __init__(self) -> None:
        self.written: list[tuple[int, bytes]] = []
        self.done: list[Callable[[], None]] = []

    def write(self, index: int, data: bytes, done: Callable[[], None]) -> None:
        self.written.append((index, data))
        self.done.append(done)


def test_the_log_forgets_what_a_durable_snapshot_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta_module, "SNAPSHOT_ENTRIES", 4)
    keeper, heard = FakeKeeper(), Recorder()
    meta = Meta(heard, heard, keeper)
    group = MemoryGroup([meta])
    group.elect(0)
    for entry in [*nodes(), assign("S"), assign("T")]:
        meta.propose(entry)
    group.settle()
    assert [index for index, _ in keeper.written] == [5] and group.members[0].checkpoints == []
    keeper.done[0]()
    assert group.members[0].checkpoints == [5] and meta.pending_entries == 1
    again = Meta(Recorder(), heard)
    again.load(*keeper.written[0])
    assert list(again.state.accounts["A"]) == ["S"] and again.applied == 5


def test_a_member_that_was_away_takes_the_leaders_snapshot() -> None:
    world = World()
    made = {name: world.make(name) for name in ("KEPT", "CHANGED", "GONE")}
    world.leader.propose(assign_consumer(made["KEPT"].incarnation, "OLD", "KEPT"))
    world.group.settle()
    late, leader = world.metas[2], world.leader
    config = replace(made["CHANGED"].config, max_msgs=1)
    old = made["KEPT"].incarnation
    for entry in (
        UpdateStream(account="A", incarnation=made["CHANGED"].incarnation, config=config),
        RemoveStream(account="A", name="GONE", incarnation=made["GONE"].incarnation),
        assign("NEW"),
        RemoveConsumer(account="A", stream="KEPT", incarnation=old, name="OLD", created_ns=TIME_NS),
        assign_consumer(old, "FRESH", "KEPT"),
    ):
        leader.propose(entry)
    world.group.commit()
    for member in world.group.members[:2]:
        member.catch_up()
    world.heard[2].told.clear()
    late.install(leader.applied, leader.snapshot())
    assert world.heard[2].told == [
        ("removed", "GONE"),
        ("consumer removed", "OLD"),
        ("consumer assigned", "FRESH"),
        ("updated", "CHANGED"),
        ("assigned", "NEW"),
    ]
    world.assert_equal()


def test_a_stream_that_a_snapshot_does_not_know_keeps_its_files() -> None:
    world = World()
    before = world.metas[2].snapshot()
    world.make("S")
    late, heard = world.metas[2], world.heard[2]
    heard.told.clear()
    late.install(late.applied + 1, before)  # as if a snapshot had lost the stream
    assert heard.told == [("unknown", "S")]
    assert "its files stay name=S account=A" in heard.lines[-1]


def test_a_bad_snapshot_changes_nothing() -> None:
    world = World()
    world.make("S")
    before = encode_snapshot(world.metas[2].state)
    with pytest.raises(BadEntry):
        world.metas[2].install(99, b"\x01\x00junk")
    assert encode_snapshot(world.metas[2].state) == before


def test_servers_that_came_and_went_are_told_with_a_snapshot() -> None:
    world = World()
    before = world.metas[2].snapshot()
    fresh = Recorder()
    late = Meta(fresh, fresh)
    late.install(5, before)
    assert sorted(fresh.told) == [("joined", "n1"), ("joined", "n2"), ("joined", "n3")]
    world.leader.propose(NodeRemoved(peer=N1))
    world.group.settle()
    fresh.told.clear()
    late.install(9, world.leader.snapshot())
    assert fresh.told == [("left", "n1")]


# Chaos


@pytest.mark.parametrize("seed", range(30))
def test_members_agree_after_any_run_of_elections_delays_and_losses(seed: int) -> None:
    """Creates, changes and removals under leader changes: equal states, and no name with two streams."""
    chance, world = random.Random(seed), World()
    group, confirmed, gone = world.group, {}, set()
    for step in range(150):
        leader, name = world.leader, f"S{chance.randrange(5)}"
        found = leader.stream("A", name)
        action = chance.random()
        if action < 0.35 and found is None:
            made = replace(assign(name), created_ns=step)

            def created(changed: bool, name: str = name, step: int = step) -> None:
                assert changed, "the leader checked that the name is free"
                confirmed[name] = step

            leader.propose(made, created)
        elif action < 0.5 and found is not None:

            def removed(changed: bool) -> None:
                assert changed

            gone.add(found.created_ns)  # its leader may be gone before it hears of it
            leader.propose(RemoveStream(account="A", name=name, incarnation=found.incarnation), removed)
        elif action < 0.6 and found is not None:
            config = replace(found.config, max_msgs=step)
            leader.propose(UpdateStream(account="A", incarnation=found.incarnation, config=config))
        elif action < 0.7 and found is not None and leader.consumer("A", name, "C") is None:
            leader.propose(replace(assign_consumer(found.incarnation, "C", name), consumer=consumer(created_ns=step)))
        elif action < 0.75 and found is not None:
            leader.propose(SetDesired(account="A", name=name, incarnation=found.incarnation))
        elif action < 0.85:
            group.elect(chance.randrange(3), surviving=chance.randrange(4))
        elif action < 0.95:
            group.commit(chance.randrange(len(group.waiting) + 1))
            chance.choice(group.members).catch_up(chance.randrange(5))
        else:
            group.members[0].propose(chance.randbytes(9))
    group.settle()
    world.assert_equal()
    for name, created in confirmed.items():
        found = world.leader.stream("A", name)
        assert created in gone or (found is not None and found.created_ns >= created)

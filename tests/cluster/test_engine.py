"""The consensus engine through its interface: logs, leaders, members, and what it must not forget."""

from __future__ import annotations

import random
import struct

import pytest

from jetlake.cluster.engine import new_engine, raft_id
from tests.cluster.engines import Engines, ids, needs_engine

pytestmark = needs_engine


def test_a_leader_replicates_to_all() -> None:
    engines = Engines()
    engines.elect(1)
    engines.propose(1, b"a", b"b")
    engines.tick()
    assert engines.applied == {1: [b"a", b"b"], 2: [b"a", b"b"], 3: [b"a", b"b"]}


def test_only_the_leader_takes_proposals() -> None:
    engines = Engines()
    engines.elect(1)
    assert engines.all[2].propose(7, b"x") == 0
    assert engines.all[1].propose(7, b"x") == engines.all[1].status(7)["last"]


def test_too_much_that_is_not_committed_is_refused() -> None:
    engines = Engines()
    engines.elect(1)
    engines.cut = {(1, 2), (1, 3)}
    chunk = bytes(1 << 20)
    assert [bool(engines.all[1].propose(7, chunk)) for _ in range(66)][-1] is False


def test_nothing_is_applied_before_it_is_durable() -> None:
    engine = new_engine(1, 1)
    engine.open(7, raft_id(1, 1), ids(1), [])
    engine.campaign(7)
    turn, wal, _ = engine.ready()
    assert wal and engine.persisted(turn - 1)[1] == []
    engine.persisted(turn)
    engine.propose(7, b"x")
    turn, wal, _ = engine.ready()
    assert b"x" in wal
    assert [data for _, _, _, data in engine.persisted(turn - 1)[1]] == [b""]  # of the turn before
    assert engine.persisted(turn)[1] == []  # committed now, and found by the next turn
    turn, wal, _ = engine.ready()
    assert not wal and engine.persisted(turn)[1][0][3] == b"x"


def test_a_restart_goes_on_from_its_log() -> None:
    engines = Engines()
    engines.elect(1)
    engines.propose(1, b"a", b"b")
    engines.tick(5)
    for node in (1, 2, 3):
        assert engines.restart(node).open(7, raft_id(node, 1), [], [], is_new=False)
    engines.elect(2)
    engines.propose(2, b"c")
    engines.tick(5)
    assert engines.applied[3] == [b"a", b"b", b"c"]


def test_what_was_applied_is_not_handed_out_again() -> None:
    engines = Engines()
    engines.elect(1)
    engines.propose(1, b"a", b"b")
    applied = engines.all[1].status(7)["applied"]
    engines.restart(1).open(7, raft_id(1, 1), [], [], applied=applied - 1)
    engines.tick(45)
    assert engines.applied[1] == [b"b"]


def test_a_vote_is_remembered() -> None:
    engines = Engines()
    engines.elect(1)
    engines.all[1].ready()
    before = engines.all[2].status(7)
    engines.restart(2).open(7, raft_id(2, 1), [], [])
    after = engines.all[2].status(7)
    assert (after["term"], after["vote"]) == (before["term"], before["vote"]) == (2, raft_id(1, 1))


def test_a_member_that_lost_some_of_its_log_is_found_out_and_stays_so() -> None:
    engines = Engines()
    engines.elect(1)
    engines.propose(1, b"a")
    count = len(engines.wals[3])
    engines.propose(1, b"b", b"c")
    engines.tick(5)
    assert engines.restart(3, keep=count).open(7, raft_id(3, 1), [], [])
    engines.tick(10)  # the leader's heartbeat says how far this member was
    assert engines.forgotten == [(3, 7)]
    again = engines.restart(3)
    assert not again.open(7, raft_id(3, 1), ids(1, 2, 3), [])
    assert again.open(7, raft_id(3, 2), [], [])


def test_a_log_that_is_shorter_than_what_was_applied_is_refused() -> None:
    engines = Engines()
    engines.elect(1)
    assert not engines.restart(1).open(7, raft_id(1, 1), [], [], applied=99)


def test_a_group_that_is_neither_there_nor_new_is_refused() -> None:
    engine = new_engine(1, 1)
    assert not engine.open(7, raft_id(1, 1), ids(1, 2, 3), [], is_new=False)
    assert engine.groups() == []


def test_who_is_far_behind_gets_a_copy() -> None:
    engines = Engines(keep_size=0)
    engines.elect(1)
    engines.cut = {(1, 3), (3, 1)}
    engines.propose(1, b"a", b"b")
    engines.tick(2)
    engines.all[1].checkpoint(7, engines.all[1].status(7)["applied"], b"note")
    engines.cut = set()
    engines.all[1].peer_up(3, 1)
    engines.tick(10)
    assert [row[0] for row in engines.wanted] == [3]
    engines.propose(1, b"c")
    assert engines.applied[3] == []
    engines.copy()
    engines.propose(1, b"d")
    engines.tick(6)
    assert engines.applied[3] == [b"a", b"b", b"c", b"d"]
    found = engines.restart(3).groups()
    assert found[0][3] == b"copied" and not found[0][5]


def test_a_copy_that_failed_is_asked_for_again() -> None:
    engines = Engines(keep_size=0)
    engines.elect(1)
    engines.cut = {(1, 3), (3, 1)}
    engines.propose(1, b"a")
    engines.all[1].checkpoint(7, engines.all[1].status(7)["applied"])
    engines.cut = set()
    engines.all[1].peer_up(3, 1)
    engines.tick(10)
    engines.wanted.clear()
    engines.all[3].copy_failed(7)
    engines.tick(10)
    assert [row[0] for row in engines.wanted] == [3]


def test_a_member_is_swapped_for_another_and_leads() -> None:
    engines = Engines()
    engines.add(4)
    engines.all[4].open(7, raft_id(4, 1), [], [])
    engines.elect(1)
    engines.propose(1, b"a")
    assert engines.all[1].change(7, [], [], ids(4))
    assert not engines.all[1].change(7, ids(4), [], [])  # one at a time
    engines.settle()
    engines.copy()
    engines.tick(6)
    assert engines.all[1].change(7, ids(4), ids(3), [])
    engines.tick(6)
    assert engines.all[1].status(7)["voters"] == ids(1, 2, 4)
    assert engines.all[1].status(7)["outgoing"] == []
    engines.all[1].transfer(7, raft_id(4, 1))
    engines.tick(2)
    assert engines.role(4) == "leader"
    engines.propose(4, b"b")
    engines.tick()
    assert engines.applied[4] == engines.applied[1] == [b"a", b"b"]
    assert engines.applied[3] == [b"a"]


def test_a_leader_that_is_removed_leads_no_more() -> None:
    engines = Engines()
    engines.elect(1)
    assert engines.all[1].change(7, [], ids(1), [])
    engines.settle()
    assert engines.role(1) == "follower"


@pytest.mark.parametrize("seed", range(20))
def test_a_leader_that_is_down_is_replaced_at_once(seed: int) -> None:
    engines = Engines(5, seed)
    engines.elect(5)
    engines.propose(5, b"a")
    engines.tick(7)
    del engines.all[5]
    for node in (4, 3, 2, 1):
        engines.all[node].peer_down(5)
    engines.settle()
    assert engines.leaders() == [1]


@pytest.mark.parametrize("seed", range(20))
def test_a_leader_is_found_where_the_first_in_rank_has_less(seed: int) -> None:
    engines = Engines(3, seed)
    engines.elect(3)
    engines.tick(7)
    engines.cut = {(3, 1)}
    engines.propose(3, b"a")
    del engines.all[3]
    engines.cut = set()
    for node in (1, 2):
        engines.all[node].peer_down(3)
    engines.tick(4)
    assert engines.leaders() == [2]


def test_a_wrong_word_about_a_leader_does_not_depose_it() -> None:
    engines = Engines()
    engines.elect(1)
    engines.tick(3)
    engines.all[2].peer_down(1)
    engines.tick(30)
    assert engines.leaders() == [1]


def test_a_leader_steps_down_for_the_one_that_has_most() -> None:
    engines = Engines()
    engines.elect(1)
    engines.cut = {(1, 2)}
    engines.propose(1, b"a")
    engines.all[1].step_down(7)
    engines.settle()
    assert engines.leaders() == [3]


def test_a_leader_without_a_quorum_steps_down() -> None:
    engines = Engines()
    engines.elect(1)
    engines.cut = {(2, 1), (3, 1), (1, 2), (1, 3)}
    engines.tick(45)
    assert engines.role(1) != "leader"
    assert len(engines.leaders()) == 1


def test_a_read_waits_for_the_quorum() -> None:
    engine = new_engine(1, 1)
    engine.open(7, raft_id(1, 1), ids(1), [])
    assert not engine.read_index(7, 5)
    engine.campaign(7)
    for _ in range(3):
        engine.persisted(engine.ready()[0])
    assert engine.read_index(7, 5)
    assert engine.persisted(engine.ready()[0])[3] == [(7, engine.status(7)["commit"], 5)]


def test_an_earlier_connection_is_not_heard_any_more() -> None:
    engines = Engines()
    engines.elect(1)
    engines.all[1].propose(7, b"x")
    _, _, messages = engines.all[1].ready()
    data = dict(messages)[2]
    engines.all[2].peer_up(1, 9)
    before = engines.all[2].status(7)["last"]
    assert engines.all[2].feed(1, 8, data) == len(data)
    assert engines.all[2].status(7)["last"] == before
    engines.all[2].feed(1, 9, data)
    assert engines.all[2].status(7)["last"] == before + 1


def test_a_part_of_a_frame_waits_for_the_rest() -> None:
    engines = Engines()
    engines.all[1].campaign(7)
    turn, _, _ = engines.all[1].ready()
    data = dict(engines.all[1].persisted(turn)[0])[2]
    assert [engines.all[2].feed(1, 1, data[:size]) for size in range(len(data))] == [0] * len(data)
    assert engines.all[2].feed(1, 1, data + b"\0") == len(data)


def test_somebody_elses_messages_are_dropped() -> None:
    engines = Engines()
    engines.all[1].campaign(7)
    turn, _, _ = engines.all[1].ready()
    data = dict(engines.all[1].persisted(turn)[0])[2]
    engines.all[2].feed(3, 1, data)  # node 3 cannot speak for node 1
    engines.all[3].feed(1, 1, data)  # and this was for node 2
    assert engines.all[2].persisted(engines.all[2].ready()[0])[0] == []
    assert engines.all[3].persisted(engines.all[3].ready()[0])[0] == []


def test_any_bytes_are_refused_or_understood_and_never_kill() -> None:
    engines = Engines()
    engines.elect(1)
    engines.all[1].propose(7, b"hello")
    good = dict(engines.all[1].ready()[2])[2]
    rng = random.Random(1)
    for _ in range(3000):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(4, len(bad))
            if not 12 + 2 <= place < 12 + 2 + 8 * 10:  # ids, terms and indexes: peers do not lie about these
                bad[place] = rng.randrange(256)
        try:
            engines.all[2].feed(1, 1, bytes(bad))
        except ValueError as error:
            assert "peer 1" in str(error)


@pytest.mark.parametrize("size", [0, 3, 8])
def test_a_frame_too_short_for_a_message_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"a frame of {size} bytes"):
        new_engine(1, 1).feed(2, 1, struct.pack("<I", size) + bytes(size))


def test_the_same_seed_gives_the_same_bytes() -> None:
    def run(seed: int) -> list[list[bytes]]:
        engines = Engines(3, seed)
        engines.tick(60)
        (leader,) = engines.leaders()
        engines.propose(leader, b"a")
        return [engines.wals[node] for node in (1, 2, 3)]

    assert run(5) == run(5)
    assert len({repr(run(seed)) for seed in range(6)}) > 1


def test_bad_arguments_are_errors() -> None:
    with pytest.raises(ValueError, match="node's number"):
        new_engine(0, 1)
    engine = new_engine(1, 1)
    with pytest.raises(ValueError, match="not of node 1"):
        engine.open(7, raft_id(2, 1), ids(2), [])
    with pytest.raises(ValueError, match="not open"):
        engine.propose(7, b"x")
    engine.open(7, raft_id(1, 1), ids(1), [])
    with pytest.raises(ValueError, match="is open"):
        engine.open(7, raft_id(1, 1), ids(1), [])
    with pytest.raises(ValueError, match="a checkpoint at 9, and 1 is applied"):
        engine.checkpoint(7, 9)


def test_a_group_of_an_in_memory_stream_writes_nothing() -> None:
    engine = new_engine(1, 1)
    engine.open(7, raft_id(1, 1), ids(1), [], is_volatile=True)
    engine.campaign(7)
    turn, wal, _ = engine.ready()
    engine.persisted(turn)
    engine.propose(7, b"x")
    assert wal == engine.ready()[1] == b""


def test_a_destroyed_group_is_gone_after_a_restart() -> None:
    engines = Engines()
    engines.elect(1)
    engines.all[1].destroy(7)
    engines.turn(1)
    assert engines.restart(1).groups() == []


def test_a_group_that_is_opened_again_does_not_take_an_old_write_for_its_own() -> None:
    engine = new_engine(1, 1)
    engine.open(7, raft_id(1, 1), ids(1), [])
    engine.campaign(7)
    old, _, _ = engine.ready()
    engine.close(7)
    assert engine.open(7, raft_id(1, 1), [], [])
    engine.campaign(7)
    engine.ready()  # its write is still to come
    assert engine.persisted(old)[1] == []
    engine.ready()
    assert engine.persisted(old)[1] == []
    assert engine.own_id(7) == raft_id(1, 1) and engine.own_id(8) == 0


def test_a_checkpoint_of_what_was_applied_before_a_restart_waits_for_the_log() -> None:
    engines = Engines()
    engines.elect(1)
    engines.propose(1, b"a", b"b")
    engines.tick(6)
    applied = engines.all[1].status(7)["applied"]
    engines.restart(1).open(7, raft_id(1, 1), [], [], applied=applied)
    engines.all[1].checkpoint(7, applied, b"note")
    engines.tick(45)
    assert engines.all[1].status(7)["checkpoint"] == applied
    assert engines.restart(1).groups()[0][2:4] == (applied, b"note")

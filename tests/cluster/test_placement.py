"""Placement: which servers may hold a stream, which of them do, and what the client hears if there are too few."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from jetlake.cluster.placement import (
    Candidate,
    StepDownPlacement,
    group_name,
    plan_group,
    preferred_peer,
    replace_peer,
    select_peers,
    step_down_target,
    wish_of,
)
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams.config import Placement, Storage, StreamConfig
from tests.cluster.things import N1, N2, N3, node

GIB = 1 << 30


def servers(*changes: dict[str, Any]) -> list[Candidate]:
    """Three servers; each dict has fields of the candidate, or of its node, that are different."""
    found = []
    for number, change in enumerate(changes or ({}, {}, {}), 1):
        of_node = {name: value for name, value in change.items() if name in ("tags", "cluster", "max_ha_assets")}
        of_it = {name: value for name, value in change.items() if name not in of_node}
        found.append(Candidate(node(number, **of_node), **of_it))
    return found


def select(among: list[Candidate], replicas: int = 3, unique: str = "", **fields: Any) -> tuple[str, ...]:
    options = {name: fields.pop(name) for name in ("existing", "ignore", "leaving") if name in fields}
    config = StreamConfig(name="S", num_replicas=replicas, **fields)
    return select_peers(wish_of(config, "C1", unique), among, chance=random.Random(1), **options)


def refusal(among: list[Candidate], replicas: int = 3, unique: str = "", **fields: Any) -> str:
    with pytest.raises(ApiError) as caught:
        select(among, replicas, unique, **fields)
    assert (caught.value.code, caught.value.err_code) == (400, 10005)
    text = caught.value.description
    assert text.startswith("no suitable peers for placement")
    return text.removeprefix("no suitable peers for placement")


def tags(*wanted: str) -> Placement:
    return Placement(tags=wanted)


TAGGED = ({"tags": ("az:1", "ssd")}, {"tags": ("az:2", "ssd")}, {"tags": ("az:2", "hdd")})


def test_as_many_servers_are_taken_as_there_are_replicas() -> None:
    assert sorted(select(servers())) == sorted([N1, N2, N3])
    assert len(select(servers(), 1)) == 1


def test_too_few_servers_is_an_error_without_a_reason() -> None:
    assert refusal(servers(), 5) == ""
    assert refusal(servers(), 1, placement=Placement(cluster="X")) == ""


def test_no_server_at_all_is_another_error() -> None:
    assert refusal([], 1) == ", jetstream not enabled in cluster"


def test_tags_must_be_there() -> None:
    assert select(servers(*TAGGED), 1, placement=tags("hdd")) == (N3,)
    assert sorted(select(servers(*TAGGED), 2, placement=tags("ssd"))) == sorted([N1, N2])
    assert refusal(servers(*TAGGED), 3, placement=tags("ssd")) == ", tags not matched ['ssd']"
    assert refusal(servers(*TAGGED), 1, placement=tags("az:1", "hdd")) == ", tags not matched ['az:1', 'hdd']"


def test_excluded_tags_must_not_be_there() -> None:
    assert select(servers(*TAGGED), 1, placement=tags("!ssd")) == (N3,)
    assert refusal(servers(*TAGGED), 3, placement=tags("!ssd")) == ", tags excluded ['ssd']"


def test_a_server_can_be_kept_free_of_streams() -> None:
    among = servers({"tags": ("!jetstream",)}, {}, {})
    assert N1 not in select(among, 2)
    assert refusal(among) == ", exclude tag set"


def test_a_unique_tag_is_taken_once() -> None:
    assert refusal(servers(*TAGGED), 3, unique="az:") == ", server tag not unique"
    chosen = select(servers(*TAGGED), 2, unique="az:")
    assert N1 in chosen and len(chosen) == 2
    assert refusal(servers({}, {}), 1, unique="az:") == ", server tag not unique"


def test_naming_a_unique_tag_turns_the_rule_off() -> None:
    assert sorted(select(servers(*TAGGED), 2, unique="az:", placement=tags("az:2"))) == sorted([N2, N3])


def test_existing_peers_own_their_unique_tags_unless_they_leave() -> None:
    assert refusal(servers(*TAGGED[1:], {}), 2, unique="az:", existing=(N1,)) == ", server tag not unique"
    assert select(servers(*TAGGED[1:], {}), 2, unique="az:", existing=(N1,), leaving=(N1,)) == (N1, N2)


def test_a_stream_needs_the_storage_that_it_reserves() -> None:
    among = servers({"used_store": GIB - 5}, {"reserved_store": GIB - 9}, {"reserved_store": GIB - 3})
    assert select(among, 1, max_bytes=9) == (N2,)
    assert refusal(among, 1, max_bytes=10) == ", insufficient storage"
    assert refusal(servers(), 1, max_bytes=1, storage=Storage.MEMORY) == ", insufficient storage"


def test_reasons_are_told_together() -> None:
    text = refusal(servers(*TAGGED), 3, max_bytes=2 * GIB, placement=tags("ssd"))
    assert text == ", insufficient storage, tags not matched ['ssd']"


def test_replicated_streams_per_server_are_limited() -> None:
    among = servers({"max_ha_assets": 2, "ha_count": 2}, {"max_ha_assets": 2, "ha_count": 1}, {})
    assert sorted(select(among, 2)) == sorted([N2, N3])
    assert refusal(among) == ", miscellaneous issue"


def test_a_server_that_was_never_heard_of_is_out() -> None:
    assert refusal(servers({"is_known": False}, {}, {})) == ", peer offline"


def test_offline_servers_come_last_and_a_quorum_must_be_online() -> None:
    one_off = servers({"is_online": False}, {}, {})
    assert select(one_off)[-1] == N1
    assert N1 not in select(one_off, 2)
    assert refusal(servers({"is_online": False}, {"is_online": False}, {})) == ", peer offline"


def test_the_most_free_storage_wins_and_then_the_fewest_streams() -> None:
    assert select(servers({"used_store": 9}, {}, {"used_store": 5}), 1) == (N2,)
    assert select(servers({"stream_count": 3}, {"stream_count": 1}, {"stream_count": 2}), 1) == (N2,)


def test_replicated_streams_go_where_there_are_few_of_them() -> None:
    among = servers({"ha_count": 2}, {"used_store": 9}, {"used_store": 5})
    assert set(select(among, 2)) == {N2, N3}


def test_equal_servers_take_turns() -> None:
    wish = wish_of(StreamConfig(name="S"), "C1")
    assert {select_peers(wish, servers())[0] for _ in range(60)} == {N1, N2, N3}


def test_another_server_takes_the_place_of_one() -> None:
    four = [*servers(), Candidate(node(4))]
    wish = wish_of(StreamConfig(name="S", num_replicas=3), "C1")
    found = replace_peer(wish, (N1, N2, N3), N2, four)
    assert found[:2] == (N1, N3) and found[2] == four[3].node.peer
    with pytest.raises(ApiError) as caught:
        replace_peer(wish, (N1, N2, N3), N2, servers())
    assert (caught.value.code, caught.value.err_code) == (503, 10075)


# Groups and leaders


def test_group_names_are_shaped_as_those_of_nats_server() -> None:
    assert re.fullmatch(r"S-R3F-[0-9A-Za-z]{8}", group_name("S", 3, Storage.FILE))
    assert re.fullmatch(r"C-R1M-[0-9A-Za-z]{8}", group_name("C", 1, Storage.MEMORY))
    plan = plan_group(StreamConfig(name="S"), (N1, N2), "C1", servers())
    assert plan.peers == (N1, N2) and plan.preferred == N1 and plan.name.startswith("S-R2F-")


def test_the_preferred_leader_is_online_and_leads_little() -> None:
    among = {each.node.peer: each for each in servers({"is_online": False}, {"leader_count": 2}, {"leader_count": 1})}
    assert preferred_peer((N1, N2, N3), among) == N3
    assert preferred_peer((N1, N2), among) == N2
    assert preferred_peer((N1,), among) == N1


def step_down(**fields: Any) -> str:
    among = {each.node.peer: each for each in servers(*TAGGED)}
    return step_down_target(StepDownPlacement(**fields), N1, (N1, N2, N3), among)


def test_a_leader_hands_its_office_to_who_is_asked_for() -> None:
    assert step_down(preferred="n3") == N3
    assert step_down(tags=("hdd",)) == N3
    assert step_down(cluster="C1") == N2
    assert step_down() == N2


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"preferred": "n1"}, 'preferred server "n1" is already leader'),
        ({"preferred": "zz"}, 'preferred server "zz" not known'),
        ({"cluster": "X"}, "no replacement peer connected"),
        ({"tags": ("nope",)}, "no replacement peer connected"),
    ],
)
def test_a_leader_that_cannot_move_as_asked_says_why(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ApiError) as caught:
        step_down(**fields)
    assert (caught.value.err_code, caught.value.description) == (10005, problem)


def test_an_offline_server_is_no_replacement() -> None:
    among = {each.node.peer: each for each in servers({}, {"is_online": False})}
    with pytest.raises(ApiError, match="no replacement peer connected"):
        step_down_target(StepDownPlacement(), N1, (N1, N2), among)

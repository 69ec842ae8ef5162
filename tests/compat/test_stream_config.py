"""Stream configurations, right and wrong, created and updated: both servers answer alike."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.conftest import Pair
from tests.compat.script import Script, assert_same

SECOND = 1_000_000_000
MINUTE = 60 * SECOND

CONFIGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no subjects": {"subjects": []},
    "subjects null": {"subjects": None},
    "several subjects": {"subjects": ["S.a", "S.b.*", "S.c.>"]},
    "memory": {"storage": "memory"},
    "file": {"storage": "file"},
    "storage unknown": {"storage": "tape"},
    "storage of the wrong type": {"storage": 1},
    "interest": {"retention": "interest"},
    "workqueue": {"retention": "workqueue"},
    "retention unknown": {"retention": "forever"},
    "description": {"description": "about it"},
    "description too long": {"description": "x" * 4097},
    "description of the longest": {"description": "x" * 4096},
    "metadata": {"metadata": {"a": "b", "owner": "me"}},
    "metadata reserved keys": {"metadata": {"_nats.ver": "1", "_nats.level": "9", "_nats.req.level": "9", "a": "b"}},
    "metadata too large": {"metadata": {"k": "v" * 131072}},
    "metadata wrong type": {"metadata": {"a": 1}},
    "subject invalid, empty token": {"subjects": ["S..a"]},
    "subject invalid, gt not last": {"subjects": ["S.>.a"]},
    "subject invalid, space": {"subjects": ["S.a b"]},
    "subject empty": {"subjects": [""]},
    "subject twice": {"subjects": ["S.a", "S.a"]},
    "subjects overlap": {"subjects": ["S.a", "S.*"]},
    "subjects overlap by full wildcard": {"subjects": ["S.>", "S.a.b"]},
    "captures everything": {"subjects": [">"]},
    "captures the api": {"subjects": ["$JS.>"]},
    "captures the api, one": {"subjects": ["$JS.API.STREAM.INFO.S"]},
    "captures api with no ack": {"subjects": ["$JS.API.S.>"], "no_ack": True},
    "captures advisories": {"subjects": ["$JS.EVENT.ADVISORY.S.>"]},
    "captures jsc": {"subjects": ["$JSC.S.>"]},
    "captures nrg": {"subjects": ["$NRG.S.>"]},
    "captures system": {"subjects": ["$SYS.S.>"]},
    "captures system accounts": {"subjects": ["$SYS.ACCOUNT.S.>"]},
    "no ack": {"no_ack": True},
    "replicas 0": {"num_replicas": 0},
    "replicas 1": {"num_replicas": 1},
    "replicas 2": {"num_replicas": 2},
    "replicas 3": {"num_replicas": 3},
    "replicas 6": {"num_replicas": 6},
    "replicas negative": {"num_replicas": -1},
    "replicas as text": {"num_replicas": "1"},
    "replicas as a fraction": {"num_replicas": 1.5},
    "max_msgs": {"max_msgs": 5},
    "max_msgs 0": {"max_msgs": 0},
    "max_msgs below -1": {"max_msgs": -7},
    "max_msgs as text": {"max_msgs": "5"},
    "max_msgs huge": {"max_msgs": 9223372036854775807},
    "max_msgs too huge": {"max_msgs": 9223372036854775808},
    "max_bytes": {"max_bytes": 4096},
    "max_bytes 0": {"max_bytes": 0},
    "max_bytes below -1": {"max_bytes": -5},
    "max_msg_size": {"max_msg_size": 100},
    "max_msg_size 0": {"max_msg_size": 0},
    "max_msg_size below -1": {"max_msg_size": -2},
    "max_msg_size above 31 bits": {"max_msg_size": 2147483648},
    "max_msgs_per_subject": {"max_msgs_per_subject": 3},
    "max_msgs_per_subject below -1": {"max_msgs_per_subject": -9},
    "max_consumers": {"max_consumers": 2},
    "max_consumers 0": {"max_consumers": 0},
    "max_consumers below -1": {"max_consumers": -9},
    "max_age": {"max_age": MINUTE},
    "max_age negative": {"max_age": -1},
    "max_age below 100 ms": {"max_age": 99_999_999},
    "max_age of 100 ms": {"max_age": 100_000_000},
    "max_age as text": {"max_age": "1m"},
    "duplicate window": {"duplicate_window": MINUTE},
    "duplicate window negative": {"duplicate_window": -1},
    "duplicate window below 100 ms": {"duplicate_window": 1},
    "duplicate window above max_age": {"duplicate_window": 2 * MINUTE, "max_age": MINUTE},
    "duplicate window equal to max_age": {"duplicate_window": MINUTE, "max_age": MINUTE},
    "duplicate window from a short max_age": {"max_age": SECOND},
    "duplicate window from a long max_age": {"max_age": 60 * MINUTE},
    "discard new": {"discard": "new", "max_msgs": 3},
    "discard in capitals": {"discard": "NEW"},
    "discard unknown": {"discard": "some"},
    "discard new per subject": {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 1},
    "discard new per subject without discard new": {"discard_new_per_subject": True, "max_msgs_per_subject": 1},
    "discard new per subject without a limit": {"discard": "new", "discard_new_per_subject": True},
    "compression s2": {"compression": "s2"},
    "compression none": {"compression": "none"},
    "compression unknown": {"compression": "zip"},
    "first_seq": {"first_seq": 10},
    "first_seq 1": {"first_seq": 1},
    "first_seq negative": {"first_seq": -1},
    "placement": {"placement": {"cluster": "C", "tags": ["a", "b"]}},
    "placement empty": {"placement": {}},
    "placement preferred": {"placement": {"preferred": "x"}},
    "placement unknown field": {"placement": {"clusters": "C"}},
    "allow_direct": {"allow_direct": True},
    "mirror_direct without a mirror": {"mirror_direct": True},
    "sealed": {"sealed": True},
    "deny_delete": {"deny_delete": True},
    "deny_purge": {"deny_purge": True},
    "rollups": {"allow_rollup_hdrs": True},
    "rollups without purge": {"allow_rollup_hdrs": True, "deny_purge": True},
    "consumer limits": {"consumer_limits": {"inactive_threshold": MINUTE, "max_ack_pending": 50}},
    "consumer limits empty": {"consumer_limits": {}},
    "consumer limits null": {"consumer_limits": None},
    "consumer limits negative threshold": {"consumer_limits": {"inactive_threshold": -1}},
    "message ttl": {"allow_msg_ttl": True},
    "delete markers": {"subject_delete_marker_ttl": SECOND},
    "delete markers under a second": {"subject_delete_marker_ttl": SECOND - 1},
    "delete markers negative": {"subject_delete_marker_ttl": -1},
    "delete markers with deny_purge": {"subject_delete_marker_ttl": SECOND, "deny_purge": True},
    "persist_mode default": {"persist_mode": "default"},
    "persist_mode unknown": {"persist_mode": "later"},
    "republish": {"republish": {"src": "S.>", "dest": "R.S.>"}},
    "republish without source": {"republish": {"dest": "R.S.>"}},
    "republish headers only": {"republish": {"src": "S.*", "dest": "R.S.{{wildcard(1)}}", "headers_only": True}},
    "republish in a cycle": {"republish": {"src": ">", "dest": "S.>"}},
    "republish with a bad destination": {"republish": {"src": "S.*", "dest": "R.S.$2"}},
    "republish with bad source": {"republish": {"src": "S..a", "dest": "R.S"}},
    "republish without destination": {"republish": {"src": "S.>"}},
    "transform": {"subject_transform": {"src": "S.*", "dest": "S.x.{{wildcard(1)}}"}},
    "transform without source": {"subject_transform": {"src": "", "dest": "S.x.>"}},
    "transform with a bad source": {"subject_transform": {"src": "S..*", "dest": "S.x"}},
    "transform with a bad destination": {"subject_transform": {"src": "S.*", "dest": "S.{{wildcard(2)}}"}},
    "transform with an unknown function": {"subject_transform": {"src": "S.*", "dest": "S.{{foo(1)}}"}},
    "transform partition": {"subject_transform": {"src": "S.*", "dest": "S.{{partition(5,1)}}.{{wildcard(1)}}"}},
    "transform bad partition": {"subject_transform": {"src": "S.*", "dest": "S.{{partition(x,1)}}"}},
    "transform without destination": {"subject_transform": {"src": "S.*"}},
    "unknown field": {"colour": "blue"},
    "unknown fields": {"colour": "blue", "shape": "round"},
    "name of another": {"name": "Other"},
    "name wrong type": {"name": 1},
    "subjects wrong type": {"subjects": "S.>"},
    "subjects of wrong types": {"subjects": [1]},
    "boolean as a number": {"allow_direct": 1},
    "boolean as a text": {"no_ack": "true"},
    "key in capitals": {"MAX_MSGS": 7},
    "template owner": {"template_owner": "me"},
    "pedantic": {"pedantic": True},
    "pedantic zero limits": {"pedantic": True, "max_msgs": 0},
    "pedantic with markers": {"pedantic": True, "subject_delete_marker_ttl": SECOND},
    "pedantic below -1": {"pedantic": True, "max_msgs": -2},
    "pedantic whole": {
        "pedantic": True, "max_msgs": -1, "max_bytes": -1, "max_msgs_per_subject": -1, "max_msg_size": -1,
        "max_consumers": -1, "num_replicas": 1, "duplicate_window": MINUTE,
    },
    "pedantic duplicate window above max_age": {
        "pedantic": True, "max_msgs": -1, "max_bytes": -1, "max_msgs_per_subject": -1, "max_msg_size": -1,
        "max_consumers": -1, "num_replicas": 1, "duplicate_window": 2 * MINUTE, "max_age": MINUTE,
    },
    "schedules with discard new": {"allow_msg_schedules": True, "discard": "new"},
    "counter with discard new": {"allow_msg_counter": True, "discard": "new"},
    "counter with ttl": {"allow_msg_counter": True, "allow_msg_ttl": True},
    "counter with interest": {"allow_msg_counter": True, "retention": "interest"},
    "mirror with subjects": {"mirror": {"name": "M"}},
    "mirror with first_seq": {"mirror": {"name": "M"}, "subjects": [], "first_seq": 5},
    "mirror and sources": {"mirror": {"name": "M"}, "sources": [{"name": "N"}], "subjects": []},
    "mirror with a bad name": {"mirror": {"name": "a.b"}, "subjects": []},
    "source with a bad name": {"sources": [{"name": "a.b"}]},
    "source twice": {"sources": [{"name": "M"}, {"name": "M"}]},
    "async with memory": {"persist_mode": "async", "storage": "memory"},
}  # fmt: skip


@pytest.mark.parametrize("case", CONFIGS)
def test_create_is_answered_alike(pair: Pair, name: str, case: str) -> None:
    def act(script: Script) -> None:
        script.create(**CONFIGS[case])
        script.create(**CONFIGS[case])
        script.api("STREAM.INFO.S")
        script.api("STREAM.LIST", {"subject": "S.>"})
        script.publish("S.a", b"x")
        script.api("STREAM.INFO.S", {"subjects_filter": ">"})

    # A stream without acks, or without the subject, leaves a publish unanswered, or to nobody.
    def act_unanswered(script: Script) -> None:
        script.create(**CONFIGS[case])
        script.api("STREAM.INFO.S")

    assert_same(pair, name, act_unanswered if CONFIGS[case].get("no_ack") else act)


FULL = {"max_msgs": 5, "max_bytes": 5000, "max_age": 60 * MINUTE, "description": "d", "metadata": {"a": "b"}}
UPDATES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "everything back to defaults": (FULL, {}),
    "limits": ({}, FULL),
    "storage": ({}, {"storage": "memory"}),
    "limits to interest": ({}, {"retention": "interest"}),
    "interest to limits": ({"retention": "interest"}, {}),
    "limits to workqueue": ({}, {"retention": "workqueue"}),
    "workqueue to limits": ({"retention": "workqueue"}, {}),
    "seal": ({"max_age": MINUTE}, {"sealed": True, "max_age": MINUTE}),
    "deny_delete on": ({}, {"deny_delete": True}),
    "deny_delete off": ({"deny_delete": True}, {}),
    "deny_purge on": ({}, {"deny_purge": True}),
    "deny_purge off": ({"deny_purge": True}, {}),
    "rollups on": ({}, {"allow_rollup_hdrs": True}),
    "rollups off": ({"allow_rollup_hdrs": True}, {}),
    "ttl on": ({}, {"allow_msg_ttl": True}),
    "ttl off": ({"allow_msg_ttl": True}, {}),
    "markers on": ({}, {"subject_delete_marker_ttl": SECOND}),
    "markers off": ({"subject_delete_marker_ttl": SECOND}, {"allow_msg_ttl": True}),
    "direct on": ({}, {"allow_direct": True}),
    "direct off": ({"allow_direct": True}, {}),
    "first_seq": ({}, {"first_seq": 10}),
    "first_seq kept": ({"first_seq": 10}, {"first_seq": 10}),
    "first_seq dropped": ({"first_seq": 10}, {}),
    "replicas": ({}, {"num_replicas": 3}),
    "replicas negative": ({}, {"num_replicas": -1}),
    "compression on": ({}, {"compression": "s2"}),
    "compression off": ({"compression": "s2"}, {}),
    "subjects": ({}, {"subjects": ["S.a", "Z.S.>"]}),
    "subjects overlapping": ({}, {"subjects": ["S.>", "S.a"]}),
    "subjects invalid": ({}, {"subjects": ["S..a"]}),
    "no subjects": ({}, {"subjects": []}),
    "max_age too short": ({}, {"max_age": 1}),
    "window above max_age": ({}, {"duplicate_window": 2 * MINUTE, "max_age": MINUTE}),
    "window shorter": ({}, {"duplicate_window": SECOND}),
    "discard new": ({}, {"discard": "new"}),
    "discard old": ({"discard": "new"}, {}),
    "discard new per subject": ({}, {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 2}),
    "no_ack off": ({"no_ack": True}, {}),
    "max_consumers": ({}, {"max_consumers": 4}),
    "placement": ({}, {"placement": {"cluster": "X"}}),
    "republish on": ({}, {"republish": {"src": "S.>", "dest": "R.S.>"}}),
    "republish off": ({"republish": {"src": "S.>", "dest": "R.S.>"}}, {}),
    "republish changed": ({"republish": {"src": "S.>", "dest": "R.S.>"}}, {"republish": {"dest": "Q.S.>"}}),
    "republish in a cycle": ({}, {"republish": {"dest": "S.>"}}),
    "transform on": ({}, {"subject_transform": {"src": "S.*", "dest": "S.x.$1"}}),
    "transform off": ({"subject_transform": {"src": "S.*", "dest": "S.x.$1"}}, {}),
    "transform bad": ({}, {"subject_transform": {"src": "S.*", "dest": "S.x.$3"}}),
    "metadata": ({"metadata": {"a": "b"}}, {"metadata": {"c": "d"}}),
    "description too long": ({}, {"description": "x" * 4097}),
    "consumer limits": ({}, {"consumer_limits": {"max_ack_pending": 10}}),
    "unknown field": ({}, {"colour": 1}),
    "name differs": ({}, {"name": "Other"}),
    "mirror on": ({}, {"mirror": {"name": "M"}, "subjects": []}),
    "pedantic": ({}, {"pedantic": True, "max_msgs": 0}),
    "persist_mode": ({}, {"persist_mode": "async"}),
    "counter on": ({}, {"allow_msg_counter": True}),
}


@pytest.mark.parametrize("case", UPDATES)
def test_update_is_answered_alike(pair: Pair, name: str, case: str) -> None:
    before, after = UPDATES[case]

    def act(script: Script) -> None:
        script.create(**before)
        script.update(**after)
        script.api("STREAM.INFO.S")
        script.update(**after)

    assert_same(pair, name, act)


def test_update_of_a_sealed_stream(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(max_age=MINUTE)
        script.publish("S.a", b"x")
        script.update(sealed=True)
        script.publish("S.a", b"y")
        script.update()
        script.update(sealed=True, description="more")
        script.api("STREAM.PURGE.S")
        script.api("STREAM.MSG.DELETE.S", {"seq": 1})
        script.api("STREAM.INFO.S")

    assert_same(pair, name, act)


def test_lowered_limits_apply_at_once(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create()
        for number in range(12):
            script.publish(f"S.{number % 3}", b"x" * number)
        script.update(max_msgs_per_subject=3)
        script.api("STREAM.INFO.S", {"subjects_filter": ">"})
        script.update(max_msgs=5)
        script.api("STREAM.INFO.S", {"deleted_details": True})
        script.update(max_bytes=100)
        script.api("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": "S.*"})

    assert_same(pair, name, act)


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_lowered_limits_with_discard_new_remove_nothing(pair: Pair, name: str, storage: str) -> None:
    def act(script: Script) -> None:
        script.create(storage=storage, max_msgs=10)
        for _ in range(5):
            script.publish("S.a", b"x")
        for limits in ({"max_msgs": 2}, {"max_bytes": 60}, {"max_bytes": 60, "max_msgs_per_subject": 3}):
            script.update(storage=storage, discard="new", **limits)
            script.api("STREAM.INFO.S")
            script.publish("S.a", b"y")
            script.publish("S.b", b"y")
        script.update(storage=storage, max_msgs=2)
        script.api("STREAM.INFO.S")

    assert_same(pair, name, act)


def test_create_with_another_configuration_is_refused(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create()
        for other in ({"max_msgs": 3}, {"subjects": ["S.a"]}, {"description": "x"}, {"metadata": {"a": "b"}}):
            script.create(**other)
        script.create(metadata={"_nats.ver": "0.1"})
        script.create(max_msgs=-1, max_bytes=-1, num_replicas=1, duplicate_window=2 * MINUTE)

    assert_same(pair, name, act)


def test_streams_may_not_overlap(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create()
        other = {"name": f"{name}x"}
        for subjects in (["S.a"], ["S.>"], ["*.a"], ["S.*.c"], [f"{name}x.ok", "S.b.c"]):
            script.api(f"STREAM.CREATE.{name}x", {**other, "subjects": subjects})
        script.api(f"STREAM.CREATE.{name}x", {**other, "subjects": [f"{name}x.ok"]})
        script.api(f"STREAM.UPDATE.{name}x", {**other, "subjects": [f"{name}x.ok", "S.a"]})
        script.api(f"STREAM.DELETE.{name}x")

    assert_same(pair, name, act)


@pytest.mark.parametrize(
    "stream",
    ["a/b", "a\\b", "..", "../x", "x" * 255, "x" * 256, "x" * 300, "ü", "-", "a'b", 'a"b', "a%2fb", "CON", "\u0001",
     "a:b"],
    ids=lambda stream: repr(stream[:8]) + str(len(stream)),
)  # fmt: skip
def test_names_that_look_like_paths(pair: Pair, name: str, stream: str) -> None:
    def act(script: Script) -> None:
        script.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": ["S.names"]})
        script.api(f"STREAM.INFO.{stream}")
        script.api(f"STREAM.DELETE.{stream}")

    def act_nobody(script: Script) -> None:
        script.request(f"$JS.API.STREAM.CREATE.{stream}", {"name": stream, "subjects": ["S.names"]})

    # Dots make empty tokens, which nothing is subscribed to.
    assert_same(pair, name, act_nobody if "." in stream else act)


@pytest.mark.parametrize(
    "body", [None, b"{", b"[]", b"null", b"1", b'"x"', b"{}x", b"{} {}", b'{"name":"S"', b"\xff", b" {}"]
)
def test_bodies_that_are_no_configuration(pair: Pair, name: str, body: bytes | None) -> None:
    def act(script: Script) -> None:
        script.api("STREAM.CREATE.S", body)
        script.api("STREAM.UPDATE.S", body)

    assert_same(pair, name, act)

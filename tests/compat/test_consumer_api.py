"""The consumer API: create, update, look, delete. Both servers answer alike, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.conftest import Pair
from tests.compat.consumer_script import MS, ConsumerScript, same
from tests.compat.test_consumer_pull import fill

CREATE = "CONSUMER.CREATE.S"
START = {"opt_start_seq": 1}
TIME = {"opt_start_time": "2020-01-01T00:00:00Z"}


def body(stream: str = "S", /, **config: Any) -> dict[str, Any]:
    """A create request; what belongs beside the configuration goes there."""
    beside = {key: config.pop(key) for key in ("action", "pedantic", "extra") if key in config}
    return {"stream_name": stream, "config": config, **beside}


@pytest.mark.parametrize(
    ("subject", "request_"),
    [
        (CREATE, b""),
        (CREATE, b"{"),
        (CREATE, body(extra=1)),
        (CREATE, body(foo=1)),
        (CREATE, body(ack_policy="x")),
        (CREATE, body(deliver_policy=3)),
        (CREATE, body(replay_policy=None)),
        (CREATE, body(priority_policy="x")),
        (CREATE, body(action="x")),
        (CREATE, body(ack_wait="x")),
        (CREATE, body(opt_start_time="x")),
        (CREATE, body(backoff=[1, "x"])),
        (CREATE, body()),
        (CREATE, body("X")),
        ("CONSUMER.CREATE.X", body("X")),
        (CREATE, body(durable_name="d")),
        ("CONSUMER.DURABLE.CREATE.S.d", body()),
        ("CONSUMER.DURABLE.CREATE.S.d", body(durable_name="e")),
        ("CONSUMER.DURABLE.CREATE.S.d", body(durable_name="d")),
        (f"{CREATE}.d", body(durable_name="e")),
        (f"{CREATE}.d", body(name="other")),
        (f"{CREATE}.d.S.a", body()),
        (f"{CREATE}.d.S.a", body(filter_subjects=["S.a"])),
        (f"{CREATE}.d.S.a", body(filter_subject="S.b")),
        (f"{CREATE}.d.S.a", body(filter_subject="S.a")),
        (f"{CREATE}.d.S.*.>", body(filter_subject="S.*.>")),
        (f"{CREATE}.a/b", body()),
        (CREATE, body(name="a b")),
        (CREATE, body(name="a.b")),
        (f"{CREATE}." + "x" * 256, body(durable_name="x" * 256)),
        (f"{CREATE}.d", body(num_replicas=3)),
        (f"{CREATE}.d", body(num_replicas=-1)),
        (f"{CREATE}.d", body(ack_wait=-1)),
        (f"{CREATE}.d", body(backoff=[1, -1])),
        (f"{CREATE}.d", body(backoff=[1, 2, 3], max_deliver=2)),
        (f"{CREATE}.d", body(backoff=[3, 4], ack_policy="explicit", ack_wait=4)),
        (f"{CREATE}.d", body(description="d" * 5000)),
        (f"{CREATE}.d", body(deliver_subject="a.*")),
        (f"{CREATE}.d", body(deliver_subject="a..b")),
        (f"{CREATE}.d", body(deliver_subject="S.x")),
        (f"{CREATE}.d", body(deliver_subject="d", max_waiting=3)),
        (f"{CREATE}.d", body(deliver_subject="d", max_ack_pending=3)),
        (f"{CREATE}.d", body(deliver_subject="d", idle_heartbeat=1)),
        (f"{CREATE}.d", body(deliver_subject="d", flow_control=True)),
        (f"{CREATE}.d", body(rate_limit_bps=3)),
        (f"{CREATE}.d", body(idle_heartbeat=3)),
        (f"{CREATE}.d", body(flow_control=True)),
        (f"{CREATE}.d", body(max_expires=3)),
        (f"{CREATE}.d", body(direct=True)),
        (f"{CREATE}.d", body(direct=True, deliver_subject="d", durable_name="d")),
        (f"{CREATE}.d", body(filter_subject="a", filter_subjects=["b"])),
        (f"{CREATE}.d", body(filter_subjects=["b", ""])),
        (f"{CREATE}.d", body(filter_subjects=["b.*", "b.c"])),
        (f"{CREATE}.d", body(filter_subjects=["b", "b"])),
        (f"{CREATE}.d", body(filter_subject="a..b")),
        (f"{CREATE}.d", body(filter_subject="a. b")),
        (f"{CREATE}.d", body(sample_freq="x")),
        (f"{CREATE}.d", body(sample_freq="-3")),
        (f"{CREATE}.d", body(sample_freq="9" * 22)),
        (f"{CREATE}.d", body(sample_freq="9" * 18)),
        (f"{CREATE}.d", body(sample_freq="30%")),
        (f"{CREATE}.d", body(metadata={"a": "b" * 200_000})),
        (f"{CREATE}.d", body(metadata={"z": "1", "a": "2", "_nats.ver": "x", "_nats.req.level": "9"})),
        (f"{CREATE}.d", body(priority_policy="overflow")),
        (f"{CREATE}.d", body(priority_groups=["a"])),
        (f"{CREATE}.d", body(priority_policy="overflow", priority_groups=[""])),
        (f"{CREATE}.d", body(priority_policy="overflow", priority_groups=["a b"])),
        (f"{CREATE}.d", body(priority_policy="overflow", priority_groups=["a"], deliver_subject="d")),
        (f"{CREATE}.d", body(priority_timeout=3)),
        (f"{CREATE}.d", body(priority_policy="pinned_client", priority_groups=["a", "b"])),
        (f"{CREATE}.d", body(max_deliver=-5, max_waiting=-1, max_ack_pending=-7, max_batch=-1, ack_policy="explicit")),
        (f"{CREATE}.d", body(max_expires=-1, max_bytes=-1, inactive_threshold=-1)),
        (f"{CREATE}.d", body(pedantic=True, backoff=[3, 4], ack_wait=4)),
        (f"{CREATE}.d", body(ack_policy="flow_control")),
        (f"{CREATE}.d", body(ack_policy="flow_control", deliver_subject="d", max_ack_pending=10)),
        (f"{CREATE}.d", body(pause_until="2090-01-01T00:00:00Z", durable_name="d")),
        (f"{CREATE}.d", body(action="update")),
        *[
            (f"{CREATE}.d", body(pedantic=True, **{key: -5}))
            for key in ("max_deliver", "max_waiting", "max_ack_pending", "max_batch", "idle_heartbeat")
        ],
        *[
            (f"{CREATE}.d", body(deliver_policy=policy, **start))
            for policy in ("all", "last", "new", "last_per_subject", "by_start_sequence", "by_start_time", "undefined")
            for start in (START, TIME, {})
        ],
    ],
    ids=lambda value: repr(value)[:120],
)
def test_a_create_request(pair: Pair, name: str, subject: str, request_: Any) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 4)
        script.api(subject, request_)
        if isinstance(request_, dict) and "durable_name" in request_.get("config", {}):
            script.api("CONSUMER.LIST.S")

    same(pair, name, steps)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {}),
        ({}, {"action": "create"}),
        ({}, {"action": "create", "description": "x"}),
        ({}, {"action": "update", "description": "x"}),
        ({}, {"ack_policy": "explicit"}),
        ({}, {"deliver_policy": "new"}),
        ({}, {"mem_storage": True}),
        ({}, {"replay_policy": "original"}),
        ({}, {"max_waiting": 3}),
        ({}, {"deliver_subject": "d"}),
        ({"filter_subject": "S.a"}, {"filter_subject": "S.b"}),
        ({"filter_subject": "S.a"}, {}),
        ({}, {"max_deliver": 4, "metadata": {"k": "v"}, "inactive_threshold": 60_000 * MS, "headers_only": True}),
        ({"deliver_subject": "d", "idle_heartbeat": 500 * MS}, {"deliver_subject": "d", "idle_heartbeat": 600 * MS}),
        ({"deliver_subject": "d"}, {}),
        ({"deliver_subject": "d"}, {"deliver_subject": "e"}),
        ({"pause_until": "2090-01-01T00:00:00Z"}, {"pause_until": "2091-01-01T00:00:00Z"}),
        ({"deliver_policy": "by_start_sequence", **START}, {"deliver_policy": "by_start_sequence", "opt_start_seq": 2}),
    ],
    ids=lambda value: repr(value)[:120],
)
def test_an_update(pair: Pair, name: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 4)
        script.api(f"{CREATE}.c", body(durable_name="c", **old))
        script.api(f"{CREATE}.c", body(durable_name="c", **new))
        script.info()

    same(pair, name, steps)


@pytest.mark.parametrize("threshold", [0, 60_000 * MS])
@pytest.mark.parametrize(("before", "after"), [("c", ""), ("", "c")])
def test_an_update_makes_nothing_durable_and_nothing_ephemeral(
    pair: Pair, name: str, before: str, after: str, threshold: int
) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 1)
        script.api(f"{CREATE}.c", body(durable_name=before, inactive_threshold=threshold))
        for _ in range(2):
            script.api(f"{CREATE}.c", body(durable_name=after))
            script.info()

    same(pair, name, steps)


def test_looking_and_deleting(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 2)
        for consumer in ("b", "a", "c"):
            script.consumer(consumer)
        for subject, request in (
            ("CONSUMER.NAMES.S", None),
            ("CONSUMER.NAMES.S", {"offset": 1}),
            ("CONSUMER.NAMES.S", {"offset": 300}),
            ("CONSUMER.NAMES.S", {"x": 1}),
            ("CONSUMER.NAMES.X", None),
            ("CONSUMER.LIST.S", None),
            ("CONSUMER.LIST.X", None),
            ("CONSUMER.INFO.S.a", None),
            ("CONSUMER.INFO.S.a", b"x"),
            ("CONSUMER.INFO.S.x", None),
            ("CONSUMER.INFO.X.x", None),
            ("CONSUMER.DELETE.S.x", None),
            ("CONSUMER.DELETE.X.x", None),
            ("CONSUMER.DELETE.S.a", b"x"),
            ("CONSUMER.DELETE.S.a", b"{}"),
            ("CONSUMER.INFO.S.a", None),
            ("CONSUMER.PAUSE.X.a", None),
            ("CONSUMER.PAUSE.S.x", None),
            ("CONSUMER.PAUSE.S.b", {"pause_until": "x"}),
            ("CONSUMER.PAUSE.S.b", {"pause_until": "2020-01-01T00:00:00Z"}),
            ("CONSUMER.PAUSE.S.b", {"other": 1}),
            ("CONSUMER.UNPIN.X.a", {"group": "a"}),
            ("CONSUMER.UNPIN.S.x", {"group": "a"}),
            ("CONSUMER.UNPIN.S.b", {"group": "a", "x": 1}),
            ("CONSUMER.UNPIN.S.b", {"group": "!"}),
            ("CONSUMER.UNPIN.S.b", {}),
            ("CONSUMER.UNPIN.S.b", b""),
            ("CONSUMER.UNPIN.S.b", b"{"),
            ("CONSUMER.UNPIN.S.b", b'{"group": }'),
        ):
            script.api(subject, request)

    same(pair, name, steps)


def test_consumers_of_a_work_queue(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create(retention="workqueue")
        explicit = {"ack_policy": "explicit"}
        for consumer, config in (
            ("a", {}),
            ("a", {"ack_policy": "all"}),
            ("a", {"deliver_subject": "q"}),
            ("a", {**explicit, "deliver_policy": "new"}),
            ("a", {**explicit, "filter_subject": "S.a"}),
            ("b", explicit),
            ("b", {**explicit, "filter_subject": "S.*"}),
            ("b", {**explicit, "filter_subject": "S.b"}),
            ("b", {**explicit, "filter_subject": "S.>"}),
        ):
            script.api(f"{CREATE}.{consumer}", body(**config))

    same(pair, name, steps)


def test_ceilings_of_a_stream(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        limits = {"max_ack_pending": 10, "inactive_threshold": 60_000 * MS}
        script.script.create(consumer_limits=limits, max_consumers=2)
        for consumer, config in (
            ("a", {"ack_policy": "explicit", "durable_name": "a"}),
            ("b", {"ack_policy": "explicit", "max_ack_pending": 11}),
            ("b", {"ack_policy": "explicit", "inactive_threshold": 61_000 * MS}),
            ("b", {"ack_policy": "explicit", "pedantic": True}),
            ("b", {"durable_name": "b"}),
            ("c", {}),
        ):
            script.api(f"{CREATE}.{consumer}", body(**config))

    same(pair, name, steps)


def test_direct_consumers_do_not_count(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create(max_consumers=1)
        script.api(f"{CREATE}.a", body(direct=True, deliver_subject="x"))
        script.api(f"{CREATE}.b", body())
        script.api(f"{CREATE}.c", body(direct=True, deliver_subject="x"))
        script.api(f"{CREATE}.d", body(sourcing=True, deliver_subject="x"))
        script.api(f"{CREATE}.e", body())
        script.api("CONSUMER.NAMES.S")

    same(pair, name, steps)


def test_an_update_of_a_consumer_that_rests_is_told(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 1)
        script.consumer(pause_until="2090-01-01T00:00:00Z")
        script.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.PAUSE.{name}.c", "told")
        for description in ("x", "x", "y"):
            script.consumer(description=description)
            script.listen()

    same(pair, name, steps)

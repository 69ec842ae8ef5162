"""Push consumers, groups, pauses and the life of consumers. Both servers do the same, message by message."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.compat.conftest import Pair
from tests.compat.consumer_script import MS, ConsumerScript, same
from tests.compat.peer import Peer
from tests.compat.test_advisories import heard
from tests.compat.test_consumer_pull import fill


def test_delivery_follows_interest(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script)
        outlet = f"out.{script.name}"
        script.consumer(deliver_subject=outlet)
        script.listen()
        script.info()
        script.subscribe(outlet, "d")
        script.listen()
        script.info()
        script.unsubscribe("d")
        script.publish(b"new")
        script.listen()
        script.info()
        script.subscribe(outlet, "e")
        script.listen()

    same(pair, name, steps)


def test_a_wildcard_is_no_interest(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 2)
        script.subscribe(f"out.{script.name}.*", "d")
        script.consumer(deliver_subject=f"out.{script.name}.x")
        script.listen()
        script.info()

    same(pair, name, steps)


def test_a_group_needs_its_own_members(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 2)
        outlet = f"out.{script.name}"
        script.consumer(deliver_subject=outlet, deliver_group="g")
        script.subscribe(outlet, "plain")
        script.listen()
        script.subscribe(outlet, "other", "h")
        script.listen()
        script.info()
        script.unsubscribe("plain", "other")
        script.subscribe(outlet, "own", "g")
        script.listen()
        script.info()

    same(pair, name, steps)


def test_heartbeats(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 2)
        outlet = f"out.{script.name}"
        script.subscribe(outlet, "d")
        script.consumer(deliver_subject=outlet, idle_heartbeat=300 * MS)
        script.listen(wait_s=0.45)
        script.publish(b"new")
        script.listen(wait_s=0.45)

    same(pair, name, steps)


def test_flow_control(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create()
        script.publish(*[b"z" * 100_000] * 60)
        outlet = f"out.{script.name}"
        script.subscribe(outlet, "d")
        script.consumer(deliver_subject=outlet, ack_policy="none", flow_control=True, idle_heartbeat=400 * MS)
        script.hear_kinds(0.5)
        for _ in range(3):
            script.peer.publish(script.questions[-1])
            script.hear_kinds(0.3)

    same(pair, name, steps)


def test_ordered_consumers_are_accepted(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script)
        outlet = f"out.{script.name}"
        script.subscribe(outlet, "d")
        config = {
            "name": "o1",
            "deliver_subject": outlet,
            "ack_policy": "none",
            "max_deliver": 1,
            "ack_wait": 22 * 3600 * 1000 * MS,
            "mem_storage": True,
            "num_replicas": 1,
            "flow_control": True,
            "idle_heartbeat": 5000 * MS,
            "inactive_threshold": 300_000 * MS,
        }
        script.api("CONSUMER.CREATE.S.o1", {"stream_name": "S", "config": config})
        script.listen()
        again = {**config, "name": "o2", "deliver_policy": "by_start_sequence", "opt_start_seq": 4}
        script.api("CONSUMER.DELETE.S.o1")
        script.api("CONSUMER.CREATE.S.o2", {"stream_name": "S", "config": again})
        script.listen()
        script.info("o2")

    same(pair, name, steps)


def test_a_consumer_moves_to_another_subject(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 2)
        first, second = f"out.{script.name}", f"other.{script.name}"
        script.subscribe(first, "d")
        script.consumer(deliver_subject=first)
        script.listen()
        script.consumer(deliver_subject=second)
        script.unsubscribe("d")
        script.peer.ask()
        script.subscribe(second, "e")
        config = {"durable_name": "c", "ack_policy": "explicit", "deliver_subject": second}
        script.script.peer.api(f"CONSUMER.CREATE.{script.name}.c", {"stream_name": script.name, "config": config})
        script.listen()
        script.info()

    same(pair, name, steps)


def test_redelivery_and_its_advisories(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        with Peer(script.script.server) as listener:
            listener.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.*.{script.name}.>")
            fill(script, 3)
            script.consumer(ack_wait=300 * MS, max_deliver=2)
            script.next({"batch": 3})
            script.ack(0, b"-NAK")
            script.ack(1, b"+TERM because")
            script.next({"batch": 1})
            time.sleep(0.4)
            script.next({"batch": 5, "no_wait": True})
            time.sleep(0.4)
            script.next({"batch": 5, "no_wait": True})
            script.info()
            script.api("CONSUMER.DELETE.S.c")
            script.script.note("advisories", heard(listener, 6))

    same(pair, name, steps)


def test_backoff_and_delays(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 1)
        script.consumer(backoff=[200 * MS, 500 * MS], max_deliver=4)
        script.next({"batch": 9})
        for _ in range(6):
            script.listen(wait_s=0.3)
        script.consumer("n")
        script.next({"batch": 1}, "n")
        script.ack(-1, b'-NAK {"delay": 400000000}')
        script.next({"batch": 9}, "n")
        script.listen(wait_s=0.5)
        script.ack(-1, b"-NAK 300ms")
        script.listen(wait_s=0.15)
        script.listen(wait_s=0.3)
        script.info("n")

    same(pair, name, steps)


def test_sampling(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        with Peer(script.script.server) as listener:
            listener.subscribe(f"$JS.EVENT.METRIC.CONSUMER.ACK.{script.name}.>")
            fill(script, 1)
            script.consumer(sample_freq="100")
            script.next({"batch": 1})
            script.ack()
            ((subject, metric),) = heard(listener, 1)
            script.script.note("metric", (subject, {**metric, "ack_time": metric["ack_time"] > 0}))

    same(pair, name, steps)


def at(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def test_a_pause_and_its_end(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 3)
        script.consumer()
        script.api("CONSUMER.PAUSE.S.c", {"pause_until": at(0.7)})
        script.next({"batch": 1, "expires": 200 * MS}, wait_s=0.3)
        script.next({"batch": 1, "no_wait": True})
        script.info()
        script.next({"batch": 1}, wait_s=0.6)
        script.info()
        script.api("CONSUMER.PAUSE.S.c", {})

    same(pair, name, steps)


def test_the_original_pace(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create()
        for _ in range(3):
            script.publish(b"x")
            time.sleep(0.3)
        script.consumer(replay_policy="original")
        script.next({"batch": 5}, wait_s=0.15)
        for _ in range(2):
            script.listen(wait_s=0.3)
        script.publish(b"new")
        script.listen()

    same(pair, name, steps)


@pytest.mark.parametrize("push", [True, False])
def test_one_that_is_not_durable_goes(pair: Pair, name: str, push: bool) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 1)
        outlet = {"deliver_subject": f"out.{script.name}"} if push else {}
        config = {"name": "e", "inactive_threshold": 500 * MS, **outlet}
        script.api("CONSUMER.CREATE.S.e", {"stream_name": "S", "config": config})
        time.sleep(0.3)
        script.api("CONSUMER.NAMES.S")
        time.sleep(1.9)
        script.api("CONSUMER.NAMES.S")

    same(pair, name, steps)


# Priority groups


def test_overflow(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script)
        script.consumer(priority_policy="overflow", priority_groups=["A"])
        script.next({"batch": 1})
        script.next({"batch": 1, "group": "B"})
        script.next({"batch": 1, "group": "A", "min_pending": 100, "expires": 100 * MS}, wait_s=0.2)
        script.next({"batch": 6, "group": "A", "min_pending": 4, "expires": 100 * MS}, wait_s=0.2)
        script.next({"batch": 2, "group": "A", "min_ack_pending": 2, "expires": 100 * MS}, wait_s=0.2)
        script.next(b"1")
        script.info()

    same(pair, name, steps)


def test_a_pinned_client(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        with Peer(script.script.server) as listener:
            listener.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.*.{script.name}.>")
            fill(script)
            script.consumer(priority_policy="pinned_client", priority_groups=["A"], priority_timeout=600 * MS)
            script.next({"batch": 2, "group": "A"})
            script.info()
            script.next({"batch": 1, "group": "A", "expires": 100 * MS}, wait_s=0.2)
            script.next({"batch": 1, "group": "A", "id": script.pins[-1]})
            script.next({"batch": 1, "group": "A", "id": "bad"})
            script.next({"batch": 1, "group": "A", "expires": 3000 * MS})
            script.listen(wait_s=0.8)
            script.info()
            script.api("CONSUMER.UNPIN.S.c", {"group": "A"})
            script.info()
            announced = heard(listener, 5)
            for _, advisory in announced:
                advisory.pop("pinned_id", None)
            script.script.note("advisories", announced)

    same(pair, name, steps)


def test_prioritized(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create()
        script.consumer(priority_policy="prioritized", priority_groups=["A"])
        for priority in (5, 1, 1, 0):
            script.next({"batch": 2, "group": "A", "priority": priority})
        for number in range(9):
            script.publish(b"%d" % number)
        script.hear_payloads()

    same(pair, name, steps)

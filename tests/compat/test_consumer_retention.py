"""Retention by interest and work queues. Both servers keep and drop the same messages."""

from __future__ import annotations

import pytest

from tests.compat.conftest import Pair
from tests.compat.consumer_script import MS, ConsumerScript, same

STORAGES = pytest.mark.parametrize("storage", ["file", "memory"])


def publish(script: ConsumerScript, count: int, subjects: str = "ab") -> None:
    for number in range(count):
        script.publish(b"%d" % number, subject=f"S.{subjects[number % len(subjects)]}")


@STORAGES
def test_a_work_queue(pair: Pair, name: str, storage: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create(retention="workqueue", storage=storage)
        publish(script, 6)
        script.state()
        script.consumer()
        script.next({"batch": 4})
        for place, payload in ((1, b""), (0, b""), (3, b"+TERM"), (2, b"-NAK")):
            script.ack(place, payload, answer=True)
            script.state()
            script.info()
        script.api("CONSUMER.DELETE.S.c")
        script.state()

    same(pair, name, steps)


@STORAGES
def test_a_work_queue_in_parts(pair: Pair, name: str, storage: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create(retention="workqueue", storage=storage)
        script.consumer("a", filter_subject=f"{script.name}.a")
        script.consumer("bc", filter_subjects=[f"{script.name}.b", f"{script.name}.c"])
        publish(script, 8, "abcd")
        for consumer in ("a", "bc"):
            script.next({"batch": 9, "no_wait": True}, consumer)
        for place in (3, 0, 2, 5):
            script.ack(place, answer=True)
            script.state()
        script.info("a")
        script.info("bc")

    same(pair, name, steps)


@STORAGES
def test_interest(pair: Pair, name: str, storage: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create(retention="interest", storage=storage)
        publish(script, 2)
        script.state()
        script.consumer("a")
        script.consumer("b", filter_subject=f"{script.name}.b")
        script.consumer("n", ack_policy="none")
        script.consumer("all", ack_policy="all")
        publish(script, 6)
        script.state()
        script.next({"batch": 6}, "a")
        for place in range(6):
            script.ack(place, answer=True)
        script.next({"batch": 4}, "n")
        script.state()
        script.next({"batch": 6}, "all")
        script.ack(10 + 2, answer=True)
        script.state()
        script.next({"batch": 2}, "b")
        script.ack(-1, answer=True)
        script.state()
        for consumer in ("b", "n", "all", "a"):
            script.api(f"CONSUMER.DELETE.S.{consumer}")
            script.state()

    same(pair, name, steps)


def test_interest_of_filters_that_change(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create(retention="interest")
        script.consumer(filter_subject=f"{script.name}.a")
        publish(script, 4)
        script.state()
        script.consumer(filter_subject=f"{script.name}.b")
        script.listen()
        script.state()
        publish(script, 4)
        script.state()

    same(pair, name, steps)


def test_a_message_given_up_stays(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create(retention="interest")
        script.consumer(max_deliver=1, ack_wait=200 * MS)
        publish(script, 2)
        script.next({"batch": 2})
        script.ack(1, answer=True)
        script.listen(wait_s=0.5)
        script.state()
        script.info()
        script.ack(0, answer=True)
        script.state()
        script.info()

    same(pair, name, steps)


@pytest.mark.parametrize("consumers", ["", "a", "ab"])
def test_a_stream_that_goes_over_to_interest(pair: Pair, name: str, consumers: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create()
        publish(script, 4)
        for consumer in consumers:
            script.consumer(consumer)
            script.next({"batch": 3}, consumer)
        for consumer in range(len(consumers)):
            script.ack(3 * consumer, answer=True)
            script.ack(3 * consumer + 2, answer=True)
        script.script.update(retention="interest")
        script.listen(wait_s=0.1)
        script.state()

    same(pair, name, steps)

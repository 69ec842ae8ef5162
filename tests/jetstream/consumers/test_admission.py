"""Whether a consumer may be made or changed, asked of assignments as a cluster does: nothing is made."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from jetlake.jetstream.consumers.admission import Admitted, ConsumerSurroundings, admit_consumer
from jetlake.jetstream.consumers.config import AckPolicy, Action, ConsumerConfig
from jetlake.jetstream.consumers.rules import Ceilings
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams.config import Retention, StreamConfig


class Assigned(NamedTuple):
    config: ConsumerConfig


def around(*others: ConsumerConfig, account_max: int = -1, bound: bool = False, **stream: Any) -> ConsumerSurroundings:
    config = StreamConfig(name="S", subjects=("s.>",), **stream)
    known = {other.durable_name or other.name: Assigned(other) for other in others}
    return ConsumerSurroundings(config, known, Ceilings(), account_max, lambda name: bound)


def config(name: str = "C", **fields: Any) -> ConsumerConfig:
    return ConsumerConfig(**{"durable_name": name, "name": name, "ack_policy": AckPolicy.EXPLICIT, **fields})


def refusal(wanted: ConsumerConfig, where: ConsumerSurroundings, action: Action = Action.CREATE_OR_UPDATE) -> int:
    with pytest.raises(ApiError) as caught:
        admit_consumer(wanted, action, where)
    return caught.value.err_code


def admitted(wanted: ConsumerConfig, where: ConsumerSurroundings) -> Admitted:
    return admit_consumer(wanted, Action.CREATE_OR_UPDATE, where)


def test_a_new_consumer_is_admitted_with_its_defaults() -> None:
    name, found, is_new = admitted(config(), around())
    assert (name, is_new) == ("C", True) and found.ack_wait == 30_000_000_000


def test_one_without_a_name_is_to_be_given_one_and_goes_when_nobody_uses_it() -> None:
    name, found, is_new = admitted(ConsumerConfig(ack_policy=AckPolicy.EXPLICIT), around())
    assert (name, is_new) == ("", True) and found.inactive_threshold > 0


def test_a_known_one_is_changed() -> None:
    known = admitted(config(), around()).config
    name, found, is_new = admitted(config(max_deliver=3), around(known))
    assert (name, is_new) == ("C", False) and found.max_deliver == 3
    assert refusal(config(max_deliver=3), around(known), Action.CREATE) == 10148
    assert refusal(config("D"), around(known), Action.UPDATE) == 10149


def test_the_number_of_consumers_is_limited() -> None:
    known = admitted(config(), around()).config
    assert refusal(config("D"), around(known, max_consumers=1)) == 10026
    assert refusal(config("D"), around(known, account_max=1)) == 10026
    assert admitted(config(max_deliver=2), around(known, max_consumers=1)).is_new is False


def test_a_work_queue_takes_one_consumer_for_each_subject() -> None:
    known = admitted(config(), around(retention=Retention.WORKQUEUE)).config
    assert refusal(config("D"), around(known, retention=Retention.WORKQUEUE)) == 10099


def test_a_push_consumer_that_is_in_use_is_not_changed_to_another_subject() -> None:
    push = config(deliver_subject="d.1")
    known = admitted(push, around()).config
    other = config(deliver_subject="d.2")
    assert admitted(other, around(known)).config.deliver_subject == "d.2"
    assert refusal(other, around(known, bound=True)) == 10013

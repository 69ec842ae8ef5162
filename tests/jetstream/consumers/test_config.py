"""Configurations of consumers: how they are read, filled in, checked and compared."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from jetlake.jetstream.consumers.config import (
    AckPolicy,
    Action,
    ConsumerConfig,
    DeliverPolicy,
    PriorityPolicy,
    config_json,
    read_config,
    read_create,
)
from jetlake.jetstream.consumers.rules import (
    Ceilings,
    check_config,
    check_partition,
    check_update,
    check_work_queue,
    same_config,
    stamped,
    with_defaults,
)
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams.config import ConsumerLimits, StreamConfig

STREAM = StreamConfig(name="S", subjects=("s.>",))
S = 10**9
NO_CEILINGS = Ceilings()


def complete(stream: StreamConfig = STREAM, ceilings: Ceilings = NO_CEILINGS, **fields: Any) -> ConsumerConfig:
    config = with_defaults(ConsumerConfig(**fields), stream, ceilings)
    check_config(config, stream, ceilings)
    return config


def code_of(**fields: Any) -> int:
    with pytest.raises(ApiError) as error:
        complete(**fields)
    return error.value.err_code


# Reading


def test_a_request_is_read_with_all_its_parts() -> None:
    request = read_create(
        b'{"stream_name":"S","action":"update","pedantic":true,'
        b'"config":{"ack_policy":"all","backoff":[1,2],"deliver_policy":"new","metadata":{"k":"v"}}}'
    )
    assert (request.stream_name, request.action, request.pedantic) == ("S", Action.UPDATE, True)
    config = request.config
    assert config.ack_policy is AckPolicy.ALL and config.deliver_policy is DeliverPolicy.NEW
    assert config.backoff == (1, 2) and config.metadata == {"k": "v"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"config":{"other":1}}', 'invalid JSON: json: unknown field "other"'),
        (b'{"action":"remove"}', 'invalid JSON: unknown consumer action: "remove"'),
        (b'{"config":{"priority_policy":"x"}}', 'invalid JSON: unknown priority policy: "x"'),
        (b'{"config":{"ack_policy":"x"}}', 'invalid JSON: can not unmarshal "\\"x\\""'),
    ],
)
def test_what_is_not_understood_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(ApiError) as error:
        read_create(body)
    assert error.value.err_code == 10025 and error.value.description == text


def test_a_lax_server_reads_over_what_it_does_not_know() -> None:
    assert read_create(b'{"config":{"other":1},"stream_name":"S"}', strict=False).stream_name == "S"


def test_what_is_written_is_read() -> None:
    config = complete(
        durable_name="d",
        opt_start_time=1_700_000_000_123_456_789,
        deliver_policy=DeliverPolicy.BY_START_TIME,
        priority_policy=PriorityPolicy.PINNED_CLIENT,
        priority_groups=("A", "B"),
        ack_policy=AckPolicy.EXPLICIT,
        filter_subjects=("s.a", "s.b"),
    )
    assert read_config(msgspec.json.encode(config_json(config))) == config


def test_empty_fields_are_not_shown() -> None:
    assert config_json(ConsumerConfig()) == {
        "deliver_policy": "all",
        "ack_policy": "none",
        "replay_policy": "instant",
        "num_replicas": 0,
    }
    shown = config_json(ConsumerConfig(metadata={"z": "1", "a": "2"}), with_server=True)
    assert list(shown["metadata"]) == ["_nats.level", "_nats.ver", "a", "z"]


# Defaults


def test_defaults_depend_on_the_kind_of_consumer() -> None:
    pull = complete(ack_policy=AckPolicy.EXPLICIT)
    assert (pull.ack_wait, pull.max_deliver, pull.max_waiting, pull.max_ack_pending) == (30 * S, -1, 512, 1000)
    push = complete(deliver_subject="d")
    assert (push.ack_wait, push.max_waiting, push.max_ack_pending) == (0, 0, 0)
    pinned = complete(priority_policy=PriorityPolicy.PINNED_CLIENT, priority_groups=("A",))
    assert pinned.priority_timeout == 120 * S


def test_backoff_takes_the_place_of_the_wait() -> None:
    assert complete(ack_policy=AckPolicy.EXPLICIT, ack_wait=5, backoff=(7, 8)).ack_wait == 7


def test_a_stream_gives_defaults_and_ceilings() -> None:
    stream = replace(STREAM, consumer_limits=ConsumerLimits(inactive_threshold=9, max_ack_pending=5))
    config = complete(stream, ack_policy=AckPolicy.EXPLICIT)
    assert (config.max_ack_pending, config.inactive_threshold) == (5, 9)
    for beyond, code in (({"max_ack_pending": 6}, 10121), ({"inactive_threshold": 10}, 10153)):
        with pytest.raises(ApiError) as error:
            complete(stream, ack_policy=AckPolicy.EXPLICIT, **beyond)
        assert error.value.err_code == code


def test_the_lowest_ceiling_is_the_default() -> None:
    ceilings = Ceilings(max_ack_pending=700, max_request_batch=50, account_max_ack_pending=600)
    config = complete(STREAM, ceilings, ack_policy=AckPolicy.EXPLICIT)
    assert (config.max_ack_pending, config.max_batch) == (600, 50)


def test_a_pedantic_request_is_not_bent_into_shape() -> None:
    with pytest.raises(ApiError, match="max_deliver must be set to -1"):
        with_defaults(ConsumerConfig(max_deliver=-5), STREAM, Ceilings(), pedantic=True)
    assert with_defaults(ConsumerConfig(max_deliver=-5), STREAM, Ceilings()).max_deliver == -1


# Rules


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "a.b"}, 10052),
        ({"num_replicas": 2}, 10126),
        ({"backoff": (-1,)}, 10184),
        ({"ack_wait": -1}, 10183),
        ({"backoff": (1, 2), "max_deliver": 1}, 10116),
        ({"deliver_subject": "d.*"}, 10079),
        ({"deliver_subject": "s.x"}, 10081),
        ({"deliver_subject": "d", "max_waiting": 1}, 10080),
        ({"deliver_subject": "d", "max_ack_pending": 1}, 10082),
        ({"deliver_subject": "d", "idle_heartbeat": 1}, 10083),
        ({"deliver_subject": "d", "flow_control": True}, 10108),
        ({"rate_limit_bps": 1}, 10086),
        ({"flow_control": True}, 10089),
        ({"filter_subject": "a", "filter_subjects": ("b",)}, 10136),
        ({"filter_subjects": ("a.*", "a.b")}, 10138),
        ({"deliver_policy": DeliverPolicy.BY_START_SEQUENCE}, 10094),
        ({"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT}, 10094),
        ({"sample_freq": "often"}, 10095),
        ({"sample_freq": "9223372036854775808%"}, 10095),
        ({"sample_freq": "9" * 5000}, 10095),
        ({"durable_name": "d", "name": "e"}, 10132),
        ({"priority_policy": PriorityPolicy.OVERFLOW}, 10159),
        ({"priority_groups": ("A",)}, 10196),
        ({"ack_policy": AckPolicy.FLOW_CONTROL}, 10218),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_rule_that_is_broken_has_its_code(fields: dict[str, Any], code: int) -> None:
    assert code_of(**fields) == code


def test_an_older_deliver_policy_may_be_undefined() -> None:
    assert read_create(b'{"config":{"deliver_policy":"undefined"}}').config.deliver_policy is DeliverPolicy.ALL


def test_consumers_of_a_work_queue_share_no_message() -> None:
    explicit = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
    first = replace(explicit, filter_subject="s.a.*")
    check_work_queue(first, [])
    check_work_queue(replace(explicit, filter_subject="s.b"), [first])
    for other, code in (
        (ConsumerConfig(ack_policy=AckPolicy.ALL), 10098),
        (replace(explicit, deliver_policy=DeliverPolicy.NEW), 10101),
        (explicit, 10099),
        (replace(explicit, filter_subject="s.*.b"), 10100),
    ):
        with pytest.raises(ApiError) as error:
            check_work_queue(other, [first])
        assert error.value.err_code == code
    with pytest.raises(ApiError):
        check_partition(first, [explicit])


# Changing


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ack_policy": AckPolicy.ALL}, "ack policy can not be updated"),
        ({"mem_storage": True}, "storage type can not be updated"),
        ({"max_waiting": 7}, "max waiting can not be updated"),
        ({"deliver_subject": "d"}, "can not update pull consumer to push based"),
    ],
)
def test_some_things_stay(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError) as error:
        check_update(ConsumerConfig(), replace(ConsumerConfig(), **changes), is_bound=False)
    assert (error.value.err_code, error.value.description) == (10012, text)


def test_a_deliver_subject_stays_while_somebody_listens() -> None:
    old, new = ConsumerConfig(deliver_subject="d"), ConsumerConfig(deliver_subject="e")
    check_update(old, new, is_bound=False)
    with pytest.raises(ApiError) as error:
        check_update(old, new, is_bound=True)
    assert error.value.err_code == 10013


def test_the_level_in_the_metadata_is_the_servers() -> None:
    config = stamped(ConsumerConfig(pause_until=5, metadata={"_nats.ver": "mine", "_nats.req.level": "9", "k": "v"}))
    assert config.metadata == {"k": "v", "_nats.req.level": "1"}
    assert same_config(config, ConsumerConfig(pause_until=5, metadata={"k": "v"}))
    assert not same_config(config, ConsumerConfig(pause_until=5))

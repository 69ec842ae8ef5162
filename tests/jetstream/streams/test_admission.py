"""Whether a stream may be made or changed, asked of assignments as a cluster does: nothing is made."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from jetlake.config.options import AccountJetStream, JetStreamLimits
from jetlake.jetstream.consumers.config import ConsumerConfig
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams.admission import Surroundings, admit_change, admit_new, admit_restored, reserved_size
from jetlake.jetstream.streams.config import ConsumerLimits, Storage, StreamConfig


class Assigned(NamedTuple):
    """Whatever has a configuration."""

    config: Any


def around(*configs: StreamConfig, limits: AccountJetStream | None = None, **fields: Any) -> Surroundings:
    streams = {config.name: Assigned(config) for config in configs}
    exceeds = fields.pop("exceeds", lambda storage, size: False)
    return Surroundings(streams, limits or AccountJetStream(), JetStreamLimits(), exceeds, **fields)


def config(name: str = "S", **fields: Any) -> StreamConfig:
    return StreamConfig(**{"name": name, "subjects": (f"{name}.>",), **fields})


def refusal(wanted: StreamConfig, where: Surroundings) -> int:
    with pytest.raises(ApiError) as caught:
        admit_new(wanted, where)
    return caught.value.err_code


def admitted(wanted: StreamConfig, where: Surroundings) -> StreamConfig:
    found = admit_new(wanted, where)
    assert found is not None
    return found


def test_a_stream_is_admitted_with_everything_filled_in() -> None:
    found = admitted(config(), around())
    assert found.duplicate_window > 0 and found.metadata == {"_nats.req.level": "0"}


def test_the_same_stream_again_is_no_new_one() -> None:
    found = admitted(config(), around())
    assert admit_new(config(), around(found)) is None
    assert refusal(config(max_msgs=5), around(found)) == 10058


def test_other_streams_stand_in_the_way() -> None:
    assert refusal(config("T", subjects=("S.a",)), around(config("S"))) == 10065
    assert refusal(config("T"), around(config("S"), limits=AccountJetStream(max_streams=1))) == 10027
    assert refusal(config("S"), around(offline={"S": "no key"})) == 10194
    assert refusal(config("S"), around(restoring={"S"})) == 10058


def test_replicas_are_for_clusters() -> None:
    assert refusal(config(num_replicas=3), around()) == 10074
    assert admitted(config(num_replicas=3), around(replicas_max=5)).num_replicas == 3


def test_every_replica_counts_in_what_an_account_reserves() -> None:
    limits = AccountJetStream(max_store=100)
    three = around(config("T", max_bytes=20, num_replicas=3), limits=limits, replicas_max=5)
    assert reserved_size(three.streams, Storage.FILE) == 60
    assert admitted(config(max_bytes=40), three).max_bytes == 40
    assert refusal(config(max_bytes=41), three) == 10047
    assert refusal(config(max_bytes=14, num_replicas=3), three) == 10047


def test_the_servers_own_limit_is_asked_as_well() -> None:
    assert refusal(config(max_bytes=5), around(exceeds=lambda storage, size: size >= 5)) == 10047
    assert refusal(config(max_bytes=5, storage=Storage.MEMORY), around(exceeds=lambda storage, size: True)) == 10028


def test_a_change_is_admitted_against_consumers_and_streams() -> None:
    old = admitted(config(), around())
    where = around(old, config("T"))
    assert admit_change(old, replace(old, max_msgs=5), {}, where).max_msgs == 5
    consumers = {"C": Assigned(ConsumerConfig(durable_name="C", max_ack_pending=10))}
    strict = replace(old, consumer_limits=ConsumerLimits(max_ack_pending=5))
    with pytest.raises(ApiError, match="violates consumers: C"):
        admit_change(old, strict, consumers, where)
    with pytest.raises(ApiError, match="subjects overlap"):
        admit_change(old, replace(old, subjects=("T.a",)), {}, where)
    with pytest.raises(ApiError, match="replicas > 1"):
        admit_change(old, replace(old, num_replicas=3), {}, where)
    assert admit_change(old, replace(old, num_replicas=3), {}, where._replace(replicas_max=5)).num_replicas == 3


def test_a_restored_stream_needs_a_free_name() -> None:
    with pytest.raises(ApiError, match="cannot restore"):
        admit_restored(config(), around(config()))
    admit_restored(config("T"), around(config()))

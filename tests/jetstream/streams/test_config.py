"""A stream's configuration: what is read, what is written, what the store gets. Rules: test_stream_rules.py."""

from __future__ import annotations

import msgspec
import pytest

from jetlake.config.options import JetStreamOptions
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams.config import (
    Compression,
    PersistMode,
    Retention,
    Storage,
    StreamConfig,
    config_json,
    file_options,
    is_same,
    key_sources,
    limits,
    parse_request,
    required_level,
    with_level,
)
from jetlake.store import Cipher, StreamLimits
from jetlake.store import Compression as StoreCompression
from jetlake.store.api import Discard

SECOND_NS = 10**9


def test_a_request_is_read_with_its_types() -> None:
    config, pedantic = parse_request(
        b'{"name":"S","subjects":["a","b"],"retention":"workqueue","storage":"memory","discard":"New","pedantic":true}'
    )
    assert pedantic
    assert config == StreamConfig(
        name="S",
        subjects=("a", "b"),
        retention=Retention.WORKQUEUE,
        storage=Storage.MEMORY,
        discard=Discard.NEW,
    )


def test_an_empty_request_has_no_name() -> None:
    assert parse_request(b"") == (StreamConfig(name=""), False)


def test_unknown_fields_pass_only_where_the_server_is_not_strict() -> None:
    with pytest.raises(ApiError):
        parse_request(b'{"name":"S","nope":1}')
    assert parse_request(b'{"name":"S","nope":1}', strict=False)[0].name == "S"


def test_what_is_written_is_read() -> None:
    body = (
        b'{"name":"S","description":"d","subjects":["a"],"placement":{"cluster":"c"},"republish":{"src":"a","dest":"b"},'
        b'"subject_transform":{"src":"a","dest":"c"},"consumer_limits":{"max_ack_pending":5},"metadata":{"k":"v"},'
        b'"mirror":{"name":"M","opt_start_time":"2024-01-01T00:00:00.5Z","consumer":{"name":"C"}},'
        b'"sources":[{"name":"X","external":{"api":"p","deliver":"q"}}],"persist_mode":"async","first_seq":7}'
    )
    config, _ = parse_request(body)
    assert parse_request(msgspec.json.encode(config_json(config, with_server=False)))[0] == config


def test_only_some_empty_fields_are_written() -> None:
    shown = config_json(StreamConfig(name="S"), with_server=False)
    assert "description" not in shown and "metadata" not in shown and "persist_mode" not in shown
    assert shown["consumer_limits"] == {} and shown["max_msgs"] == -1 and shown["sealed"] is False


def test_the_server_shows_itself_in_the_metadata() -> None:
    config = with_level(StreamConfig(name="S", metadata={"mine": "1", "_nats.ver": "old"}))
    assert config.metadata == {"mine": "1", "_nats.req.level": "0"}
    shown = config_json(config, with_server=True)["metadata"]
    assert list(shown) == ["_nats.level", "_nats.req.level", "_nats.ver", "mine"]


@pytest.mark.parametrize(
    ("config", "level"),
    [
        (StreamConfig(name="S"), 0),
        (StreamConfig(name="S", allow_msg_ttl=True), 1),
        (StreamConfig(name="S", subject_delete_marker_ttl=SECOND_NS), 1),
        (StreamConfig(name="S", allow_msg_counter=True), 2),
        (StreamConfig(name="S", allow_msg_ttl=True, persist_mode=PersistMode.ASYNC), 2),
        (StreamConfig(name="S", allow_batched=True), 4),
    ],
)
def test_required_level(config: StreamConfig, level: int) -> None:
    assert required_level(config) == level


def test_the_servers_metadata_makes_no_difference() -> None:
    config = StreamConfig(name="S", metadata={"a": "b"})
    assert is_same(config, with_level(config))
    assert not is_same(config, with_level(StreamConfig(name="S", metadata={"a": "c"})))


def test_limits_of_the_store() -> None:
    config = StreamConfig(
        name="S", max_msgs=1, max_bytes=2, max_age=3, max_msgs_per_subject=4, discard=Discard.NEW,
        discard_new_per_subject=True, subject_delete_marker_ttl=5,
    )  # fmt: skip
    assert limits(config) == StreamLimits(
        max_msgs=1, max_bytes=2, max_age_ns=3, max_msgs_per_subject=4, discard=Discard.NEW,
        discard_new_per_subject=True, subject_delete_marker_ttl_ns=5,
    )  # fmt: skip


def test_files_are_synced_as_the_server_says_unless_the_stream_gives_it_up() -> None:
    config, lazy = StreamConfig(name="S"), StreamConfig(name="S", persist_mode=PersistMode.ASYNC)
    assert file_options(config, JetStreamOptions()).sync == "always"
    assert file_options(config, JetStreamOptions(sync_always=False, sync_interval_s=7)).sync == 7
    assert file_options(lazy, JetStreamOptions(sync_interval_s=7)).sync == 7


def test_files_are_compressed_and_encrypted() -> None:
    options = JetStreamOptions(key="secret", prev_key="older", cipher="aes")
    keys = key_sources(options)
    found = file_options(StreamConfig(name="S", compression=Compression.S2), options, keys)
    assert (found.compression, found.cipher, len(found.keys)) == (StoreCompression.SNAPPY, Cipher.AES_256_GCM, 2)
    assert file_options(StreamConfig(name="S"), JetStreamOptions()).cipher is Cipher.NONE

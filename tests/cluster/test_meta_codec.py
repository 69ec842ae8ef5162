"""Entries and snapshots as bytes: what is written is read, and nothing else is."""

from __future__ import annotations

import contextlib
import re

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.cluster import meta_codec
from jetlake.cluster.assignments import Desired, Origin
from jetlake.cluster.meta_codec import (
    BadEntry,
    Entry,
    NodeRemoved,
    RemoveConsumer,
    RemoveStream,
    SetDesired,
    UpdateStream,
    decode_entry,
    decode_snapshot,
    encode_entry,
    encode_snapshot,
)
from jetlake.jetstream.streams.config import Placement, StreamSource
from jetlake.wire.go_time import ZonedTime, format_time
from tests.cluster.things import N1, N2, TIME_NS, assign, assign_consumer, consumer, group, nodes, stream, with_nodes

ENTRIES: list[Entry] = [
    assign(max_msgs=5, metadata={"a": "b"}, placement=Placement(tags=("ssd",))),
    UpdateStream(account="A", incarnation=7, config=stream().config, group=group(N1)),
    RemoveStream(account="A", name="S", incarnation=7),
    assign_consumer(7, filter_subject="S.a"),
    RemoveConsumer(account="A", stream="S", incarnation=7, name="C", created_ns=TIME_NS),
    SetDesired(account="A", name="S", incarnation=7, desired=Desired(created_ns=1, peers=(N1, N2))),
    SetDesired(
        account="A", name="S", incarnation=7, desired=Desired(created_ns=1, peers=(N1,), origin=Origin(replicas=3))
    ),
    nodes(1)[0],
    NodeRemoved(peer=N1),
]


def packed(text: bytes, kind: int = 8, version: int = 1) -> bytes:
    return bytes([kind, version]) + bytes(cramjam.snappy.compress_raw(text))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_that_is_written_is_read(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


def test_every_kind_has_an_entry_here() -> None:
    assert {type(entry) for entry in ENTRIES} == set(meta_codec.KINDS.values())


def test_the_example_in_the_docstring_is_right() -> None:
    assert meta_codec.__doc__ is not None
    (shown,) = re.findall(r"^    ((?:[0-9a-f]{2} ){5,}[0-9a-f]{2})$", meta_codec.__doc__, re.MULTILINE)
    assert decode_entry(bytes.fromhex(shown)) == NodeRemoved(peer=N1)


def test_times_of_a_consumer_keep_their_zone() -> None:
    time_ns = ZonedTime.at(TIME_NS, 7200)
    entry = decode_entry(encode_entry(assign_consumer(7, opt_start_time=time_ns)))
    assert isinstance(entry, meta_codec.AssignConsumer)
    assert format_time(entry.consumer.config.opt_start_time or 0).endswith("+02:00")


def test_a_source_that_begins_at_a_zoned_time_can_be_written() -> None:
    source = StreamSource(name="X", opt_start_time=ZonedTime.at(TIME_NS, 7200))
    entry = decode_entry(encode_entry(assign(sources=(source,))))
    assert isinstance(entry, meta_codec.AssignStream) and entry.config.sources[0].opt_start_time == TIME_NS


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "an entry of 0 bytes"),
        (b"\x08\x01", "an entry of 2 bytes"),
        (packed(b"{}", kind=99), "unknown kind 99"),
        (packed(b"{}", version=2), "version 2, not 1"),
        (b"\x08\x01\xff\xff\xff\xff\xff\xff", "not compressed as it should be"),
        (packed(b"{}"), "NodeRemoved: .*missing required field `peer`"),
        (packed(b'{"peer":3}'), "NodeRemoved"),
        (packed(b"{"), "NodeRemoved"),
        (packed(b'{"peer":"\xff"}'), "NodeRemoved"),
        (b"\x08\x01\xff\xff\xff\xff\x0f" + b"a", "plain bytes"),
        (
            packed(b'{"account":"A","stream":"S","incarnation":1,"consumer":{"name":"C","created_ns":1,'
                   b'"group":{"name":"g","peers":[]},"config":{"ack_wait":"x"}}}', kind=4),
            "configuration of consumer C",
        ),
    ],
)  # fmt: skip
def test_what_is_no_entry_is_a_clear_error(data: bytes, problem: str) -> None:
    with pytest.raises(BadEntry, match=problem):
        decode_entry(data)


@given(st.binary(max_size=64))
def test_any_bytes_are_an_entry_or_an_error(data: bytes) -> None:
    with contextlib.suppress(BadEntry):
        decode_entry(data)


@given(st.sampled_from(ENTRIES), st.data())
def test_any_damage_to_an_entry_is_an_error_or_another_entry(entry: Entry, data: st.DataObject) -> None:
    changed = bytearray(encode_entry(entry))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(BadEntry):
        decode_entry(bytes(changed))


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(BadEntry, match="not UTF-8"):
        encode_entry(RemoveStream(account="A", name="\udcff", incarnation=1))


# Snapshots


def test_a_snapshot_brings_everything_back() -> None:
    state = with_nodes()
    state.process_assign_stream(7, stream(max_bytes=5))
    state.process_assign_stream(8, stream("GONE", account="B"))
    state.process_remove_stream("B", "GONE", 8)
    state.process_assign_consumer(9, "A", "S", 7, consumer())
    state.process_node_removed(N2)
    found = decode_snapshot(encode_snapshot(state))
    for field in ("accounts", "nodes", "numbers_used", "removed"):
        assert getattr(found, field) == getattr(state, field), field


def test_equal_states_have_equal_snapshots() -> None:
    one, other = with_nodes(), with_nodes()
    one.process_assign_stream(7, stream("S"))
    one.process_assign_stream(8, stream("T"))
    other.process_assign_stream(8, stream("T"))
    other.process_assign_stream(7, stream("S"))
    assert encode_snapshot(one) == encode_snapshot(other)


def test_a_snapshot_is_compressed() -> None:
    state = with_nodes()
    for index in range(1, 201):
        state.process_assign_stream(index, stream(f"S{index}"))
    assert len(encode_snapshot(state)) < 200 * 200


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x01\x00", "a snapshot of 2 bytes"),
        (b"\x02\x00" + bytes(cramjam.snappy.compress_raw(b"{}")), "version 2, not 1"),
        (b"\x01\x00" + bytes(cramjam.snappy.compress_raw(b"{}")), "missing required field"),
        (b"\x01\x00\x05", "not compressed"),
    ],
)
def test_what_is_no_snapshot_is_a_clear_error(data: bytes, problem: str) -> None:
    with pytest.raises(BadEntry, match=problem):
        decode_snapshot(data)


def test_a_snapshot_that_contradicts_itself_is_refused() -> None:
    state = with_nodes()
    made = state.process_assign_stream(7, stream())
    assert made is not None
    state.accounts["B"] = {"S": made}  # the same stream of account A, a second time
    with pytest.raises(BadEntry, match="twice in a snapshot"):
        decode_snapshot(encode_snapshot(state))


def test_any_truncation_of_a_snapshot_is_noticed() -> None:
    state = with_nodes()
    state.process_assign_stream(7, stream())
    data = encode_snapshot(state)
    for size in range(len(data)):
        with pytest.raises(BadEntry):
            decode_snapshot(data[:size])

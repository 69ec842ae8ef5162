"""The entries and snapshots of the meta group as bytes. This module alone knows their layout.

    Entry
         0     1  kind        what it does: the numbers of KINDS
         1     1  version     1
         2     n  an S2 block: JSON, the fields of the kind's class

    Snapshot
         0     2  version     1, little-endian
         2     n  an S2 block: JSON {"streams":[...],"nodes":[...],"numbers_used":[...],"removed":[...]}

A Snappy block is a valid S2 block, and that is what is written; any S2 block is read. The configuration of a consumer
is written as the API shows it, so that its times keep their zones. Bytes that are none of this raise BadEntry, which
says why. Example: the entry that removes server "fjFyEjc1" is

    08 01 13 48 7b 22 70 65 65 72 22 3a 22 66 6a 46 79 45 6a 63 31 22 7d
"""

from __future__ import annotations

from typing import Any

import cramjam
import msgspec

from jetlake.cluster.assignments import (
    Assignments,
    BadAssignment,
    ConsumerAssignment,
    Desired,
    GroupPlan,
    Node,
    Origination,
    Removed,
    StreamAssignment,
)
from jetlake.errors import JetLakeError
from jetlake.jetstream.consumers.config import config_json, read_config
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.store.format import Buffer
from jetlake.store.nats._s2_py import decoded_size
from jetlake.store.nats.s2 import BadS2, decode_block
from jetlake.wire.go_time import plain_time
from jetlake.wire.json_text import encode_json

ENTRY_VERSION = SNAPSHOT_VERSION = 1
_HEAD_SIZE = 2
_PLAIN_SIZE_MAX = 1 << 30  # of a snapshot: about a million streams


class BadEntry(JetLakeError):
    """Bytes that are no entry or snapshot of the meta group."""


class AssignStream(msgspec.Struct, frozen=True, kw_only=True):
    """Let servers hold a new stream."""

    account: str
    config: StreamConfig
    created_ns: int
    group: GroupPlan
    asked: Origination = Origination()


class UpdateStream(msgspec.Struct, frozen=True, kw_only=True):
    """Give a stream another configuration, and other servers if there is a group."""

    account: str
    incarnation: int
    config: StreamConfig
    group: GroupPlan | None = None
    asked: Origination = Origination()


class RemoveStream(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a stream and its files, everywhere."""

    account: str
    name: str
    incarnation: int
    asked: Origination = Origination()


class AssignConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """Make a consumer, or change the one that was made at the same time."""

    account: str
    stream: str
    incarnation: int  # of the stream
    consumer: ConsumerAssignment


class RemoveConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a consumer."""

    account: str
    stream: str
    incarnation: int  # of the stream
    name: str
    created_ns: int
    asked: Origination = Origination()


class SetDesired(msgspec.Struct, frozen=True, kw_only=True):
    """Tell a stream's group where to go, or that it is there."""

    account: str
    name: str
    incarnation: int
    desired: Desired | None = None


class NodeJoined(msgspec.Struct, frozen=True, kw_only=True):
    """A server is a member, with these properties."""

    node: Node


class NodeRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """A server is a member no more."""

    peer: str


Entry = (
    AssignStream | UpdateStream | RemoveStream | AssignConsumer | RemoveConsumer | SetDesired | NodeJoined | NodeRemoved
)

KINDS: dict[int, type[Entry]] = {
    1: AssignStream,
    2: UpdateStream,
    3: RemoveStream,
    4: AssignConsumer,
    5: RemoveConsumer,
    6: SetDesired,
    7: NodeJoined,
    8: NodeRemoved,
}
_NUMBERS = {entry: number for number, entry in KINDS.items()}


class _Consumer(msgspec.Struct, kw_only=True):
    """A ConsumerAssignment as it is written."""

    name: str
    config: msgspec.Raw
    created_ns: int
    group: GroupPlan
    incarnation: int = 0
    asked: Origination = Origination()


class _AssignConsumer(msgspec.Struct, kw_only=True):
    account: str
    stream: str
    incarnation: int
    consumer: _Consumer


class _Stream(msgspec.Struct, kw_only=True):
    """A StreamAssignment as it is written."""

    account: str
    config: StreamConfig
    created_ns: int
    group: GroupPlan
    incarnation: int
    consumers: list[_Consumer] = []


class _Snapshot(msgspec.Struct, kw_only=True):
    streams: list[_Stream]
    nodes: list[Node]
    numbers_used: list[int]
    removed: list[Removed]


# Entries


def encode_entry(entry: Entry) -> bytes:
    """The bytes of an entry; raises BadEntry if a text in it is none."""
    shown: Any = entry
    if isinstance(entry, AssignConsumer):
        consumer = _written(entry.consumer)
        shown = _AssignConsumer(
            account=entry.account, stream=entry.stream, incarnation=entry.incarnation, consumer=consumer
        )
    return bytes([_NUMBERS[type(entry)], ENTRY_VERSION]) + _pack(_json(shown))


def decode_entry(data: Buffer) -> Entry:
    """The entry that some bytes are; raises BadEntry."""
    data = bytes(data)
    if len(data) <= _HEAD_SIZE:
        raise BadEntry(f"an entry of {len(data)} bytes")
    kind = KINDS.get(data[0])
    if kind is None:
        raise BadEntry(f"an entry of unknown kind {data[0]}")
    if data[1] != ENTRY_VERSION:
        raise BadEntry(f"an entry of version {data[1]}, not {ENTRY_VERSION}")
    plain = _unpack(data[_HEAD_SIZE:])
    if kind is not AssignConsumer:
        entry: Entry = _parse(plain, kind)
        return entry
    found = _parse(plain, _AssignConsumer)
    consumer = _read(found.consumer)
    return AssignConsumer(account=found.account, stream=found.stream, incarnation=found.incarnation, consumer=consumer)


# Snapshots


def encode_snapshot(state: Assignments) -> bytes:
    """The whole state. Equal states give equal bytes, whatever the order in which they came about."""
    streams = [
        _Stream(
            account=stream.account,
            config=stream.config,
            created_ns=stream.created_ns,
            group=stream.group,
            incarnation=stream.incarnation,
            consumers=[_written(stream.consumers[name]) for name in sorted(stream.consumers)],
        )
        for stream in sorted(state.streams(), key=lambda stream: stream.incarnation)
    ]
    nodes = [state.nodes[peer] for peer in sorted(state.nodes)]
    shown = _Snapshot(
        streams=streams,
        nodes=nodes,
        numbers_used=sorted(state.numbers_used),
        removed=list(state.removed.values()),
    )
    return SNAPSHOT_VERSION.to_bytes(_HEAD_SIZE, "little") + _pack(_json(shown))


def decode_snapshot(data: Buffer) -> Assignments:
    """The state that a snapshot says; raises BadEntry."""
    data = bytes(data)
    if len(data) <= _HEAD_SIZE:
        raise BadEntry(f"a snapshot of {len(data)} bytes")
    version = int.from_bytes(data[:_HEAD_SIZE], "little")
    if version != SNAPSHOT_VERSION:
        raise BadEntry(f"a snapshot of version {version}, not {SNAPSHOT_VERSION}")
    found = _parse(_unpack(data[_HEAD_SIZE:]), _Snapshot)
    streams = [
        StreamAssignment(
            account=stream.account,
            config=stream.config,
            created_ns=stream.created_ns,
            group=stream.group,
            incarnation=stream.incarnation,
            consumers={each.name: _read(each) for each in stream.consumers},
        )
        for stream in found.streams
    ]
    state = Assignments()
    try:
        state.replace_all(streams, found.nodes, found.numbers_used, found.removed)
    except BadAssignment as error:
        raise BadEntry(f"a snapshot that contradicts itself: {error}") from error
    return state


# Both


def _written(consumer: ConsumerAssignment) -> _Consumer:
    return _Consumer(
        name=consumer.name,
        config=msgspec.Raw(encode_json(config_json(consumer.config))),
        created_ns=consumer.created_ns,
        group=consumer.group,
        incarnation=consumer.incarnation,
        asked=consumer.asked,
    )


def _read(consumer: _Consumer) -> ConsumerAssignment:
    try:
        config = read_config(bytes(consumer.config))
    except ApiError as error:
        raise BadEntry(f"the configuration of consumer {consumer.name}: {error.description}") from error
    return ConsumerAssignment(
        name=consumer.name,
        config=config,
        created_ns=consumer.created_ns,
        group=consumer.group,
        incarnation=consumer.incarnation,
        asked=consumer.asked,
    )


def _json(shown: object) -> bytes:
    try:
        return msgspec.json.encode(shown, enc_hook=plain_time)
    except UnicodeEncodeError as error:
        raise BadEntry(f"a text that is not UTF-8: {error.object!r}") from error


def _pack(plain: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(plain))


def _unpack(packed: bytes) -> bytearray:
    try:
        size, _ = decoded_size(packed)
        if size > _PLAIN_SIZE_MAX:
            raise BadEntry(f"{size} plain bytes")
        plain = bytearray(size)
        decode_block(packed, plain)
    except BadS2 as error:
        raise BadEntry(f"not compressed as it should be: {error}") from error
    return plain


def _parse(plain: Buffer, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(plain, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadEntry(f"not the JSON of {kind.__name__.lstrip('_')}: {error}") from error

"""The commands of a stream and of its consumers in flat bytes: what the entries of a stream's group are.

    offset  size  field
    0       1     kind            see `_KINDS`
    1       1     version         1
    2             the fields of the command, in their order

Numbers are little-endian: `u64` and `i64` have 8 bytes. Texts and bytes have their size in front, as 4 bytes; lists of
sequences have their count there. A configuration is JSON. Three kinds carry messages as `pack.py` lays them out:

    APPEND  u64 seq of the first, i64 time_ns of all, u32 count, the messages
    COPY    u32 count, a u64 sequence each, an i64 time_ns each, the messages
    ALL     u64 seq of the first, i64 time_ns of all, lists of i64 expires, ids, filters of what is replaced (each with
            the u64 number of its member in front), numbers that nobody wants and timings, u32 count, the messages

LEDGER says what consumers did: u32 count of consumers, then for each its name, a u32 count of commands, and for each of
these a byte for its kind and its fields.

Example, `Skip(seq=7, time_ns=1)`: `04 01 0700000000000000 0100000000000000 00000000 00`.

What is decoded is what was encoded, but that a list of sequences comes back as an array. Bytes that are no entry raise
BadEntry.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from jetlake.cluster.pack import pack, unpack
from jetlake.errors import BadRequest, JetLakeError
from jetlake.jetstream.consumers import commands as consumer
from jetlake.jetstream.consumers.config import ConsumerConfig
from jetlake.jetstream.streams import commands as stream
from jetlake.jetstream.streams.commands import Append, AppendAll, Command, Copy, Timing
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.ops import OP_WORDS
from jetlake.store.api import StreamLimits
from jetlake.subjects import decode_subject, encode_subject

VERSION = 1
APPEND, COPY, LEDGER, ALL = 1, 2, 12, 13
_HEAD = struct.Struct("<BB")
_APPEND = struct.Struct("<BBQqI")
APPEND_HEAD_SIZE = _APPEND.size
_SIZE = struct.Struct("<I")
_U64, _I64 = struct.Struct("<Q"), struct.Struct("<q")


class BadEntry(JetLakeError):
    """Bytes that are no entry of a stream's group."""


class Entries(NamedTuple):
    """What consumers did, in order, by their names."""

    consumers: Sequence[tuple[str, Sequence[consumer.Command]]]


class _Reader:
    """Takes fields off the front of an entry."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise BadEntry(f"{size} bytes at offset {self.at}, of {len(self.data)} in all")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, layout: struct.Struct) -> int:
        value: int = layout.unpack(self.take(layout.size))[0]
        return value


class _Field(NamedTuple):
    """How one kind of value is written and read."""

    write: Callable[[Any], bytes]
    read: Callable[[_Reader], Any]


def _sized(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


def _read_bytes(reader: _Reader) -> bytes:
    return reader.take(reader.number(_SIZE))


def _seqs(values: Iterable[int]) -> bytes:
    numbers = array("Q", values)
    return _SIZE.pack(len(numbers)) + numbers.tobytes()


def _read_seqs(reader: _Reader) -> array[int]:
    return array("Q", reader.take(8 * reader.number(_SIZE)))


def _json(type: Any) -> _Field:
    def read(reader: _Reader) -> Any:
        data = _read_bytes(reader)
        try:
            return msgspec.json.decode(data, type=type)
        except (msgspec.MsgspecError, UnicodeDecodeError, BadRequest) as error:
            raise BadEntry(f"no {getattr(type, '__name__', 'configuration')}: {error}") from None

    return _Field(lambda value: _sized(msgspec.json.encode(value)), read)


U64 = _Field(_U64.pack, lambda reader: reader.number(_U64))
I64 = _Field(_I64.pack, lambda reader: reader.number(_I64))
BYTES = _Field(lambda value: _sized(bytes(value)), _read_bytes)
TEXT = _Field(lambda value: _sized(encode_subject(value)), lambda reader: decode_subject(_read_bytes(reader)))
SEQS = _Field(_seqs, _read_seqs)
TIMES = _Field(
    lambda values: _SIZE.pack(len(values)) + values.tobytes(),
    lambda reader: array("q", reader.take(8 * reader.number(_SIZE))),
)


def _numbered(field: _Field) -> _Field:
    """A list of values with the numbers of the members they belong to."""

    def write(pairs: Sequence[tuple[int, Any]]) -> bytes:
        return _SIZE.pack(len(pairs)) + b"".join(U64.write(number) + field.write(value) for number, value in pairs)

    def read(reader: _Reader) -> list[tuple[int, Any]]:
        return [(U64.read(reader), field.read(reader)) for _ in range(reader.number(_SIZE))]

    return _Field(write, read)


def _read_timing(reader: _Reader) -> Timing | None:
    flag = reader.take(1)
    if flag not in (b"\0", b"\1"):
        raise BadEntry(f"a timing that begins with {flag!r}")
    return Timing(I64.read(reader), TEXT.read(reader), I64.read(reader)) if flag == b"\1" else None


def _timing(value: Timing | None) -> bytes:
    return b"\0" if value is None else b"\1" + I64.write(value[0]) + TEXT.write(value[1]) + I64.write(value[2])


TIMING = _Field(_timing, _read_timing)  # a byte that says whether there is one, and its fields
_ALL_FIELDS = (U64, I64, TIMES, _numbered(BYTES), _numbered(TEXT), SEQS, _numbered(TIMING))
LIMITS, DELAY = _json(StreamLimits), _json(int | None)
STREAM_CONFIG, CONSUMER_CONFIG = _json(StreamConfig | None), _json(ConsumerConfig)

# What each kind is called in an entry, and its fields.
_KINDS: dict[int, tuple[type, tuple[_Field, ...]]] = {
    3: (stream.Put, (U64, I64, TEXT, BYTES, BYTES, I64, BYTES, TEXT, TIMING)),
    4: (stream.Skip, (U64, I64, BYTES, TIMING)),
    5: (stream.Remove, (SEQS,)),
    6: (stream.Erase, (U64,)),
    7: (stream.Purge, (TEXT, U64, U64)),
    8: (stream.PurgeSome, (TEXT, U64, U64, U64)),
    9: (stream.Truncate, (U64,)),
    10: (stream.Expire, (I64, U64)),
    11: (stream.Configure, (LIMITS, I64, I64, STREAM_CONFIG)),
}
_CONSUMER_KINDS: dict[int, tuple[type, tuple[_Field, ...]]] = {
    1: (consumer.Deliver, (SEQS, U64, I64)),
    2: (consumer.Redeliver, (U64, I64)),
    3: (consumer.Advance, (U64,)),
    4: (consumer.Ack, (U64,)),
    5: (consumer.AckMany, (SEQS, U64)),
    6: (consumer.AckAll, (U64, U64)),
    7: (consumer.Nak, (U64, DELAY, I64)),
    8: (consumer.Progress, (U64, I64)),
    9: (consumer.Expire, (I64, U64)),
    10: (consumer.Requeue, (SEQS,)),
    11: (consumer.GiveUp, (U64,)),
    12: (consumer.Drop, (SEQS,)),
    13: (consumer.ForgetCounts, (SEQS,)),
    14: (consumer.SkipTo, (U64,)),
    15: (consumer.Reset, (U64,)),
    16: (consumer.Configure, (CONSUMER_CONFIG,)),
}
_STREAM_FORMS = {made: (_HEAD.pack(kind, VERSION), fields) for kind, (made, fields) in _KINDS.items()}
_CONSUMER_FORMS = {made: (bytes((kind,)), fields) for kind, (made, fields) in _CONSUMER_KINDS.items()}


def encode(command: Command) -> bytes:
    """The entry of a stream's command."""
    if isinstance(command, Append):
        out = bytearray(APPEND_HEAD_SIZE)
        done = pack(command.data, command.ops, command.first, command.stop, out, True)
        assert done == command.stop, f"message {done} cannot be stored"
        return seal_append(out, command.seq, command.time_ns, command.stop - command.first)
    if isinstance(command, Copy):
        return _encode_copy(command)
    if isinstance(command, AppendAll):
        return _encode_all(command)
    return _encode_fields(command, _STREAM_FORMS)


def seal_append(out: bytearray, seq: int, time_ns: int, count: int) -> bytes:
    """The entry of messages that were packed into `out`, behind room for the head."""
    _APPEND.pack_into(out, 0, APPEND, VERSION, seq, time_ns, count)
    return bytes(out)


def encode_ledger(consumers: Sequence[tuple[str, Sequence[bytes]]]) -> bytes:
    """The entry of what consumers did: the names of consumers, and their commands as `encode_consumer` made them."""
    parts = [_HEAD.pack(LEDGER, VERSION), _SIZE.pack(len(consumers))]
    for name, commands in consumers:
        parts += [TEXT.write(name), _SIZE.pack(len(commands)), *commands]
    return b"".join(parts)


def encode_consumer(command: consumer.Command) -> bytes:
    """A consumer's command, as a part of an entry."""
    return _encode_fields(command, _CONSUMER_FORMS)


def decode(entry: bytes) -> Command | Entries:
    """What an entry says; raises BadEntry."""
    if len(entry) < _HEAD.size:
        raise BadEntry(f"an entry of {len(entry)} bytes")
    kind, version = _HEAD.unpack_from(entry)
    if version != VERSION:
        raise BadEntry(f"version {version} of kind {kind}, not {VERSION}")
    if kind == APPEND:
        return _decode_append(entry)
    reader = _Reader(entry, _HEAD.size)
    if kind in (COPY, ALL):
        return _decode_copy(reader) if kind == COPY else _decode_all(reader)
    found: Command | Entries
    if kind == LEDGER:
        found = Entries([_decode_consumer(reader) for _ in range(reader.number(_SIZE))])
    elif kind in _KINDS:
        found = _decode_fields(reader, *_KINDS[kind])
    else:
        raise BadEntry(f"no kind {kind}")
    if reader.at != len(entry):
        raise BadEntry(f"{len(entry) - reader.at} bytes follow the last field")
    return found


def decode_consumer(data: bytes) -> consumer.Command:
    """What `encode_consumer` made; raises BadEntry."""
    reader = _Reader(data, 0)
    found = _decode_consumer_command(reader)
    if reader.at != len(data):
        raise BadEntry(f"{len(data) - reader.at} bytes follow the last field")
    return found


def _encode_fields(command: Any, forms: dict[type, tuple[bytes, tuple[_Field, ...]]]) -> bytes:
    head, fields = forms[type(command)]
    return b"".join((head, *(field.write(value) for field, value in zip(fields, command, strict=True))))


def _decode_fields(reader: _Reader, made: type, fields: tuple[_Field, ...]) -> Any:
    return made(*(field.read(reader) for field in fields))


def _decode_append(entry: bytes) -> Append:
    if len(entry) < APPEND_HEAD_SIZE:
        raise BadEntry(f"an entry of {len(entry)} bytes")
    _, _, seq, time_ns, count = _APPEND.unpack_from(entry)
    return Append(seq, time_ns, entry, _unpack(entry, APPEND_HEAD_SIZE, count), 0, count)


def _encode_copy(command: Copy) -> bytes:
    count = len(command.ops) // OP_WORDS
    out = bytearray(_HEAD.pack(COPY, VERSION) + _SIZE.pack(count))
    out += command.seqs[:count].tobytes() + command.times[:count].tobytes()
    done = pack(command.data, command.ops, 0, count, out, True)
    assert done == count, f"message {done} cannot be stored"
    return bytes(out)


def _decode_copy(reader: _Reader) -> Copy:
    count = reader.number(_SIZE)
    seqs, times = array("Q", reader.take(8 * count)), array("q", reader.take(8 * count))
    return Copy(reader.data, _unpack(reader.data, reader.at, count), seqs, times)


def _encode_all(command: AppendAll) -> bytes:
    out = bytearray(_HEAD.pack(ALL, VERSION))
    out += b"".join(field.write(value) for field, value in zip(_ALL_FIELDS, _all_values(command), strict=True))
    count = len(command.ops) // OP_WORDS
    out += _SIZE.pack(count)
    done = pack(command.data, command.ops, 0, count, out, True)
    assert done == count, f"message {done} cannot be stored"
    return bytes(out)


def _all_values(command: AppendAll) -> tuple[Any, ...]:
    """The fields of an atomic batch beside its messages."""
    return command[:2] + command[4:]


def _decode_all(reader: _Reader) -> AppendAll:
    seq, time_ns, expires, msg_ids, replaces, unwanted, timings = (field.read(reader) for field in _ALL_FIELDS)
    count = reader.number(_SIZE)
    if len(expires) not in (0, count) or any(
        number >= count for number in (*dict(msg_ids), *dict(replaces), *unwanted, *dict(timings))
    ):
        raise BadEntry(f"an atomic batch of {count} messages says something of others")
    return AppendAll(
        seq, time_ns, reader.data, _unpack(reader.data, reader.at, count), expires, msg_ids, replaces, unwanted, timings
    )


def _unpack(entry: bytes, offset: int, count: int) -> array[int]:
    try:
        return unpack(entry, offset, count)
    except ValueError as error:
        raise BadEntry(str(error)) from None


def _decode_consumer(reader: _Reader) -> tuple[str, list[consumer.Command]]:
    name = TEXT.read(reader)
    return name, [_decode_consumer_command(reader) for _ in range(reader.number(_SIZE))]


def _decode_consumer_command(reader: _Reader) -> consumer.Command:
    kind = reader.take(1)[0]
    if kind not in _CONSUMER_KINDS:
        raise BadEntry(f"no kind {kind} of what a consumer does")
    command: consumer.Command = _decode_fields(reader, *_CONSUMER_KINDS[kind])
    return command

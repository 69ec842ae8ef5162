"""Commands in flat bytes."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetlake.cluster import codec
from jetlake.cluster.codec import BadEntry, decode, decode_consumer, encode, encode_consumer, encode_ledger
from jetlake.jetstream.consumers import commands as consumer
from jetlake.jetstream.consumers.config import AckPolicy, ConsumerConfig
from jetlake.jetstream.streams import commands as stream
from jetlake.jetstream.streams.commands import Append, AppendAll, Copy
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.ops import OP_MSG_ID, OP_WORDS, append_op
from jetlake.store.api import Discard, StreamLimits
from tests.jetstream.streams.test_machine import CONFIGS, STEPS, compare_elsewhere

U64, I64 = st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
BYTES = st.binary(max_size=40)
SEQS = st.lists(U64, max_size=5).map(lambda seqs: array("Q", seqs))
LIMITS = st.builds(
    StreamLimits, max_msgs=st.integers(-1, 9), discard=st.sampled_from(Discard), max_age_ns=st.integers(0)
)
STREAM_CONFIG = st.none() | st.builds(StreamConfig, name=st.just("S"), description=TEXT, max_msgs=st.integers(-1, 5))
CONSUMER_CONFIG = st.builds(
    ConsumerConfig, name=TEXT, ack_policy=st.sampled_from(AckPolicy), ack_wait=st.integers(0, 9)
)
TIMING = st.builds(stream.Timing, I64, TEXT, I64)
STREAM_COMMANDS = st.one_of(
    st.builds(stream.Put, U64, I64, TEXT, BYTES, BYTES, I64, BYTES, TEXT, st.none() | TIMING),
    st.builds(stream.Skip, U64, I64, BYTES, st.none() | TIMING),
    st.builds(stream.Remove, SEQS),
    st.builds(stream.Erase, U64),
    st.builds(stream.Purge, TEXT, U64, U64),
    st.builds(stream.PurgeSome, TEXT, U64, U64, U64),
    st.builds(stream.Truncate, U64),
    st.builds(stream.Expire, I64, U64),
    st.builds(stream.Configure, LIMITS, I64, I64, STREAM_CONFIG),
)
CONSUMER_COMMANDS = st.one_of(
    st.builds(consumer.Deliver, SEQS, U64, I64),
    st.builds(consumer.Redeliver, U64, I64),
    st.builds(consumer.Advance, U64),
    st.builds(consumer.Ack, U64),
    st.builds(consumer.AckMany, SEQS, U64),
    st.builds(consumer.AckAll, U64, U64),
    st.builds(consumer.Nak, U64, st.none() | I64, I64),
    st.builds(consumer.Progress, U64, I64),
    st.builds(consumer.Expire, I64, U64),
    st.builds(consumer.Requeue, SEQS),
    st.builds(consumer.GiveUp, U64),
    st.builds(consumer.Drop, SEQS),
    st.builds(consumer.ForgetCounts, SEQS),
    st.builds(consumer.SkipTo, U64),
    st.builds(consumer.Reset, U64),
    st.builds(consumer.Configure, CONSUMER_CONFIG),
)
MESSAGES = st.lists(st.tuples(st.binary(min_size=1, max_size=9), BYTES, BYTES, st.booleans()), min_size=1, max_size=5)


def batch(messages: list[tuple[bytes, bytes, bytes, bool]]) -> tuple[bytearray, array[int]]:
    data, ops = bytearray(b"noise"), array("I")
    for subject, headers, payload, has_id in messages:
        append_op(ops, data, subject, payload, headers, b"reply", OP_MSG_ID if has_id else 0)
    return data, ops


def parts(command: Append | AppendAll | Copy, first: int = 0) -> list[Any]:
    """What is stored of the messages of a command."""
    rows = [command.ops[at : at + OP_WORDS] for at in range(first * OP_WORDS, len(command.ops), OP_WORDS)]
    data = bytes(command.data)
    return [[data[a : a + size] for a, size in (row[0:2], row[4:6], row[6:8])] + [row[9]] for row in rows]


@given(command=STREAM_COMMANDS)
def test_a_stream_s_command_comes_back(command: stream.Command) -> None:
    found = decode(encode(command))
    assert type(found) is type(command) and found == command


@given(consumers=st.lists(st.tuples(TEXT, st.lists(CONSUMER_COMMANDS, max_size=4)), max_size=3))
def test_what_consumers_did_comes_back(consumers: list[tuple[str, list[consumer.Command]]]) -> None:
    found = decode(encode_ledger([(name, [encode_consumer(each) for each in done]) for name, done in consumers]))
    assert isinstance(found, codec.Entries) and list(found.consumers) == consumers
    kinds = [[type(each) for each in done] for _, done in found.consumers]
    assert kinds == [[type(each) for each in done] for _, done in consumers]


@given(messages=MESSAGES, seq=U64, time_ns=I64, first=st.integers(0, 4))
def test_an_append_comes_back_without_what_it_is_not_of(messages: Any, seq: int, time_ns: int, first: int) -> None:
    data, ops = batch(messages)
    first = min(first, len(messages) - 1)
    command = Append(seq, time_ns, data, ops, first, len(messages))
    found = decode(encode(command))
    assert isinstance(found, Append)
    assert (found.seq, found.time_ns, found.first, found.stop) == (seq, time_ns, 0, len(messages) - first)
    assert parts(found) == parts(command, first)


@given(messages=MESSAGES, seqs=st.lists(U64, min_size=5, max_size=5), times=st.lists(I64, min_size=5, max_size=5))
def test_a_copy_comes_back(messages: Any, seqs: list[int], times: list[int]) -> None:
    data, ops = batch(messages)
    count = len(messages)
    command = Copy(data, ops, array("Q", seqs[:count]), array("q", times[:count]))
    found = decode(encode(command))
    assert isinstance(found, Copy)
    assert (found.seqs, found.times, parts(found)) == (command.seqs, command.times, parts(command))


@given(messages=MESSAGES, seq=U64, time_ns=I64, data=st.data())
def test_an_atomic_batch_comes_back(messages: Any, seq: int, time_ns: int, data: st.DataObject) -> None:
    received, ops = batch(messages)
    numbers = st.integers(0, len(messages) - 1)
    expires = array("q", data.draw(st.sampled_from([[], [7] * len(messages)])))
    msg_ids = data.draw(st.lists(st.tuples(numbers, BYTES), max_size=3))
    replaces = data.draw(st.lists(st.tuples(numbers, TEXT), max_size=3))
    unwanted = array("Q", data.draw(st.lists(numbers, max_size=3)))
    timings = data.draw(st.lists(st.tuples(numbers, TIMING), max_size=3))
    command = AppendAll(seq, time_ns, received, ops, expires, msg_ids, replaces, unwanted, timings)
    entry = encode(command)
    found = decode(entry)
    assert isinstance(found, AppendAll)
    assert found[:2] + found[4:] == command[:2] + command[4:] and parts(found) == parts(command)
    with pytest.raises(BadEntry):
        decode(entry[:-1])


def test_an_atomic_batch_that_speaks_of_other_messages_is_refused() -> None:
    data, ops = batch([(b"a", b"", b"x", False)])
    for wrong in (
        AppendAll(1, 1, data, ops, array("q", [1, 2])),
        AppendAll(1, 1, data, ops, unwanted=[1]),
        AppendAll(1, 1, data, ops, msg_ids=[(1, b"id")]),
    ):
        with pytest.raises(BadEntry, match="of others"):
            decode(encode(wrong))


@given(kind=st.integers(0, 14), version=st.sampled_from([1, 1, 1, 2]), body=st.binary(max_size=60))
def test_bytes_that_are_no_entry_are_an_error_that_says_so(kind: int, version: int, body: bytes) -> None:
    try:
        found = decode(bytes((kind, version)) + body)
    except BadEntry as error:
        assert str(error)
    else:
        assert isinstance(found, (tuple, codec.Entries))


@given(command=STREAM_COMMANDS | CONSUMER_COMMANDS, data=st.data())
def test_an_entry_with_any_byte_missing_or_one_more_is_refused(command: Any, data: st.DataObject) -> None:
    is_stream = type(command) in codec._STREAM_FORMS
    entry, read = (encode(command), decode) if is_stream else (encode_consumer(command), decode_consumer)
    end = data.draw(st.integers(0, len(entry) - 1))
    for wrong in (entry[:end], entry + b"x"):
        with pytest.raises(BadEntry):
            read(wrong)


def test_another_version_is_refused_by_name() -> None:
    with pytest.raises(BadEntry, match="version 2 of kind 4, not 1"):
        decode(b"\4\2" + bytes(20))


def test_the_example_of_the_docstring() -> None:
    example = (codec.__doc__ or "").partition("Example, `Skip(seq=7, time_ns=1)`: `")[2].partition("`")[0]
    assert encode(stream.Skip(7, 1)) == bytes.fromhex(example)


def test_every_command_has_a_form() -> None:
    made = {*codec._STREAM_FORMS, Append, AppendAll, Copy}
    assert made == set(stream.Command.__args__)
    assert set(codec._CONSUMER_FORMS) == set(consumer.Command.__args__)


@settings(max_examples=60, deadline=None)
@given(config=st.sampled_from(CONFIGS), steps=st.lists(STEPS, max_size=14))
def test_stores_that_apply_the_same_entries_are_equal(config: dict[str, Any], steps: list[tuple[str, Any]]) -> None:
    def carry(command: stream.Command) -> stream.Command:
        found = decode(encode(command))
        assert not isinstance(found, codec.Entries)
        return found

    compare_elsewhere(config, steps, carry)

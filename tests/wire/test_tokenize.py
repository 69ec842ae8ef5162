"""Finding publishes in received bytes: every test on both twins, then the twins against each other."""

from __future__ import annotations

import importlib
import os
from array import array
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jetlake.ops import OP_MSG_ID, OP_SPECIAL, OP_WORDS
from jetlake.wire import _tokenize_py
from jetlake.wire import tokenize as face
from jetlake.wire.protocol import (
    BAD_ARGS,
    BAD_HEADER_SIZE,
    BAD_SIZE,
    ERROR_TEXTS,
    FULL,
    NEED_MORE,
    NO_CRLF,
    NO_HEADERS,
    NO_LIMIT,
    OTHER,
    PAYLOAD_VIOLATION,
    TOO_LONG_LINE,
    UNKNOWN_OPERATION,
    VERBS,
)
from jetlake.wire.verbs import Ping
from tests.wire.conversation import Outcome, Pub, Tokenizer, converse, pubs_of, three_ways

NO_KERNELS = bool(os.environ.get("JETLAKE_NO_KERNELS"))
needs_kernels = pytest.mark.skipif(NO_KERNELS, reason="JETLAKE_NO_KERNELS is set")


@pytest.fixture(scope="module", params=["py", "c"])
def tokenize(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "c" and NO_KERNELS:
        pytest.skip("JETLAKE_NO_KERNELS is set")
    twin: Tokenizer = importlib.import_module(f"jetlake.wire._tokenize_{request.param}").tokenize
    return twin


def call(
    tokenize: Tokenizer, data: bytes, count_max: int = 8, max_payload: int = 64, max_control_line: int = 32
) -> tuple[int, int, int, int]:
    ops = array("I", bytes(4 * OP_WORDS * count_max))
    return tokenize(data, 0, len(data), ops, count_max, max_payload, max_control_line)


@needs_kernels
def test_the_compiled_twin_is_loaded() -> None:
    assert face.COMPILED and type(face.tokenize).__name__ == "cython_function_or_method"


VALID = [
    (b"PUB foo 2\r\nhi\r\n", Pub(b"foo", b"hi")),
    (b"PUB foo reply 2\r\nhi\r\n", Pub(b"foo", b"hi", b"reply")),
    (b"PUB foo 0\r\n\r\n", Pub(b"foo", b"")),
    (b"pUb foo 1\r\nx\r\n", Pub(b"foo", b"x")),
    (b"PUB\tfoo\t 1\r\nx\r\n", Pub(b"foo", b"x")),
    (b"PUB \t foo \t re  1 \t\r\nx\r\n", Pub(b"foo", b"x", b"re")),
    (b"PUB foo 1\nx\r\n", Pub(b"foo", b"x")),
    (b"PUB foo 000000002\r\nhi\r\n", Pub(b"foo", b"hi")),
    (b"PUB foo 4\r\n\r\n\r\n\r\n", Pub(b"foo", b"\r\n\r\n")),
    (b"PUB a.very.long.subject.of.many.tokens _INBOX.abcdefgh.12345678 3\r\nabc\r\n",
     Pub(b"a.very.long.subject.of.many.tokens", b"abc", b"_INBOX.abcdefgh.12345678")),
    (b"PUB f\x00\x01\x1f\xff\x80o 1\r\nx\r\n", Pub(b"f\x00\x01\x1f\xff\x80o", b"x")),
    (b"HPUB foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", Pub(b"foo", b"hi", b"", b"NATS/1.0\r\n\r\n")),
    (b"hpub foo re 12 12\r\nNATS/1.0\r\n\r\n\r\n", Pub(b"foo", b"", b"re", b"NATS/1.0\r\n\r\n")),
    (b"HPUB foo 0 2\r\nhi\r\n", Pub(b"foo", b"hi")),
    (b"HPUB foo 3 5\r\nabchi\r\n", Pub(b"foo", b"hi", b"", b"abc")),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "pub"), VALID)
def test_a_publish_is_found_with_all_its_parts(tokenize: Tokenizer, stream: bytes, pub: Pub) -> None:
    assert three_ways(tokenize, stream) == Outcome([pub], NEED_MORE, None, True)


def test_consecutive_publishes_are_found_in_order(tokenize: Tokenizer) -> None:
    stream = b"".join(stream for stream, _ in VALID)
    assert three_ways(tokenize, stream).seen == [pub for _, pub in VALID]


@pytest.mark.parametrize(
    ("headers", "flags"),
    [
        (b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n", OP_SPECIAL | OP_MSG_ID),
        (b"NATS/1.0\r\nA: b\r\nNats-Rollup: sub\r\n\r\n", OP_SPECIAL),
        (b"NATS/1.0\r\nNats-Rollup: sub\r\nNats-Msg-Id:\r\n\r\n", OP_SPECIAL | OP_MSG_ID),
        (b"NATS/1.0\r\nNats-Msg-Id2: 1\r\n\r\n", OP_SPECIAL),
        (b"NATS/1.0\r\nNats-Msg-Id", OP_SPECIAL),
        (b"NATS/1.0\r\nNats-", OP_SPECIAL),
        (b"NATS/1.0\r\nNats", 0),
        (b"NATS/1.0\r\nnats-msg-id: 1\r\n\r\n", 0),
        (b"NATS/1.0\r\nA: Nats-Msg-Id: 1\r\n Nats-Msg-Id: 1\r\n\r\n", 0),
        (b"NATS/1.0\nNats-Msg-Id: 1\r\n\r\n", 0),
        (b"Nats-Msg-Id: 1\r\n\r\n", 0),
        (b"\nNats-Msg-Id: 1\r\n\r\n", 0),
        (b"\r\nNats-Msg-Id: 1", OP_SPECIAL | OP_MSG_ID),
        (b"NATS/1.0\r\nA: b\r\n\r\n", 0),
    ],
)
def test_headers_that_a_server_acts_upon_are_flagged(tokenize: Tokenizer, headers: bytes, flags: int) -> None:
    payload = b"\r\nNats-Msg-Id: not a header\r\n"
    stream = b"HPUB foo %d %d\r\n%s%s\r\n" % (len(headers), len(headers) + len(payload), headers, payload)
    assert three_ways(tokenize, stream).seen == [Pub(b"foo", payload, b"", headers, flags)]


FAILURES = [
    (b"FOO\r\n", UNKNOWN_OPERATION),
    (b"x", UNKNOWN_OPERATION),
    (b" PUB foo 0\r\n\r\n", UNKNOWN_OPERATION),
    (b"\r\n", UNKNOWN_OPERATION),
    (b"PUBX", UNKNOWN_OPERATION),
    (b"PUB\r\n", UNKNOWN_OPERATION),
    (b"PUC", UNKNOWN_OPERATION),
    (b"HPUBfoo", UNKNOWN_OPERATION),
    (b"SUBfoo", UNKNOWN_OPERATION),
    (b"UNSUB\n", UNKNOWN_OPERATION),
    (b"MSG foo 1 0\r\n\r\n", UNKNOWN_OPERATION),
    (b"-ERR\r\n", UNKNOWN_OPERATION),
    (b"PUB foo 2\r\nhi!!", NO_CRLF),
    (b"PUB foo 2\r\nhi\n", NO_CRLF),
    (b"PUB foo 2\r\nhi\rx", NO_CRLF),
    (b"PUB foo 0\r\nx", NO_CRLF),
    (b"PUB \r\n", BAD_ARGS),
    (b"PUB foo\r\n", BAD_ARGS),
    (b"PUB foo \r\n", BAD_ARGS),
    (b"PUB a b c 0\r\n", BAD_ARGS),
    (b"PUB a b c d e f 0\r\n", BAD_ARGS),
    (b"PUB fo\ro 0\r\n", BAD_ARGS),
    (b"PUB \nfoo 0\r\n", BAD_ARGS),
    (b"PUB foo 0\r\r\n", BAD_ARGS),
    (b"PUB foo 0\rx\n", BAD_ARGS),
    (b"PUB foo -1\r\n", BAD_SIZE),
    (b"PUB foo +1\r\n", BAD_SIZE),
    (b"PUB foo 1x\r\n", BAD_SIZE),
    (b"PUB foo 1/\r\n", BAD_SIZE),
    (b"PUB foo 1:\r\n", BAD_SIZE),
    (b"PUB foo 0000000002\r\n", BAD_SIZE),
    (b"PUB foo 65\r\n", PAYLOAD_VIOLATION),
    (b"PUB foo 999999999\r\n", PAYLOAD_VIOLATION),
    (b"HPUB foo 2\r\n", BAD_ARGS),
    (b"HPUB a b c 2 2\r\n", BAD_ARGS),
    (b"HPUB foo x 2\r\n", BAD_HEADER_SIZE),
    (b"HPUB foo x y\r\n", BAD_HEADER_SIZE),
    (b"HPUB foo 3 2\r\n", BAD_HEADER_SIZE),
    (b"HPUB foo 3 y\r\n", BAD_SIZE),
    (b"HPUB foo 66 65\r\n", BAD_HEADER_SIZE),
    (b"HPUB foo 1 65\r\n", PAYLOAD_VIOLATION),
    (b"PUB " + b"s" * 33, TOO_LONG_LINE),
    (b"SUB " + b"s" * 33, TOO_LONG_LINE),
    (b"PUB " + b" " * 33, TOO_LONG_LINE),
    (b"PING" + b"x" * 33, TOO_LONG_LINE),
]


@pytest.mark.parametrize(("stream", "reason"), FAILURES)
def test_a_failure_is_named_and_ends_the_conversation(tokenize: Tokenizer, stream: bytes, reason: int) -> None:
    before = b"PUB ok 2\r\nhi\r\n"
    outcome = three_ways(tokenize, before + stream, max_payload=64, max_control_line=32)
    assert outcome == Outcome([Pub(b"ok", b"hi")], reason, ERROR_TEXTS[reason], False)


def test_a_client_without_headers_may_not_send_them(tokenize: Tokenizer) -> None:
    assert three_ways(tokenize, b"HPUB foo 0 0\r\n\r\n", headers=False).reason == NO_HEADERS
    assert three_ways(tokenize, b"PUB foo 0\r\n\r\n", headers=False).is_open


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_the_argument_may_be_as_long_as_the_control_line_allows(tokenize: Tokenizer, end: bytes) -> None:
    subject = b"s" * 30
    good = b"PUB    %s 1%sx\r\n" % (subject, end)
    assert three_ways(tokenize, good, max_control_line=32).seen == [Pub(subject, b"x")]
    assert three_ways(tokenize, b"PUB %ss 1%s" % (subject, end), max_control_line=32).reason == TOO_LONG_LINE


def test_payload_may_be_of_the_largest_size_or_without_limit(tokenize: Tokenizer) -> None:
    stream = b"PUB foo 65\r\n" + b"x" * 65 + b"\r\n"
    assert three_ways(tokenize, stream, max_payload=65).is_open
    assert three_ways(tokenize, stream, max_payload=64).reason == PAYLOAD_VIOLATION
    assert three_ways(tokenize, stream, max_payload=NO_LIMIT).is_open


def test_nothing_of_an_incomplete_message_is_consumed(tokenize: Tokenizer) -> None:
    message = b"HPUB foo 3 5\r\nabchi\r\n"
    line_size = message.index(b"\n") + 1
    for size in range(len(message)):
        needed = len(message) if size >= line_size else 0
        assert call(tokenize, b"PUB a 0\r\n\r\n" + message[:size]) == (1, 11, NEED_MORE, needed)


def test_a_line_of_another_verb_is_left_to_others_with_its_size(tokenize: Tokenizer) -> None:
    assert call(tokenize, b"PUB a 0\r\n\r\nSUB foo 1\r\nPING\r\n") == (1, 11, OTHER, 11)
    assert call(tokenize, b"pingpong\n") == (0, 0, OTHER, 9)
    assert call(tokenize, b"SUB \nfoo 1\r\n") == (0, 0, OTHER, 12)
    assert call(tokenize, b"CONNECT{}\r\n") == (0, 0, OTHER, 11)


def test_every_beginning_of_a_verb_waits_for_more(tokenize: Tokenizer) -> None:
    for verb, _ in VERBS:
        for size in range(1, len(verb) + 1):
            assert call(tokenize, verb[:size]) == call(tokenize, verb[:size].lower()) == (0, 0, NEED_MORE, 0)


def test_it_stops_when_the_array_is_full_and_goes_on_from_there(tokenize: Tokenizer) -> None:
    message = b"PUB a 1\r\nx\r\n"
    assert call(tokenize, 3 * message, count_max=2) == (2, 2 * len(message), FULL, 0)
    assert call(tokenize, 2 * message, count_max=2) == (2, 2 * len(message), NEED_MORE, 0)
    assert call(tokenize, message, count_max=0) == (0, 0, FULL, 0)
    assert call(tokenize, b"", count_max=0) == (0, 0, NEED_MORE, 0)


def test_offsets_count_from_the_start_of_the_buffer(tokenize: Tokenizer) -> None:
    data, ops = bytearray(b"????PUB a re 2\r\nhi\r\nPUB b"), array("I", bytes(4 * OP_WORDS))
    assert tokenize(data, 4, 20, ops, 1, 64, 32) == (1, 20, NEED_MORE, 0)
    assert pubs_of(data, ops, 1) == [Pub(b"a", b"hi", b"re")]
    data += b"it may be resized afterwards"


def test_bytes_beyond_the_end_are_not_looked_at(tokenize: Tokenizer) -> None:
    data, ops = b"PUB a 2\r\nhi\r\n", array("I", bytes(4 * OP_WORDS))
    for end in range(1, len(data)):
        assert tokenize(data, 0, end, ops, 1, 64, 32)[:3] == (0, 0, NEED_MORE)


@pytest.mark.parametrize(
    ("start", "end", "count_max", "max_control_line"),
    [(-1, 3, 1, 9), (2, 1, 1, 9), (0, 5, 1, 9), (0, 4, 2, 9), (0, 4, -1, 9), (0, 4, 1, -1)],
)
def test_arguments_are_checked_at_the_door(
    tokenize: Tokenizer, start: int, end: int, count_max: int, max_control_line: int
) -> None:
    with pytest.raises((IndexError, ValueError)):
        tokenize(b"PING", start, end, array("I", bytes(4 * OP_WORDS)), count_max, 64, max_control_line)


# Properties

patient = settings(deadline=None)  # machines are shared

tokens = st.binary(min_size=1, max_size=12).filter(lambda token: not set(token) & set(b" \t\r\n"))
blanks = st.text(" \t", min_size=1, max_size=3).map(str.encode)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    headers, payload = draw(st.sampled_from([b"", b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"])), draw(st.binary(max_size=40))
    sizes = [b"%d" % len(headers)] if headers else []
    words = [b"hPuB" if headers else b"PUB", draw(tokens), *draw(st.lists(tokens, max_size=1)), *sizes]
    line = b"".join(word + draw(blanks) for word in words) + b"%d" % (len(headers) + len(payload))
    return line + draw(st.sampled_from([b"\r\n", b"\n", b" \r\n"])) + headers + payload + b"\r\n"


lines = st.sampled_from([b"PING\r\n", b"pong\n", b"SUB foo 1\r\n", b"UNSUB 1\r\n", b'CONNECT {"a":1}\r\n', b"+OK\r\n"])
streams = st.lists(messages() | lines, max_size=8).map(b"".join)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    stream = bytearray(draw(streams))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(stream)))
        stream[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b" ", b"\r", b"\n", b"\r\n", b"0", b"9", b"\x00", b"PUB ", b"x"])
        )
    return bytes(stream)


protocol_words = st.sampled_from(
    [b"PUB ", b"HPUB", b"SUB", b" ", b"\t", b"\r", b"\n", b"\r\n", b"1", b"0", b"a", b"+OK"]
)
any_bytes = st.binary(max_size=60) | st.lists(protocol_words, max_size=20).map(b"".join)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


@needs_kernels
@patient
@given(
    data=any_bytes | mutated(),
    count_max=st.integers(0, 4),
    max_payload=st.sampled_from([-1, 0, 5, 64]),
    max_control_line=st.sampled_from([0, 1, 5, 10, 64]),
    headers=st.booleans(),
)
@example(data=b"PUB a 999999999\r\n", count_max=1, max_payload=-1, max_control_line=64, headers=True)
def test_twins_agree_on_any_bytes(
    data: bytes, count_max: int, max_payload: int, max_control_line: int, headers: bool
) -> None:
    ours, theirs = array("I", bytes(4 * OP_WORDS * 4)), array("I", bytes(4 * OP_WORDS * 4))
    limits = (count_max, max_payload, max_control_line, headers)
    compiled = importlib.import_module("jetlake.wire._tokenize_c").tokenize
    for start in {0, len(data) // 2}:
        expected = _tokenize_py.tokenize(data, start, len(data), theirs, *limits)
        assert compiled(data, start, len(data), ours, *limits) == expected
        assert ours == theirs


@patient
@given(stream=streams, places=st.lists(st.integers(0, 1000), max_size=6))
def test_any_cut_of_a_valid_stream_gives_the_same(tokenize: Tokenizer, stream: bytes, places: list[int]) -> None:
    whole = converse(tokenize, [stream])
    assert whole.is_open
    assert converse(tokenize, cut(stream, places)) == whole


@patient
@given(stream=mutated(), places=st.lists(st.integers(0, 1000), max_size=6), max_control_line=st.sampled_from([5, 4096]))
def test_any_cut_of_a_damaged_stream_gives_the_same(
    tokenize: Tokenizer, stream: bytes, places: list[int], max_control_line: int
) -> None:
    whole = converse(tokenize, [stream], max_control_line=max_control_line)
    assert converse(tokenize, cut(stream, places), max_control_line=max_control_line) == whole


@patient
@given(stream=st.lists(messages(), min_size=1, max_size=6))
def test_every_message_of_a_stream_is_found(tokenize: Tokenizer, stream: list[bytes]) -> None:
    outcome = converse(tokenize, [b"".join(stream), b"PING\r\n"])
    assert len(outcome.seen) == len(stream) + 1 and outcome.seen[-1] == Ping()

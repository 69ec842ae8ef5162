"""Messages of a link, in both twins."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jetlake.ops import OP_WORDS
from jetlake.wire import link_tokenize
from jetlake.wire.protocol import (
    BAD_ARGS,
    BAD_HEADER_SIZE,
    BAD_SIZE,
    FULL,
    NEED_MORE,
    NO_CRLF,
    OTHER,
    PAYLOAD_VIOLATION,
    TOO_LONG_LINE,
    UNKNOWN_OPERATION,
)
from tests.twins import load_twin, load_twins, needs_kernels

TWINS = "jetlake.wire._link_tokenize"
COUNT_MAX = 16
ACK = b"$JS.ACK.S.C.1.1.1.17.0"


@pytest.fixture(params=["py", pytest.param("c", marks=needs_kernels)])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    return load_twin(TWINS, request.param)


def run(
    twin: ModuleType,
    data: bytes,
    count_max: int = COUNT_MAX,
    max_payload: int = 100,
    line_max: int = 200,
    is_route: bool = False,
) -> tuple[list[tuple[bytes, ...]], tuple[int, ...]]:
    """The messages (subject, reply, headers, payload), and what was returned."""
    ops = array("I", bytes(4 * OP_WORDS * count_max))
    found = twin.tokenize_link(bytearray(data), 0, len(data), ops, count_max, max_payload, line_max, is_route)
    parts = []
    for at in range(0, found[0] * OP_WORDS, OP_WORDS):
        parts.append(tuple(data[ops[at + i] : ops[at + i] + ops[at + i + 1]] for i in (0, 2, 4, 6)))
    return parts, found


@needs_kernels
def test_the_compiled_twin_is_loaded() -> None:
    assert link_tokenize.COMPILED and link_tokenize.tokenize_link is load_twin(TWINS, "c").tokenize_link


@pytest.mark.parametrize(
    ("line", "msg", "queues"),
    [
        (b"LMSG b 2", (b"b", b"", b"", b"hi"), b""),
        (b"LMSG b rep 2", (b"b", b"rep", b"", b"hi"), b""),
        (b"lmsg \t b  rep 2", (b"b", b"rep", b"", b"hi"), b""),
        (b"LMSG c.1 | q2 2", (b"c.1", b"", b"", b"hi"), b"q2"),
        (b"LMSG c.1 + rep q1 q2 2", (b"c.1", b"rep", b"", b"hi"), b"q1 q2"),
        (b"LMSG c.1 | 2", (b"c.1", b"|", b"", b"hi"), b""),
        (b"LMSG c.1 + rep 2", (b"c.1", b"rep", b"", b"hi"), b""),
        (b"HMSG b 2 2", (b"b", b"", b"hi", b""), b""),
        (b"HMSG b + rep q1 q2 q3 1 2", (b"b", b"rep", b"h", b"i"), b"q1 q2 q3"),
    ],
)
def test_a_message_has_its_parts(twin: ModuleType, line: bytes, msg: tuple[bytes, ...], queues: bytes) -> None:
    data = line + b"\r\nhi\r\n"
    for rest in (b"", b"PI"):
        found, (count, offset, reason, needed, start, size, is_mapped, *_) = run(twin, data + rest)
        assert (found, count, offset, reason, needed, is_mapped) == ([msg], 1, len(data), NEED_MORE, 0, False)
        assert data[start : start + size] == queues


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"LMSG\r\n", BAD_ARGS),
        (b"LMSG b\r\n", BAD_ARGS),
        (b"LMSGb 2\r\n", BAD_ARGS),
        (b"LMSG b x y 2\r\n", BAD_ARGS),
        (b"LMSG b * r 2\r\nhi\r\n", BAD_ARGS),
        (b"LMSG b\rc 2\r\nhi\r\n", BAD_ARGS),
        (b"LMSG b x\r\n", BAD_SIZE),
        (b"LMSG b -1\r\n", BAD_SIZE),
        (b"LMSG b 9223372036854775808\r\n", BAD_SIZE),
        (b"HMSG b x 2\r\n", BAD_HEADER_SIZE),
        (b"HMSG b 3 2\r\n", BAD_HEADER_SIZE),
        (b"LMSG b 101\r\n", PAYLOAD_VIOLATION),
        (b"LMSG b 2\r\nhiX\n", NO_CRLF),
        (b"LMSG b 2\r\nhi\rX", NO_CRLF),
        (b"MSG b 1 2\r\nhi\r\n", UNKNOWN_OPERATION),
        (b"SUB a 1\r\n", UNKNOWN_OPERATION),
        (b"\x00\xff", UNKNOWN_OPERATION),
        (b"INFO " + b"x" * 300, TOO_LONG_LINE),
    ],
)
def test_bad_input_stops_it(twin: ModuleType, data: bytes, reason: int) -> None:
    good = b"LMSG a 0\r\n\r\n"
    found, (count, offset, why, *_) = run(twin, good + data)
    assert (found, count, offset, why) == ([(b"a", b"", b"", b"")], 1, len(good), reason)


def test_a_message_in_pieces_is_asked_for_as_a_whole(twin: ModuleType) -> None:
    data = b"HMSG b rep 2 6\r\nhipayl\r\n"
    for end in range(1, len(data)):
        found, (count, offset, reason, needed, *_) = run(twin, data[:end])
        assert (found, count, offset, reason) == ([], 0, 0, NEED_MORE)
        assert needed == (len(data) if end >= data.index(b"\n") + 1 else 0)


def test_other_lines_are_left_to_others(twin: ModuleType) -> None:
    for line in (b"LS+ a q 2\r\n", b"ls- a\n", b"PING\r\n", b"INFO {}\r\n", b"-ERR 'x'\r\n"):
        _, (count, offset, reason, needed, *_) = run(twin, b"LMSG a 0\r\n\r\n" + line + b"LMSG")
        assert (count, offset, reason, needed) == (1, 12, OTHER, len(line))


def test_other_queue_groups_begin_another_batch(twin: ModuleType) -> None:
    first = b"LMSG a | q 0\r\n\r\nLMSG b + r q 0\r\n\r\n"
    found, (_, offset, reason, *_) = run(twin, first + b"LMSG c 0\r\n\r\n")
    assert [msg[0] for msg in found] == [b"a", b"b"] and (offset, reason) == (len(first), FULL)


def test_deliveries_of_a_consumer_show_the_subject_they_were_stored_with(twin: ModuleType) -> None:
    plain, mapped = b"LMSG in r 0\r\n\r\n", b"LMSG in %s@ord.1 0\r\n\r\n" % ACK
    _, (count, offset, reason, _, _, _, is_mapped, *_) = run(twin, plain + mapped)
    assert (count, offset, reason, is_mapped) == (1, len(plain), FULL, False)
    ops = array("I", bytes(4 * OP_WORDS * COUNT_MAX))
    found = twin.tokenize_link(mapped, 0, len(mapped), ops, COUNT_MAX, 100, 200)
    shown = twin.restore_subjects(mapped, ops, found[0])
    assert found[6] and mapped[shown[0] : shown[0] + shown[1]] == b"ord.1"
    assert mapped[shown[2] : shown[2] + shown[3]] == ACK and mapped[ops[0] : ops[0] + ops[1]] == b"in"


@pytest.mark.parametrize(
    "reply", [ACK, b"$JS.ACK.a@b", ACK + b"@", b"x.$JS.ACK.1.2.3.4.5.6.7@b", b"a.b.c.d.e.f.g.h.i@b"]
)
def test_other_replies_are_as_they_are(twin: ModuleType, reply: bytes) -> None:
    _, (count, _, _, _, _, _, is_mapped, *_) = run(twin, b"LMSG in %s 0\r\n\r\n" % reply)
    assert count == 1 and not is_mapped


@pytest.mark.parametrize(
    ("line", "msg", "queues"),
    [
        (b"RMSG $G b 2", (b"b", b"", b"", b"hi"), b""),
        (b"rmsg  $G \t b rep 2", (b"b", b"rep", b"", b"hi"), b""),
        (b"RMSG $G c.1 | q2 2", (b"c.1", b"", b"", b"hi"), b"q2"),
        (b"HMSG $G b + rep q1 q2 q3 1 2", (b"b", b"rep", b"h", b"i"), b"q1 q2 q3"),
    ],
)
def test_a_message_of_a_route_names_its_account(
    twin: ModuleType, line: bytes, msg: tuple[bytes, ...], queues: bytes
) -> None:
    data = line + b"\r\nhi\r\n"
    found, (count, offset, reason, _, start, size, _, account, account_size) = run(twin, data, is_route=True)
    assert (found, count, offset, reason) == ([msg], 1, len(data), NEED_MORE)
    assert data[start : start + size] == queues and data[account : account + account_size] == b"$G"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"RMSG\r\n", BAD_ARGS),
        (b"RMSG $G\r\n", BAD_ARGS),
        (b"RMSG $G 2\r\n", BAD_ARGS),
        (b"RMSG $G\rx b 2\r\nhi\r\n", BAD_ARGS),
        (b"RMSG $G b x\r\n", BAD_SIZE),
        (b"HMSG $G b 2\r\n", BAD_ARGS),
        (b"LMSG b 2\r\nhi\r\n", UNKNOWN_OPERATION),
        (b"LS+ a\r\n", UNKNOWN_OPERATION),
        (b"SUB a 1\r\n", UNKNOWN_OPERATION),
    ],
)
def test_bad_input_stops_a_route(twin: ModuleType, data: bytes, reason: int) -> None:
    good = b"RMSG $G a 0\r\n\r\n"
    _, (count, offset, why, *_) = run(twin, good + data, is_route=True)
    assert (count, offset, why) == (1, len(good), reason)


def test_another_account_begins_another_batch(twin: ModuleType) -> None:
    first = b"RMSG A a 0\r\n\r\nHMSG A b 0 0\r\n\r\n"
    found, (_, offset, reason, *_) = run(twin, first + b"RMSG B c 0\r\n\r\n", is_route=True)
    assert [msg[0] for msg in found] == [b"a", b"b"] and (offset, reason) == (len(first), FULL)


def test_what_is_not_in_the_buffer_is_refused(twin: ModuleType) -> None:
    ops = array("I", bytes(4 * OP_WORDS))
    with pytest.raises(IndexError):
        twin.tokenize_link(b"LMSG", 0, 5, ops, 1, 1, 1)
    with pytest.raises(IndexError):
        twin.tokenize_link(b"LMSG", 0, 4, ops, 2, 1, 1)
    ops[2:4] = array("I", [3, 9])
    with pytest.raises(IndexError):
        twin.restore_subjects(b"LMSG", ops, 1)


WORDS = [
    b"LMSG",
    b"RMSG",
    b"HMSG",
    b"LS+",
    b"PING",
    b"a.b",
    b"+",
    b"|",
    b"0",
    b"1",
    b"2",
    b"12",
    b"$JS.ACK.",
    ACK + b"@s",
]
BYTES = [b" ", b"\t", b"\r", b"\n", b"\r\n", b"@", b".", b"x", b"\x00", b"\xff", b"Nats-Msg-Id: 1\r\n"]
PIECES = st.sampled_from([*WORDS, *BYTES])
MESSAGES = st.tuples(
    st.sampled_from([b"", b"r ", b"+ r q ", b"| q ", b"| q p ", ACK + b"@s "]), st.booleans(), st.binary(max_size=40)
).map(lambda it: _message(*it))


def _message(middle: bytes, has_headers: bool, payload: bytes) -> bytes:
    size = len(payload)
    sizes = b"%d %d" % (size // 2, size) if has_headers else b"%d" % size
    return b"%s s %s%s\r\n%s\r\n" % (b"HMSG" if has_headers else b"LMSG", middle, sizes, payload)


def _routed(message: bytes) -> bytes:
    return message.replace(b"LMSG", b"RMSG $G").replace(b"HMSG", b"HMSG $G")


@needs_kernels
@given(st.lists(PIECES | MESSAGES, max_size=12).map(b"".join), st.integers(0, 60), st.integers(0, 60))
@example(b"LMSG s + 0\r\n\r\n", 60, 60)
def test_the_twins_agree(data: bytes, max_payload: int, line_max: int) -> None:
    for text, is_route in ((data, False), (data, True), (_routed(data), True)):
        first, second = (run(twin, text, 8, max_payload, line_max, is_route) for twin in load_twins(TWINS))
        assert first == second

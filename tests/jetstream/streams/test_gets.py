"""Answers to a run of direct gets, in both twins."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.jetstream.streams import gets
from jetlake.ops import append_op
from jetlake.store.format import TOMBSTONE
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.records.record import Record, encode
from tests.twins import load_twin, load_twins, needs_kernels

TWINS = "jetlake.jetstream.streams._gets"
SEED, TIME_NS = 7, 1_794_944_476_248_774_400
PREFIX = b"GET.S."


def batch(*keys: bytes, reply: bytes = b"_INBOX.1.%d") -> tuple[bytearray, array[int]]:
    data, ops = bytearray(), array("I")
    for number, key in enumerate(keys):
        append_op(ops, data, PREFIX + key, b"", reply=reply % number if b"%d" in reply else reply)
    return data, ops


def table(**last_seqs: int) -> SubjectTable:
    found = SubjectTable()
    for subject, seq in last_seqs.items():
        found.add(found.intern(subject.encode()), seq)
    return found


def record(
    seq: int, payload: bytes = b"payload", headers: bytes = b"", time_ns: int = TIME_NS, flags: int = 0
) -> bytes:
    return encode(Record(flags, b"key.%d" % seq, headers, payload, seq, time_ns), SEED)


def frames_of(twin: ModuleType, records: list[bytes], ops: array[int], data: bytearray) -> tuple[bytes, int]:
    seqs = array("Q", range(1, len(records) + 1))
    seeds = array("Q", [SEED] * len(records))
    return twin.get_frames(data, ops, 0, records, seqs, seeds, b"_INBOX.1.", False, b"9", b"S")


@pytest.fixture(params=["py", pytest.param("c", marks=needs_kernels)])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    return load_twin(TWINS, request.param)


@needs_kernels
def test_the_compiled_twin_is_loaded() -> None:
    assert gets.COMPILED and gets.find_last is load_twin(TWINS, "c").find_last


def test_last_sequences_are_found_up_to_a_subject_without_messages(twin: ModuleType) -> None:
    data, ops = batch(b"a", b"b", b"a", b"none", b"b")
    seqs = array("Q", bytes(40))
    assert twin.find_last(table(a=5, b=7), data, ops, 0, 5, len(PREFIX), 100, seqs) == 3
    assert seqs[:3].tolist() == [5, 7, 5]


def test_a_sequence_that_is_not_committed_or_not_certain_is_not_found(twin: ModuleType) -> None:
    data, ops = batch(b"a", b"b")
    found, seqs = table(a=5, b=7), array("Q", bytes(16))
    assert twin.find_last(found, data, ops, 0, 2, len(PREFIX), 6, seqs) == 1
    slot = found.find(b"b")
    for seq in (8, 9):
        found.add(slot, seq)
    found.remove(slot, 9)
    assert twin.find_last(found, data, ops, 0, 2, len(PREFIX), 100, seqs) == 1


@pytest.mark.parametrize(("headers", "payload", "reply"), [(b"h", b"", b"r"), (b"", b"p", b"r"), (b"", b"", b"")])
def test_a_request_that_says_more_is_not_plain(twin: ModuleType, headers: bytes, payload: bytes, reply: bytes) -> None:
    data, ops = bytearray(), array("I")
    append_op(ops, data, PREFIX + b"a", payload, headers, reply)
    assert twin.find_last(table(a=5), data, ops, 0, 1, len(PREFIX), 100, array("Q", bytes(8))) == 0


def test_an_answer_is_the_message_with_headers_that_say_which(twin: ModuleType) -> None:
    data, ops = batch(b"a", b"b")
    frames, stop = frames_of(twin, [record(1), record(2, b"", b"NATS/1.0\r\nX: y\r\n\r\n")], ops, data)
    facts = b"Nats-Stream: S\r\nNats-Subject: key.%d\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %s\r\n\r\n"
    time = b"2026-11-17T19:41:16.2487744Z"
    first, second = b"NATS/1.0\r\n" + facts % (1, 1, time), b"NATS/1.0\r\nX: y\r\n" + facts % (2, 2, time)
    expected = b"HMSG _INBOX.1.0 9 %d %d\r\n%spayload\r\n" % (len(first), len(first) + 7, first)
    expected += b"HMSG _INBOX.1.1 9 %d %d\r\n%s\r\n" % (len(second), len(second), second)
    assert (frames, stop) == (expected, 2)


@pytest.mark.parametrize("reply", [b"_INBOX.2.1", b"_INBOX.1.", b"_INBOX.1.a.b", b"x"])
def test_answers_end_where_a_reply_goes_elsewhere(twin: ModuleType, reply: bytes) -> None:
    data, ops = batch(b"a", reply=reply)
    assert frames_of(twin, [record(1)], ops, data) == (b"", 0)


@pytest.mark.parametrize(
    "bad",
    [
        record(9),
        record(1)[:-1],
        b"",
        record(1)[:-9] + bytes([record(1)[-9] ^ 1]) + record(1)[-8:],
        record(1, flags=TOMBSTONE),
        record(1, time_ns=-1),
        record(1, time_ns=gets.TIME_NS_MAX),
    ],
    ids=["another", "cut", "empty", "flipped", "tombstone", "early", "late"],
)
def test_answers_end_at_a_record_that_is_not_the_message(twin: ModuleType, bad: bytes) -> None:
    data, ops = batch(b"a")
    assert frames_of(twin, [bad], ops, data) == (b"", 0)


def test_an_operation_outside_the_array_or_the_buffer_is_refused(twin: ModuleType) -> None:
    data, ops = batch(b"a")
    seqs = array("Q", [1])
    with pytest.raises(IndexError):
        twin.find_last(table(a=1), data, ops, 0, 2, len(PREFIX), 9, array("Q", [1, 1]))
    with pytest.raises(IndexError):
        twin.find_last(table(a=1), data, ops, 0, 1, len(PREFIX), 9, array("Q"))
    with pytest.raises(IndexError):
        twin.find_last(table(a=1), data[:3], ops, 0, 1, len(PREFIX), 9, seqs)
    with pytest.raises(IndexError):
        twin.get_frames(data, ops, 0, [record(1)] * 2, seqs, seqs, b"_INBOX.1.", False, b"9", b"S")
    with pytest.raises(IndexError):
        twin.get_frames(data[:3], ops, 0, [record(1)], seqs, seqs, b"_INBOX.1.", False, b"9", b"S")


@needs_kernels
@given(
    st.lists(
        st.tuples(
            st.binary(max_size=9),
            st.sampled_from([b"", b"\r\n", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n", b"odd"]),
            st.integers(0, gets.TIME_NS_MAX - 1),
        ),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
    st.sampled_from([b"_INBOX.1.%d", b"_INBOX.1.x.%d", b"_INBOX.1..%d"]),
)
def test_the_twins_agree(messages: list[tuple[bytes, bytes, int]], may_have_dots: bool, reply: bytes) -> None:
    data, ops = batch(*[b"k"] * len(messages), reply=reply)
    records = [record(seq, *message) for seq, message in enumerate(messages, 1)]
    seqs, seeds = array("Q", range(1, len(records) + 1)), array("Q", [SEED] * len(records))
    results = [
        twin.get_frames(data, ops, 0, records, seqs, seeds, b"_INBOX.1.", may_have_dots, b"9", b"S")
        for twin in load_twins(TWINS)
    ]
    assert results[0] == results[1]


# In JSON


def asking(*payloads: bytes, subject: bytes = PREFIX + b"S") -> tuple[bytearray, array[int]]:
    data, ops = bytearray(), array("I")
    for number, payload in enumerate(payloads):
        append_op(ops, data, subject, payload, reply=b"_INBOX.1.%d" % number)
    return data, ops


def asked(twin: ModuleType, *payloads: bytes, name: bytes = b"S", seq_max: int = 100) -> list[int]:
    """The sequences that were found before it stopped."""
    data, ops = asking(*payloads)
    seqs = array("Q", bytes(8 * len(payloads)))
    stop = twin.find_asked(table(a=5, b=7), data, ops, 0, len(payloads), len(PREFIX), name, seq_max, seqs)
    return seqs[:stop].tolist()


def test_a_request_names_a_sequence_or_a_subject(twin: ModuleType) -> None:
    bodies = [b'{"seq":3}', b' {\t"seq" : 12\r}\n', b'{"last_by_subj":"a"}', b'{ "last_by_subj" : "b" }']
    assert asked(twin, *bodies) == [3, 12, 5, 7]
    assert asked(twin, *bodies, seq_max=11) == [3]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"3",
        b'{"seq":0}',
        b'{"seq":03}',
        b'{"seq":-3}',
        b'{"seq":3.0}',
        b'{"seq":"3"}',
        b'{"seq":3',
        b'{"seq":3}}',
        b'{"seq":3,"no_hdr":true}',
        b'{"Seq":3}',
        b'{"seq":99999999999999999999}',
        b'{"last_by_subj":"none"}',
        b'{"last_by_subj":"*"}',
        b'{"last_by_subj":""}',
        b'{"last_by_subj":"a',
        b'{"last_by_subj":"\\u0061"}',
    ],
)
def test_anything_else_is_left_to_the_api(twin: ModuleType, body: bytes) -> None:
    assert asked(twin, b'{"seq":1}', body) == [1]


def test_a_request_for_another_stream_ends_the_run(twin: ModuleType) -> None:
    assert asked(twin, b'{"seq":1}', name=b"T") == [] == asked(twin, b'{"seq":1}', name=b"SS")


def test_an_answer_in_json_is_what_the_api_says(twin: ModuleType) -> None:
    data, ops = asking(b"", b"")
    records = [record(1), record(2, b"", b"NATS/1.0\r\nX: y\r\n\r\n")]
    found, stop = twin.message_frames(
        data, ops, 0, records, array("Q", [1, 2]), array("Q", [SEED] * 2), b"_INBOX.1.", False, b"9"
    )
    kind, time = "io.nats.jetstream.api.v1.stream_msg_get_response", "2026-11-17T19:41:16.2487744Z"
    first = f'{{"type":"{kind}","message":{{"subject":"key.1","seq":1,"data":"cGF5bG9hZA==","time":"{time}"}}}}'
    hdrs = "TkFUUy8xLjANClg6IHkNCg0K"
    second = f'{{"type":"{kind}","message":{{"subject":"key.2","seq":2,"hdrs":"{hdrs}","time":"{time}"}}}}'
    expected = f"MSG _INBOX.1.0 9 {len(first)}\r\n{first}\r\nMSG _INBOX.1.1 9 {len(second)}\r\n{second}\r\n"
    assert (found, stop) == (expected.encode(), 2)


@needs_kernels
@given(st.lists(st.tuples(st.text('k."\\\x01ä', min_size=1), st.binary(max_size=9), st.binary(max_size=9))))
def test_the_twins_agree_on_json(messages: list[tuple[str, bytes, bytes]]) -> None:
    data, ops = asking(*[b""] * max(len(messages), 1))
    records = [
        encode(Record(0, subject.encode(), headers, payload, seq, TIME_NS), SEED)
        for seq, (subject, headers, payload) in enumerate(messages, 1)
    ]
    seqs, seeds = array("Q", range(1, len(records) + 1)), array("Q", [SEED] * len(records))
    results = [
        twin.message_frames(data, ops, 0, records, seqs, seeds, b"_INBOX.1.", False, b"9") for twin in load_twins(TWINS)
    ]
    assert results[0] == results[1]


@needs_kernels
@given(st.lists(st.text('{}"seqlast_byubj: 0129a\\', max_size=25), min_size=1), st.integers(0, 20))
def test_the_twins_read_the_same_requests(bodies: list[str], seq_max: int) -> None:
    forms = [form % body.encode() for body in bodies for form in (b"%s", b'{"seq":%s}', b'{"last_by_subj":"%s"}')]
    for form in forms:
        py, c = (asked(twin, form, seq_max=seq_max) for twin in load_twins(TWINS))
        assert py == c

"""Stored messages as frames: every test on both twins, on stores in memory and on disk."""

from __future__ import annotations

import importlib
import os
from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetlake.jetstream.consumers import deliver
from jetlake.jetstream.consumers._deliver_py import BEYOND
from jetlake.jetstream.consumers.deliver import COUNT, END, NO_LIMIT, SIZE, Run, frame_one, frames
from jetlake.ops import append_op
from jetlake.store import FileStore, MemStore, StoredMsg
from jetlake.store.blocks import window
from jetlake.store.format import HEADER_SIZE
from jetlake.store.index.subject_table import SubjectFilter, SubjectTable
from jetlake.subjects import matches
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from jetlake.wire.headers import append_headers
from jetlake.wire.writer import msg
from tests.crash.workload import ENVELOPES

NO_KERNELS = bool(os.environ.get("JETLAKE_NO_KERNELS"))
needs_kernels = pytest.mark.skipif(NO_KERNELS, reason="JETLAKE_NO_KERNELS is set")
SID, PREFIX = b"7", b"$JS.ACK.S.C."
HEADERS = b"NATS/1.0\r\nK: v\r\n\r\n"
PIN = b"Nats-Pin-Id: x\r\n"
LOADED = (deliver.Framer, deliver.select)  # before a test puts another twin in their place
TWINS = ["py"] if NO_KERNELS else ["py", "c"]

Store = MemStore | FileStore
Make = Callable[[], Store]


def load_twin(suffix: str) -> SimpleNamespace:
    module = importlib.import_module(f"jetlake.jetstream.consumers._deliver_{suffix}")
    return SimpleNamespace(Framer=module.Framer, select=module.select)


@pytest.fixture(params=TWINS, autouse=True)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    twin = load_twin(request.param)
    monkeypatch.setattr(deliver, "Framer", twin.Framer)
    monkeypatch.setattr(deliver, "select", twin.select)
    return twin


@pytest.fixture(params=["memory", "none-none", "zstd-aes_256_gcm"])
def make(request: pytest.FixtureRequest) -> Make:
    """Make a store with small blocks; one in files is opened again when `reopen` is called."""

    def make() -> Store:
        if request.param == "memory":
            return MemStore(clock=FakeClock(), block_size_max=350)
        return FileStore("s", options=ENVELOPES[request.param], files=MemFiles(), clock=FakeClock())

    return make


@pytest.fixture
def store(make: Make) -> Store:
    return make()


def reopened(store: Store) -> Store:
    """The same store with nothing of it in memory, if it can be had."""
    if isinstance(store, MemStore):
        return store
    store.stop()
    return FileStore("s", options=store.options, files=store.files, clock=store.clock)


def fill(store: Store, count: int = 12) -> None:
    """Messages on a.0, a.1 and a.2 in turn, every fourth with headers; the clock goes on."""
    for number in range(count):
        store.append(f"a.{number % 3}", b"payload %d" % number, HEADERS if number % 4 == 0 else b"")
        store.clock.advance(1)


def deliver_run(store: Store, start: int = 1, filters: Any = ">", **options: Any) -> Run:
    """A run with what a test cares about."""
    given = {"last_seq": NO_LIMIT, "count_max": NO_LIMIT, "size_max": NO_LIMIT, "consumer_seq": 1, "num_pending": 100}
    given.update(options)
    return frames(store, start, filter=store.queries.filter(filters), sid=SID, ack_prefix=PREFIX, **given)


def reply_of(message: StoredMsg, number: int, pending: int = 100) -> bytes:
    """The ack reply of the number-th message of a run, from 0."""
    return PREFIX + b"1.%d.%d.%d.%d" % (message.seq, number + 1, message.time_ns, pending - number - 1)


def frames_of(messages: list[StoredMsg]) -> bytes:
    return b"".join(
        msg(message.subject.encode(), SID, message.payload, reply_of(message, number), message.headers)
        for number, message in enumerate(messages)
    )


def size_of(messages: list[StoredMsg]) -> int:
    return sum(
        len(message.subject) + len(reply_of(message, number)) + len(message.headers) + len(message.payload)
        for number, message in enumerate(messages)
    )


@needs_kernels
def test_the_compiled_twin_is_loaded() -> None:
    assert deliver.COMPILED and [twin.__module__[-2:] for twin in LOADED] == ["_c", "_c"]


# What is delivered


def test_messages_become_frames_with_their_ack_replies(store: Store) -> None:
    store.append("a.b", b"hello")
    store.append("a.c", b"there", HEADERS)
    time = b"%d" % store.clock()
    run = deliver_run(store, consumer_seq=41, num_pending=9)
    assert run.data == (
        b"MSG a.b 7 $JS.ACK.S.C.1.1.41." + time + b".8 5\r\nhello\r\n"
        b"HMSG a.c 7 $JS.ACK.S.C.1.2.42." + time + b".7 18 23\r\n" + HEADERS + b"there\r\n"
    )
    assert (list(run.seqs), run.count, run.reason, run.next_seq, run.damaged) == ([1, 2], 2, END, 3, [])


def test_a_run_goes_through_all_blocks_in_memory_and_on_disk(store: Store) -> None:
    fill(store, 40)
    assert len(store.catalog.blocks) > 3
    messages = list(store.messages())
    for state in (store, reopened(store)):
        run = deliver_run(state)
        assert run.data == frames_of(messages)
        assert (list(run.seqs), run.size, run.reason) == (list(range(1, 41)), size_of(messages), END)


@pytest.mark.parametrize("filters", ["a.1", "a.*", "*.2", ["a.0", "a.2"], "b.>", "a.missing"])
def test_only_matching_messages_are_delivered(store: Store, filters: Any) -> None:
    fill(store, 20)
    store.append("b.x", b"")
    fill(store, 20)
    patterns = [filters] if isinstance(filters, str) else filters
    wanted = [message for message in store.messages() if any(matches(p, message.subject) for p in patterns)]
    for state in (store, reopened(store)):
        run = deliver_run(state, filters=filters)
        assert run.data == frames_of(wanted)
        assert (list(run.seqs), run.next_seq, run.reason) == ([message.seq for message in wanted], 42, END)


def test_messages_that_are_gone_are_passed_over(store: Store) -> None:
    fill(store, 30)
    for seq in (1, 2, 7, 8, 9, 15, 30):
        store.remove(seq)
    for state in (store, reopened(store)):
        run = deliver_run(state)
        assert list(run.seqs) == [seq for seq in range(3, 30) if seq not in (7, 8, 9, 15)]
        assert (run.next_seq, run.damaged) == (31, [])


def test_a_slot_that_came_to_mean_another_subject_is_asked_again(store: Store) -> None:
    store.append("old.1", b"")
    filters = ["new.*", "new.*.*"]
    assert deliver_run(store, filters=filters).count == 0
    store.remove(1)
    store.append("new.1", b"")
    assert list(deliver_run(store, filters=filters).seqs) == [2]


def test_a_run_starts_and_ends_where_it_is_told(store: Store) -> None:
    fill(store)
    run = deliver_run(store, 3, last_seq=7)
    assert (list(run.seqs), run.next_seq, run.reason) == ([3, 4, 5, 6, 7], 8, END)
    assert deliver_run(store, 13) == Run(bytearray(), array("Q"), 0, 13, END, [])
    assert deliver_run(store, 4, last_seq=3).next_seq == 4


def test_an_empty_store_has_nothing_to_deliver(store: Store) -> None:
    assert deliver_run(store) == Run(bytearray(), array("Q"), 0, 1, END, [])


def test_a_time_before_the_epoch_is_written_with_its_sign(store: Store) -> None:
    store.append_at(1, -(2**63), "a", b"")
    store.append_at(2, -1, "a", b"")
    store.append_at(3, 0, "a", b"")
    assert [line.split(b" ")[3].split(b".")[-2] for line in deliver_run(store).data.split(b"\r\n\r\n")[:3]] == [
        b"-9223372036854775808",
        b"-1",
        b"0",
    ]


def test_numbers_of_every_length_are_written(store: Store) -> None:
    for digits in range(1, 19):
        store.append_at(10**digits, 10**digits - 1, "a", b"x" * digits)
    messages = list(store.messages())
    run = deliver_run(store, consumer_seq=99, num_pending=10**18)
    frames = [
        msg(b"a", SID, m.payload, PREFIX + b"1.%d.%d.%d.%d" % (m.seq, 99 + i, m.time_ns, 10**18 - i - 1))
        for i, m in enumerate(messages)
    ]
    assert run.data == b"".join(frames)


def test_num_pending_never_falls_below_zero(store: Store) -> None:
    fill(store, 3)
    replies = [line.split(b" ")[3] for line in deliver_run(store, num_pending=1).data.split(b"\r\n") if b"$JS" in line]
    assert [reply.rsplit(b".", 1)[1] for reply in replies] == [b"0", b"0", b"0"]


# Where it stops


def test_a_run_stops_at_its_count_and_goes_on_from_there(store: Store) -> None:
    fill(store, 30)
    run, seqs = deliver_run(store, count_max=4, filters="a.1"), []
    while run.count:
        seqs.append(list(run.seqs))
        run = deliver_run(store, run.next_seq, count_max=4, filters="a.1")
    assert seqs == [[2, 5, 8, 11], [14, 17, 20, 23], [26, 29]]


def test_the_reason_is_the_end_when_no_message_is_left(store: Store) -> None:
    fill(store, 6)
    assert deliver_run(store, count_max=5).reason == COUNT
    assert deliver_run(store, count_max=6).reason == END
    none = deliver_run(store, count_max=0)
    assert (none.count, none.next_seq, none.reason) == (0, 1, COUNT)


def test_a_run_stops_in_front_of_a_message_that_exceeds_the_size(store: Store) -> None:
    fill(store)
    size = deliver_run(store, count_max=5).size
    exact, short = deliver_run(store, size_max=size), deliver_run(store, size_max=size - 1)
    assert (exact.count, exact.size, exact.reason, exact.next_seq) == (5, size, SIZE, 6)
    assert (short.count, short.reason, short.next_seq) == (4, SIZE, 5)


def test_a_first_message_that_exceeds_the_size_leaves_the_run_empty(store: Store) -> None:
    fill(store)
    run = deliver_run(store, 2, size_max=10)
    assert (run.data, run.count, run.size, run.reason, run.next_seq) == (b"", 0, 0, SIZE, 2)


def test_a_run_within_its_size_ends_at_the_end(store: Store) -> None:
    fill(store)
    assert deliver_run(store, size_max=deliver_run(store).size).reason == END


# Headers


@pytest.mark.parametrize("headers", [b"", HEADERS, b"NATS/1.0\r\nno end", b"\r\n", b"NATS/1.0 503\r\n\r\n"])
@pytest.mark.parametrize("headers_only", [False, True])
@pytest.mark.parametrize("extra", [b"", PIN])
def test_headers_are_extended_and_payloads_dropped(
    store: Store, headers: bytes, headers_only: bool, extra: bytes
) -> None:
    store.append("a", b"x" * 1000, headers)
    message = store.load(1)
    pairs = [(b"Nats-Msg-Size", b"1000")] if headers_only else []
    payload = b"" if headers_only else message.payload
    counted = append_headers(headers, pairs) if pairs else headers
    sent = append_headers(counted, [(b"Nats-Pin-Id", b"x")]) if extra else counted
    run = deliver_run(store, headers_only=headers_only, extra_headers=extra)
    assert run.data == msg(b"a", SID, payload, reply_of(message, 0), sent)
    assert run.size == len(b"a") + len(reply_of(message, 0)) + len(counted) + len(payload)


def test_sizes_are_those_of_nats_server(store: Store) -> None:
    """A pinned pull of two messages of 1,000 bytes, headers only, took 158 bytes of max_bytes from nats-server 2.15."""
    store.clock.set(1794786094647971792)
    store.append("a.b", b"x" * 1000)
    store.append("a.b", b"x" * 1000, HEADERS)
    filter = store.queries.filter(">")
    run = frames(store, 1, 2, filter, 2, NO_LIMIT, SID, b"$JS.ACK.S.H1.", 1, 2, True, b"Nats-Pin-Id: 5wzAWhmTuMc\r\n")
    assert run.size == 158


# Damage


def flip(store: Store, seq: int) -> None:
    """Change a byte of a message, in memory or on disk."""
    block = store.catalog.block_of(seq)
    assert block is not None
    index = store.catalog.index(block)
    offset = index.offsets[index.position(seq)] + 12
    if block.chunks:
        block.chunks[0].data[offset - block.chunks[0].base] ^= 0xFF
        return
    assert isinstance(store, FileStore)
    file = store.block_files[block.id]
    if not file.envelope.is_plain:
        offset = next(f.file_offset for f in file.frames if f.plain_offset + f.plain_size > offset) + 30 - HEADER_SIZE
    byte = store.files.open(block.path).pread(HEADER_SIZE + offset, 1)
    store.files.open(block.path, write=True).pwrite(HEADER_SIZE + offset, bytes([byte[0] ^ 0xFF]))


@pytest.mark.damages
@pytest.mark.parametrize("seq", [1, 5, 20])
def test_a_damaged_message_is_left_out_and_named(store: Store, seq: int) -> None:
    fill(store, 20)
    messages = list(store.messages())
    state = reopened(store)
    flip(state, seq)
    run = deliver_run(state)
    assert run.damaged == [seq]
    assert list(run.seqs) == [other for other in range(1, 21) if other != seq]
    assert seq in state.catalog.lost
    after = run.data.split(b"MSG ")[1:]
    assert all(message.payload in frame for message, frame in zip(messages[: seq - 1], after, strict=False))


@pytest.mark.damages
def test_num_pending_counts_a_damaged_message_as_passed(store: Store) -> None:
    fill(store, 6)
    state = reopened(store)
    flip(state, 2)
    lines = [line for line in deliver_run(state, num_pending=6).data.split(b"\r\n") if b"$JS" in line]
    assert [line.split(b" ")[3].rsplit(b".", 1)[1] for line in lines] == [b"5", b"3", b"2", b"1", b"0"]


@pytest.mark.damages
def test_a_file_that_was_cut_off_costs_what_was_cut() -> None:
    store = FileStore("s", files=MemFiles(), clock=FakeClock())
    fill(store, 20)
    store._rotate()
    store.commit()
    block = store.catalog.blocks[0]
    offset = store.catalog.index(block).offsets[10]
    store.files.open(block.path, write=True).truncate(HEADER_SIZE + offset + 3)
    run = deliver_run(store)
    assert (list(run.seqs), run.damaged) == (list(range(1, 11)), list(range(11, 21)))


# Reading from files


@pytest.mark.parametrize("sizes", [(1,), (100, 10), (300, 50), (10_000, 200)])
@pytest.mark.parametrize("again", [1, 60, 10_000])
def test_a_block_is_read_in_pieces_of_any_size(
    store: Store, sizes: tuple[int, ...], again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 60)
    messages = list(store.messages())
    state = reopened(store)
    monkeypatch.setattr(window, "READ_SIZES", sizes)
    monkeypatch.setattr(window, "READ_AGAIN_SIZE", again)
    monkeypatch.setattr(deliver, "_SELECTED_MAX", 7)
    assert deliver_run(state).data == frames_of(messages)
    assert deliver_run(state, filters="a.2").data == frames_of([m for m in messages if m.subject == "a.2"])


def test_few_messages_of_a_large_block_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore("s", files=MemFiles(), clock=FakeClock(), autocommit=False)
    for number in range(3000):
        store.append("wanted" if number % 1000 == 0 else "other", bytes(500))
    store._rotate()
    store.commit()
    block, read = store.catalog.blocks[0], []

    def read_body(start: int, end: int, old: Any = block.read_body) -> Any:
        read.append(end - start)
        return old(start, end)

    monkeypatch.setattr(block, "read_body", read_body)
    assert list(deliver_run(store, filters="wanted").seqs) == [1, 1001, 2001]
    assert sum(read) < 2500
    read.clear()
    assert deliver_run(store).count == 3000 and len(read) == 2


# Again


@pytest.mark.parametrize("headers_only", [False, True])
def test_one_message_is_framed_as_in_a_run(store: Store, headers_only: bool) -> None:
    store.append("a.ü", b"hello", HEADERS)
    run = deliver_run(store, consumer_seq=5, num_pending=3, headers_only=headers_only, extra_headers=PIN)
    frame, size = frame_one(store.load(1), SID, PREFIX, 1, 5, 2, headers_only, PIN)
    assert (frame, size) == (run.data, run.size)
    again, _ = frame_one(store.load(1), SID, PREFIX, 3, 8, 2)
    assert b" $JS.ACK.S.C.3.1.8." in again


# The kernel's doors, and the twins


def framer(twin: SimpleNamespace, count_max: int = 100, size_max: int = 10**6, headers_only: bool = False) -> Any:
    return twin.Framer(SID, PREFIX, 1, 100, count_max, size_max, headers_only, b"")


@pytest.mark.parametrize("number", [-1, 2**63])
def test_a_framer_refuses_numbers_that_do_not_fit(twin: SimpleNamespace, number: int) -> None:
    for place in range(4):
        numbers = [1, 1, 1, 1]
        numbers[place] = number
        with pytest.raises(ValueError, match=f"{number} is not between"):
            twin.Framer(SID, PREFIX, *numbers, False, b"")


@pytest.mark.parametrize(
    ("count", "positions", "place", "stop"),
    [(3, [0, 1], 0, 1), (2, [0, 2], 0, 2), (2, [0], 0, 2), (2, [0], -1, 1), (2, [0, 1], 2, 1), (-1, [0], 0, 1)],
)
def test_a_framer_refuses_positions_beyond_the_index(
    twin: SimpleNamespace, count: int, positions: list[int], place: int, stop: int
) -> None:
    with pytest.raises(IndexError):
        framer(twin).frame(b"", 0, array("I", [0, 9]), count, 18, None, 1, 0, array("I", positions), place, stop)


def test_select_refuses_what_lies_beyond_the_index(twin: SimpleNamespace) -> None:
    table, filter, ids, none, out = SubjectTable(), SubjectFilter([">"]), array("I", [0]), array("Q"), array("I", [0])
    for place, stop in ((0, 2), (-1, 1)):
        with pytest.raises(IndexError):
            twin.select(table, filter, ids, place, stop, None, 1, none, none, bytearray(), out)


def stored(parts: list[tuple[bytes, bytes, bytes]]) -> MemStore:
    """A store with these subjects, payloads and headers in one batch."""
    store, data, ops = MemStore(clock=FakeClock()), bytearray(), array("I")
    for subject, payload, headers in parts:
        append_op(ops, data, subject, payload, headers)
    store.append_batch(data, ops)
    return store


def outcome(twin: SimpleNamespace, store: MemStore, data: bytes, base: int, **options: Any) -> list[Any]:
    """All that a framer says of a block, window after window."""
    index, made = store.catalog.active.index, framer(twin, **options)
    assert index is not None
    positions, place, said, reason = array("I", range(index.count)), 0, list[Any](), BEYOND
    while place < index.count and reason == BEYOND:
        columns = (index.offsets, index.count, store.catalog.active.body_size, index.seqs, index.base_seq)
        place, reason = made.frame(data, base, *columns, 0, positions, place, index.count)
        said.append((place, reason))
    return [said, made.size, made.count, made.damaged, made.consumer_seq, made.num_pending, *made.take()]


messages_st = st.lists(
    st.tuples(st.binary(min_size=1, max_size=9), st.binary(max_size=40), st.sampled_from([b"", HEADERS, b"\r\n"])),
    min_size=1,
    max_size=8,
)


@needs_kernels
@settings(max_examples=300)
@given(
    messages_st,
    st.data(),
    st.integers(0, 9),
    st.integers(0, 400),
    st.booleans(),
)
def test_twins_frame_any_bytes_alike(
    parts: list[tuple[bytes, bytes, bytes]], data: st.DataObject, count_max: int, size_max: int, headers_only: bool
) -> None:
    store = stored(parts)
    body = bytearray(store.catalog.active.read(0, store.catalog.active.body_size))
    for _ in range(data.draw(st.integers(0, 2), "flips")):
        body[data.draw(st.integers(0, len(body) - 1), "place")] ^= data.draw(st.integers(1, 255), "bits")
    base = data.draw(st.integers(0, len(body)), "base") * data.draw(st.integers(0, 1), "is cut in front")
    window = bytes(body[base : data.draw(st.integers(base, len(body)), "end")])
    options = {"count_max": count_max, "size_max": size_max, "headers_only": headers_only}
    ours, reference = (outcome(load_twin(suffix), store, window, base, **options) for suffix in ("c", "py"))
    assert ours == reference


@needs_kernels
@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(["a", "b.1", "b.2", "c.1.2"]), max_size=30),
    st.sets(st.integers(1, 30)),
    st.sampled_from([[">"], ["a"], ["b.*"], ["*.2", "a"], ["none"], ["*.*.*"]]),
    st.integers(0, 12),
    st.integers(0, 30),
)
def test_twins_select_alike(subjects: list[str], removed: set[int], patterns: list[str], room: int, start: int) -> None:
    store = MemStore(clock=FakeClock())
    for subject in subjects:
        store.append(subject, b"")
    for seq in removed:
        store.remove(seq)
    block = store.catalog.active
    index, found = block.index, list[Any]()
    assert index is not None
    for suffix in ("py", "c"):
        filter, out = SubjectFilter(patterns), array("I", bytes(4 * room))
        memo, place = bytearray(index.table.slot_limit), min(start, index.count)
        columns = (index.seqs, index.base_seq, *block.gone.arrays)
        count, stopped = load_twin(suffix).select(
            index.table, filter, index.ids, place, index.count, *columns, memo, out
        )
        found.append((list(out[:count]), stopped))
    assert found[0] == found[1]
    live = [seq - 1 for seq in range(start + 1, len(subjects) + 1) if seq not in removed]
    wanted = [place for place in live if any(matches(p, subjects[place]) for p in patterns)]
    assert found[0][0] == wanted[:room]

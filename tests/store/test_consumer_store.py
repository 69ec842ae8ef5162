"""What a consumer remembers."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from jetlake.errors import BadRequest, CorruptBlock, StoreClosed
from jetlake.store import consumer_store
from jetlake.store.consumer_store import (
    FILE_NAME_SIZE_MAX,
    HASH,
    HEADER,
    I64_MAX,
    I64_MIN,
    ConsumerState,
    ConsumerStore,
    FileConsumerStore,
    MemConsumerStore,
    Pending,
    check_state,
    consumer_file_name,
    decode_state,
    encode_state,
)
from jetlake.store.files import OS_FILES, Files, is_temp
from jetlake.store.varint import U64_MAX
from jetlake.testing.memfiles import MemFiles, PowerCut

EXAMPLE = ConsumerState(7, 9, 3, 4, {5: Pending(4, 1000), 9: Pending(7, 1300)}, {5: 2})


def file_store(files: Files | None = None, name: str = "worker") -> FileConsumerStore:
    return FileConsumerStore(files or MemFiles(), "stream/consumers", name)


@pytest.fixture(params=[lambda: MemConsumerStore("worker"), file_store], ids=["mem", "file"])
def store(request: pytest.FixtureRequest) -> ConsumerStore:
    make: Callable[[], ConsumerStore] = request.param
    return make()


def deliver(store: ConsumerStore, *stream_seqs: int, time_ns: int = 100) -> None:
    """Deliver messages for the first time, with the next consumer sequences."""
    for stream_seq in stream_seqs:
        store.update_delivered(store.state().delivered_consumer_seq + 1, stream_seq, 1, time_ns)


def floor(store: ConsumerStore) -> tuple[int, int]:
    state = store.state()
    return state.ack_floor_consumer_seq, state.ack_floor_stream_seq


def delivered(store: ConsumerStore) -> tuple[int, int]:
    state = store.state()
    return state.delivered_consumer_seq, state.delivered_stream_seq


# Deliveries


def test_a_new_store_remembers_nothing(store: ConsumerStore) -> None:
    assert store.state() == ConsumerState()


def test_a_first_delivery_is_pending(store: ConsumerStore) -> None:
    store.update_delivered(1, 10, 1, 500)
    assert store.state() == ConsumerState(1, 10, 0, 0, {10: Pending(1, 500)}, {})


def test_a_redelivery_keeps_the_first_consumer_sequence_and_takes_the_new_time(store: ConsumerStore) -> None:
    deliver(store, 10, 20)
    store.update_delivered(3, 10, 2, 900)
    state = store.state()
    assert (delivered(store), state.pending[10], state.redelivered) == ((3, 20), Pending(1, 900), {10: 1})


def test_a_redelivery_count_never_falls(store: ConsumerStore) -> None:
    deliver(store, 10)
    store.update_delivered(2, 10, 5, 200)
    store.update_delivered(3, 10, 3, 300)
    assert store.state().redelivered == {10: 4}


def test_a_redelivery_of_what_is_not_pending_does_not_make_it_pending(store: ConsumerStore) -> None:
    deliver(store, 10, 20)
    store.update_acks(1, 10)
    store.update_delivered(3, 10, 2, 300)
    assert (list(store.state().pending), store.state().redelivered) == ([20], {10: 1})


def test_a_delivery_below_the_ack_floor_is_old_news(store: ConsumerStore) -> None:
    deliver(store, 10, 20)
    store.ack_all(2, 20)
    before = store.state()
    store.update_delivered(1, 10, 2, 900)
    assert store.state() == before


def test_a_new_message_needs_a_new_consumer_sequence(store: ConsumerStore) -> None:
    deliver(store, 10, 20)
    with pytest.raises(BadRequest, match="message 30 is new"):
        store.update_delivered(2, 30, 1, 100)
    assert delivered(store) == (2, 20)


@pytest.mark.parametrize(
    "delivery", [(0, 1, 1, 0), (1, 0, 1, 0), (1, 1, 0, 0), (U64_MAX + 1, 1, 1, 0), (1, 1, 1, I64_MAX + 1)]
)
def test_a_delivery_that_cannot_be_is_refused(store: ConsumerStore, delivery: tuple[int, int, int, int]) -> None:
    with pytest.raises(BadRequest):
        store.update_delivered(*delivery)
    assert store.state() == ConsumerState()


# Acknowledgements


def test_acks_in_order_move_the_floor_to_below_the_next_pending(store: ConsumerStore) -> None:
    deliver(store, 10, 20, 30)
    assert store.update_acks(1, 10)
    assert floor(store) == (1, 19)


def test_an_ack_out_of_order_leaves_the_floor(store: ConsumerStore) -> None:
    deliver(store, 10, 20, 30)
    store.update_acks(2, 20)
    assert (floor(store), list(store.state().pending)) == ((0, 0), [10, 30])


def test_the_ack_that_closes_a_gap_moves_the_floor_over_it(store: ConsumerStore) -> None:
    deliver(store, 10, 20, 30)
    store.update_acks(2, 20)
    store.update_acks(1, 10)
    assert floor(store) == (2, 29)


def test_when_nothing_is_pending_the_floor_is_what_was_delivered(store: ConsumerStore) -> None:
    deliver(store, 10, 20)
    store.update_delivered(3, 20, 2, 200)
    store.update_acks(3, 20)
    store.update_acks(1, 10)
    assert floor(store) == delivered(store) == (3, 20)


def test_an_ack_of_a_redelivery_counts_for_the_first_delivery(store: ConsumerStore) -> None:
    deliver(store, 10, 20)
    store.update_delivered(3, 10, 2, 200)
    assert store.update_acks(3, 10)
    assert floor(store) == (1, 19)


def test_an_ack_forgets_the_redeliveries(store: ConsumerStore) -> None:
    deliver(store, 10)
    store.update_delivered(2, 10, 2, 200)
    store.update_acks(2, 10)
    assert store.state().redelivered == {}


def test_a_second_ack_changes_nothing(store: ConsumerStore) -> None:
    deliver(store, 10, 20)
    store.update_acks(2, 20)
    before = store.state()
    assert not store.update_acks(2, 20)
    assert store.state() == before


def test_an_ack_of_what_was_never_delivered_changes_nothing(store: ConsumerStore) -> None:
    deliver(store, 10)
    before = store.state()
    assert not store.update_acks(9, 99)
    assert store.state() == before


def test_ack_all_takes_everything_up_to_it(store: ConsumerStore) -> None:
    deliver(store, 10, 20, 30)
    store.update_delivered(4, 10, 2, 200)
    assert store.ack_all(2, 20) == 2
    assert (floor(store), list(store.state().pending), store.state().redelivered) == ((2, 20), [30], {})


def test_ack_all_by_a_redelivery_stays_below_what_is_pending(store: ConsumerStore) -> None:
    deliver(store, 10, 20, 30)
    store.update_delivered(4, 10, 2, 200)
    assert store.ack_all(4, 10) == 1
    assert floor(store) == (1, 10)


def test_ack_all_below_the_floor_is_old_news(store: ConsumerStore) -> None:
    deliver(store, 10, 20)
    store.ack_all(2, 20)
    assert (store.ack_all(1, 10), floor(store)) == (0, (2, 20))


@pytest.mark.parametrize(("consumer_seq", "stream_seq"), [(3, 20), (2, 21)])
def test_ack_all_of_what_was_not_delivered_is_refused(store: ConsumerStore, consumer_seq: int, stream_seq: int) -> None:
    deliver(store, 10, 20)
    with pytest.raises(BadRequest, match="not delivered"):
        store.ack_all(consumer_seq, stream_seq)
    assert len(store.state().pending) == 2


def test_acks_of_many_pending_messages_do_not_search_for_the_floor() -> None:
    store, count = MemConsumerStore("worker"), 80_000
    started = time.perf_counter()
    for seq in range(1, count + 1):
        store.update_delivered(seq, seq, 1, seq)
    half = time.perf_counter()
    for seq in range(1, count + 1):
        store.update_acks(seq, seq)
    assert floor(store) == (count, count)
    assert time.perf_counter() - half < 8 * (half - started)  # 0.5 times; a plain dict for pending takes 50 times


# Replacing the state


def test_update_replaces_the_state(store: ConsumerStore) -> None:
    store.update(EXAMPLE)
    assert store.state() == EXAMPLE


def test_update_keeps_nothing_of_the_callers(store: ConsumerStore) -> None:
    given = EXAMPLE.copy()
    store.update(given)
    given.pending[5].time_ns = 0
    given.redelivered.clear()
    assert store.state() == EXAMPLE


def test_the_state_given_out_is_a_copy(store: ConsumerStore) -> None:
    store.update(EXAMPLE)
    store.state().pending.clear()
    store.state().pending[5].seq = 99
    assert store.state() == EXAMPLE


def test_pending_messages_given_in_any_order_are_acked_in_theirs(store: ConsumerStore) -> None:
    store.update(ConsumerState(3, 9, 0, 0, {9: Pending(3, 0), 2: Pending(1, 0), 5: Pending(2, 0)}))
    store.update_acks(1, 2)
    assert floor(store) == (1, 4)


@pytest.mark.parametrize(
    "older",
    [
        ConsumerState(6, 9, 3, 4),
        ConsumerState(7, 8, 3, 4),
        ConsumerState(7, 9, 2, 4),
        ConsumerState(7, 9, 3, 3),
    ],
)
def test_update_refuses_to_go_back(store: ConsumerStore, older: ConsumerState) -> None:
    store.update(EXAMPLE)
    with pytest.raises(BadRequest, match="would go back"):
        store.update(older)
    assert store.state() == EXAMPLE


def test_reset_may_go_back(store: ConsumerStore) -> None:
    store.update(EXAMPLE)
    store.reset(ConsumerState(0, 2, 0, 2))
    assert store.state() == ConsumerState(0, 2, 0, 2)


BROKEN = {
    "consumer floor above delivered": ConsumerState(1, 5, 2, 5),
    "stream floor above delivered": ConsumerState(5, 1, 5, 2),
    "a position below zero": ConsumerState(-1, 5, -1, 5),
    "a position above u64": ConsumerState(U64_MAX + 1, 5, 0, 5),
    "pending at the floor": ConsumerState(5, 5, 2, 2, {2: Pending(3, 0)}),
    "pending above delivered": ConsumerState(5, 5, 2, 2, {6: Pending(3, 0)}),
    "pending consumer sequence at the floor": ConsumerState(5, 5, 2, 2, {3: Pending(2, 0)}),
    "pending consumer sequence above delivered": ConsumerState(5, 5, 2, 2, {3: Pending(6, 0)}),
    "pending sequences out of order": ConsumerState(5, 5, 2, 2, {3: Pending(5, 0), 4: Pending(4, 0)}),
    "two pending with one consumer sequence": ConsumerState(5, 5, 2, 2, {3: Pending(4, 0), 4: Pending(4, 0)}),
    "a time that is no i64": ConsumerState(5, 5, 2, 2, {3: Pending(4, I64_MAX + 1)}),
    "redelivered zero times": ConsumerState(5, 5, 2, 2, {}, {3: 0}),
    "redelivered but never delivered": ConsumerState(5, 5, 2, 2, {}, {6: 1}),
    "message zero redelivered": ConsumerState(5, 5, 2, 2, {}, {0: 1}),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("way", ["update", "reset"])
def test_a_state_that_cannot_be_is_refused(store: ConsumerStore, broken: ConsumerState, way: str) -> None:
    with pytest.raises(BadRequest):
        getattr(store, way)(broken)
    assert (store.state(), store.dirty) == (ConsumerState(), False)


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_state_that_cannot_be_is_not_encoded(broken: ConsumerState) -> None:
    with pytest.raises(BadRequest):
        encode_state(broken)


def test_a_redelivered_message_need_not_be_pending_nor_above_the_floor() -> None:
    check_state(ConsumerState(5, 5, 2, 2, {}, {1: 3, 4: 1}))


# Against a naive model

STEP = st.one_of(
    st.tuples(st.just("deliver"), st.integers(1, 3)),
    st.tuples(st.just("redeliver"), st.integers(0, 20)),
    st.tuples(st.just("ack"), st.integers(0, 20)),
    st.tuples(st.just("ack_all"), st.integers(0, 20)),
)


class Naive:
    """nats-server's rules, with its walk over sequences to find the floor.

    It moves the floor when the consumer sequence right above it is acknowledged. That is always the smallest pending
    one, until `ack_all` leaves the sequence of a redelivery in between: there its floor waits, and ours goes on.
    """

    def __init__(self) -> None:
        self.state = ConsumerState()
        self.explicit_only = True

    def deliver(self, stream_seq: int) -> int:
        state = self.state
        state.delivered_consumer_seq += 1
        if stream_seq > state.delivered_stream_seq:
            state.delivered_stream_seq = stream_seq
            state.pending[stream_seq] = Pending(state.delivered_consumer_seq, 0)
        else:
            state.redelivered[stream_seq] = state.redelivered.get(stream_seq, 0) + 1
        return state.delivered_consumer_seq

    def ack(self, stream_seq: int) -> None:
        state = self.state
        state.redelivered.pop(stream_seq, None)
        is_smallest = stream_seq == min(state.pending)
        seq = state.pending.pop(stream_seq).seq
        if self.explicit_only:
            assert is_smallest == (seq == state.ack_floor_consumer_seq + 1)
        if not state.pending:
            self.set_floor(state.delivered_consumer_seq, state.delivered_stream_seq)
        elif is_smallest:
            following = next(n for n in range(stream_seq, state.delivered_stream_seq + 1) if n in state.pending)
            self.set_floor(state.pending[following].seq - 1, following - 1)

    def ack_all(self, stream_seq: int) -> int:
        self.explicit_only = False
        state = self.state
        consumer_seq = state.pending[stream_seq].seq
        for seq in [seq for seq in state.pending if seq <= stream_seq]:
            del state.pending[seq]
            state.redelivered.pop(seq, None)
        self.set_floor(consumer_seq, stream_seq)
        return consumer_seq

    def set_floor(self, consumer_seq: int, stream_seq: int) -> None:
        self.state.ack_floor_consumer_seq, self.state.ack_floor_stream_seq = consumer_seq, stream_seq


def take(store: ConsumerStore, model: Naive, step: tuple[str, int]) -> None:
    """Do one thing to both; what concerns a pending message concerns the one at that place among them."""
    name, number = step
    if name == "deliver":
        stream_seq = model.state.delivered_stream_seq + number
        store.update_delivered(model.deliver(stream_seq), stream_seq, 1, 0)
        return
    if not model.state.pending:
        return
    stream_seq = sorted(model.state.pending)[number % len(model.state.pending)]
    if name == "redeliver":
        count = model.state.redelivered.get(stream_seq, 0) + 2
        store.update_delivered(model.deliver(stream_seq), stream_seq, count, 0)
    elif name == "ack":
        assert store.update_acks(model.state.delivered_consumer_seq, stream_seq)
        model.ack(stream_seq)
    else:
        before = len(model.state.pending)
        assert store.ack_all(model.ack_all(stream_seq), stream_seq) == before - len(model.state.pending)


@given(st.lists(STEP, max_size=60))
def test_acks_agree_with_a_naive_model(steps: list[tuple[str, int]]) -> None:
    store, model = MemConsumerStore("worker"), Naive()
    for step in steps:
        take(store, model, step)
        assert store.state() == model.state
        check_state(model.state)


# The file


def test_the_example_in_the_specification_is_true() -> None:
    example = re.search(r"Example: .*?\n((?:    (?:[0-9a-f]{2} ?)+\n)+)", consumer_store.__doc__ or "", re.DOTALL)
    assert example is not None
    data = bytes.fromhex(example[1])
    assert decode_state(data) == (EXAMPLE, b"m")
    assert encode_state(EXAMPLE, b"m") == data


@st.composite
def states(draw: st.DrawFn) -> ConsumerState:
    """Any valid state."""
    u64 = st.integers(0, U64_MAX)
    floor_consumer, delivered_consumer = sorted((draw(u64), draw(u64)))
    floor_stream, delivered_stream = sorted((draw(u64), draw(u64)))
    count = min(draw(st.integers(0, 20)), delivered_consumer - floor_consumer, delivered_stream - floor_stream)
    consumer_seqs = st.sets(st.integers(floor_consumer + 1, delivered_consumer), min_size=count, max_size=count)
    stream_seqs = st.sets(st.integers(floor_stream + 1, delivered_stream), min_size=count, max_size=count)
    pairs = zip(sorted(draw(stream_seqs)), sorted(draw(consumer_seqs)), strict=True) if count else ()
    pending = {stream_seq: Pending(seq, draw(st.integers(I64_MIN, I64_MAX))) for stream_seq, seq in pairs}
    counts = st.dictionaries(st.integers(1, max(1, delivered_stream)), st.integers(1, U64_MAX), max_size=9)
    redelivered = draw(counts) if delivered_stream else {}
    return ConsumerState(delivered_consumer, delivered_stream, floor_consumer, floor_stream, pending, redelivered)


@given(states(), st.binary(max_size=50))
def test_any_state_and_meta_survive_encoding(state: ConsumerState, meta: bytes) -> None:
    assert decode_state(memoryview(encode_state(state, meta))) == (state, meta)


def test_every_flipped_bit_is_detected() -> None:
    data = encode_state(EXAMPLE, b"meta")
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBlock):
            decode_state(damaged)


def test_every_truncation_is_detected() -> None:
    data = encode_state(EXAMPLE, b"meta")
    for size in range(len(data)):
        with pytest.raises(CorruptBlock):
            decode_state(data[:size])


def test_bytes_after_the_end_are_detected() -> None:
    with pytest.raises(CorruptBlock):
        decode_state(encode_state(EXAMPLE) + b"\0")


@given(st.binary(max_size=120))
def test_any_other_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptBlock):
        decode_state(data)


def hashed(body: bytes) -> bytes:
    return body + HASH.pack(xxhash.xxh64_intdigest(body))


@given(st.binary(max_size=40), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_wrong_body_under_a_right_hash_is_a_state_or_corrupt(
    body: bytes, pending_count: int, redelivered_count: int, meta_size: int
) -> None:
    header = HEADER.pack(b"JLCONSUM", 1, pending_count, redelivered_count, meta_size, 50, 50, 2, 2, 0)
    try:
        state, _ = decode_state(hashed(header + body))
    except CorruptBlock:
        return
    check_state(state)


@pytest.mark.parametrize("broken", [ConsumerState(1, 5, 2, 5), ConsumerState(5, 1, 5, 2)])
def test_a_state_that_cannot_be_is_corrupt_even_under_a_right_hash(broken: ConsumerState) -> None:
    positions = (broken.delivered_consumer_seq, broken.delivered_stream_seq)
    floors = (broken.ack_floor_consumer_seq, broken.ack_floor_stream_seq)
    with pytest.raises(CorruptBlock, match="ack floor"):
        decode_state(hashed(HEADER.pack(b"JLCONSUM", 1, 0, 0, 0, *positions, *floors, 0)))


def test_counts_that_cannot_fit_are_refused_before_anything_is_read() -> None:
    header = HEADER.pack(b"JLCONSUM", 1, 2**32 - 1, 0, 0, 50, 50, 2, 2, 0)
    with pytest.raises(CorruptBlock, match="do not fit"):
        decode_state(hashed(header + bytes(100)))


def test_an_unknown_version_is_refused_by_its_number() -> None:
    header = HEADER.pack(b"JLCONSUM", 2, 0, 0, 0, 0, 0, 0, 0, 0)
    with pytest.raises(CorruptBlock, match="expected version 1, found 2"):
        decode_state(hashed(header))


def test_damage_is_reported_with_the_path() -> None:
    files = MemFiles()
    store = file_store(files)
    store.update(EXAMPLE)
    store.flush()
    files.flip(store.path, 8 * 30)
    with pytest.raises(CorruptBlock, match="stream/consumers/worker") as caught:
        file_store(files)
    assert caught.value.path == store.path


# Flushing


def test_what_was_flushed_is_there_after_reopening() -> None:
    files = MemFiles()
    store = file_store(files)
    store.update(EXAMPLE)
    store.set_meta(b"about me")
    store.flush()
    again = file_store(files.after_cut())
    assert (again.state(), again.meta, again.dirty) == (EXAMPLE, b"about me", False)


def test_a_reopened_store_goes_on_where_it_was() -> None:
    files = MemFiles()
    store = file_store(files)
    deliver(store, 10, 20, 30)
    store.stop()
    again = file_store(files)
    again.update_acks(1, 10)
    assert floor(again) == (1, 19)


def test_many_updates_cost_one_write() -> None:
    files = MemFiles()
    store = file_store(files)
    deliver(store, *range(1, 500))
    before = files.op_count
    store.flush()
    assert [op.split()[0] for op in files.ops[before:]] == [
        "make_dirs",
        "create",
        "pwritev",
        "sync",
        "rename",
        "sync_dir",
    ]


def test_nothing_is_written_when_nothing_changed() -> None:
    files = MemFiles()
    store = file_store(files)
    deliver(store, 10)
    store.flush()
    before = files.op_count
    store.update_acks(9, 99)
    store.set_meta(b"")
    store.ack_all(0, 0)
    store.flush()
    assert (files.op_count, store.dirty) == (before, False)


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.update_delivered(8, 10, 1, 0),
        lambda store: store.update_delivered(8, 5, 2, 0),
        lambda store: store.update_acks(4, 5),
        lambda store: store.ack_all(7, 9),
        lambda store: store.reset(ConsumerState()),
        lambda store: store.set_meta(b"new"),
    ],
)
def test_every_change_is_flushed(change: Callable[[ConsumerStore], object]) -> None:
    files = MemFiles()
    store = file_store(files)
    store.update(EXAMPLE)
    store.flush()
    change(store)
    assert store.dirty
    store.flush()
    again = file_store(files.after_cut())
    assert (again.state(), again.meta) == (store.state(), store.meta)


def test_without_sync_nothing_waits_for_the_disk() -> None:
    files = MemFiles()
    store = FileConsumerStore(files, "consumers", "worker", sync=False)
    deliver(store, 10)
    store.flush()
    assert not [op for op in files.ops if op.startswith("sync")]


def test_a_flush_that_fails_can_be_tried_again() -> None:
    files = MemFiles()
    store = file_store(files)
    store.update(EXAMPLE)
    files.fail(files.op_count + 4, OSError("the disk is full"))
    with pytest.raises(OSError, match="full"):
        store.flush()
    assert store.dirty
    store.flush()
    assert file_store(files.after_cut()).state() == EXAMPLE


def test_stop_flushes() -> None:
    files = MemFiles()
    store = file_store(files)
    store.update(EXAMPLE)
    store.stop()
    store.stop()
    assert file_store(files.after_cut()).state() == EXAMPLE


def test_delete_removes_the_file_for_good() -> None:
    files = MemFiles()
    store = file_store(files)
    store.update(EXAMPLE)
    store.flush()
    store.delete()
    store.delete()
    assert file_store(files.after_cut()).state() == ConsumerState()


def test_delete_before_any_flush_leaves_nothing() -> None:
    files = MemFiles()
    file_store(files).delete()
    assert files.snapshot() == {}


@pytest.mark.parametrize("end", ["stop", "delete"])
def test_a_closed_store_refuses_everything(store: ConsumerStore, end: str) -> None:
    getattr(store, end)()
    calls: list[Callable[[], object]] = [
        store.state,
        store.flush,
        lambda: store.update(EXAMPLE),
        lambda: store.reset(EXAMPLE),
        lambda: store.update_delivered(1, 1, 1, 0),
        lambda: store.update_acks(1, 1),
        lambda: store.ack_all(1, 1),
        lambda: store.set_meta(b""),
    ]
    for call in calls:
        with pytest.raises(StoreClosed):
            call()


def test_the_operating_systems_files_serve_too(tmp_path: Path) -> None:
    store = FileConsumerStore(OS_FILES, str(tmp_path / "consumers"), "a/../b")
    store.update(EXAMPLE)
    store.stop()
    assert [path.name for path in tmp_path.rglob("*")] == ["consumers", "a%2F%2E%2E%2Fb"]
    assert FileConsumerStore(OS_FILES, str(tmp_path / "consumers"), "a/../b").state() == EXAMPLE


# Power cuts


def script(store: FileConsumerStore, begun: list[ConsumerState], returned: list[ConsumerState]) -> None:
    """Deliver and acknowledge, flushing now and then; note the states that flushes began with and returned with."""
    rng = random.Random(7)
    for _ in range(6):
        for _ in range(rng.randrange(1, 5)):
            deliver(store, store.state().delivered_stream_seq + rng.randrange(1, 4))
        for stream_seq, pending in store.state().pending.items():
            if rng.random() < 0.5:
                store.update_acks(pending.seq, stream_seq)
        begun.append(store.state())
        store.flush()
        returned.append(store.state())


def cut_script(op_number: int) -> tuple[MemFiles, list[ConsumerState], list[ConsumerState]]:
    files, begun, returned = MemFiles(), [ConsumerState()], [ConsumerState()]
    files.cut(op_number)
    with pytest.raises(PowerCut):
        script(file_store(files), begun, returned)
    return files, begun, returned


def script_op_count() -> int:
    files = MemFiles()
    script(file_store(files), [], [])
    return files.op_count


@pytest.mark.parametrize("keep", ["none", "all", "random"])
def test_a_power_cut_anywhere_leaves_the_last_flush_or_a_later_one(keep: str) -> None:
    for op_number in range(1, script_op_count() + 1):
        files, begun, returned = cut_script(op_number)
        for seed in range(5):
            disk = files.after_cut(keep=keep, torn_bytes=seed * 20 or None, rng=random.Random(seed))
            assert file_store(disk).state() in begun[len(returned) - 1 :]


def test_what_a_power_cut_leaves_over_is_known_as_temporary() -> None:
    for op_number in range(1, script_op_count() + 1):
        disk = cut_script(op_number)[0].after_cut(keep="all")
        names = [path.removeprefix("stream/consumers/") for path in disk.snapshot()]
        assert all(name == "worker" or is_temp(name) for name in names)


# File names


@pytest.mark.parametrize(
    ("name", "file_name"),
    [
        ("orders", "orders"),
        ("A-z_09", "A-z_09"),
        ("..", "%2E%2E"),
        ("../../etc/passwd", "%2E%2E%2F%2E%2E%2Fetc%2Fpasswd"),
        ("a b%", "a%20b%25"),
        ("é", "%C3%A9"),
        ("\0\n", "%00%0A"),
        ("\ud800", "%ED%A0%80"),
        ("~", "%7E"),
    ],
)
def test_names_become_safe_file_names(name: str, file_name: str) -> None:
    assert consumer_file_name(name) == file_name


def test_the_empty_name_is_refused() -> None:
    with pytest.raises(BadRequest):
        consumer_file_name("")


def test_a_name_that_fits_is_not_cut() -> None:
    assert consumer_file_name("x" * FILE_NAME_SIZE_MAX) == "x" * FILE_NAME_SIZE_MAX


@pytest.mark.parametrize("tail", ["", "é"])
def test_long_names_that_differ_at_the_end_have_different_files(tail: str) -> None:
    names = ["x" * 300 + end + tail for end in "abc"]
    files = {consumer_file_name(name) for name in names}
    assert len(files) == 3
    assert all(len(file) == FILE_NAME_SIZE_MAX and "~" in file for file in files)


ANY_TEXT = st.text(st.characters(), min_size=1, max_size=120)  # surrogates too


@given(ANY_TEXT, ANY_TEXT)
def test_different_names_have_different_safe_files(one: str, other: str) -> None:
    names = consumer_file_name(one), consumer_file_name(other)
    assert (names[0] == names[1]) == (one == other)
    assert all(re.fullmatch(r"[A-Za-z0-9_%~-]{1,200}", name) and not is_temp(name) for name in names)


def test_consumers_with_odd_names_share_a_directory() -> None:
    files = MemFiles()
    names = ["a", "a/b", "a%2Fb", "..", "x" * 300, "x" * 301]
    for number, name in enumerate(names, 1):
        store = file_store(files, name)
        deliver(store, number)
        store.stop()
    assert [delivered(file_store(files, name))[1] for name in names] == [1, 2, 3, 4, 5, 6]

"""A batch with given sequences and times ends up as the same messages one by one do."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetlake.errors import BadRequest
from jetlake.ops import OP_MSG_ID, append_op
from jetlake.store import FileStore, MemStore, StreamLimits
from jetlake.store.disk.file_options import FileOptions
from jetlake.store.format import MSG_ID
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from tests.crash.workload import ENVELOPES
from tests.twins import both_twins, load_twin

FAR_NS = 2**62


class Given(NamedTuple):
    step: int  # of the sequence
    time_ns: int
    expires_ns: int
    subject: str
    headers: bytes
    payload: bytes


MESSAGES = st.lists(
    st.builds(
        Given,
        st.sampled_from([1, 1, 1, 2, 7, 3_000_000]),
        st.integers(-5, 10**12),
        st.sampled_from([0, 0, FAR_NS]),
        st.sampled_from(["a", "b.c", "b.d"]),
        st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
        st.binary(max_size=120),
    ),
    min_size=1,
    max_size=30,
)


def arrays(
    messages: list[Given], last_seq: int = 0
) -> tuple[bytearray, array[int], array[int], array[int], array[int]]:
    data, ops, seqs = bytearray(), array("I"), array("Q")
    for message in messages:
        append_op(ops, data, message.subject.encode(), message.payload, message.headers)
        last_seq += message.step
        seqs.append(last_seq)
    times = array("q", (message.time_ns for message in messages))
    expires = array("q", (message.expires_ns for message in messages))
    return data, ops, seqs, times, expires if any(expires) else array("q")


@pytest.mark.parametrize("envelope", ["memory", *ENVELOPES])
@settings(max_examples=25, deadline=None)
@given(messages=MESSAGES)
def test_batch_is_stored_as_its_messages_one_by_one(envelope: str, messages: list[Given]) -> None:
    disks = MemFiles(), MemFiles()

    def make(files: MemFiles) -> MemStore | FileStore:
        if envelope == "memory":
            return MemStore(clock=FakeClock(), block_size_max=350)
        return FileStore("s", options=ENVELOPES[envelope], files=files, clock=FakeClock())

    stores = [make(files) for files in disks]
    data, ops, seqs, times, expires = arrays(messages)
    stores[0].append_batch_at(data, ops, seqs, times, expires)
    for message, seq in zip(messages, seqs, strict=True):
        parts = (message.subject, message.payload, message.headers)
        stores[1].append_at(seq, message.time_ns, *parts, expires_ns=message.expires_ns)
    assert stores[0].state() == stores[1].state()
    assert list(stores[0].messages()) == list(stores[1].messages())
    if envelope != "memory":
        for store in stores:
            store.stop()
        again = [make(files) for files in disks]
        assert again[0].state() == again[1].state()
        assert list(again[0].messages()) == list(again[1].messages())


def test_sequence_that_does_not_rise_is_refused_and_those_before_it_are_stored() -> None:
    store = MemStore()
    data, ops, seqs, times, _ = arrays([Given(1, 1, 0, "a", b"", b"x")] * 3)
    seqs[2] = 2
    with pytest.raises(BadRequest, match="sequence 2 does not follow 2"):
        store.append_batch_at(data, ops, seqs, times)
    assert [message.seq for message in store.messages()] == [1, 2]


def test_limits_remove_the_oldest() -> None:
    store = MemStore(StreamLimits(max_msgs=2, max_msgs_per_subject=1))
    store.append_batch_at(*arrays([Given(2, 1, 0, subject, b"", b"x") for subject in "abacd"]))
    assert [message.seq for message in store.messages()] == [8, 10]


def test_stop_leaves_the_rest_of_the_arrays_alone() -> None:
    store = MemStore()
    data, ops, seqs, times, _ = arrays([Given(1, 1, 0, "a", b"", b"x")] * 3)
    store.append_batch_at(data, ops, seqs, times, stop=2)
    assert store.fast_state().last_seq == 2


def test_message_id_is_marked_for_recovery() -> None:
    store = FileStore("s", options=FileOptions(), files=MemFiles())
    data, ops = bytearray(), array("I")
    append_op(ops, data, b"a", b"x", flags=OP_MSG_ID)
    store.append_batch_at(data, ops, array("Q", [1]), array("q", [1]))
    record = store.catalog.find(1)
    assert record is not None and record.flags == MSG_ID


@both_twins
def test_arrays_that_are_too_short_are_refused(kind: str) -> None:
    twin, table = (
        load_twin("jetlake.store.records._encode", kind),
        load_twin("jetlake.store.index._subject_table", kind),
    )
    data, ops, seqs, times, _ = arrays([Given(1, 1, 0, "a", b"", b"x")] * 3)
    index = array("I", bytes(40))
    with pytest.raises(IndexError, match="3 operations, 2 sequences"):
        twin.encode_batch_at(
            data, ops, seqs[:2], times, array("q"), 0, 3, bytearray(500), 0, 0, index, index, 0, table.SubjectTable(),
            0, 1, 30, 4, 0, [], [],
        )  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(messages=MESSAGES, room=st.integers(0, 4000))
def test_twins_write_the_same_bytes(messages: list[Given], room: int) -> None:
    results = []
    for kind in ("py", "c"):
        twin, table = (
            load_twin("jetlake.store.records._encode", kind),
            load_twin("jetlake.store.index._subject_table", kind),
        )
        data, ops, seqs, times, expires = arrays(messages)
        chunk, offsets, ids = bytearray(room), array("I", bytes(4 * 20)), array("I", bytes(4 * 20))
        over, gaps = list[int](), list[int]()
        found = twin.encode_batch_at(
            data, ops, seqs, times, expires, 0, len(messages), chunk, 0, 100, offsets, ids, 0, table.SubjectTable(),
            0, 42, 30, 4, 2, over, gaps,
        )  # fmt: skip
        results.append((found, bytes(chunk), offsets, ids, over, gaps))
    assert results[0] == results[1]

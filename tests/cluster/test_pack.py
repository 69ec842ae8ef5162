"""Messages in flat bytes, in both twins."""

from __future__ import annotations

import re
from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.cluster import pack as face
from jetlake.errors import BadRequest
from jetlake.ops import OP_ADMITTED, OP_EXPECTS, OP_MSG_ID, OP_SPECIAL, OP_WORDS, append_op
from tests.twins import load_twin, load_twins, needs_kernels

TWINS = "jetlake.cluster._pack"
MESSAGES = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=20),
        st.binary(max_size=30),
        st.binary(max_size=40),
        st.sampled_from([0, OP_MSG_ID, OP_SPECIAL | OP_ADMITTED, OP_SPECIAL | OP_ADMITTED | OP_MSG_ID]),
    ),
    max_size=8,
)
Message = tuple[bytes, bytes, bytes, int]


@pytest.fixture(params=["py", pytest.param("c", marks=needs_kernels)])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    return load_twin(TWINS, request.param)


def batch(messages: list[Message]) -> tuple[bytearray, array[int]]:
    data, ops = bytearray(b"before"), array("I")
    for subject, headers, payload, flags in messages:
        append_op(ops, data, subject, payload, headers, b"reply", flags)
    return data, ops


def messages_of(entry: bytes, ops: array[int]) -> list[Message]:
    rows = (ops[at : at + OP_WORDS] for at in range(0, len(ops), OP_WORDS))
    return [
        (*(entry[start : start + size] for start, size in (row[0:2], row[4:6], row[6:8])), row[9])  # type: ignore[misc]
        for row in rows
    ]


@needs_kernels
def test_the_compiled_twin_is_loaded() -> None:
    assert face.COMPILED and face.pack is load_twin(TWINS, "c").pack


def test_the_example_of_the_docstring(twin: ModuleType) -> None:
    data, ops = batch([(b"a", b"", b"hi", 0)])
    out = bytearray()
    assert twin.pack(data, ops, 0, 1, out, False) == 1
    example = re.search(r"\n    (00 [0-9a-f ]+)\n", face.__doc__ or "")
    assert example is not None and out == bytes.fromhex(example[1])


@given(messages=MESSAGES)
def test_what_is_packed_is_unpacked_by_both_twins(messages: list[Message]) -> None:
    data, ops = batch(messages)
    for packer in load_twins(TWINS):
        out = bytearray(b"head")
        assert packer.pack(data, ops, 0, len(messages), out, False) == len(messages)
        for unpacker in load_twins(TWINS):
            found = messages_of(bytes(out), unpacker.unpack(bytes(out), 4, len(messages)))
            assert found == [(*parts, flags & OP_MSG_ID) for *parts, flags in messages]


@given(entry=st.binary(max_size=80), count=st.integers(0, 6), offset=st.integers(0, 10))
def test_twins_agree_on_any_bytes(entry: bytes, count: int, offset: int) -> None:
    found = []
    for twin in load_twins(TWINS):
        try:
            found.append(twin.unpack(entry, offset, count))
        except (ValueError, IndexError) as error:
            found.append((type(error), str(error)))
    assert found[0] == found[1]


@given(messages=MESSAGES, cut=st.integers(1, 200))
def test_an_entry_that_was_cut_is_refused(messages: list[Message], cut: int) -> None:
    data, ops = batch(messages)
    for twin in load_twins(TWINS):
        out = bytearray()
        twin.pack(data, ops, 0, len(messages), out, False)
        if cut <= len(out):
            with pytest.raises(ValueError, match="the entry ends within message"):
                twin.unpack(bytes(out[:-cut]), 0, len(messages))


@pytest.mark.parametrize("flags", [OP_SPECIAL, OP_SPECIAL | OP_ADMITTED | OP_EXPECTS])
def test_packing_stops_where_a_batch_append_would_unless_told_to_take_all(twin: ModuleType, flags: int) -> None:
    data, ops = batch([(b"a", b"", b"1", 0), (b"b", b"", b"2", flags), (b"c", b"", b"3", 0)])
    out = bytearray()
    assert twin.pack(data, ops, 0, 3, out, False) == 1
    assert twin.pack(data, ops, 1, 3, out, False) == 1
    assert twin.pack(data, ops, 1, 3, out, True) == 3
    assert [payload for _, _, payload, _ in messages_of(bytes(out), twin.unpack(bytes(out), 0, 3))] == [
        b"1",
        b"2",
        b"3",
    ]


def test_a_message_that_no_store_takes_is_an_error_of_its_own(twin: ModuleType) -> None:
    data, ops = batch([(b"a", b"", b"", 0), (b"", b"", b"", 0)])
    out = bytearray()
    assert twin.pack(data, ops, 0, 2, out, False) == 1
    with pytest.raises(BadRequest, match="the subject is empty"):
        twin.pack(data, ops, 1, 2, out, False)
    ops[OP_WORDS] = len(data) + 1
    with pytest.raises(IndexError, match="reaches beyond the buffer"):
        twin.pack(data, ops, 1, 2, out, True)


def test_operations_that_are_not_there_are_refused(twin: ModuleType) -> None:
    with pytest.raises(IndexError, match=r"operations 0\.\.2 of 1"):
        twin.pack(*batch([(b"a", b"", b"", 0)]), 0, 2, bytearray(), False)

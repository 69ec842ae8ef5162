"""Columns from the messages of a nats-server block: the twins fill the same bytes."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.ops import OP_WORDS, append_op
from jetlake.store.nats.envelope import SLACK
from jetlake.table import nats_rows
from jetlake.table.arrow import ALL, FIELDS, arrays, column_buffers
from tests.twins import both_twins, load_twin, load_twins, needs_kernels

Message = tuple[bytes, bytes, bytes, int]  # subject, headers, payload, time
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b.c", b"\xff\xc3"]),
        st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\nA: c\r\nB:\r\n\r\n"]),
        st.binary(max_size=40),
        st.integers(0, 10),
    ),
    max_size=10,
)


def fill(kind: str, messages: list[Message], filters: tuple[str, ...] = (), time_min: int = 0, mask: int = ALL) -> Any:
    twin, filter = load_twin("jetlake.table._nats", kind), load_twin("jetlake.store.index._subject_filter", kind)
    data, ops = bytearray(), array("I")
    for subject, headers, payload, _ in messages:
        data += bytes(22)
        append_op(ops, data, subject, payload, headers)
    data += bytes(SLACK)
    seqs, times = array("Q", range(1, len(messages) + 1)), array("q", (message[3] for message in messages))
    columns = column_buffers(mask, len(data))
    matcher = filter.SubjectFilter(filters)
    found = twin.fill(data, ops, seqs, times, 0, len(messages), matcher, time_min, 2**62, columns)
    return found, {name: column.to_pylist() for name, column in arrays(FIELDS, columns, found).items()}


@both_twins
def test_wanted_messages_become_rows(kind: str) -> None:
    messages = [(b"a", b"", b"x", 5), (b"b", b"NATS/1.0\r\nA: b\r\n\r\n", b"yy", 6), (b"a", b"", b"z", 7)]
    found, columns = fill(kind, messages, ("a",), 6)
    assert found.rows == 1 and columns["seq"] == [3] and columns["payload"] == [b"z"]
    _, columns = fill(kind, messages)
    assert columns["headers"][1] == [("A", ["b"])] and columns["size"] == [1, 2, 1]


@both_twins
def test_bad_arguments_are_refused(kind: str) -> None:
    twin, filter = load_twin("jetlake.table._nats", kind), load_twin("jetlake.store.index._subject_filter", kind)
    ops, columns, every = array("I", bytes(4 * OP_WORDS)), column_buffers(ALL, 100), filter.SubjectFilter(())
    with pytest.raises(IndexError):
        twin.fill(b"", ops, array("Q"), array("q"), 0, 1, every, 0, 1, columns)
    ops[7] = 10
    with pytest.raises(IndexError, match="beyond"):
        twin.fill(bytes(20), ops, array("Q", [1]), array("q", [1]), 0, 1, every, 0, 1, columns)


@needs_kernels
@given(MESSAGES, st.sampled_from([(), ("a",), ("b.*",)]), st.integers(0, 10))
def test_twins_fill_alike(messages: list[Message], filters: tuple[str, ...], time_min: int) -> None:
    assert len(load_twins("jetlake.table._nats")) == 2
    assert fill("py", messages, filters, time_min) == fill("c", messages, filters, time_min)


@needs_kernels
def test_compiled_twin_is_loaded() -> None:
    assert nats_rows.COMPILED

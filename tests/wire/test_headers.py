"""The header block: reading, extending, and the blocks that a server makes itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jetlake.wire.headers import (
    append_headers,
    header_value,
    iter_headers,
    no_responders_block,
    status_block,
    strip_status,
    without_header,
)

BLOCK = b"NATS/1.0\r\nA: 1\r\na: 2\r\nA: 3\r\nEmpty:\r\nTight:x: y \r\n\r\n"
text = st.binary(max_size=8).filter(lambda value: not set(value) & set(b"\r\n"))
patient = settings(deadline=None)  # machines are shared
names = text.filter(lambda name: name and b":" not in name)


def test_the_first_value_in_the_exact_spelling_is_found() -> None:
    assert header_value(BLOCK, b"A") == b"1"
    assert header_value(BLOCK, b"a") == b"2"
    assert header_value(BLOCK, b"Empty") == b""
    assert header_value(BLOCK, b"Tight") == b"x: y "
    assert header_value(BLOCK, b"empty") is None
    assert header_value(BLOCK, b"x") is None
    assert header_value(b"", b"A") is header_value(b"A: 1\r\n", b"A") is None
    assert header_value(b"NATS/1.0\r\nA: 1", b"A") == b"1"


def test_all_headers_come_in_order() -> None:
    expected = [(b"A", b"1"), (b"a", b"2"), (b"A", b"3"), (b"Empty", b""), (b"Tight", b"x: y ")]
    assert list(iter_headers(BLOCK)) == expected
    assert list(iter_headers(b"")) == list(iter_headers(b"junk")) == []


def test_headers_are_appended_behind_the_others() -> None:
    assert append_headers(b"NATS/1.0\r\nA: 1\r\n\r\n", [(b"B", b"2")]) == b"NATS/1.0\r\nA: 1\r\nB: 2\r\n\r\n"
    assert append_headers(b"", [(b"B", b"2")]) == b"NATS/1.0\r\nB: 2\r\n\r\n"
    assert append_headers(b"", []) == b""
    assert append_headers(BLOCK, []) == BLOCK


def test_status_blocks_have_the_status_in_their_first_line() -> None:
    assert status_block(404, "No Messages") == b"NATS/1.0 404 No Messages\r\n\r\n"
    assert status_block(100, "Idle Heartbeat", [(b"Nats-Last-Stream", b"7")]) == (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Stream: 7\r\n\r\n"
    )
    assert no_responders_block(b"foo.bar") == b"NATS/1.0 503\r\nNats-Subject: foo.bar\r\n\r\n"


def test_a_status_can_be_taken_off() -> None:
    assert strip_status(b"NATS/1.0 408 Request Timeout\r\nA: 1\r\n\r\n") == b"NATS/1.0\r\nA: 1\r\n\r\n"
    assert strip_status(BLOCK) == BLOCK
    assert strip_status(b"") == b""


def test_a_header_can_be_taken_out() -> None:
    assert without_header(b"NATS/1.0\r\nA: 1\r\nB: 2\r\nA: 3\r\n\r\n", b"A") == b"NATS/1.0\r\nB: 2\r\nA: 3\r\n\r\n"
    assert without_header(b"NATS/1.0\r\nA: 1\r\n\r\n", b"A") == b"", "no headers are no block"
    assert without_header(b"NATS/1.0 503\r\nA: 1\r\n\r\n", b"A") == b"NATS/1.0 503\r\n\r\n"
    assert without_header(BLOCK, b"B") == BLOCK and without_header(b"", b"A") == b""


@patient
@given(pairs=st.lists(st.tuples(names, text), min_size=1))
def test_what_is_appended_is_read(pairs: list[tuple[bytes, bytes]]) -> None:
    block = append_headers(b"", pairs)
    assert list(iter_headers(block)) == [(name, value.lstrip(b" ")) for name, value in pairs]
    for name, _ in pairs:
        assert header_value(block, name) == next(value for found, value in iter_headers(block) if found == name)


@patient
@given(block=st.binary(max_size=40), name=names)
def test_any_bytes_may_be_a_block(block: bytes, name: bytes) -> None:
    header_value(block, name)
    list(iter_headers(block))
    strip_status(block)
    without_header(block, name)
    append_headers(block, [(name, b"v")])

"""Headers of proxies: in one piece, byte by byte, and with bytes behind them."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.server.proxy_protocol import NO_HEADER, SIGNATURE, BadHeader, Header, parse


def block(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + bytes([command, family]) + len(body).to_bytes(2, "big") + body


V4 = block(0x21, 0x11, socket.inet_aton("9.8.7.6") + socket.inet_aton("1.1.1.1") + b"\x15\xb3\x10\x7e" + b"more")
V6 = block(0x21, 0x21, bytes(15) + b"\x01" + bytes(16) + b"\x15\xb3\x10\x7e")
GOOD = [
    (b"PROXY TCP4 9.8.7.6 1.1.1.1 5555 4222\r\n", "9.8.7.6", 5555),
    (b"PROXY TCP6 ::1 ::2 5555 4222\r\n", "::1", 5555),
    (b"PROXY UNKNOWN\r\n", "", 0),
    (b"PROXY UNKNOWN a b c d\r\n", "", 0),
    (V4, "9.8.7.6", 5555),
    (V6, "::1", 5555),
    (block(0x20, 0x00, b""), "", 0),
    (block(0x21, 0x31, bytes(216)), "", 0),
]


@pytest.mark.parametrize(("data", "host", "port"), GOOD)
def test_a_header_tells_whom_it_stands_for(data: bytes, host: str, port: int) -> None:
    assert parse(data) == parse(data + b"CONNECT {}\r\n") == Header(len(data), host, port)
    assert [parse(data[:size]) for size in range(1, len(data))] == [None] * (len(data) - 1)


@pytest.mark.parametrize("data", [b"CONNECT {}\r\n", b"\x16\x03\x01", b"PING\r\n", b"PROXX", b"\r\n\r\nx"])
def test_other_bytes_are_no_header(data: bytes) -> None:
    assert parse(data) == NO_HEADER


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY TCP4 9.8.7.6 1.1.1.1 5555\r\n",
        b"PROXY TCP4 x 1.1.1.1 5555 4222\r\n",
        b"PROXY TCP4 ::1 ::2 5555 4222\r\n",
        b"PROXY TCP4 9.8.7.6 1.1.1.1 99999 4222\r\n",
        b"PROXY TCP4 9.8.7.6 1.1.1.1 -1 4222\r\n",
        b"PROXY UDP4 9.8.7.6 1.1.1.1 1 2\r\n",
        b"PROXY " + b"x" * 200,
        block(0x11, 0x11, bytes(12)),
        block(0x21, 0x11, bytes(3)),
        SIGNATURE + b"\x21\x11\xff\xff",
    ],
)
def test_a_broken_header_is_refused(data: bytes) -> None:
    with pytest.raises(BadHeader):
        parse(data)


@given(st.sampled_from([b"PROXY ", SIGNATURE, b""]), st.binary(max_size=200))
def test_no_bytes_raise_anything_else(start: bytes, rest: bytes) -> None:
    try:
        found = parse(start + rest)
    except BadHeader:
        return
    assert found is None or found.size <= len(start + rest)

"""The frames that a server sends, byte by byte as nats-server writes them."""

from __future__ import annotations

from jetlake.wire import writer


def test_info_has_a_space_before_its_end() -> None:
    assert writer.info({"proto": 1, "headers": True}) == b'INFO {"proto":1,"headers":true} \r\n'


def test_an_error_is_in_single_quotes() -> None:
    assert writer.err("Unknown Protocol Operation") == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert (
        writer.err('Permissions Violation for Publish to "a"')
        == b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n"
    )


def test_a_delivery_without_headers_is_a_msg() -> None:
    assert writer.msg(b"foo", b"1", b"hi") == b"MSG foo 1 2\r\nhi\r\n"
    assert writer.msg(b"foo", b"1", b"", b"reply") == b"MSG foo 1 reply 0\r\n\r\n"


def test_a_delivery_with_headers_is_an_hmsg() -> None:
    headers = b"NATS/1.0\r\n\r\n"
    assert writer.msg(b"foo", b"1", b"hi", headers=headers) == b"HMSG foo 1 12 14\r\n" + headers + b"hi\r\n"
    assert writer.msg(b"foo", b"1", b"", b"re", headers) == b"HMSG foo 1 re 12 12\r\n" + headers + b"\r\n"


def test_short_frames_are_constants() -> None:
    assert (writer.PING, writer.PONG, writer.OK) == (b"PING\r\n", b"PONG\r\n", b"+OK\r\n")

"""The head of an HTTP request."""

from __future__ import annotations

import pytest

from jetlake.wire.http_head import BadHead, read_head


def test_fields_are_found_whatever_the_case_of_their_names() -> None:
    head = read_head(b"GET /a?b=1 HTTP/1.1\r\nHost: x:1\r\nCONNECTION: keep-alive ,Upgrade\r\nconnection: c\r\n\r\n")
    assert (head.method, head.target, head.version) == ("GET", "/a?b=1", "HTTP/1.1")
    assert head.get("host") == "x:1" and head.get("missing") == ""
    assert head.items("connection") == ["keep-alive", "Upgrade", "c"]


@pytest.mark.parametrize("line", [b"", b"GET /", b"GET / HTTP/2.0", b"GET  / HTTP/1.1", b"\x16\x03\x01", b"CONNECT {}"])
def test_other_lines_are_no_request(line: bytes) -> None:
    with pytest.raises(BadHead):
        read_head(line + b"\r\n\r\n")

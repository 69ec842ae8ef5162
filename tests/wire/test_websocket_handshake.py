"""The request with which a WebSocket begins."""

from __future__ import annotations

import pytest

from jetlake.config import read_origin
from jetlake.wire.websocket_handshake import Refused, Rules, accept_key, upgrade
from tests.compat.ws_peer import OFFER, request

SAFARI = "Mozilla/5.0 (Macintosh) AppleWebKit/605 (KHTML, like Gecko) Version/17.4 Safari/605"
CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537 (KHTML, like Gecko) Chrome/128 Safari/537"


def test_the_key_of_the_standard() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_a_plain_request_is_answered() -> None:
    found = upgrade(request("/some/path?x=1"), Rules())
    assert found.path == "/some/path" and found.is_masked and not found.is_compressed and not found.is_browser
    assert found.answer.split(b"\r\n") == [
        b"HTTP/1.1 101 Switching Protocols",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Accept: BACScCJPNqyz+UBoqMH89VmURoA=",
        b"",
        b"",
    ]


def test_lists_and_other_spellings_are_accepted() -> None:
    found = upgrade(request(Connection="keep-alive, UPGRADE", Upgrade="h2c, WebSocket", Origin="null"), Rules())
    assert found.answer.startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize(
    ("asked", "status", "problem"),
    [
        (b"GARBAGE\r\n\r\n", 400, "no request line"),
        (b"GET http://[ HTTP/1.1\r\n\r\n", 400, "Invalid"),
        (request().replace(b"GET", b"POST"), 405, "method must be GET"),
        (request(Host=None), 400, "'Host' missing"),
        (request(Upgrade="h2c"), 400, "header 'Upgrade'"),
        (request(Connection="close"), 400, "header 'Connection'"),
        (request(Sec_WebSocket_Key=None), 400, "key missing"),
        (request(Sec_WebSocket_Key="AAAA"), 400, "invalid websocket key"),
        (request(Sec_WebSocket_Key="?" * 24), 400, "invalid websocket key"),
        (request(Sec_WebSocket_Version="8"), 400, "invalid version"),
        (request("/a/mqtt"), 404, "mqtt"),
    ],
)
def test_other_requests_are_refused(asked: bytes, status: int, problem: str) -> None:
    with pytest.raises(Refused, match=problem) as caught:
        upgrade(asked, Rules())
    assert caught.value.answer().startswith(f"HTTP/1.1 {status} ".encode())
    assert b"\r\nSec-Websocket-Version: 13\r\n" in caught.value.answer()


def test_compression_is_agreed_on_when_both_want_it() -> None:
    for offer in (OFFER, "x, permessage-deflate; client_max_window_bits"):
        asked = request(Sec_WebSocket_Extensions=offer)
        assert upgrade(asked, Rules(compression=True)).is_compressed
        assert f"\r\nSec-WebSocket-Extensions: {OFFER}\r\n".encode() in upgrade(asked, Rules(compression=True)).answer
        assert not upgrade(asked, Rules()).is_compressed
    assert not upgrade(request(Sec_WebSocket_Extensions="x-webkit"), Rules(compression=True)).is_compressed


def test_masks_are_left_out_on_request() -> None:
    found = upgrade(request(Nats_No_Masking="true"), Rules())
    assert not found.is_masked and b"\r\nNats-No-Masking: true\r\n" in found.answer


def test_headers_are_added() -> None:
    assert upgrade(request(), Rules(headers={"X-A": "b"})).answer.endswith(b"\r\nX-A: b\r\n\r\n")


def test_browsers_are_known_by_what_they_say() -> None:
    assert upgrade(request(User_Agent=SAFARI), Rules())[4:6] == (True, True)
    assert upgrade(request(User_Agent=CHROME), Rules())[4:6] == (True, False)
    assert upgrade(request(User_Agent="node"), Rules())[4:6] == (False, False)


@pytest.mark.parametrize(
    ("origin", "host", "is_same"),
    [
        ("http://a.com", "a.com", True),
        ("http://A.com:80", "a.com", True),
        ("http://a.com:8080", "a.com:8080", True),
        ("http://a.com", "a.com:8080", False),
        ("https://a.com", "a.com", False),
        ("http://b.com", "a.com", False),
        ("null", "a.com", False),
        ("http://a.com:x", "a.com", False),
    ],
)
def test_same_origin(origin: str, host: str, is_same: bool) -> None:
    asked = request(Host=host, Origin=origin)
    if is_same:
        upgrade(asked, Rules(same_origin=True))
    else:
        with pytest.raises(Refused, match="origin not allowed") as caught:
            upgrade(asked, Rules(same_origin=True))
        assert caught.value.status == 403
    upgrade(asked, Rules())


def test_allowed_origins() -> None:
    rules = Rules(allowed_origins=frozenset(map(read_origin, ("https://a.com", "http://b.com:81"))))
    for origin in ("https://a.com", "https://a.com:443", "http://b.com:81", None):
        upgrade(request(Origin=origin), rules)
    for origin in ("http://a.com", "https://a.com:444", "http://b.com", "https://c.com"):
        with pytest.raises(Refused, match="not in the allowed list"):
            upgrade(request(Origin=origin), rules)


def test_cookies_and_the_forwarded_address() -> None:
    found = upgrade(request(Cookie='a=1; b="two"; c; d=x=y', X_Forwarded_For="1.2.3.4"), Rules())
    assert found.cookies == {"a": "1", "b": "two", "d": "x=y"} and found.forwarded_for == "1.2.3.4"
    assert upgrade(request(X_Forwarded_For="evil\x1b"), Rules()).forwarded_for == ""

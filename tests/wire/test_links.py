"""The lines of a link."""

from __future__ import annotations

import pytest

from jetlake.wire import links
from jetlake.wire.links import Err, Info, Interest, LinkConnect, NoInterest, Subjects, parse_link_line
from jetlake.wire.protocol import ProtocolError
from jetlake.wire.verbs import Ping, Pong


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b"LS+ a.*\r\n", Interest(b"a.*", None, 1)),
        (b"ls+\ta q 7\n", Interest(b"a", b"q", 7)),
        (b"LS+ a q 0\r\n", Interest(b"a", b"q", 1)),
        (b"LS+ a q many\r\n", Interest(b"a", b"q", 1)),
        (b"LS- a\r\n", NoInterest(b"a", None)),
        (b"LS- a q\r\n", NoInterest(b"a", b"q")),
        (b"PING\r\n", Ping()),
        (b"PONG\r\n", Pong()),
        (b"+OK\r\n", None),
        (b"-ERR 'Loop detected'\r\n", Err("Loop detected")),
        (b'CONNECT {"name":"L","headers":true}\r\n', LinkConnect({"name": "L", "headers": True})),
    ],
)
def test_a_line_is_an_event(line: bytes, event: object) -> None:
    assert parse_link_line(line) == event


def test_info_says_what_matters() -> None:
    event = parse_link_line(b'INFO {"client_id":5,"nonce":"n","import":{"allow":["a"],"deny":null},"other":[1]} \r\n')
    assert isinstance(event, Info) and (event.fields.client_id, event.fields.nonce) == (5, "n")
    assert event.fields.imports == Subjects(("a",)) and event.fields.exports is None


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"LS+ a q\r\n", None),
        (b"LS+ a q 1 2\r\n", None),
        (b"LS- a q 1\r\n", None),
        (b"LS+\r\n", "Unknown Protocol Operation"),
        (b"MSG a 1 0\r\n", "Unknown Protocol Operation"),
        (b"INFO {\r\n", None),
        (b'INFO {"client_id":"x"}\r\n', None),
        (b"CONNECT []\r\n", None),
    ],
)
def test_bad_lines_end_the_link(line: bytes, text: str | None) -> None:
    with pytest.raises(ProtocolError) as raised:
        parse_link_line(line)
    assert raised.value.text == text


def test_what_is_written_is_read() -> None:
    for event in (Interest(b"a", None, 1), Interest(b"a.>", b"q", 3)):
        assert parse_link_line(links.interest(*event[:3])) == event
    for gone in (NoInterest(b"a", None), NoInterest(b"a.>", b"q")):
        assert parse_link_line(links.no_interest(*gone[:2])) == gone
    assert parse_link_line(links.connect({"name": "é"})) == LinkConnect({"name": "é"})

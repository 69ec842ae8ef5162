"""Lines of routes."""

from __future__ import annotations

import pytest

from jetlake.wire import routes
from jetlake.wire.links import Err, Interest, LinkConnect, NoInterest
from jetlake.wire.protocol import ProtocolError
from jetlake.wire.routes import Info, RouteInfo, Switch, parse_route_line
from jetlake.wire.verbs import Ping, Pong


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b"RS+ $G foo.*\r\n", Interest(b"foo.*", None, 1, b"$G")),
        (b"rs+  $G\tfoo q 3 \n", Interest(b"foo", b"q", 3, b"$G")),
        (b"RS+ $G foo q x\r\n", Interest(b"foo", b"q", 1, b"$G")),
        (b"RS- $G foo\r\n", NoInterest(b"foo", None, b"$G")),
        (b"RS- $G foo q\r\n", NoInterest(b"foo", b"q", b"$G")),
        (b"PING\r\n", Ping()),
        (b"PONG\r\n", Pong()),
        (b'CONNECT {"name":"N"}\r\n', LinkConnect({"name": "N"})),
        (b"-ERR 'Stale Connection'\r\n", Err("Stale Connection")),
        (b"+OK\r\n", None),
        (b"RAFT 7 3\r\n", Switch("RAFT", b"7 3")),
        (b'COPY {"a":1}\r\n', Switch("COPY", b'{"a":1}')),
    ],
)
def test_a_line_is_read(line: bytes, event: object) -> None:
    assert parse_route_line(line) == event


@pytest.mark.parametrize(
    "line",
    [
        b"RS+\r\n", b"RS+ $G\r\n", b"RS+ $G a q\r\n", b"RS+ $G a q 1 2\r\n", b"RS-\r\n", b"RS- $G\r\n",
        b"RS- $G a b c\r\n", b"LS+ a\r\n", b"SUB a 1\r\n", b"INFO []\r\n", b'INFO {"port":"x"}\r\n', b"CONNECT 1\r\n",
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_route_line(line)


def test_info_has_what_matters_and_all_that_was_said() -> None:
    event = parse_route_line(b'INFO {"server_id":"N","port":6222,"connect_urls":["a:1"],"other":[1],"ip":null} \r\n')
    assert isinstance(event, Info)
    assert event.fields == RouteInfo(server_id="N", port=6222, connect_urls=("a:1",))
    assert bytes(event.said["other"]) == b"[1]"


def test_what_is_written_is_read() -> None:
    for found in (Interest(b"a", None, 1, b"$G"), Interest(b"a.>", b"q", 3, b"X")):
        line = routes.interest(found.account, found.subject, found.queue, found.weight)
        assert parse_route_line(line) == found
    for gone in (NoInterest(b"a", None, b"$G"), NoInterest(b"a", b"q", b"X")):
        assert parse_route_line(routes.no_interest(gone.account, gone.subject, gone.queue)) == gone

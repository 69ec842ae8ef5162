"""Lines of the rare verbs: what they say, and how they fail."""

from __future__ import annotations

import pytest

from jetlake.wire.protocol import ProtocolError
from jetlake.wire.tokenize import tokenize
from jetlake.wire.verbs import Connect, ConnectOptions, Event, Ignored, Ping, Pong, Sub, Unsub, parse_line
from tests.wire.conversation import three_ways


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b"PING\r\n", Ping()),
        (b"ping\n", Ping()),
        (b"PINGPONG and more\r\n", Ping()),
        (b"PONG\r\n", Pong()),
        (b"+ok\r\n", Ignored()),
        (b'INFO {"a":1}\r\n', Ignored()),
        (b"SUB foo 1\r\n", Sub(b"foo", None, b"1")),
        (b"sub\tfoo \t q  abc \n", Sub(b"foo", b"q", b"abc")),
        (b"SUB \nfoo 1\r\n", Sub(b"foo", None, b"1")),
        (b"SUB foo..bar 1\r\n", Sub(b"foo..bar", None, b"1")),
        (b"SUB foo\r1\r\n", Sub(b"foo", None, b"1")),
        (b"SUB foo 1\rx\n", Sub(b"foo", None, b"1")),
        (b"UNSUB 1\r\n", Unsub(b"1", 0)),
        (b"UNSUB 1 5\r\n", Unsub(b"1", 5)),
        (b"UNSUB 1 0\r\n", Unsub(b"1", 0)),
        (b"UNSUB 1 -5\r\n", Unsub(b"1", 0)),
        (b"UNSUB 1 1234567890\r\n", Unsub(b"1", 0)),
        (b"CONNECT {}\r\n", Connect(ConnectOptions())),
        (b"CONNECT{}\n", Connect(ConnectOptions())),
        (b"CONNECT null\r\n", Connect(ConnectOptions())),
        (b"CONNECT \n{}\r\n", Connect(ConnectOptions())),
    ],
)
def test_a_line_is_understood(line: bytes, event: Event) -> None:
    outcome = three_ways(tokenize, line)
    assert outcome.is_open and outcome.seen == [event] and type(outcome.seen[0]) is type(event)


@pytest.mark.parametrize(
    "line",
    [
        b"SUB \r\n",
        b"SUB foo\r\n",
        b"SUB a b c d\r\n",
        b"UNSUB \r\n",
        b"UNSUB 1 2 3\r\n",
        b"CONNECT \r\n",
        b"CONNECT {\r\n",
        b"CONNECT []\r\n",
        b"CONNECT 1\r\n",
        b'CONNECT {"verbose":"yes"}\r\n',
        b'CONNECT {"protocol":"1"}\r\n',
        b"CONNECT {} {}\r\n",
        b"CONNECT " + b"[" * 4000 + b"\r\n",
        b"INFO \r\n",
        b"INFO x\r\n",
        b"-ERR 'I give up'\r\n",
    ],
)
def test_a_bad_argument_closes_without_a_word(line: bytes) -> None:
    outcome = three_ways(tokenize, line)
    assert not outcome.is_open and outcome.text is None and outcome.seen == []


@pytest.mark.parametrize("line", [b"FOO\r\n", b"SUBfoo 1\r\n", b"\r\n", b"PIN\r\n"])
def test_an_unknown_verb_closes_with_an_error(line: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_line(line)
    assert caught.value.text == "Unknown Protocol Operation"


def connect(json: bytes, options: ConnectOptions | None = None) -> ConnectOptions:
    event = parse_line(b"CONNECT " + json + b"\r\n", options)
    assert isinstance(event, Connect)
    return event.options


def test_connect_defaults_are_those_of_nats_server() -> None:
    options = connect(b"{}")
    assert options.verbose and options.pedantic and options.echo
    assert not (options.headers or options.no_responders or options.tls_required or options.protocol)


def test_connect_reads_every_key() -> None:
    options = connect(
        b'{"verbose":false,"pedantic":false,"echo":false,"tls_required":true,"nkey":"N","jwt":"J","sig":"S",'
        b'"auth_token":"T","user":"U","pass":"P","name":"n","lang":"l","version":"v","protocol":1,"account":"a",'
        b'"new_account":true,"headers":true,"no_responders":true,"unknown":[1,{}]}'
    )
    assert options == ConnectOptions(
        verbose=False, pedantic=False, echo=False, tls_required=True, nkey="N", jwt="J", sig="S", auth_token="T",
        user="U", password="P", name="n", lang="l", version="v", protocol=1, account="a", new_account=True,
        headers=True, no_responders=True,
    )  # fmt: skip


def test_connect_reads_json_as_go_does() -> None:
    assert not connect(b'{"VERBOSE":false}').verbose
    assert connect(b'{"verbose":null}').verbose
    assert connect(b'{"unknown":1e400}') == ConnectOptions()
    assert connect(b'{"name":"a","name":"b"}').name == "b"
    assert connect(b'{"name":"\xff"}').name == "\N{REPLACEMENT CHARACTER}"


def test_a_second_connect_changes_what_it_names() -> None:
    options = connect(b'{"pass":"new"}', connect(b'{"verbose":false,"user":"u","pass":"old"}'))
    assert options == ConnectOptions(verbose=False, user="u", password="new")


def test_options_that_contradict_each_other_are_a_problem() -> None:
    assert ConnectOptions().problem() is None
    assert ConnectOptions(protocol=2).problem() == ConnectOptions(protocol=-1).problem() == "invalid client protocol"
    assert ConnectOptions(no_responders=True).problem() == "no responders requires headers support"
    assert ConnectOptions(no_responders=True, headers=True, protocol=1).problem() is None


def test_an_error_does_not_repeat_credentials() -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_line(b'CONNECT {"pass":12345678}\r\n')
    assert "12345678" not in str(caught.value)

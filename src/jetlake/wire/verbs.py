"""Parse a complete line of a verb other than PUB and HPUB into an event.

The tokenizer has found the line, so its verb is known to be good and its length is within bounds. What is left to go
wrong closes the connection: an unknown verb with an -ERR, bad arguments or bad JSON without a word. Whether a subject
is a valid one is not decided here: nats-server answers that with an -ERR and goes on.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from jetlake.wire.protocol import ERROR_TEXTS, SIZE_DIGITS_MAX, SPACED, UNKNOWN_OPERATION, VERBS, ProtocolError

_ARG = re.compile(rb"[^ \t\r\n]+")
_ESCAPE = re.compile(r"(?i)\\u d[89ab]\w\w \\u d[c-f]\w\w | (?P<half> \\u d[89a-f]\w\w ) | \\.", re.VERBOSE)
_COUNT = re.compile(rb"[0-9]{1,%d}" % SIZE_DIGITS_MAX)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a client says in CONNECT, with nats-server's defaults for what it does not say."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    tls_required: bool = False
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    proxy_sig: str = ""
    auth_token: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int = 0
    account: str = ""
    new_account: bool = False
    headers: bool = False
    no_responders: bool = False

    def problem(self) -> str | None:
        """The -ERR text with which a client that asks for this is closed, once it has logged in."""
        if self.protocol not in (0, 1):
            return "invalid client protocol"
        if self.no_responders and not self.headers:
            return "no responders requires headers support"
        return None


_OPTION_NAMES = frozenset(field.encode_name for field in msgspec.structs.fields(ConnectOptions))


class Connect(NamedTuple):
    options: ConnectOptions


class Sub(NamedTuple):
    subject: bytes
    queue: bytes | None
    sid: bytes


class Unsub(NamedTuple):
    sid: bytes
    max_msgs: int  # in total since SUB; 0: at once


class Ping(NamedTuple):
    pass


class Pong(NamedTuple):
    pass


class Ignored(NamedTuple):
    """+OK or INFO: a client has no reason to send it, and nats-server does not mind."""


Event = Connect | Sub | Unsub | Ping | Pong | Ignored


def parse_line(line: bytes | bytearray, options: ConnectOptions | None = None) -> Event:
    """The event of a line, from its verb to its LF. A second CONNECT changes the `options` of the first."""
    line = bytes(line)
    for verb, style in VERBS:
        if line[: len(verb)].upper() == verb and (style != SPACED or line[len(verb) : len(verb) + 1] in (b" ", b"\t")):
            break
    else:
        raise ProtocolError(ERROR_TEXTS[UNKNOWN_OPERATION], f"line {line[:32]!r}")
    arg = _arg_of(line[len(verb) :])
    match verb:
        case b"PING":
            return Ping()
        case b"PONG":
            return Pong()
        case b"SUB":
            return _parse_sub(arg)
        case b"UNSUB":
            return _parse_unsub(arg)
        case b"CONNECT":
            return Connect(_parse_connect(arg, options))
        case b"INFO":
            parse_object(arg)
            return Ignored()
        case b"+OK":
            return Ignored()
    raise ProtocolError(None, f"{verb.decode()} is not for a line parser")  # -ERR; PUB and HPUB do not come here


def _arg_of(rest: bytes) -> bytes:
    """What follows the verb, without blanks before it and the end of the line.

    A CR anywhere after the first byte costs the byte before the LF, whatever that is: nats-server counts on CRLF.
    """
    arg = rest.lstrip(b" \t").removesuffix(b"\n")
    return arg[:-1] if b"\r" in arg[1:] else arg


def _parse_sub(arg: bytes) -> Sub:
    match _ARG.findall(arg):
        case [subject, sid]:
            return Sub(subject, None, sid)
        case [subject, queue, sid]:
            return Sub(subject, queue, sid)
    raise ProtocolError(None, f"SUB with arguments {arg[:64]!r}")


def _parse_unsub(arg: bytes) -> Unsub:
    match _ARG.findall(arg):
        case [sid]:
            return Unsub(sid, 0)
        case [sid, count]:  # what is not a number counts as none
            return Unsub(sid, int(count) if _COUNT.fullmatch(count) else 0)
    raise ProtocolError(None, f"UNSUB with arguments {arg[:64]!r}")


def _parse_connect(arg: bytes, before: ConnectOptions | None) -> ConnectOptions:
    """Go's reading of JSON: names in any case, null changes nothing, unknown names are skipped, the last one counts."""
    said = msgspec.to_builtins(before) if before else {}
    try:
        for name, value in parse_object(arg).items():
            if name.lower() in _OPTION_NAMES and bytes(value) != b"null":
                said[name.lower()] = msgspec.json.decode(value)
        return msgspec.convert(said, ConnectOptions)
    except msgspec.DecodeError as error:  # it names the field and the types, never the value
        raise ProtocolError(None, f"CONNECT: {error}") from None


def parse_object(arg: bytes) -> dict[str, msgspec.Raw]:
    """The members of a JSON object, read as Go does. Raises ProtocolError."""
    text = arg.decode("utf-8", "replace")
    try:
        return _OBJECT.decode(_ESCAPE.sub(_without_half, text) if "\\u" in text else text) or {}
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError(None, f"not a JSON object: {error}") from None


def _without_half(escape: re.Match[str]) -> str:
    """An escape; U+FFFD for half of a surrogate pair, as Go has it."""
    return "\\ufffd" if escape["half"] else escape[0]

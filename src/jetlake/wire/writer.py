"""The frames that a server sends. Deliveries from a stream in bulk have a kernel of their own; this is for the rest."""

from __future__ import annotations

import msgspec

PING = b"PING\r\n"
PONG = b"PONG\r\n"
OK = b"+OK\r\n"


def info(fields: object) -> bytes:
    """INFO with a JSON object, given as a dict or a msgspec Struct. The space before CRLF is nats-server's."""
    return b"INFO %s \r\n" % msgspec.json.encode(fields)


def err(text: str) -> bytes:
    """-ERR with a text in single quotes; it may hold double ones. Bytes of a subject come out as they were."""
    assert "\n" not in text and "\r" not in text
    return b"-ERR '%s'\r\n" % text.encode("utf-8", "surrogateescape")


def msg(subject: bytes, sid: bytes, payload: bytes, reply: bytes = b"", headers: bytes = b"") -> bytes:
    """A delivery: MSG, or HMSG if there is a header block."""
    route = b"%s %s %s " % (subject, sid, reply) if reply else b"%s %s " % (subject, sid)
    if not headers:
        return b"MSG %s%d\r\n%s\r\n" % (route, len(payload), payload)
    size = len(headers)
    return b"HMSG %s%d %d\r\n%s%s\r\n" % (route, size, size + len(payload), headers, payload)

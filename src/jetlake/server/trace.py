"""Trace lines: what clients say, in the log. Without payloads, and without passwords."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from jetlake.broker.broker import Broker
from jetlake.broker.client import Client
from jetlake.server.log import Log

_SECRETS = frozenset({"pass", "auth_token", "sig", "jwt", "nkey"})


def tracer(broker: Broker, log: Log) -> Callable[[Client, str, bytes], None]:
    """What a broker calls for each line."""

    def trace(client: Client, arrow: str, line: bytes) -> None:
        text = redacted(line.rstrip(b"\r\n")).decode("utf-8", "replace")
        log("trace", f"{broker.label(client)} - {arrow} [{text}]")

    return trace


def redacted(line: bytes) -> bytes:
    """A line without what only the client and the server may know."""
    verb, _, rest = line.partition(b"{")
    if verb.strip().upper() != b"CONNECT":
        return line
    try:
        said = msgspec.json.decode(b"{" + rest, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return verb.strip()
    shown = {key: "[REDACTED]" if key.lower() in _SECRETS else value for key, value in said.items()}
    return b"CONNECT " + msgspec.json.encode(shown)

"""What JetStream tells about itself on `$JS.EVENT.ADVISORY.…`, in the account it is about.

An advisory is built only when somebody listens: a client, or a stream that captures its subject.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from jetlake.broker.account import Account
from jetlake.broker.client_info import client_info
from jetlake.jetstream.host import Host
from jetlake.subjects import decode_subject, encode_subject
from jetlake.wire.go_time import format_time
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.broker.subscription import Msg

ADVISORY_PREFIX = "$JS.EVENT.ADVISORY."
_TYPE = "io.nats.jetstream.advisory.v1."
_AUDIT = b"$JS.EVENT.ADVISORY.API"
_ID_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_SIZE = 22


def new_id() -> str:
    """A name that nothing else has, shaped as NATS shapes them."""
    return "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_SIZE))


def is_heard(account: Account, subject: bytes) -> bool:
    """Whether an advisory on this subject would reach anybody."""
    return account.has_interest(subject) or account.capture_of(subject) is not None


def send_advisory(account: Account, host: Host, subject: str, type: str, fields: dict[str, Any]) -> None:
    """Tell whoever listens on `$JS.EVENT.ADVISORY.<subject>`."""
    full = encode_subject(ADVISORY_PREFIX + subject)
    if is_heard(account, full):
        account.send(full, encode_event(host, _TYPE + type, fields))


def encode_event(host: Host, type: str, fields: dict[str, Any]) -> bytes:
    """An event with what all events have."""
    event = {"type": type, "id": new_id(), "timestamp": format_time(host.clock()), **fields}
    if host.options.jetstream.domain:
        event["domain"] = host.options.jetstream.domain
    return encode_json(event)


_STREAM_EVENTS = {"create": "CREATED", "delete": "DELETED", "modify": "UPDATED"}


def stream_action(account: Account, host: Host, stream: str, action: str) -> None:
    """A stream was made, changed or removed: `action` is create, modify or delete."""
    subject = f"STREAM.{_STREAM_EVENTS[action]}.{stream}"
    send_advisory(account, host, subject, "stream_action", {"stream": stream, "action": action})


def api_audit(account: Account, host: Host, msg: Msg, response: bytes) -> None:
    """A request was answered."""
    if not is_heard(account, _AUDIT):
        return
    fields: dict[str, Any] = {"server": host.server_name}
    if msg.client is not None:
        fields["client"] = {**client_info(msg.client), "server": host.server_name}
    fields["subject"] = decode_subject(msg.subject).encode("utf-8", "replace").decode()
    if msg.payload:
        fields["request"] = msg.payload.decode("utf-8", "replace")
    fields["response"] = response.decode()
    account.send(_AUDIT, encode_event(host, _TYPE + "api_audit", fields))


def assigned_audit(account: Account, host: Host, client: dict[str, Any], subject: str, response: bytes) -> None:
    """A request was answered that came by way of an assignment: what it said is not known here."""
    if subject and is_heard(account, _AUDIT):
        fields = {"server": host.server_name, "client": client, "subject": subject, "response": response.decode()}
        account.send(_AUDIT, encode_event(host, _TYPE + "api_audit", fields))

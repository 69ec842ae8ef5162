"""The HTTP request with which a WebSocket begins, and the answers to it.

The checks, their order and the answers are nats-server's. Nobody is refused for what it offers beyond that: protocols
are not looked at, and of the extensions only permessage-deflate is known, whatever its parameters are.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from jetlake.config import WebOrigin, read_origin
from jetlake.errors import JetLakeError
from jetlake.wire.http_head import BadHead, Head, read_head

LEAF_PATH, MQTT_PATH = "/leafnode", "/mqtt"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_SIZE = 16
_DEFLATE = "permessage-deflate"


class Refused(JetLakeError):
    """A request that does not become a WebSocket, and the status to answer with."""

    def __init__(self, status: HTTPStatus, problem: str) -> None:
        super().__init__(f"websocket handshake error: {problem}")
        self.status = status

    def answer(self) -> bytes:
        """What the peer is told."""
        body = f"{self.status.phrase}\n"
        return (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Sec-Websocket-Version: 13\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
        ).encode()


class Rules(NamedTuple):
    """What a listener demands and offers."""

    is_secure: bool = False
    same_origin: bool = False
    allowed_origins: frozenset[WebOrigin] = frozenset()  # none: all
    compression: bool = False
    headers: Mapping[str, str] = {}


class Upgrade(NamedTuple):
    """A request that becomes a WebSocket."""

    path: str
    answer: bytes
    is_compressed: bool
    is_masked: bool
    is_browser: bool
    is_safari: bool
    cookies: dict[str, str]
    forwarded_for: str  # the address that a proxy tells of; may be empty


def upgrade(request: bytes, rules: Rules) -> Upgrade:
    """Check a request. Raises Refused."""
    try:
        head = read_head(request)
        path = urlsplit(head.target).path
    except (BadHead, ValueError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None
    if path.endswith(MQTT_PATH):
        raise Refused(HTTPStatus.NOT_FOUND, "mqtt websocket endpoint not enabled")
    key = _check(head)
    problem = _origin_problem(head, rules)
    if problem:
        raise Refused(HTTPStatus.FORBIDDEN, f"origin not allowed: {problem}")
    is_compressed = rules.compression and _offers_deflate(head)
    is_masked = head.get("nats-no-masking") != "true"
    agent = head.get("user-agent")
    is_browser = agent.startswith("Mozilla/")
    return Upgrade(
        path,
        _accept(key, is_compressed, is_masked, rules.headers),
        is_compressed,
        is_masked,
        is_browser,
        is_browser and "Version/" in agent and "Safari/" in agent,  # what Chrome says has no version
        _cookies(head),
        _address(head.get("x-forwarded-for")),
    )


def _check(head: Head) -> str:
    """The key of a request that is one for a WebSocket."""
    if head.method != "GET":
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "request method must be GET")
    if not head.get("host"):
        raise Refused(HTTPStatus.BAD_REQUEST, "'Host' missing in request")
    for name, value in (("Upgrade", "websocket"), ("Connection", "upgrade")):
        if value not in map(str.lower, head.items(name.lower())):
            raise Refused(HTTPStatus.BAD_REQUEST, f"invalid value for header '{name}'")
    key = head.get("sec-websocket-key")
    if not key:
        raise Refused(HTTPStatus.BAD_REQUEST, "key missing")
    try:
        is_key = len(base64.b64decode(key, validate=True)) == _KEY_SIZE
    except (binascii.Error, ValueError):
        is_key = False
    if not is_key:
        raise Refused(HTTPStatus.BAD_REQUEST, "invalid websocket key")
    if "13" not in head.items("sec-websocket-version"):
        raise Refused(HTTPStatus.BAD_REQUEST, "invalid version")
    return key


def _origin_problem(head: Head, rules: Rules) -> str:
    """Why a page of this origin may not connect; nothing when it may. Who names no origin is no browser."""
    text = head.get("origin") or head.get("sec-websocket-origin")
    if not text or not (rules.same_origin or rules.allowed_origins):
        return ""
    try:
        origin = read_origin(text)
        own = read_origin(f"{'https' if rules.is_secure else 'http'}://{head.get('host')}")
    except ValueError as error:
        return str(error)
    if rules.same_origin and origin != own:
        return "not same origin"
    if rules.allowed_origins and origin not in rules.allowed_origins:
        return "not in the allowed list"
    return ""


def _offers_deflate(head: Head) -> bool:
    return any(
        parameter.strip(" \t").lower() == _DEFLATE
        for extension in head.items("sec-websocket-extensions")
        for parameter in extension.split(";")
    )


def accept_key(key: str) -> str:
    """What a server answers to a key, to prove that it speaks WebSocket."""
    return base64.b64encode(hashlib.sha1(key.encode("latin-1") + _GUID).digest()).decode()


def _accept(key: str, is_compressed: bool, is_masked: bool, headers: Mapping[str, str]) -> bytes:
    fields = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    fields.append(f"Sec-WebSocket-Accept: {accept_key(key)}")
    if is_compressed:
        fields.append(f"Sec-WebSocket-Extensions: {_DEFLATE}; server_no_context_takeover; client_no_context_takeover")
    if not is_masked:
        fields.append("Nats-No-Masking: true")
    fields += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*fields, "", ""]).encode("utf-8", "replace")


def _cookies(head: Head) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in head.fields.get("cookie", ()):
        for pair in text.split(";"):
            name, separator, value = pair.strip().partition("=")
            if separator:
                found[name.strip()] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value


def _address(text: str) -> str:
    try:
        ip_address(text)
    except ValueError:
        return ""
    return text

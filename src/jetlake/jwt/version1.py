"""Tokens of version 1, read as tokens of version 2.

In version 1 the kind of a token, its tags and the account of a signing key stand beside `nats`, an account knows no
streams, and a user has no limits where it names none. The signature is over the claims alone.
"""

from __future__ import annotations

from typing import Any

VERSION = 1
_NO_LIMIT = -1
_LIMITS = ("subs", "data", "payload", "imports", "exports", "wildcards", "disallow_bearer", "conn", "leaf")
_FIELDS = {
    "operator": ("signing_keys", "account_server_url", "operator_service_urls", "system_account"),
    "account": ("imports", "exports", "signing_keys", "revocations"),
    "user": ("pub", "sub", "resp", "src", "times", "times_location", "subs", "data", "payload", "bearer_token"),
    "activation": ("subject",),
}


def is_version1(found: Any) -> bool:
    """True for claims that say their kind at the top."""
    return isinstance(found, dict) and isinstance(found.get("type"), str) and found["type"] != ""


def migrated(found: dict[str, Any]) -> dict[str, Any]:
    """Claims of version 1 in the shape of version 2; what version 2 does not know is left out."""
    kind, body = found["type"], found.get("nats")
    body = body if isinstance(body, dict) else {}
    nats = {name: body[name] for name in _FIELDS.get(kind, ()) if name in body}
    if kind == "account":
        limits = body.get("limits")
        limits = limits if isinstance(limits, dict) else {}
        nats["limits"] = {name: limits[name] for name in _LIMITS if name in limits}
    if kind == "user":
        nats = dict.fromkeys(("subs", "data", "payload"), _NO_LIMIT) | nats
    if kind == "activation" and "type" in body:
        nats["kind"] = body["type"]
    if kind in ("user", "activation") and "issuer_account" in found:
        nats["issuer_account"] = found["issuer_account"]
    if "tags" in found:
        nats["tags"] = found["tags"]
    return {**found, "nats": {**nats, "type": kind, "version": VERSION}}

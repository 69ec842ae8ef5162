"""The options of a page in a JSON request, read as Go's decoder does, with its words for what is wrong.

A request may have more fields than these (which servers are to answer, for one); they are not looked at.
"""

from __future__ import annotations

from typing import Any

from jetlake.jetstream.json_shape import BOOL, INT, STRING, STRINGS, UINT64, BadShape, Integer, Place, Shape, Struct
from jetlake.jetstream.json_syntax import BadJson, parse_value
from jetlake.server.observe.query import BadQuery, Query

_PAGING: dict[str, Shape] = {"offset": INT, "limit": INT}
_SUBSCRIPTIONS: dict[str, Shape] = {"subscriptions": BOOL, "subscriptions_detail": BOOL}
_STATES = {0: "open", 1: "closed", 2: "all"}

# The fields of each page; a page that is not here has no options.
_FIELDS: dict[str, dict[str, Shape]] = {
    "Connz": {
        **_PAGING,
        **_SUBSCRIPTIONS,
        "sort": STRING,
        "auth": BOOL,
        "cid": UINT64,
        "mqtt_client": STRING,
        "state": Integer("server.ConnState", 64),
        "user": STRING,
        "acc": STRING,
        "filter_subject": STRING,
    },
    "Subsz": {**_PAGING, "subscriptions": BOOL, "account": STRING, "test": STRING},
    "Jsz": {
        **_PAGING,
        **dict.fromkeys(("accounts", "streams", "consumer", "config", "leader_only", "raft"), BOOL),
        "account": STRING,
    },
    "Accountz": {"account": STRING},
    "AccountStatz": {"accounts": STRINGS, "include_unused": BOOL},
    "Healthz": {
        **dict.fromkeys(("js-enabled", "js-enabled-only", "js-server-only", "js-meta-only", "details"), BOOL),
        **dict.fromkeys(("account", "stream", "consumer"), STRING),
    },
    "Routez": _SUBSCRIPTIONS,
    "Leafz": {"subscriptions": BOOL, "account": STRING},
}
_SHAPES = {page: Struct(f"{page}EventOptions", fields) for page, fields in _FIELDS.items()}
# What the same options are called in a URL, where they have another name.
_NAMES = {"account": "acc", "subscriptions": "subs", "consumer": "consumers", "include_unused": "unused"}


class BadJsonOptions(BadQuery):
    """A request for a page that is not JSON, or not of its shape."""


def read_options(page: str, payload: bytes) -> Query:
    """The options in a request for a page (`Connz`). Raises BadJsonOptions."""
    if not payload:
        return Query({})
    shape = _SHAPES.get(page) or Struct(f"{page}EventOptions", {})
    try:
        node = parse_value(payload)
        found: dict[str, Any] = shape.read(node, Place(shape.go_name), False) if node.kind != "null" else {}
    except (BadJson, BadShape) as error:
        raise BadJsonOptions(str(error)) from None
    names = {} if page == "Healthz" else _NAMES
    values = {names.get(name, name): value for name, value in found.items()}
    if values.get("subscriptions_detail"):
        values["subs"] = "detail"
    if "state" in values:
        values["state"] = _STATES.get(values["state"], str(values["state"]))
    return Query(values)

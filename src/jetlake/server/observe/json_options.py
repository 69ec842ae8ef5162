"""The options of a page in a JSON request, read as Go's decoder does, with its words for what is wrong.

A request may also say what a server has to be like to answer (`matches`). Other fields are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetlake.jetstream.json.shape import BOOL, INT, STRING, STRINGS, UINT64, BadShape, Integer, Place, Shape, Struct
from jetlake.jetstream.json.syntax import BadJson, parse_value
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


_FILTERS = Struct(
    "EventFilterOptions",
    {
        **dict.fromkeys(("server_name", "cluster", "host", "domain"), STRING),
        "exact_match": BOOL,
        "tags": STRINGS,
    },
)


class BadJsonOptions(BadQuery):
    """A request for a page that is not JSON, or not of its shape."""


def matches(identity: Mapping[str, Any], payload: bytes) -> bool:
    """True when a request is for a server like this one: by parts of its names, or all of them, and by its tags."""
    try:
        wanted: dict[str, Any] = _FILTERS.read(parse_value(payload), Place(_FILTERS.go_name), False) if payload else {}
    except (BadJson, BadShape):
        return True  # who reads the options says what is wrong
    names = {"server_name": "name", "cluster": "cluster", "host": "host", "domain": "domain"}
    for option, field in names.items():
        text, own = wanted.get(option, ""), identity.get(field, "")
        if text and (text != own if wanted.get("exact_match") else text not in own):
            return False
    own_tags = {tag.lower() for tag in identity.get("tags", ())}
    return all(tag.lower() in own_tags for tag in wanted.get("tags") or ())


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

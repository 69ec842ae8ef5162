"""JSON as the server says it, whatever clients put into it.

Names and subjects may be any bytes. Within the server those that are not UTF-8 are surrogates (see `jetlake.subjects`);
JSON shows U+FFFD for each, as Go's encoder does.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_SURROGATE = re.compile("[\ud800-\udfff]")


def encode_json(value: object) -> bytes:
    """The JSON of a value."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(readable(msgspec.to_builtins(value, enc_hook=_parsed)))


def _parsed(part: object) -> Any:
    """A part that is JSON already."""
    if isinstance(part, msgspec.Raw):
        return msgspec.json.decode(part)
    raise TypeError(f"{type(part).__name__} has no JSON form")


def readable(value: Any) -> Any:
    """A text, or whatever JSON can hold, with U+FFFD for what is no character."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {readable(key): readable(item) for key, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list) else value

"""Where a job reads from or writes to: a directory or a server, as the options of the data source."""

from __future__ import annotations

from jetlake.table.errors import BadOption

_SCHEMES = ("nats://", "tls://")


def is_url(place: str) -> bool:
    """Whether a place is a server and not a directory."""
    return place.startswith(_SCHEMES)


def source_options(place: str, stream: str = "", account: str = "", more: tuple[str, ...] = ()) -> dict[str, str]:
    """Options for a place (a directory or a url); `more` are texts like onGap=report, which go on top."""
    options = {"url" if is_url(place) else "path": place}
    if stream:
        options["stream"] = stream
    if account:
        options["account"] = account
    for text in more:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise BadOption(f"{text!r} is not an option like onGap=report")
        options[name] = value
    return options

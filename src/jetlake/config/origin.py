"""Origins: the scheme, host and port of a web page."""

from __future__ import annotations

from typing import NamedTuple


class WebOrigin(NamedTuple):
    """Where a web page comes from."""

    scheme: str
    host: str
    port: int


def read_origin(text: str) -> WebOrigin:
    """Read `https://host:port`, where the port may be left out. Raises ValueError."""
    from urllib.parse import urlsplit  # few servers have origins, and all wait for what is imported

    url = urlsplit(text)
    if url.scheme not in ("http", "https"):
        raise ValueError(f"{text!r} is not an absolute URL with http or https scheme")
    if not url.hostname:
        raise ValueError(f"{text!r}: host is required")
    return WebOrigin(url.scheme, url.hostname, url.port or (443 if url.scheme == "https" else 80))

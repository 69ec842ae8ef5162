"""Where a syslog server is: `udp://host:514`, `tcp://host:514` or `unix:///dev/log`."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

PORT_DEFAULT = 514
_SCHEMES = ("udp", "tcp", "unix")


def split_syslog_url(text: str) -> SplitResult:
    """The parts of a URL. Raises ValueError."""
    url = urlsplit(text)
    if url.scheme not in _SCHEMES:
        raise ValueError(f'error invalid network type: "{url.scheme}"; expected udp://, tcp:// or unix://')
    if not (url.path if url.scheme == "unix" else url.hostname) or (url.port or 1) < 1:
        raise ValueError(f"{text!r} names no syslog server")
    return url


def check_syslog_url(text: str) -> str:
    """The URL, if it is one; empty is no server. Raises ValueError."""
    if text:
        split_syslog_url(text)
    return text

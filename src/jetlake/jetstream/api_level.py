"""The level of the JetStream API that a request may ask for."""

from __future__ import annotations

from jetlake.wire.headers import header_value

API_LEVEL = 5  # of the nats-server whose behaviour clients may count on


def exceeds_api_level(headers: bytes) -> bool:
    """Whether a request asks for a newer API than this one, or for something that is no level."""
    level = header_value(headers, b"Nats-Required-Api-Level") if headers else None
    if not level:
        return False
    try:
        return int(level) > API_LEVEL
    except ValueError:
        return True

"""The origins of web pages."""

from __future__ import annotations

import pytest

from jetlake.config.origin import WebOrigin, read_origin


def test_ports_are_filled_in() -> None:
    assert read_origin("http://A.com") == WebOrigin("http", "a.com", 80)
    assert read_origin("https://a.com/") == WebOrigin("https", "a.com", 443)
    assert read_origin("http://[::1]:81") == WebOrigin("http", "::1", 81)


@pytest.mark.parametrize("text", ["", "a.com", "null", "ws://a.com", "http://", "http://a.com:x", "http://a:99999"])
def test_other_texts_are_no_origin(text: str) -> None:
    with pytest.raises(ValueError):
        read_origin(text)

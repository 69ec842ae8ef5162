from __future__ import annotations

import pytest

from jetlake.server.trace import redacted


@pytest.mark.parametrize(
    "line",
    [
        b'CONNECT {"user":"a","pass":"hush"}',
        b'connect\t{"auth_token":"hush"}',
        b'CONNECT {"p\\u0061ss":"hush"}',
        b'CONNECT {"PASS":"hush"}',
        b'CONNECT {"sig":"hush","jwt":"hush","nkey":"hush"}',
        b'CONNECT {"pass":"hush',
    ],
)
def test_secrets_are_not_shown(line: bytes) -> None:
    assert b"hush" not in redacted(line)


def test_the_rest_of_a_connect_is_shown() -> None:
    assert redacted(b'CONNECT {"user":"a","pass":"x","verbose":false}') == (
        b'CONNECT {"user":"a","pass":"[REDACTED]","verbose":false}'
    )


def test_other_lines_are_shown_as_they_are() -> None:
    assert redacted(b'SUB {"pass":1} 1') == b'SUB {"pass":1} 1'


@pytest.mark.parametrize("body", [b'{"name":"\xff"}', b'{"x":' + b"[" * 100_000, b"{"])
def test_a_connect_that_cannot_be_read_is_not_shown(body: bytes) -> None:
    assert redacted(b"CONNECT " + body) == b"CONNECT"

"""Where a client comes from, and what its cookies add to its CONNECT."""

from __future__ import annotations

from jetlake.broker.endpoint import WEBSOCKET, Endpoint
from jetlake.wire.verbs import ConnectOptions


def test_cookies_add_what_is_missing() -> None:
    endpoint = Endpoint("1.1.1.1", 1, WEBSOCKET, {"user": "cookie", "password": "c", "jwt": ""})
    completed = endpoint.complete(ConnectOptions(user="said", verbose=False))
    assert completed == ConnectOptions(user="said", password="c", verbose=False)


def test_nothing_is_added_without_cookies() -> None:
    options = ConnectOptions(user="said")
    assert Endpoint("1.1.1.1", 1).complete(options) is options


def test_a_proxy_is_shown_beside_the_address() -> None:
    assert str(Endpoint("1.1.1.1", 1)) == "1.1.1.1:1"
    assert str(Endpoint("1.1.1.1", 1, WEBSOCKET, {}, "2.2.2.2")) == "2.2.2.2/1.1.1.1:1"

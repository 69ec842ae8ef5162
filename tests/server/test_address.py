from __future__ import annotations

import socket

import pytest

from jetlake.server.address import ListenFailed, join, listen, peer_of, port_of, urls


def test_a_random_port_is_a_port() -> None:
    with listen("127.0.0.1", -1) as sock:
        assert port_of(sock) > 0


def test_a_port_in_use_is_named() -> None:
    with listen("127.0.0.1", -1) as sock:
        port = port_of(sock)
        with pytest.raises(ListenFailed, match=f"127.0.0.1:{port}.*address already in use"):
            listen("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ListenFailed, match=r"192\.0\.2\.77"):
        listen("192.0.2.77", -1)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_wildcard_takes_ipv4(host: str) -> None:
    with listen(host, -1) as sock, socket.create_connection(("127.0.0.1", port_of(sock)), timeout=5):
        pass


def test_a_wildcard_takes_ipv6_too() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return  # this machine has no IPv6
    with listen("0.0.0.0", -1) as sock, socket.create_connection(("::1", port_of(sock)), timeout=5):
        pass


def test_an_ipv4_peer_of_a_socket_for_both_families_shows_its_own_address() -> None:
    assert peer_of(("::ffff:10.0.0.1", 5, 0, 0)) == ("10.0.0.1", 5)
    assert peer_of(("fe80::1", 5, 0, 0)) == ("fe80::1", 5)
    assert peer_of(None) == ("", 0)


def test_addresses_are_written_as_urls_want_them() -> None:
    assert join("::1", 4222) == "[::1]:4222" and join("localhost", 1) == "localhost:1"
    assert urls("nats", "0.0.0.0", 1) == ["nats://127.0.0.1:1", "nats://[::1]:1"]
    assert urls("tls", "10.0.0.1", 1) == ["tls://10.0.0.1:1"]

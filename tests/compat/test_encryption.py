"""Encryption at rest: what a key that comes later, another key and a wrong key do."""

from __future__ import annotations

import pytest

from tests.compat.conftest import Start
from tests.compat.peer import Peer
from tests.compat.servers import Server


def config(key: str = "", prev_key: str = "", cipher: str = "chachapoly") -> str:
    keys = [f"encryption_key: {key}"] * bool(key) + [f"prev_encryption_key: {prev_key}"] * bool(prev_key)
    return f"jetstream {{ {', '.join([*keys, f'cipher: {cipher}'])} }}"


def restart(server: Server, text: str, ending: str = "stop") -> Peer:
    server.stop() if ending == "stop" else server.kill()
    server.config = text
    return Peer(server.start())


def fill(peer: Peer) -> None:
    peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for number in range(20):
        peer.request(f"s.{number}", b"readable %d" % number)


def files(server: Server) -> bytes:
    return b"".join(path.read_bytes() for path in server.store.rglob("*") if path.is_file())


@pytest.mark.parametrize("ending", ["stop", "kill"])
@pytest.mark.parametrize("cipher", ["chachapoly", "aes"])
def test_a_key_that_comes_later_encrypts_what_is_stored(start: Start, cipher: str, ending: str) -> None:
    server = start(config(), "-js")
    with Peer(server) as peer:
        fill(peer)
    with restart(server, config("one", cipher=cipher), ending) as peer:
        assert peer.api("STREAM.INFO.S")["state"]["messages"] == 20
        assert peer.request("s.0", b"readable too").json == {"stream": "S", "seq": 21}
        assert b"readable" not in files(server)


@pytest.mark.parametrize("text", [config("other"), config()], ids=["wrong", "none"])
def test_a_wrong_key_opens_nothing_and_the_right_one_finds_all_again(start: Start, text: str) -> None:
    server = start(config("one"), "-js")
    with Peer(server) as peer:
        fill(peer)
    with restart(server, text) as peer:
        assert "error" in peer.api("STREAM.INFO.S")
    with restart(server, config("one")) as peer:
        assert peer.api("STREAM.INFO.S")["state"]["messages"] == 20


def test_a_key_is_changed_with_the_one_before_beside_it(start: Start) -> None:
    server = start(config("one"), "-js")
    with Peer(server) as peer:
        fill(peer)
    with restart(server, config("two", "one")) as peer:
        assert peer.api("STREAM.INFO.S")["state"]["messages"] == 20
    with restart(server, config("one")) as peer:
        assert "error" in peer.api("STREAM.INFO.S")
    with restart(server, config("two")) as peer:
        assert peer.api("STREAM.INFO.S")["state"]["messages"] == 20

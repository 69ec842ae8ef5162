"""Counting subscribers, and requests that make no sense."""

from __future__ import annotations

import pytest

from jetlake.server.system_control import Asked, NoSuchClient, kick, lame_duck, read_asked, subscribers
from tests.server.harness import Peer, running


async def test_patterns_count_what_they_cover() -> None:
    async with running() as server:
        peer = await Peer.connect(server)
        await peer.ask("SUB a.b 1\r\nSUB a.* 2\r\nSUB a.> q 3\r\nSUB b 4\r\n")
        account = server.broker.default_account
        for subject, queue, count in (
            ("a.b", None, 3),
            ("a.*", None, 2),
            ("a.>", b"q", 1),
            ("b", None, 1),
            ("..", None, 0),
        ):
            assert sum(subscribers(Asked(account, subject, queue))) == count, subject


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"cid":"x"}', b'{"cid":-1}'])
async def test_requests_that_make_no_sense_do_nothing(payload: bytes) -> None:
    async with running() as server:
        assert not kick(server, payload) and not lame_duck(server, payload)
        assert read_asked(server, payload) is None


async def test_somebody_who_is_not_there_is_told_of() -> None:
    async with running() as server:
        for act in (kick, lame_duck):
            with pytest.raises(NoSuchClient):
                act(server, b'{"cid": 7}')

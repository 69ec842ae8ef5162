"""The server that tests and experiments run in a process of its own."""

from __future__ import annotations

from pathlib import Path

import nats
import pytest

from jetlake.testing.server import ServerFailed, run_server


async def test_a_server_keeps_its_messages_from_one_run_to_the_next(tmp_path: Path) -> None:
    with run_server(tmp_path) as url:
        client = await nats.connect(url)
        await client.jetstream().add_stream(name="S", subjects=["s"])
        await client.jetstream().publish("s", b"x")
        await client.close()
    with run_server(tmp_path) as url:
        client = await nats.connect(url)
        assert (await client.jetstream().stream_info("S")).state.messages == 1
        await client.close()


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="nosuchflag"), run_server(tmp_path, "--nosuchflag"):
        pass

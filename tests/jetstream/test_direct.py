from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetlake.jetstream.api.direct import SLICE_COUNT
from tests.jetstream.harness import InProcess

COUNT = 3 * SLICE_COUNT


@pytest.fixture
def on(tmp_path: Path) -> Iterator[InProcess]:
    on = InProcess(str(tmp_path))
    config = {"name": "S", "subjects": ["s.*"], "storage": "file", "allow_direct": True}
    on.request("$JS.API.STREAM.CREATE.S", json.dumps(config).encode())
    for number in range(COUNT):
        on.account.send(f"s.{number}".encode(), b"x")
    on.host.settle()
    yield on
    on.stop()


class Reader:
    """Somebody who asks for a batch, and what came so far."""

    def __init__(self, on: InProcess, **body: object) -> None:
        self.came: list[bytes] = []
        self.sub = on.account.subscribe(b"batch", lambda msg: self.came.append(msg.headers))
        on.account.send(b"$JS.API.DIRECT.GET.S", json.dumps(body).encode(), reply=b"batch")


@pytest.mark.parametrize("body", [{"seq": 1, "batch": 10**9}, {"multi_last": ["s.*"], "batch": COUNT}])
def test_a_batch_is_sent_a_slice_at_a_time(on: InProcess, body: dict[str, object]) -> None:
    reader = Reader(on, **body)
    assert len(reader.came) == SLICE_COUNT
    on.host.settle()
    assert len(reader.came) == COUNT + 1
    assert reader.came[-1].startswith(b"NATS/1.0 204 EOB")


def test_a_batch_ends_when_nobody_listens_any_more(on: InProcess) -> None:
    reader = Reader(on, seq=1, batch=10**9)
    on.account.unsubscribe(reader.sub)
    on.host.settle()
    assert len(reader.came) == SLICE_COUNT


def test_a_message_that_is_removed_meanwhile_is_left_out(on: InProcess) -> None:
    reader = Reader(on, multi_last=["s.*"], batch=COUNT)
    on.js.streams["S"].purge("s.200")
    on.host.settle()
    assert len(reader.came) == COUNT
    assert reader.came[-1].startswith(b"NATS/1.0 204 EOB")


def test_a_batch_ends_with_its_stream(on: InProcess) -> None:
    reader = Reader(on, seq=1, batch=10**9)
    assert json.loads(on.request("$JS.API.STREAM.DELETE.S")[0][1])["success"]
    assert len(reader.came) <= 2 * SLICE_COUNT

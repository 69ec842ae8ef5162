"""Compaction through the API of a running server."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from jetlake.jetstream.streams.stream import Stream
from jetlake.store import FileStore
from tests.jetstream.harness import InProcess

COMPACT = "$JETLAKE.API.STREAM.COMPACT."


@pytest.fixture(autouse=True)
def thrifty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks are worth rewriting, too."""
    monkeypatch.setattr(FileStore, "rewrite_size_min", 100)


class Bench(InProcess):
    """One stream with sealed blocks of which a third is dead."""

    def fill(self, block_count: int = 3, storage: str = "file") -> Stream:
        config = {"name": "S", "subjects": ["s"], "storage": storage}
        self.request("$JS.API.STREAM.CREATE.S", json.dumps(config).encode())
        stream: Stream = self.js.streams["S"]
        for _ in range(block_count):
            first = stream.last_seq + 1
            for _ in range(30):
                self.request("s", b"x" * 100)
            for seq in range(first, first + 30, 3):
                self.request("$JS.API.STREAM.MSG.DELETE.S", b'{"no_erase":true,"seq":%d}' % seq)
            if isinstance(stream.store, FileStore):
                stream.store.seal_active()
        self.host.settle()
        return stream

    def ask(self, payload: bytes = b"", stream: str = "S") -> dict[str, Any]:
        ((_, answer),) = self.request(COMPACT + stream, payload)
        found: dict[str, Any] = json.loads(answer)
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(str(tmp_path))


def test_blocks_are_written_anew_and_the_answer_says_so(bench: Bench, tmp_path: Path) -> None:
    stream = bench.fill()
    state = stream.store.state()
    answer = bench.ask(b'{"dead":0.1}')
    assert answer.pop("type") == "io.nats.jetstream.api.v1.stream_compact_response"
    assert answer["blocks"] == 3 and answer["size_after"] < answer["size_before"]
    assert stream.store.state() == state
    assert bench.ask() == {**bench.ask(b'{"dead":1}'), "blocks": 0}
    bench.stop()
    assert Bench(str(tmp_path)).js.streams["S"].store.state() == state


def test_the_answer_waits_for_the_last_commit_and_publishing_does_not(bench: Bench) -> None:
    stream = bench.fill()
    answers: list[bytes] = []
    bench.account.subscribe(b"in.*", lambda msg: answers.append(msg.subject))
    bench.account.send(COMPACT.encode() + b"S", b"{}", reply=b"in.compacted")
    for number in range(3):
        bench.account.send(b"s", b"during", reply=b"in.%d" % number)
        commit = stream.log.prepare_commit()
        assert commit.rewrite is not None
        commit.run()
        stream.log.complete_commit(commit)
        assert b"in.%d" % number in answers and (b"in.compacted" in answers) == (number == 2)


def test_a_stream_in_memory_has_no_blocks_to_write(bench: Bench) -> None:
    bench.fill(storage="memory")
    answer = bench.ask()
    assert answer["blocks"] == 0 and answer["size_before"] == answer["size_after"] > 0


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b'{"dead":1.5}', "dead is 1.5, not a number from 0 to 1"),
        (b'{"dead":-0.1}', "not a number from 0 to 1"),
        (b'{"dead":1e999}', "not a number from 0 to 1"),
        (b'{"dead":"x"}', "cannot unmarshal string"),
        (b'{"dead":', "unexpected EOF"),
        (b"nope", "invalid character"),
        (b'{"alive":1}', "unknown field"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(bench: Bench, payload: bytes, text: str) -> None:
    bench.fill(1)
    error = bench.ask(payload)["error"]
    assert error["err_code"] == 10025 and text in error["description"]


def test_a_stream_that_is_not_there(bench: Bench) -> None:
    assert bench.ask(stream="NOPE")["error"]["err_code"] == 10059


def test_a_disk_that_fails_is_told(bench: Bench) -> None:
    stream = bench.fill()
    bench.host.fails = OSError(errno.ENOSPC, "full")
    assert bench.ask()["error"]["err_code"] == 10023
    bench.host.fails = None
    assert stream.log.problem is not None and bench.ask()["error"]["err_code"] == 10023  # before it is opened again
    bench.host.timers[-1].callback()
    assert bench.ask()["blocks"] == 3


@pytest.mark.parametrize("how", ["stop", "delete"])
def test_a_stream_that_ends_ends_its_compaction(bench: Bench, how: str) -> None:
    stream = bench.fill(5)
    answers: list[Any] = []
    bench.account.subscribe(b"in", lambda msg: answers.append(json.loads(msg.payload)))
    bench.account.send(COMPACT.encode() + b"S", reply=b"in")
    if how == "stop":
        bench.service.close()
        bench.host.settle()
    else:
        bench.account.send(b"$JS.API.STREAM.DELETE.S", reply=b"elsewhere")
        bench.host.settle()
    (answer,) = answers
    assert answer["error"]["err_code"] == 10077
    assert not isinstance(stream.store, FileStore) or how == "delete" or stream.store.has_more

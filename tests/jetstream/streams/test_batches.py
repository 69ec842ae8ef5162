"""Batches inside one server: what a failed commit, a full memory and the end of a stream mean for them."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from jetlake.jetstream.streams import atomic_batches
from jetlake.jetstream.streams.fast_batches import Place, parse_reply
from tests.jetstream.harness import FakeHost, InProcess


class Bench(InProcess):
    """A stream that takes batches."""

    def __init__(self, directory: Path, **config: Any) -> None:
        super().__init__(str(directory), FakeHost())
        config = {"name": "S", "subjects": ["s.>"], "allow_atomic": True, "allow_batched": True, **config}
        self.request("$JS.API.STREAM.CREATE.S", json.dumps(config).encode())

    @property
    def stream(self) -> Any:
        return self.js.streams["S"]

    @property
    def open_batches(self) -> tuple[int, int, int]:
        found = self.service.open_batches
        return found.atomic_count, found.fast_count, found.held_size

    def member(self, batch: str, seq: int, commit: bool = False, payload: bytes = b"x") -> list[Any]:
        """Send a member; the answers, empty ones as None."""
        last = "Nats-Batch-Commit: 1\r\n" if commit else ""
        headers = f"NATS/1.0\r\nNats-Batch-Id: {batch}\r\nNats-Batch-Sequence: {seq}\r\n{last}\r\n".encode()
        answers = self.request("s.a", payload, headers)
        return [json.loads(answer) if answer else None for _, answer in answers]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_batch_whose_commit_fails_is_refused_and_not_there(bench: Bench) -> None:
    bench.member("b", 1)
    bench.host.fails = OSError(errno.EIO, "bad disk")
    (answer,) = bench.member("b", 2, commit=True)
    assert answer["error"]["err_code"] == 10077 and answer["seq"] == 0
    bench.host.fails = None
    for timer in list(bench.host.timers):
        timer.callback()
    assert bench.stream.last_seq == 0 and bench.open_batches == (0, 0, 0)
    bench.member("b", 1)
    (answer,) = bench.member("b", 2, commit=True)
    assert (answer["seq"], answer["count"]) == (2, 2)


def test_members_in_memory_have_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_batches, "HELD_SIZE_MAX", 5000)
    assert bench.member("a", 1) == [None]
    assert bench.member("b", 1) == [None]
    (answer,) = bench.member("b", 2, payload=b"x" * 5000)
    assert answer["error"]["err_code"] == 10023
    assert bench.member("b", 2)[0]["error"]["err_code"] == 10176
    assert bench.member("a", 2, commit=True)[0]["count"] == 2
    assert bench.open_batches == (0, 0, 0)


def test_a_batch_counts_as_open_until_it_ends_in_any_way(bench: Bench) -> None:
    for number in range(3):
        bench.member(f"b{number}", 1)
    bench.account.send(b"s.a", b"", reply=b"r.f.1.fail.1.0.$FI")
    assert bench.open_batches[:2] == (3, 1)
    bench.member("b0", 2, commit=True)
    bench.member("b1", 5)
    assert bench.open_batches[:2] == (1, 1)
    bench.request("$JS.API.STREAM.DELETE.S")
    assert bench.open_batches == (0, 0, 0)


def test_a_batch_is_given_up_when_nothing_was_heard_of_it(bench: Bench) -> None:
    bench.member("b", 1)
    bench.host.timers[-1].callback()  # too early: it looks again later
    assert bench.open_batches[0] == 1
    bench.stream.atomic_batches._table.batches[b"b"].heard_ns -= 10 * 10**9
    bench.host.timers[-1].callback()
    assert bench.open_batches == (0, 0, 0)


@pytest.mark.parametrize(
    ("reply", "place"),
    [
        (b"p.q.id.10.ok.1.0.$FI", Place(b"id", 10, True, 1, 0, b"p.q.id.10.ok.")),
        (b"p.id.0.fail.12.1.$FI", Place(b"id", 10, False, 12, 1, b"p.id.0.fail.")),
        (b"p.id.99999.fail.2.3.$FI", Place(b"id", 65535, False, 2, 3, b"p.id.99999.fail.")),
        (b"id.10.fail.2.3.$FI", None),
        (b"p.id.10.fail.2.5.$FI", None),
        (b"p.id.10.fail.-2.1.$FI", None),
    ],
)
def test_a_reply_says_where_a_message_belongs(reply: bytes, place: Place | None) -> None:
    assert parse_reply(reply) == place

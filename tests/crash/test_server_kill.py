"""A server under load from several publishers is killed, again and again. What it acknowledged is there, once.

Publishers with message ids send again, after the restart, what was not acknowledged: the stream then holds each of
their messages exactly once. The others never repeat: the stream holds each of theirs at most once, and those
acknowledged at the sequence that was said. `JETLAKE_KILL_ROUNDS` sets the number of rounds.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

from jetlake.store.verify.check import check_store
from tests.compat.peer import Closed, Msg, Peer, header_block, publication
from tests.compat.servers import JETLAKE, Server

ROUNDS = int(os.environ.get("JETLAKE_KILL_ROUNDS", "4"))
ROUNDS_PER_STORE = 20  # then a fresh one: the whole stream is read after each round
WINDOW = 300
STREAMS: dict[str, dict[str, object]] = {"PLAIN": {}, "PACKED": {"compression": "s2"}}


class Publisher(threading.Thread):
    """Publishes to both streams in turn, `WINDOW` messages ahead of the acks, until the server is gone."""

    def __init__(self, server: Server, book: Book) -> None:
        super().__init__(daemon=True)
        self.server, self.book = server, book
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.publish()
        except (OSError, Closed):
            pass  # the server was killed
        except BaseException as error:
            self.error = error

    def publish(self) -> None:
        book = self.book
        with Peer(self.server) as peer:
            peer.subscribe(f"_INBOX.{book.name}.*")
            peer.send(b"".join(book.message(number) for number in book.to_send_again()))
            while True:
                fresh = range(book.next_number, book.next_number + WINDOW - len(book.unacked))
                book.next_number = fresh.stop
                book.unacked.update(fresh)
                peer.send(b"".join(book.message(number) for number in fresh))
                book.note_ack(peer.message())
                while peer.has_frame():
                    book.note_ack(peer.message())


class Book:
    """What one publisher sent and what was acknowledged, over all rounds."""

    def __init__(self, name: str, has_ids: bool) -> None:
        self.name, self.has_ids = name, has_ids
        self.next_number = 0
        self.unacked: set[int] = set()
        self.acked: dict[tuple[str, int], bytes] = {}
        self.duplicates = 0

    def stream(self, number: int) -> str:
        return sorted(STREAMS)[number % len(STREAMS)]

    def payload(self, number: int) -> bytes:
        return b"%s-%d" % (self.name.encode(), number) + b"." * (number * 7 % 200)

    def message(self, number: int) -> bytes:
        headers = header_block(Nats_Msg_Id=f"{self.name}-{number}") if self.has_ids else b""
        subject = f"{self.stream(number)}.{number % 11}"
        return publication(subject, self.payload(number), headers, f"_INBOX.{self.name}.{number}")

    def to_send_again(self) -> list[int]:
        if not self.has_ids:
            self.unacked.clear()  # nobody knows whether they were stored, and nobody may ask twice
        return sorted(self.unacked)

    def note_ack(self, ack: Msg) -> None:
        payload = ack.json
        assert "error" not in payload, payload
        number = int(ack.subject.rpartition(".")[2])
        place = (payload["stream"], payload["seq"])
        assert payload["stream"] == self.stream(number)
        assert place not in self.acked, "two messages were acknowledged with one sequence"
        self.duplicates += bool(payload.get("duplicate"))
        self.acked[place] = self.payload(number)
        self.unacked.discard(number)


@pytest.mark.timeout(300 + 30 * ROUNDS)
def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice(tmp_path: Path) -> None:
    for number in range(0, ROUNDS, ROUNDS_PER_STORE):
        run_rounds(tmp_path / str(number), range(number, min(number + ROUNDS_PER_STORE, ROUNDS)))


def run_rounds(directory: Path, rounds: range) -> None:
    books = [Book(f"p{number}", has_ids=number % 2 == 0) for number in range(4)]
    server = Server(JETLAKE, directory)
    try:
        for number in rounds:
            server.start()
            create_streams(server)
            publish_until_killed(server, books, random.Random(number).uniform(0.05, 0.5))
            server.start()
            check(server, books)
            server.kill()
        finish(server, books)
    finally:
        server.kill()
    for store in directory.rglob("msgs"):
        assert check_store(str(store)).ok


def create_streams(server: Server) -> None:
    with Peer(server) as peer:
        for stream, config in STREAMS.items():
            subjects = {"name": stream, "subjects": [f"{stream}.>"], "allow_direct": True}
            assert "error" not in peer.api(f"STREAM.CREATE.{stream}", {**subjects, **config})


def publish_until_killed(server: Server, books: list[Book], seconds: float) -> None:
    publishers = [Publisher(server, book) for book in books]
    for publisher in publishers:
        publisher.start()
    time.sleep(seconds)
    server.kill()
    for publisher in publishers:
        publisher.join(30)
        assert not publisher.is_alive()
        if publisher.error is not None:
            raise publisher.error


def check(server: Server, books: list[Book]) -> None:
    """Sequences are continuous, acknowledged messages are where they were said to be, and none is there twice."""
    acked = {place: payload for book in books for place, payload in book.acked.items()}
    for stream in STREAMS:
        stored = read_all(server, stream)
        assert len(set(stored)) == len(stored), "a message is stored twice"
        expected = {seq: payload for (name, seq), payload in acked.items() if name == stream}
        assert {seq: stored[seq - 1] for seq in expected if seq <= len(stored)} == expected


def read_all(server: Server, stream: str) -> list[bytes]:
    """All payloads, the first at sequence 1, none missing."""
    payloads: list[bytes] = []
    with Peer(server) as peer:
        state = peer.api(f"STREAM.INFO.{stream}")["state"]
        while len(payloads) < state["last_seq"]:
            request = b'{"seq":%d,"batch":5000}' % (len(payloads) + 1)
            for answer in peer.requests(f"$JS.API.DIRECT.GET.{stream}", request, b"", -1)[:-1]:
                assert b"\r\nNats-Sequence: %d\r\n" % (len(payloads) + 1) in answer.headers
                payloads.append(answer.payload)
        assert state["messages"] == len(payloads) and "num_deleted" not in state and "lost" not in state
    return payloads


def finish(server: Server, books: list[Book]) -> None:
    """Send again what was never acknowledged; then every message with an id is there exactly once."""
    server.start()
    for book in books:
        with Peer(server) as peer:
            peer.subscribe(f"_INBOX.{book.name}.*")
            again = book.to_send_again()
            peer.send(b"".join(book.message(number) for number in again))
            for _ in again:
                book.note_ack(peer.message())
    check(server, books)
    stored = {payload for stream in STREAMS for payload in read_all(server, stream)}
    for book in books:
        if book.has_ids:
            assert {book.payload(number) for number in range(book.next_number)} <= stored
    assert sum(len(book.acked) for book in books) > 100, "there was a load"
    server.stop()

"""A server with busy consumers is killed, again and again. What consumers were told stays true.

Publishers and pulling clients work until the server is gone. Clients acknowledge most messages and ask for an answer,
some without asking, refuse some and forget others. Then, after each restart:
    no message comes again whose ack was answered
    delivered and ack floor are not behind what they were after the restart before, nor behind what was answered
    the ack floor covers no message that was not acknowledged
    a work queue and an interest stream hold what somebody still needs, and nothing that all are done with
and in the end every message that was stored came to every consumer that wants it. `JETLAKE_KILL_ROUNDS` sets the number
of rounds.

One connection serves a consumer with a short ack wait: what it reads comes in the order in which the server decided,
so that a message delivered again just before its ack arrived is told from one delivered after.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jetlake.store.verify.check import check_store
from tests.compat.peer import Closed, Msg, Peer
from tests.compat.servers import JETLAKE, Server, wait_until

ROUNDS = int(os.environ.get("JETLAKE_KILL_ROUNDS", "3"))
ROUNDS_PER_STORE = 20
WINDOW = 60
BATCH = 40
SHORT_WAIT_NS, LONG_WAIT_NS = 300_000_000, 60_000_000_000
STREAMS = {"PLAIN": "limits", "WORK": "workqueue", "INTEREST": "interest"}


class Spec(NamedTuple):
    """A consumer, and how many connections pull from it."""

    stream: str
    name: str
    filter: str
    wait_ns: int
    clients: int

    def wants(self, subject: str) -> bool:
        return self.filter in ("", subject)


SPECS = [
    Spec("PLAIN", "solo", "", SHORT_WAIT_NS, 1),
    Spec("PLAIN", "shared", "", LONG_WAIT_NS, 2),
    Spec("WORK", "worker", "", SHORT_WAIT_NS, 1),
    Spec("INTEREST", "all", "", SHORT_WAIT_NS, 1),
    Spec("INTEREST", "some", "INTEREST.2", LONG_WAIT_NS, 2),
]


class Book:
    """What happened to the messages of one consumer, over all rounds, as its clients saw it."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.seen: set[int] = set()
        self.acked: set[int] = set()  # an ack was sent, and may have arrived
        self.answered: set[int] = set()
        self.delivered_seq = self.floor_seq = 0  # as they were after the last restart
        self.repeated = 0

    def take(self, seq: int) -> None:
        assert seq not in self.answered, f"{self.spec.name}: {seq} came again after its ack was answered"
        self.repeated += seq in self.seen
        self.seen.add(seq)

    def check(self, info: Any, stored: dict[int, str]) -> None:
        """Positions after a restart, given all messages whose publishers were told."""
        delivered_seq, floor_seq = info["delivered"]["stream_seq"], info["ack_floor"]["stream_seq"]
        assert delivered_seq >= max(self.answered, default=0)
        assert delivered_seq >= self.delivered_seq and floor_seq >= self.floor_seq, (self.spec.name, info)
        self.delivered_seq, self.floor_seq = delivered_seq, floor_seq
        covered = {seq for seq in stored if seq <= floor_seq and self.spec.wants(stored[seq])}
        assert covered <= self.acked, f"{self.spec.name}: the floor {floor_seq} covers {covered - self.acked}"


class Worker(threading.Thread):
    """Works until the server is gone."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.work = work
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except (OSError, Closed):
            pass  # the server was killed
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        self.join(30)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


def publish(server: Server, stored: dict[str, dict[int, str]], name: str) -> None:
    """Publish to all streams in turn, `WINDOW` messages ahead of the acks; note where each one is stored."""
    with Peer(server) as peer:
        peer.subscribe(f"_INBOX.{name}.*")
        subjects: dict[str, str] = {}
        for number in range(10**9):
            stream = sorted(STREAMS)[number % len(STREAMS)]
            subjects[str(number)] = subject = f"{stream}.{number % 5}"
            peer.publish(subject, b"%d" % number, reply=f"_INBOX.{name}.{number}")
            if number >= WINDOW:
                ack = peer.message()
                seq = ack.json["seq"]
                assert seq not in stored[ack.json["stream"]], "a sequence was given twice"
                stored[ack.json["stream"]][seq] = subjects.pop(ack.subject.rpartition(".")[2])


class Puller:
    """One connection that pulls from a consumer. `chance` decides what becomes of each message."""

    def __init__(self, peer: Peer, book: Book, chance: random.Random, number: int) -> None:
        self.peer, self.book, self.chance = peer, book, chance
        self.inbox = f"_INBOX.{book.spec.name}{number}"
        self.waited_for: set[int] = set()
        peer.subscribe(f"{self.inbox}.>")

    def pull_forever(self) -> None:
        while True:
            self.pull(0.05)

    def pull(self, expires_s: float) -> int:
        """One request, until it has ended and all its acks are answered; how many messages came."""
        spec, count, is_ended = self.book.spec, 0, False
        body = b'{"batch":%d,"expires":%d}' % (BATCH, int(expires_s * 1e9))
        self.peer.publish(f"$JS.API.CONSUMER.MSG.NEXT.{spec.stream}.{spec.name}", body, reply=f"{self.inbox}.pull")
        while not is_ended or self.waited_for:
            msg = self.peer.message()
            if msg.subject.startswith(f"{self.inbox}.ack."):
                self.answered(msg)
            elif msg.reply:
                self.handle(msg)
                count += 1
            else:
                assert msg.status == "408 Request Timeout", msg
            is_ended = is_ended or count == BATCH or msg.status != ""
        return count

    def answered(self, msg: Msg) -> None:
        seq = int(msg.subject.rpartition(".")[2])
        assert not msg.status, msg
        self.waited_for.discard(seq)
        self.book.answered.add(seq)

    def handle(self, msg: Msg) -> None:
        seq, choice = int(msg.reply.split(".")[5]), self.chance.random()
        self.book.take(seq)
        if choice < 0.1:
            return  # forgotten: it comes again when its time is over
        if choice < 0.15:
            self.peer.publish(msg.reply, b"-NAK")
            return
        self.book.acked.add(seq)
        if choice < 0.3:
            self.peer.publish(msg.reply)
        else:
            self.waited_for.add(seq)
            self.peer.publish(msg.reply, b"+ACK", reply=f"{self.inbox}.ack.{seq}")


class Certain(random.Random):
    """Every message is acknowledged, and the ack answered."""

    def random(self) -> float:
        return 1.0


def test_acks_that_were_answered_survive_and_nothing_unacknowledged_is_lost(tmp_path: Path) -> None:
    for number in range(0, ROUNDS, ROUNDS_PER_STORE):
        run_rounds(tmp_path / str(number), range(number, min(number + ROUNDS_PER_STORE, ROUNDS)))


def run_rounds(directory: Path, rounds: range) -> None:
    stored: dict[str, dict[int, str]] = {stream: {} for stream in STREAMS}
    books = [Book(spec) for spec in SPECS]
    server = Server(JETLAKE, directory)
    try:
        server.start()
        create(server)
        for number in rounds:
            work_until_killed(server, books, stored, random.Random(number))
            server.start()
            check(server, books, stored)
        finish(server, books, stored)
        server.stop()
    finally:
        server.kill()
    for store in directory.rglob("msgs"):
        assert check_store(str(store)).ok


def create(server: Server) -> None:
    with Peer(server) as peer:
        create_streams(peer)
        for spec in SPECS:
            put_consumer(peer, spec, spec.wait_ns)


def create_streams(peer: Peer) -> None:
    for stream, retention in STREAMS.items():
        config = {"name": stream, "subjects": [f"{stream}.*"], "retention": retention, "allow_direct": True}
        assert "error" not in peer.api(f"STREAM.CREATE.{stream}", config)


def put_consumer(peer: Peer, spec: Spec, wait_ns: int) -> None:
    config: dict[str, Any] = {"durable_name": spec.name, "ack_policy": "explicit", "ack_wait": wait_ns}
    if spec.filter:
        config["filter_subject"] = spec.filter
    body = {"stream_name": spec.stream, "config": config}
    answer = peer.api(f"CONSUMER.DURABLE.CREATE.{spec.stream}.{spec.name}", body)
    assert "error" not in answer, answer


def work_until_killed(
    server: Server, books: list[Book], stored: dict[str, dict[int, str]], chance: random.Random
) -> None:
    workers = [Worker(lambda: publish(server, stored, "publisher"))]
    for book in books:
        for number in range(book.spec.clients):
            workers.append(Worker(pulling(server, book, random.Random(chance.random()), number)))
    for worker in workers:
        worker.start()
    time.sleep(chance.uniform(0.2, 1.2))
    server.kill()
    for worker in workers:
        worker.finish()


def pulling(server: Server, book: Book, chance: random.Random, number: int) -> Callable[[], None]:
    def work() -> None:
        with Peer(server) as peer:
            Puller(peer, book, chance, number).pull_forever()

    return work


def check(server: Server, books: list[Book], stored: dict[str, dict[int, str]]) -> None:
    with Peer(server) as peer:
        for book in books:
            info = peer.api(f"CONSUMER.INFO.{book.spec.stream}.{book.spec.name}")
            book.check(info, stored[book.spec.stream])
        for stream in STREAMS:
            check_stream(live_seqs(peer, stream), stored[stream], [b for b in books if b.spec.stream == stream])


def check_stream(live: set[int], stored: dict[int, str], books: list[Book]) -> None:
    """What somebody needs is there, and what all are done with is not, unless limits alone say what stays."""
    keeps_all = STREAMS[books[0].spec.stream] == "limits"
    for seq, subject in stored.items():
        wanting = [book for book in books if book.spec.wants(subject)]
        if keeps_all or any(seq not in book.acked for book in wanting):
            assert seq in live, f"{books[0].spec.stream}: {seq} is lost"
        elif all(seq in book.answered for book in wanting):
            assert seq not in live, f"{books[0].spec.stream}: all are done with {seq}"


def live_seqs(peer: Peer, stream: str) -> set[int]:
    found: set[int] = set()
    state = peer.api(f"STREAM.INFO.{stream}")["state"]
    while len(found) < state["messages"]:
        request = b'{"seq":%d,"batch":5000}' % (max(found, default=0) + 1)
        answers = peer.requests(f"$JS.API.DIRECT.GET.{stream}", request, b"", -1)[:-1]
        assert answers, f"{stream} holds {len(found)} messages of {state['messages']}"
        found |= {int(answer.headers.partition(b"Nats-Sequence: ")[2].partition(b"\r\n")[0]) for answer in answers}
    assert min(found, default=state["first_seq"]) == state["first_seq"]
    return found


def finish(server: Server, books: list[Book], stored: dict[str, dict[int, str]]) -> None:
    """Acknowledge all that is left, one consumer after the other: each got every message that it wants."""
    for book in books:
        with Peer(server) as peer:
            put_consumer(peer, book.spec, SHORT_WAIT_NS)
            puller = Puller(peer, book, Certain(), 9)
            wait_until(lambda puller=puller: puller.pull(0.2) == 0 and is_done(puller), f"{book.spec} to end", 60)
        wanted = {seq for seq, subject in stored[book.spec.stream].items() if book.spec.wants(subject)}
        assert wanted <= book.seen, f"{book.spec.name}: {wanted - book.seen} never came"
        assert wanted <= book.acked
    check(server, books, stored)
    with Peer(server) as peer:
        for stream, retention in STREAMS.items():
            assert retention == "limits" or peer.api(f"STREAM.INFO.{stream}")["state"]["messages"] == 0
    assert all(len(book.answered) > 20 for book in books), "there was a load"
    assert sum(book.repeated for book in books) > 0, "some came again"


def is_done(puller: Puller) -> bool:
    spec = puller.book.spec
    with Peer(puller.peer.socket.getpeername()[1]) as peer:
        info = peer.api(f"CONSUMER.INFO.{spec.stream}.{spec.name}")
    return bool(info["num_pending"] == info["num_ack_pending"] == 0)


# The two files that an ack changes, of a stream and of its consumer, may be of different ages after a crash.

KEPT = {2, 4, 6, 8, 10}
REMOVING = [stream for stream, retention in STREAMS.items() if retention != "limits"]


def test_removals_that_were_lost_are_made_up_for(tmp_path: Path) -> None:
    """All of them in an interest stream; of a work queue those that the consumer's file calls under way."""
    with Server(JETLAKE, tmp_path) as server:
        restart_with(server, acked_half(server), "msgs")
        with Peer(server) as peer:
            assert live_seqs(peer, "INTEREST") == KEPT
            assert live_seqs(peer, "WORK") >= KEPT


def test_consumer_whose_acks_were_lost_waits_only_for_what_is_there(tmp_path: Path) -> None:
    with Server(JETLAKE, tmp_path) as server:
        restart_with(server, acked_half(server), "consumers")
        with Peer(server) as peer:
            assert [live_seqs(peer, stream) for stream in REMOVING] == [KEPT, KEPT]
            for stream in REMOVING:
                info = peer.api(f"CONSUMER.INFO.{stream}.C")
                assert (info["num_ack_pending"], info["num_pending"]) == (len(KEPT), 0)


def acked_half(server: Server) -> Path:
    """Ten messages, all delivered, the odd ones acknowledged. Returns the store as it was before the acks."""
    before = server.directory / "before"
    with Peer(server) as peer:
        create_streams(peer)
        replies = [reply for stream in REMOVING for reply in delivered_ten(peer, stream)]
        shutil.copytree(server.store, before)
        for reply in replies[::2]:
            peer.request(reply)
        wait_until(lambda: all(live_seqs(peer, stream) == KEPT for stream in REMOVING), "the removals")
    return before


def delivered_ten(peer: Peer, stream: str) -> list[str]:
    """Deliver ten messages, and see to it that this is kept; their ack subjects."""
    put_consumer(peer, Spec(stream, "C", "", LONG_WAIT_NS, 1), LONG_WAIT_NS)
    for _ in range(10):
        assert "error" not in peer.request(f"{stream}.0").json
    messages = peer.requests(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.C", b'{"batch":10}', b"", 10)
    peer.request(messages[0].reply, b"+WPI")  # answered when the consumer's state is in its file
    return [message.reply for message in messages]


def restart_with(server: Server, before: Path, name: str) -> None:
    """Kill the server, give it the older of one of the two files, and start it again."""
    server.kill()
    for now in list(server.store.rglob(name)):
        shutil.rmtree(now)
        if (older := before / now.relative_to(server.store)).exists():
            shutil.copytree(older, now)
    server.start()

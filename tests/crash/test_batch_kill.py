"""A server that stores atomic batches is killed again and again. Each batch is there whole, or not at all.

While it runs, somebody reads the files: at no moment does a reader find a part of a batch. `JETLAKE_KILL_ROUNDS` sets
the number of rounds.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from jetlake.store import FileOptions, FileStore
from jetlake.store.verify.check import check_store
from jetlake.store.view import StreamView
from tests.compat.peer import Closed, Peer, header_block, publication
from tests.compat.servers import JETLAKE, Server

ROUNDS = int(os.environ.get("JETLAKE_KILL_ROUNDS", "4"))
SIZES = (1, 2, 30, 100, 700)


class Publisher(threading.Thread):
    """Sends batches of all sizes, some ahead of the acks, until the server is gone; what it was told is stored."""

    def __init__(self, server: Server, name: str, stream: str) -> None:
        super().__init__(daemon=True)
        self.server, self.name, self.stream, self.acked = server, name, stream, list[str]()

    def run(self) -> None:
        try:
            with Peer(self.server) as peer:
                peer.subscribe(f"_INBOX.{self.name}")
                for number in range(100_000):
                    peer.send(self.batch(number))
                    if number > 3:
                        answer = peer.message().json
                        assert "error" not in answer, answer
                        self.acked.append(answer["batch"])
        except (OSError, Closed):
            pass  # the server was killed

    def batch(self, number: int) -> bytes:
        count, batch = SIZES[number % len(SIZES)], f"{self.name}-{number}"
        lines = b""
        for seq in range(1, count + 1):
            commit = {"Nats-Batch-Commit": 1} if seq == count else {}
            headers = header_block(**{"Nats-Batch-Id": batch, "Nats-Batch-Sequence": seq, **commit})
            reply = f"_INBOX.{self.name}" if seq == count else ""
            lines += publication(f"{self.stream}.{batch}.{count}", b"x" * (seq * 37 % 300), headers, reply)
        return lines


def count_of(subject: str) -> int:
    return int(subject.rpartition(".")[2])


class Reader(threading.Thread):
    """Looks at the files while the server writes them."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.view, self.is_over, self.looks = StreamView(str(directory)), False, 0
        self.broken: Counter[str] = Counter()

    def run(self) -> None:
        while not self.is_over and not self.broken:
            catalog, found = self.view.refresh(), Counter[bytes]()
            for block in catalog.blocks:
                index = catalog.index(block)
                live = (place for place in range(index.count) if block.is_live(index.seq(place)))
                found.update(index.table.subject(index.ids[place]) for place in live)
            self.looks += 1
            self.broken = Counter({name.decode(): n for name, n in found.items() if n != count_of(name.decode())})


@pytest.mark.timeout(300 + 30 * ROUNDS)
@pytest.mark.parametrize("stream", ["PLAIN", "PACKED"])
def test_a_batch_is_there_whole_or_not_at_all(tmp_path: Path, stream: str) -> None:
    server = Server(JETLAKE, tmp_path)
    acked: set[str] = set()
    try:
        for number in range(ROUNDS):
            server.start()
            config = {"name": stream, "subjects": [f"{stream}.>"], "allow_atomic": True}
            with Peer(server) as peer:
                peer.api(f"STREAM.CREATE.{stream}", config | ({"compression": "s2"} if stream == "PACKED" else {}))
            (directory,) = tmp_path.rglob("msgs")
            publishers = [Publisher(server, f"r{number}p{one}", stream) for one in range(3)]
            reader = Reader(directory)
            for thread in (*publishers, reader):
                thread.start()
            publishers[0].join(random.Random(number).uniform(0.1, 0.6))
            server.kill()
            reader.is_over = True
            for thread in (*publishers, reader):
                thread.join()
            assert not reader.broken and reader.looks
            acked.update(*(publisher.acked for publisher in publishers))
    finally:
        server.kill()
    server.start()  # finishes what is in the redo log
    server.stop()
    with FileStore(directory, options=FileOptions()) as store:
        totals = store.subjects_totals()
    assert all(total == count_of(subject) for subject, total in totals.items())
    assert acked <= {subject.split(".")[1] for subject in totals}
    assert acked and check_store(str(directory)).ok

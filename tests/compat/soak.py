"""python -m tests.compat.soak [--seconds 600]: a thousand consumers for a long time, run by hand.

Messages are published at a steady rate over `SUBJECTS` subjects. Each consumer filters one of them; most pull, some are
pushed to. A hundred are slow: they acknowledge after a while, often so late that the message has come again. Of all
acks some are lost, some ask for no answer. In the end everybody catches up. Then
    every message came to each of its consumers at least once
    none came after its ack had been answered
    the server's memory did not grow with time
    no consumer has anything pending
    nothing held the server's event loop for longer than the watchdog allows
All traffic of a consumer goes through one connection, so that what was read first was also decided first.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import select
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.compat.peer import Msg, Peer, parse_msg
from tests.compat.servers import JETLAKE, KINDS, Server

CONSUMERS, SLOW, SUBJECTS, CONNECTIONS = 1000, 100, 100, 8
PUSHED_EVERY = 5  # every fifth consumer
ACK_WAIT_S = 3.0
LOST, PLAIN = 0.05, 0.1  # parts of all acks
BATCH, EXPIRES_S = 10, 20.0
SLOW_S = (0.5, 5.0)
CATCH_UP_S_MAX = 120.0
MEMORY_GROWTH_MAX = 1.2
MEMORY_SLACK_SIZE = 32 << 20


class Reader:
    """What one consumer's client does, and what came to it."""

    def __init__(self, number: int, client: Client) -> None:
        self.number, self.client = number, client
        self.name, self.subject = f"C{number}", f"soak.{number % SUBJECTS}"
        self.is_pushed, self.is_slow = number % PUSHED_EVERY == 0, number % (CONSUMERS // SLOW) == 3
        self.inbox = f"_INBOX.soak.{number}"
        self.seen: set[int] = set()
        self.answered: set[int] = set()
        self.deliveries = self.wanted = 0
        self.late: list[int] = []  # came after their acks were answered

    def config(self) -> dict[str, Any]:
        config = {"durable_name": self.name, "ack_policy": "explicit", "ack_wait": int(ACK_WAIT_S * 1e9)}
        config["filter_subject"] = self.subject
        return {**config, "deliver_subject": f"{self.inbox}.push"} if self.is_pushed else config

    def pull(self) -> None:
        if not self.is_pushed and not self.wanted:
            self.wanted = BATCH
            body = b'{"batch":%d,"expires":%d}' % (BATCH, int(EXPIRES_S * 1e9))
            subject = f"$JS.API.CONSUMER.MSG.NEXT.SOAK.{self.name}"
            self.client.peer.publish(subject, body, reply=f"{self.inbox}.pull")

    def take(self, msg: Msg) -> None:
        """A message, the end of a request, or the answer to an ack, whose inbox says so."""
        if msg.subject.startswith(f"{self.inbox}.ack."):
            self.answered.add(int(msg.subject.rpartition(".")[2]))
        elif msg.reply:
            self.wanted -= 1
            self.handle(msg)
        else:
            assert msg.status == "408 Request Timeout", msg
            self.wanted = 0
        self.pull()

    def handle(self, msg: Msg) -> None:
        seq, chance = int(msg.reply.split(".")[5]), self.client.chance
        if seq in self.answered:
            self.late.append(seq)
        self.deliveries += 1
        self.seen.add(seq)
        if chance.random() < LOST and not self.client.is_catching_up:
            return
        delay_s = chance.uniform(*SLOW_S) if self.is_slow and not self.client.is_catching_up else 0
        self.client.after(delay_s, lambda: self.ack(msg.reply, seq))

    def ack(self, subject: str, seq: int) -> None:
        wants_no_answer = self.client.chance.random() < PLAIN
        self.client.peer.publish(subject, b"+ACK", reply="" if wants_no_answer else f"{self.inbox}.ack.{seq}")


class Client(threading.Thread):
    """One connection that serves many consumers."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(daemon=True)
        self.chance = random.Random(number)
        self.peer = Peer(server)
        self.readers = [Reader(each, self) for each in range(number, CONSUMERS, CONNECTIONS)]
        self.is_catching_up = self.is_over = False
        self.error: BaseException | None = None
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        for reader in self.readers:
            body = {"stream_name": "SOAK", "config": reader.config()}
            answer = self.peer.api(f"CONSUMER.DURABLE.CREATE.SOAK.{reader.name}", body)
            assert "error" not in answer, answer
            # Wildcards do not count as interest in a deliver subject.
            for kind in ("push", "pull", "ack.*"):
                self.peer.subscribe(f"{reader.inbox}.{kind}", f"{reader.number}.{kind}")

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (time.monotonic() + delay_s, self._count, action))

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error

    def _work(self) -> None:
        for reader in self.readers:
            reader.pull()
        by_sid = {str(reader.number): reader for reader in self.readers}
        while not self.is_over:
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()
            if self.peer.has_frame() or select.select([self.peer.socket], [], [], 0.02)[0]:
                frame = self.peer.frame()
                if frame == b"PING\r\n":
                    self.peer.send(b"PONG\r\n")
                elif frame.startswith((b"MSG ", b"HMSG ")):
                    msg = parse_msg(frame)
                    by_sid[msg.sid.partition(".")[0]].take(msg)


class Soak:
    """The whole of it, on one server."""

    def __init__(self, server: Server, rate: int, retention: str) -> None:
        self.server, self.rate = server, rate
        self.published: dict[int, str] = {}
        self.sizes: list[int] = []
        self.peer = Peer(server)
        config = {"name": "SOAK", "subjects": ["soak.*"], "retention": retention}
        answer = self.peer.api("STREAM.CREATE.SOAK", config)
        assert "error" not in answer, answer
        self.clients = [Client(server, number) for number in range(CONNECTIONS)]
        self.readers = [reader for client in self.clients for reader in client.readers]

    def run(self, seconds: float) -> None:
        for client in self.clients:
            client.start()
        self.peer.subscribe("_INBOX.acks.*", "acks")
        start = told = time.monotonic()
        number = 0
        while (now := time.monotonic()) < start + seconds:
            self._check_clients()
            target = int((now - start) * self.rate)
            self._publish(range(number, target))
            number = max(number, target)
            if now > told + 5:
                told = now
                self._tell(now - start)
            time.sleep(0.02)
        self._catch_up()
        self._tell(time.monotonic() - start)

    def _publish(self, numbers: range) -> None:
        subjects = [f"soak.{number * 7919 % SUBJECTS}" for number in numbers]
        for number, subject in zip(numbers, subjects, strict=True):
            self.peer.publish(subject, b"x" * 128, reply=f"_INBOX.acks.{number - numbers.start}")
        for _ in numbers:
            ack = self.peer.message()
            self.published[ack.json["seq"]] = subjects[int(ack.subject.rpartition(".")[2])]

    def _catch_up(self) -> None:
        for client in self.clients:
            client.is_catching_up = True
        stop = time.monotonic() + CATCH_UP_S_MAX
        while not all(self._is_idle(reader) for reader in self.readers):
            assert time.monotonic() < stop, "consumers did not catch up"
            self._check_clients()
            time.sleep(1)
        for client in self.clients:
            client.is_over = True
            client.join()

    def _is_idle(self, reader: Reader) -> bool:
        info = self.peer.api(f"CONSUMER.INFO.SOAK.{reader.name}")
        return bool(info["num_pending"] == info["num_ack_pending"] == 0)

    def _check_clients(self) -> None:
        for client in self.clients:
            if client.error is not None:
                raise client.error

    def _tell(self, seconds: float) -> None:
        statm = Path(f"/proc/{self.server.pid}/statm").read_text()
        self.sizes.append(int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        deliveries = sum(reader.deliveries for reader in self.readers)
        answered = sum(len(reader.answered) for reader in self.readers)
        print(
            f"{seconds:6.0f} s  published {len(self.published):,}  delivered {deliveries:,}  answered {answered:,}  "
            f"late {sum(len(reader.late) for reader in self.readers)}  memory {self.sizes[-1] / 2**20:.0f} MiB",
            flush=True,
        )

    def check(self) -> None:
        """What must be true in the end."""
        by_subject: dict[str, set[int]] = {}
        for seq, subject in self.published.items():
            by_subject.setdefault(subject, set()).add(seq)
        for reader in self.readers:
            missing = by_subject.get(reader.subject, set()) - reader.seen
            assert not missing, f"{reader.name}: {sorted(missing)[:5]} never came"
            assert not reader.late, f"{reader.name}: {reader.late[:5]} came after their acks were answered"
        early, late = self.sizes[len(self.sizes) // 4], self.sizes[-1]
        assert late < early * MEMORY_GROWTH_MAX + MEMORY_SLACK_SIZE, f"memory grew from {early:,} to {late:,} bytes"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.compat.soak", description="Many consumers for a long time.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rate", type=int, default=100, help="messages published per second, each for 10 consumers")
    parser.add_argument("--retention", choices=["limits", "interest"], default="limits")
    parser.add_argument("--kind", choices=KINDS, default=JETLAKE)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="jetlake-soak-"))
        server = stack.enter_context(Server(arguments.kind, Path(directory), environment={"JETLAKE_VERIFY": ""}))
        soak = Soak(server, arguments.rate, arguments.retention)
        soak.run(arguments.seconds)
        soak.check()
        stalls = server.stalls()
        assert not stalls, "\n".join(stalls)
        print(f"all is well; the server stopped with {server.stop()}")


if __name__ == "__main__":
    main()

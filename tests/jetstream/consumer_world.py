"""A server without sockets or time of its own: clients talk to JetStream, and the test moves the clock."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jetlake.broker.broker import Broker
from jetlake.jetstream.consumers.consumer import Consumer
from jetlake.jetstream.service import JetStream
from jetlake.jetstream.streams.stream import Stream
from jetlake.store.disk.files import OS_FILES, Files
from jetlake.testing.clock import FakeClock
from tests.broker.sessions import FakeConnection, connect, make_broker
from tests.jetstream.harness import FakeHost

MS = 1_000_000
S = 1000 * MS
_LINE = re.compile(rb"(H?)MSG (\S+) (\S+) (?:(\S+) )??(?:(\d+) )?(\d+)\r\n")


class Received(NamedTuple):
    """A message as a client gets it."""

    subject: str
    sid: str
    reply: str
    headers: bytes
    payload: bytes

    @property
    def status(self) -> str:
        """The status in the first line of the headers."""
        first = self.headers.partition(b"\r\n")[0]
        return first.removeprefix(b"NATS/1.0").strip().decode()

    @property
    def ack(self) -> tuple[int, int, int, int]:
        """Deliveries, stream sequence, consumer sequence and pending of the reply subject."""
        tokens = self.reply.split(".")
        return int(tokens[4]), int(tokens[5]), int(tokens[6]), int(tokens[8])


def parse_frames(data: bytes) -> list[Received]:
    """The messages in what a client was sent; PONG and the like are left out."""
    found, at = [], 0
    while at < len(data):
        line = _LINE.match(data, at)
        if line is None:
            at = data.index(b"\r\n", at) + 2
            continue
        has_headers, subject, sid, reply, headers_size, size = line.groups()
        if not has_headers and headers_size is not None:  # a reply that is a number
            reply, headers_size = headers_size, None
        start, end = line.end(), line.end() + int(size)
        split = start + int(headers_size or 0)
        found.append(
            Received(subject.decode(), sid.decode(), (reply or b"").decode(), data[start:split], data[split:end])
        )
        at = end + 2
    return found


class Peer:
    """A client of the world."""

    def __init__(self, world: World, connection: FakeConnection) -> None:
        self._world, self.connection = world, connection

    def say(self, text: bytes) -> None:
        self._world.outputs[id(self)] = self._world.outputs.get(id(self), b"") + self.connection.say(text)
        self._world.settle()

    def sub(self, subject: str, sid: str, queue: str = "") -> None:
        self.say(f"SUB {subject} {queue} {sid}\r\n".encode())

    def unsub(self, sid: str) -> None:
        self.say(f"UNSUB {sid}\r\n".encode())

    def pub(self, subject: str, payload: bytes = b"", reply: str = "", headers: bytes = b"") -> None:
        self.say(frame(subject, payload, reply, headers))

    def take(self) -> list[Received]:
        """What came since it was last asked."""
        data = self._world.outputs.pop(id(self), b"") + self.connection.heard()
        return parse_frames(bytes(data))

    def request(self, subject: str, body: object = None) -> dict[str, Any]:
        """Ask the API."""
        payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        kept = self.take()
        self.pub(f"$JS.API.{subject}", payload, "_API.1")
        answers = self.take()
        self._world.put_back(self, [*kept, *(answer for answer in answers if answer.subject != "_API.1")])
        found: dict[str, Any] = json.loads(next(answer.payload for answer in answers if answer.subject == "_API.1"))
        return found


def frame(subject: str, payload: bytes = b"", reply: str = "", headers: bytes = b"") -> bytes:
    """A publish as a client writes it."""
    if headers:
        sizes = f"{len(headers)} {len(headers) + len(payload)}"
        return f"HPUB {subject} {reply} {sizes}\r\n".encode() + headers + payload + b"\r\n"
    return f"PUB {subject} {reply} {len(payload)}\r\n".encode() + payload + b"\r\n"


class World:
    """A broker with JetStream, one stream S of s.>, and a clock."""

    def __init__(self, directory: Path, **stream: Any) -> None:
        self.directory = self._root = str(directory / "store")
        self._crashes = 0
        self.clock = FakeClock()
        self.host = FakeHost(clock=self.clock)
        self.outputs: dict[int, bytes] = {}
        self.start()
        self.create_stream(**stream)

    def start(self, files: Files = OS_FILES) -> None:
        self.broker: Broker = make_broker()
        self.service = JetStream(self.host, self.directory, files=files)
        self.service.start([self.broker.default_account])
        self.peer = self.connect()
        self.peer.say(b"SUB _API.* 1\r\nSUB in.* 2\r\n")

    def stop(self) -> None:
        self.service.close()
        self.settle()
        self.service.stop()

    def crash(self, finish: Callable[[], None] = lambda: None) -> None:
        """Start again from the files as they are now; what was only in memory is gone. `finish` what is under way."""
        self._crashes += 1
        survived = f"{self._root}-{self._crashes}"
        shutil.copytree(self.directory, survived)
        finish()
        self.stop()  # what it writes now is not seen again
        self.directory, self.host = survived, FakeHost(clock=self.clock)
        self.start()

    def restart(self) -> None:
        self.stop()
        self.start()

    def connect(self) -> Peer:
        """Another client."""
        return Peer(self, connect(self.broker))

    def put_back(self, peer: Peer, messages: list[Received]) -> None:
        text = b""
        for each in messages:
            size, total = len(each.headers), len(each.headers) + len(each.payload)
            sizes = f"{size} {total}" if each.headers else str(total)
            verb = "HMSG" if each.headers else "MSG"
            text += f"{verb} {each.subject} {each.sid} {each.reply} {sizes}\r\n".replace("  ", " ").encode()
            text += each.headers + each.payload + b"\r\n"
        self.outputs[id(peer)] = text + self.outputs.get(id(peer), b"")

    def create_stream(self, **config: Any) -> None:
        answer = self.peer.request("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **config})
        assert "error" not in answer, answer

    @property
    def stream(self) -> Stream:
        return self.service.accounts["$G"].streams["S"]

    def consumer(self, name: str = "c") -> Consumer:
        found: Consumer = self.stream.consumers[name]
        return found

    def create(self, name: str = "c", **config: Any) -> dict[str, Any]:
        """Make a durable consumer with explicit acks; its info."""
        config = {"durable_name": name, "ack_policy": "explicit", **config}
        answer = self.peer.request(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
        return answer

    def info(self, name: str = "c") -> dict[str, Any]:
        return self.peer.request(f"CONSUMER.INFO.S.{name}")

    def publish(self, *payloads: bytes, subject: str = "s.a") -> None:
        self.peer.say(b"".join(frame(subject, payload) for payload in payloads))

    def next(self, name: str = "c", reply: str = "in.1", peer: Peer | None = None, **body: Any) -> list[Received]:
        """Ask for messages; what comes at once."""
        peer = peer or self.peer
        peer.pub(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", json.dumps(body).encode(), reply)
        return peer.take()

    def ack(self, message: Received, payload: bytes = b"", reply: str = "") -> None:
        self.peer.pub(message.reply, payload, reply)

    def settle(self) -> None:
        self.host.settle()

    def wait(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        end_ns = self.clock() + round(seconds * S)
        while True:
            due = [timer for timer in self.host.timers if not timer.is_cancelled and timer.time_ns <= end_ns]
            if not due:
                break
            timer = min(due, key=lambda timer: timer.time_ns)
            self.host.timers.remove(timer)
            self.clock.set(max(timer.time_ns, self.clock()))
            timer.callback()
            self.settle()
        self.clock.set(end_ns)

"""python -m tests.compat.stalls [case …] [--size 200000] [--kind jetlake]: what one request costs everybody else.

Each case prepares something large, issues one request about it, and reports how long another client waited for its PONG
in the meantime and, on JetLake, what the watchdog says about the event loop. `test_stalls` runs the same cases at a
smaller size and asserts that nothing holds the loop for longer than the watchdog allows.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.compat.peer import Peer, header_block, publication
from tests.compat.servers import JETLAKE, KINDS, LOOPBACK, Server, stall_lines

CHUNK = 1000
ANSWER_S_MAX = 300.0
PING_EVERY_S = 0.002

Case = Callable[["World"], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


class World:
    """A server, a connection to it, and what was seen while something was asked."""

    def __init__(self, server: Server, size: int) -> None:
        self.server, self.size = server, size
        self.peer = Peer(server)
        self.peer.socket.settimeout(ANSWER_S_MAX)
        self.lines: list[str] = []
        self.stalls: list[str] = []  # those of the lines that are about the server, not about a busy machine
        self.ping_s = self.took_s = 0.0

    def stream(self, **config: Any) -> None:
        answer = self.peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "file", **config})
        assert "error" not in answer, answer

    def fill(self, subject: Callable[[int], str] = "s.{}".format, payload: bytes = b"x" * 16, **fields: Any) -> None:
        """Publish as many messages as the size says; header fields may be functions of the number."""
        for first in range(0, self.size, CHUNK):
            frames = []
            for number in range(first, min(first + CHUNK, self.size)):
                values = {name: value(number) if callable(value) else value for name, value in fields.items()}
                headers = header_block(**values) if values else b""
                frames.append(publication(subject(number), payload, headers))
            self.peer.send(b"".join(frames))
        self.peer.request(subject(0), payload)

    def consumer(self, name: str = "C", **config: Any) -> Any:
        config = {"durable_name": name, "ack_policy": "explicit", "max_ack_pending": 1_000_000, **config}
        answer = self.peer.api(f"CONSUMER.DURABLE.CREATE.S.{name}", {"stream_name": "S", "config": config})
        assert "error" not in answer, str(answer)[:500]
        return answer

    def pull(self, count: int, name: str = "C") -> list[str]:
        """Get messages, and their ack subjects."""
        body = json.dumps({"batch": count, "expires": int(60e9)}).encode()
        return [msg.reply for msg in self.peer.requests(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", body, b"", count)]

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notes what happens to others while the request that follows is served, and for a moment after it."""
        self.peer.ask()
        before, probe = len(self.server.log()), Probe(self.server)
        begin = time.monotonic()
        yield
        self.took_s += time.monotonic() - begin
        time.sleep(0.2)
        self.peer.ask()
        self.ping_s = max(self.ping_s, probe.stop())
        self.lines += stall_lines(self.server.log()[before:], cpu_ms=0.0, held_ms=0.0)
        self.stalls += stall_lines(self.server.log()[before:])


class Probe(threading.Thread):
    """Another client, which asks for a PONG again and again; the longest that it waited."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_connection((LOOPBACK, server.port), timeout=ANSWER_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self._file.readline()
        self._socket.sendall(b'CONNECT {"verbose":false}\r\n')
        self._is_over, self._longest_s = False, 0.0
        self._ping()
        self._longest_s = 0.0
        self.start()

    def run(self) -> None:
        while not self._is_over:
            self._ping()
            time.sleep(PING_EVERY_S)

    def _ping(self) -> None:
        begin = time.monotonic()
        self._socket.sendall(b"PING\r\n")
        while self._file.readline() != b"PONG\r\n":
            pass
        self._longest_s = max(self._longest_s, time.monotonic() - begin)

    def stop(self) -> float:
        self._is_over = True
        self.join()
        self._file.close()
        self._socket.close()
        return self._longest_s


def api(world: World, subject: str, body: object = None) -> Any:
    """One watched request, which must succeed."""
    with world.watched():
        answer = world.peer.api(subject, body)
    assert "error" not in answer, str(answer)[:500]
    return answer


# Direct gets


def batch(world: World, **body: Any) -> None:
    with world.watched():
        answers = world.peer.requests("$JS.API.DIRECT.GET.S", json.dumps(body).encode(), b"", -1)
    assert answers[-1].status.startswith("204"), answers[-1]


@case
def direct_get_batch(world: World) -> None:
    world.stream(allow_direct=True)
    world.fill(lambda number: "s.a")
    batch(world, seq=1, batch=10**9)


@case
def direct_get_batch_of_a_filter(world: World) -> None:
    world.stream(allow_direct=True)
    world.fill(lambda number: f"s.{number % 10}")
    batch(world, seq=1, batch=10**9, next_by_subj="s.3")


@case
def direct_get_multi_last(world: World) -> None:
    world.stream(allow_direct=True)
    world.fill()
    batch(world, multi_last=[f"s.{number}" for number in range(1000)], batch=1000)


@case
def direct_get_multi_last_of_too_many(world: World) -> None:
    world.stream(allow_direct=True)
    world.fill()
    with world.watched():
        answer = world.peer.request("$JS.API.DIRECT.GET.S", b'{"multi_last":["s.>"],"batch":1000}')
    assert answer.status.startswith("413"), answer


# Bodies


@case
def deep_json(world: World) -> None:
    world.stream()
    size = 5 * world.size
    text = b'{"a":' + b"[" * 199 + b"1," * (size // 2) + b"1" + b"]" * 199 + b"}"
    for subject in ("STREAM.INFO.S", "STREAM.CREATE.X", "CONSUMER.CREATE.S.X", "STREAM.NAMES", "STREAM.PURGE.S"):
        with world.watched():
            world.peer.api(subject, text[:1_000_000] if len(text) > 1_000_000 else text)


@case
def long_nak(world: World) -> None:
    world.stream()
    world.fill(lambda number: "s.a")
    world.consumer(max_deliver=2)
    for tail in (b" " + b"9" * world.size, b' {"delay":' + b"[" * world.size, b" " + b"1h" * (world.size // 2)):
        (reply,) = world.pull(1)
        with world.watched():
            world.peer.publish(reply, b"-NAK" + tail)
            world.peer.ask()


@case
def stream_with_many_subjects(world: World) -> None:
    count = world.size // 20
    subjects = [f"m.{number}.*" for number in range(count)]
    body = {"name": "M", "subjects": subjects, "storage": "file"}
    api(world, "STREAM.CREATE.M", body)
    api(world, "STREAM.CREATE.N", {**body, "name": "N", "subjects": [f"n.{number}" for number in range(count)]})
    api(world, "STREAM.UPDATE.M", {**body, "subjects": subjects[1:]})
    api(world, "STREAM.NAMES", {"subject": "n.7"})
    api(world, "STREAM.INFO.M")
    api(world, "STREAM.LIST")
    api(world, "STREAM.DELETE.M")


@case
def consumer_with_many_filters(world: World) -> None:
    world.stream()
    world.fill()
    filters = [f"s.{number}" for number in range(0, world.size, 20)]
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subjects": filters}
    with world.watched():
        world.consumer(filter_subjects=filters)
    with world.watched():
        world.pull(100)
    api(world, "CONSUMER.INFO.S.C")
    with world.watched():
        world.peer.request("s.1")
        world.peer.request("s.20")
    api(
        world, "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": {**config, "filter_subjects": filters[1:]}}
    )
    api(world, "CONSUMER.DELETE.S.C")


# Reading


@case
def stream_info_of_subjects(world: World) -> None:
    world.stream()
    world.fill()
    api(world, "STREAM.INFO.S", {"subjects_filter": ">"})
    api(world, "STREAM.INFO.S", {"subjects_filter": "s.*", "offset": world.size // 2})
    api(world, "STREAM.INFO.S", {"subjects_filter": "*.99"})


@case
def stream_info_of_deleted(world: World) -> None:
    world.stream()
    world.fill(lambda number: f"s.{number % 2}")
    world.peer.api("STREAM.PURGE.S", {"filter": "s.0"})
    api(world, "STREAM.INFO.S", {"deleted_details": True})


@case
def message_get_by_wildcard(world: World) -> None:
    world.stream()
    world.fill(lambda number: f"s.{number}.{'x' if number == world.size // 2 else 'y'}")
    api(world, "STREAM.MSG.GET.S", {"last_by_subj": "s.*.x"})
    api(world, "STREAM.MSG.GET.S", {"seq": 1, "next_by_subj": "s.*.x"})
    with world.watched():
        world.peer.api("STREAM.MSG.GET.S", {"last_by_subj": "s.*.z"})
    with world.watched():
        world.peer.api("STREAM.MSG.GET.S", {"seq": 1, "next_by_subj": "s.*.z"})
    with world.watched():
        world.peer.api("STREAM.MSG.GET.S", {"seq": 1, "next_by_subj": "*.7"})


@case
def consumer_info_of_filters(world: World) -> None:
    world.stream()
    world.fill(lambda number: f"s.{number}.{number % 7}")
    with world.watched():
        world.consumer(filter_subjects=["s.*.1", "s.*.2"])
    api(world, "CONSUMER.INFO.S.C")
    with world.watched():
        world.pull(1)
    with world.watched():
        world.consumer("D", filter_subject="s.*.9")
        world.peer.request("$JS.API.CONSUMER.MSG.NEXT.S.D", b'{"batch":1,"no_wait":true}')


@case
def last_per_subject(world: World) -> None:
    world.stream()
    world.fill()
    with world.watched():
        world.consumer(deliver_policy="last_per_subject", filter_subject="s.>")
    with world.watched():
        world.pull(10)
    api(world, "CONSUMER.INFO.S.C")
    with world.watched():
        world.consumer("D", deliver_policy="last_per_subject", filter_subjects=["s.*"])


@case
def long_pull(world: World) -> None:
    world.stream()
    world.fill()
    world.consumer()
    with world.watched():
        world.pull(world.size)


@case
def long_lists(world: World) -> None:
    world.stream()
    count = world.size // 100
    for number in range(count):
        world.peer.api(
            f"STREAM.CREATE.T{number}", {"name": f"T{number}", "subjects": [f"t.{number}"], "storage": "memory"}
        )
        world.consumer(f"C{number}", inactive_threshold=0)
    for subject in ("STREAM.LIST", "STREAM.NAMES", "CONSUMER.LIST.S", "CONSUMER.NAMES.S", "INFO"):
        api(world, subject)
    api(world, "STREAM.NAMES", {"subject": "t.7"})
    for page in (
        "/jsz?consumers=1&streams=1&config=1",
        "/jsz",
        "/metrics",
        "/varz",
        "/healthz",
        "/subsz?subs=1&limit=100000",
    ):
        http(world, page)
    with world.watched():
        world.peer.request("s.1")
    api(world, "STREAM.DELETE.S")


# Acks


@case
def acks_that_trickle_in(world: World) -> None:
    """Messages are pending; their acks come a few at a time, in any order."""
    world.stream()
    world.fill()
    world.consumer(max_ack_pending=10_000_000)
    replies = world.pull(world.size // 2)
    random.Random(1).shuffle(replies)
    with world.watched():
        for first in range(0, len(replies), 50):
            world.peer.ask(b"".join(publication(reply, b"+ACK") for reply in replies[first : first + 50]))


@case
def acks_at_once(world: World) -> None:
    world.stream(retention="workqueue")
    world.fill()
    world.consumer(max_ack_pending=10_000_000)
    replies = world.pull(world.size // 2)
    with world.watched():
        world.peer.ask(b"".join(publication(reply, b"+ACK") for reply in replies))


@case
def ack_all(world: World) -> None:
    world.stream(retention="interest")
    world.consumer(ack_policy="all", max_ack_pending=10_000_000)
    world.fill()
    replies = world.pull(world.size)
    with world.watched():
        world.peer.ask(publication(replies[-1], b"+ACK"))


@case
def redeliveries_at_once(world: World) -> None:
    world.stream()
    world.fill()
    world.consumer(max_ack_pending=10_000_000, ack_wait=int(3e9), max_deliver=2)
    world.pull(world.size // 2)
    with world.watched():
        world.peer.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":10,"expires":6000000000}', reply="nowhere")
        time.sleep(4)


@case
def deliveries_given_up(world: World) -> None:
    world.stream(retention="interest")
    world.consumer(max_ack_pending=10_000_000, ack_wait=int(3e9), max_deliver=1)
    world.fill()
    world.pull(world.size // 2)
    with world.watched():
        time.sleep(5)


# Removing


@case
def purge(world: World) -> None:
    world.stream()
    world.fill()
    world.consumer()
    world.pull(world.size // 2)
    api(world, "STREAM.PURGE.S")


@case
def purge_of_a_filter(world: World) -> None:
    world.stream()
    world.fill(lambda number: f"s.{number}.{number % 2}")
    world.consumer(filter_subject="s.*.1")
    api(world, "STREAM.PURGE.S", {"filter": "s.*.1"})


@case
def purge_of_one_subject(world: World) -> None:
    world.stream()
    world.fill(lambda number: f"s.{number % 2}")
    world.consumer()
    world.pull(world.size // 4)
    api(world, "STREAM.PURGE.S", {"filter": "s.1"})


@case
def purge_that_keeps(world: World) -> None:
    world.stream()
    world.fill(lambda number: f"s.{number % 100}")
    api(world, "STREAM.PURGE.S", {"filter": "s.*", "keep": 10})


@case
def purge_up_to(world: World) -> None:
    world.stream()
    world.fill()
    api(world, "STREAM.PURGE.S", {"seq": world.size // 2})


@case
def lower_limits(world: World) -> None:
    world.stream()
    world.fill()
    world.consumer()
    config = {"name": "S", "subjects": ["s.>"], "storage": "file"}
    api(world, "STREAM.UPDATE.S", {**config, "max_msgs": world.size // 2})
    api(world, "STREAM.UPDATE.S", {**config, "max_bytes": world.size * 10})


@case
def lower_limit_per_subject(world: World) -> None:
    world.stream()
    world.fill(lambda number: f"s.{number % (world.size // 4)}")
    api(world, "STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "storage": "file", "max_msgs_per_subject": 1})


@case
def lower_limit_of_one_subject(world: World) -> None:
    world.stream()
    world.fill(lambda number: f"s.{number % 2}")
    api(world, "STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "storage": "file", "max_msgs_per_subject": 1})


@case
def expiry_at_once(world: World) -> None:
    world.stream(max_age=int(3e9), duplicate_window=int(1e9))
    with world.watched():
        world.fill()
        world.consumer()
        time.sleep(4)


@case
def ttl_expiry_at_once(world: World) -> None:
    world.stream(allow_msg_ttl=True)
    with world.watched():
        world.fill(Nats_TTL="3")
        time.sleep(4)


@case
def message_ids_expire(world: World) -> None:
    world.stream(duplicate_window=int(2e9))
    with world.watched():
        world.fill(Nats_Msg_Id=str)
        time.sleep(3)
        world.peer.request("s.1", b"", header_block(Nats_Msg_Id="new"))


@case
def roll_up(world: World) -> None:
    world.stream(allow_rollup_hdrs=True)
    world.fill(lambda number: f"s.{number % 2}")
    world.consumer()
    with world.watched():
        world.peer.request("s.1", b"", header_block(Nats_Rollup="sub"))
    with world.watched():
        world.peer.request("s.1", b"", header_block(Nats_Rollup="all"))


@case
def interest_ends(world: World) -> None:
    world.stream(retention="interest")
    world.consumer()
    world.consumer("D", filter_subject="s.7")
    world.fill()
    api(world, "CONSUMER.DELETE.S.C")


@case
def interest_ends_by_filter(world: World) -> None:
    world.stream(retention="interest")
    world.consumer(filter_subjects=["s.*.0", "s.*.1"])
    world.fill(lambda number: f"s.{number}.{number % 2}")
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subject": "s.*.0"}
    api(world, "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})


@case
def consumer_reset(world: World) -> None:
    world.stream()
    world.fill()
    world.consumer()
    world.pull(world.size // 2)
    api(world, "CONSUMER.RESET.S.C", {"seq": 1})


@case
def delete_from_compressed(world: World) -> None:
    world.stream(compression="s2")
    world.fill(lambda number: "s.a", bytes(range(256)))
    for seq in (5, world.size // 2, world.size // 2 + 1):
        api(world, "STREAM.MSG.DELETE.S", {"seq": seq})
    api(world, "STREAM.MSG.DELETE.S", {"seq": 7, "no_erase": True})
    api(world, "STREAM.MSG.GET.S", {"seq": 100})


@case
def delete_from_plain(world: World) -> None:
    world.stream()
    world.fill(lambda number: "s.a", bytes(range(256)))
    for seq in (5, world.size // 2, world.size // 2 + 1):
        api(world, "STREAM.MSG.DELETE.S", {"seq": seq})


@case
def stream_delete(world: World) -> None:
    world.stream()
    world.fill()
    world.consumer()
    world.pull(world.size // 2)
    api(world, "STREAM.DELETE.S")


@case
def stream_delete_with_consumers(world: World) -> None:
    world.stream()
    for number in range(world.size // 50):
        world.consumer(f"C{number}")
    api(world, "STREAM.DELETE.S")


# Clients


@case
def many_subscriptions(world: World) -> None:
    count = world.size // 2
    subs = b"".join(b"SUB q.%d.* %d\r\n" % (number, number) for number in range(count))
    with world.watched():
        with Peer(world.server) as other:
            other.socket.settimeout(ANSWER_S_MAX)
            other.ask(subs)
            http(world, "/subsz?subs=1&limit=1000000")
            http(world, "/subsz?test=q.7.a")
            http(world, "/connz?subs=1")
            world.peer.ask(b"PUB q.5.a 1\r\nx\r\n")
            other.ask(b"".join(b"UNSUB %d\r\n" % number for number in range(count // 2)))
        time.sleep(0.5)


@case
def pages_of_subscriptions(world: World) -> None:
    with Peer(world.server) as other:
        other.socket.settimeout(ANSWER_S_MAX)
        other.ask(b"".join(b"SUB q.%d.* %d\r\n" % (number, number) for number in range(world.size // 2)))
        for page in ("/subsz", "/subsz?subs=1", "/subsz?subs=1&limit=1000000", "/subsz?subs=1&offset=1000"):
            http(world, page)
        for page in ("/connz?subs=1", "/connz?subs=detail", "/accstatz", "/accountz?acc=$G", "/metrics"):
            http(world, page)
        for body in (b'{"subscriptions":true}', b'{"subscriptions_detail":true}'):
            with world.watched():
                world.peer.request("$SYS.REQ.ACCOUNT.PING.CONNZ", body)


@case
def pages_of_connections(world: World) -> None:
    with ExitStack() as stack:
        for number in range(world.size // 20):
            stack.enter_context(Peer(world.server)).ask(b"SUB q.%d 1\r\n" % number)
        for page in ("/connz?limit=100000", "/connz?limit=100000&subs=detail&auth=1&sort=idle", "/accstatz", "/varz"):
            http(world, page)
        with world.watched():
            world.peer.request("$SYS.REQ.ACCOUNT.PING.CONNZ", b'{"subscriptions_detail":true,"limit":100000}')


@case
def many_subscriptions_end(world: World) -> None:
    """By UNSUB, by another CONNECT, and with the connection."""
    subs = b"".join(b"SUB q.%d.* %d\r\n" % (number, number) for number in range(world.size // 2))
    with Peer(world.server) as other:
        other.socket.settimeout(ANSWER_S_MAX)
        other.ask(subs)
        with world.watched():
            other.ask(b"".join(b"UNSUB %d\r\n" % number for number in range(world.size // 2)))
        other.ask(subs)
        with world.watched():
            other.ask(b'CONNECT {"verbose":false}\r\n')
        other.ask(subs)
        with world.watched():
            other.socket.close()
            time.sleep(0.5)


@case
def many_subscribers_of_one_subject(world: World) -> None:
    count = world.size // 10
    with world.watched():
        with Peer(world.server) as other:
            other.socket.settimeout(ANSWER_S_MAX)
            other.ask(b"".join(b"SUB one %d\r\n" % number for number in range(count)))
            world.peer.ask(b"PUB one 1\r\nx\r\n")
        time.sleep(0.5)


@case
def long_header_block(world: World) -> None:
    world.stream()
    block = b"NATS/1.0\r\n" + b"A: b\r\n" * (world.size // 6) + b"\r\n"
    with world.watched():
        world.peer.request("s.1", b"", block)
        world.peer.request("s.1", b"", b"NATS/1.0\r\n" + b"Nats-Msg-Id: x\r\n" * (world.size // 16) + b"\r\n")


@case
def publishes_with_message_ids(world: World) -> None:
    world.stream()
    with world.watched():
        world.fill(Nats_Msg_Id=str)


def http(world: World, page: str) -> None:
    with world.watched(), urlopen(f"http://{LOOPBACK}:{world.server.http_port}{page}", timeout=ANSWER_S_MAX) as answer:
        answer.read()


def run(name: str, kind: str, size: int) -> World:
    """One case on a server of its own."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="jetlake-stalls-"))
        server = stack.enter_context(Server(kind, Path(directory), environment={"JETLAKE_VERIFY": ""}))
        world = World(server, size)
        CASES[name](world)
        return world


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.compat.stalls", description="What one request costs others.")
    parser.add_argument("cases", nargs="*", metavar="case", help=f"any of {', '.join(CASES)}; by default all")
    parser.add_argument("--size", type=int, default=200_000, help="messages, subjects or bytes that a case makes")
    parser.add_argument("--kind", choices=KINDS, default=JETLAKE)
    arguments = parser.parse_args()
    for name in arguments.cases or CASES:
        try:
            world = run(name, arguments.kind, arguments.size)
        except Exception as error:
            print(f"{name:36} failed: {type(error).__name__} {str(error)[:200]}", flush=True)
            continue
        print(f"{name:36} took {world.took_s * 1e3:8.0f} ms   PING {world.ping_s * 1e3:8.1f} ms", flush=True)
        for line in sorted(world.lines, key=lambda line: -float(line.partition("held ")[2].split()[0]))[:4]:
            print(f"    {line.partition('held ')[2]}", flush=True)


if __name__ == "__main__":
    main()

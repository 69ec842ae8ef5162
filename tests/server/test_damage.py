"""A byte of a stored message flips under a running server: every request is answered, and only that message is missing.

The server is restarted before, so that it reads messages from the disk. Each request meets the damage first, in a
stream of its own; then all of that stream is read, and once more after another restart.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jetlake.store.blocks.block_file import frame_at
from jetlake.store.format import HEADER_SIZE, decode_header
from tests.compat.peer import Msg, Peer, header_block
from tests.compat.servers import JETLAKE, Server

pytestmark = pytest.mark.damages

COUNT = 9
KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "plain": ("", {}),
    "s2": ("", {"compression": "s2"}),
    "encrypted": ('key: "correct horse battery staple", cipher: aes', {}),
}
PLACES = [("plain", 1), ("plain", 5), ("plain", COUNT), ("s2", 5), ("encrypted", COUNT)]
CONSUMER = {"ack_policy": "explicit", "ack_wait": 30_000_000_000}


class WatchedPeer(Peer):
    """A client to whom nobody may tell a path."""

    def __init__(self, server: Server) -> None:
        self._path = str(server.directory).encode()
        super().__init__(server)

    def frame(self) -> bytes:
        frame = super().frame()
        assert self._path not in frame
        return frame


@dataclass
class Case:
    """A stream with a damaged message, whose subject is its own."""

    server: Server
    peer: Peer
    stream: str
    seq: int
    removed: set[int] = field(default_factory=set)  # by the request, beside what is damaged

    def api(self, subject: str, body: object = None) -> Any:
        return self.peer.api(subject.replace("*", self.stream, 1), body)

    def publish(self, headers: bytes = b"", subject: str = "more") -> Any:
        return self.peer.request(f"{self.stream}.{subject}", b"more", headers).json

    def direct(self, body: object, count: int = 1) -> list[Msg]:
        return self.peer.requests(f"$JS.API.DIRECT.GET.{self.stream}", json.dumps(body).encode(), b"", count)

    def consume(self, name: str, **config: object) -> list[int]:
        """The sequences that a new pull consumer delivers."""
        self.create_consumer(name, **config)
        return [seq for seq, _ in self.fetch(name)]

    def create_consumer(self, name: str, **config: object) -> None:
        body = {"stream_name": self.stream, "config": {"durable_name": name, **CONSUMER, **config}}
        assert "error" not in self.api(f"CONSUMER.DURABLE.CREATE.*.{name}", body)

    def fetch(self, name: str) -> Iterator[tuple[int, Msg]]:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{name}"
        for msg in self.peer.requests(subject, b'{"batch":100,"no_wait":true}', b"", -1):
            if not msg.status:
                seq = int(msg.reply.split(".")[5])
                assert msg.payload in (payload(seq), b"more")
                yield seq, msg

    @property
    def left(self) -> list[int]:
        return [seq for seq in range(1, COUNT + 1) if seq != self.seq]


def payload(seq: int) -> bytes:
    return b"message %d of a dozen" % seq


# Each request meets the damage first.


def get(case: Case) -> None:
    assert case.api("STREAM.MSG.GET.*", {"seq": case.seq})["error"]["err_code"] == 10037
    assert [case.api("STREAM.MSG.GET.*", {"seq": seq})["message"]["seq"] for seq in case.left] == case.left


def get_last(case: Case) -> None:
    assert case.api("STREAM.MSG.GET.*", {"last_by_subj": f"{case.stream}.own"})["error"]["err_code"] == 10037


def get_next(case: Case) -> None:
    found = case.api("STREAM.MSG.GET.*", {"seq": case.seq, "next_by_subj": ">"})
    assert "error" in found if case.seq == COUNT else found["message"]["seq"] == case.seq + 1
    found = case.api("STREAM.MSG.GET.*", {"start_time": "2000-01-01T00:00:00Z", "next_by_subj": ">"})
    assert found["message"]["seq"] == case.left[0]


def direct_get(case: Case) -> None:
    assert case.direct({"seq": case.seq})[0].status == "404 Message Not Found"


def direct_get_last(case: Case) -> None:
    answer = case.peer.request(f"$JS.API.DIRECT.GET.{case.stream}.{case.stream}.own")
    assert answer.status == "404 Message Not Found"


def direct_get_batch(case: Case) -> None:
    *found, end = case.direct({"seq": 1, "batch": 100}, -1)
    assert [msg.payload for msg in found] == [payload(seq) for seq in case.left]
    assert end.status == "204 EOB" and b"Nats-Num-Pending: 0\r\n" in end.headers


def direct_get_multi(case: Case) -> None:
    *found, end = case.direct({"multi_last": [f"{case.stream}.>"]}, -1)
    assert end.status == "204 EOB" and len(found) == 3


def info(case: Case) -> None:
    request = {"deleted_details": True, "subjects_filter": ">"}
    state = case.api("STREAM.INFO.*", request)["state"]
    assert state["last_seq"] == COUNT and "error" not in case.api("STREAM.LIST")


def publish(case: Case) -> None:
    assert case.publish()["seq"] == COUNT + 1


def publish_again(case: Case) -> None:
    for seq in case.left:
        ack = case.publish(header_block(Nats_Msg_Id=f"id-{seq}"))
        assert ack.get("duplicate") and ack["seq"] == seq
    assert case.publish(header_block(Nats_Msg_Id="new"))["seq"] == COUNT + 1
    assert case.publish(header_block(Nats_Msg_Id="new"))["duplicate"]


def publish_expecting(case: Case) -> None:
    headers = header_block(Nats_Expected_Last_Msg_Id=f"id-{COUNT}")
    ack = case.publish(headers)
    assert ("error" in ack) == (case.seq == COUNT)
    assert "error" not in case.publish(header_block(Nats_Rollup="sub"), "own")


def delete(case: Case) -> None:
    assert case.api("STREAM.MSG.DELETE.*", {"seq": case.seq, "no_erase": True})["success"]


def erase(case: Case) -> None:
    assert case.api("STREAM.MSG.DELETE.*", {"seq": case.seq})["success"]


def erase_another(case: Case) -> None:
    assert case.api("STREAM.MSG.DELETE.*", {"seq": case.left[1]})["success"]
    case.removed = {case.left[1]}


def purge_filter(case: Case) -> None:
    assert "error" not in case.api("STREAM.PURGE.*", {"filter": f"{case.stream}.own"})


def purge_seq(case: Case) -> None:
    assert "error" not in case.api("STREAM.PURGE.*", {"seq": 4})
    case.removed = {1, 2, 3}


def update(case: Case) -> None:
    config = case.api("STREAM.INFO.*")["config"]
    assert "error" not in case.api("STREAM.UPDATE.*", {**config, "max_msgs_per_subject": 100, "max_msgs": 1000})


def consume_all(case: Case) -> None:
    assert case.consume("c") == case.left
    found = case.api("CONSUMER.INFO.*.c")
    assert (found["num_pending"], found["num_ack_pending"]) == (0, COUNT - 1)


def consume_from(case: Case) -> None:
    config = {"deliver_policy": "by_start_sequence", "opt_start_seq": case.seq}
    assert case.consume("c", **config) == [seq for seq in case.left if seq >= case.seq]


def consume_from_time(case: Case) -> None:
    config = {"deliver_policy": "by_start_time", "opt_start_time": "2001-01-01T00:00:00Z"}
    assert case.consume("c", **config) == case.left


def consume_last(case: Case) -> None:
    assert case.consume("c", deliver_policy="last") == ([COUNT] if case.seq < COUNT else [])


def consume_last_per_subject(case: Case) -> None:
    assert len(case.consume("c", deliver_policy="last_per_subject", filter_subject=f"{case.stream}.>")) == 3


def consume_own(case: Case) -> None:
    assert case.consume("c", filter_subject=f"{case.stream}.own") == []


def consume_headers(case: Case) -> None:
    case.create_consumer("c", headers_only=True)
    answers = case.peer.requests(f"$JS.API.CONSUMER.MSG.NEXT.{case.stream}.c", b'{"batch":100,"no_wait":true}', b"", -1)
    assert len(answers) == 1 or answers[-1].status


def replay(case: Case) -> None:
    case.create_consumer("c", replay_policy="original")
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{case.stream}.c"
    answers = case.peer.requests(subject, b'{"batch":%d,"expires":5000000000}' % (COUNT - 1), b"", COUNT - 1)
    assert [int(msg.reply.split(".")[5]) for msg in answers] == case.left


def push(case: Case) -> None:
    case.peer.subscribe(f"to.{case.stream}", case.stream)
    config = {"deliver_subject": f"to.{case.stream}", "ack_policy": "none"}
    body = {"stream_name": case.stream, "config": config}
    case.peer.send(b"")
    with WatchedPeer(case.server) as other:
        assert "error" not in other.api(f"CONSUMER.CREATE.{case.stream}", body)
    assert [case.peer.message().payload for _ in case.left] == [payload(seq) for seq in case.left]
    case.peer.send(f"UNSUB {case.stream}\r\n".encode())


def metrics(case: Case) -> None:
    for path in ("jsz?streams=1&consumers=1", "metrics", "healthz"):
        with urllib.request.urlopen(f"http://127.0.0.1:{case.server.http_port}/{path}", timeout=10) as answer:
            assert answer.status == 200


REQUESTS: list[Callable[[Case], None]] = [
    get,
    get_last,
    get_next,
    direct_get,
    direct_get_last,
    direct_get_batch,
    direct_get_multi,
    info,
    publish,
    publish_again,
    publish_expecting,
    delete,
    erase,
    erase_another,
    purge_filter,
    purge_seq,
    update,
    consume_all,
    consume_from,
    consume_from_time,
    consume_last,
    consume_last_per_subject,
    consume_own,
    consume_headers,
    replay,
    push,
    metrics,
]


def fill(peer: Peer, stream: str, own_seq: int, config: dict[str, object]) -> None:
    limits = {"max_age": 3600 * 10**9, "duplicate_window": 120 * 10**9}
    body = {"name": stream, "subjects": [f"{stream}.>"], "allow_direct": True, "allow_rollup_hdrs": True}
    assert "error" not in peer.api(f"STREAM.CREATE.{stream}", {**body, **limits, **config})
    for seq in range(1, COUNT + 1):
        subject = f"{stream}.own" if seq == own_seq else f"{stream}.{seq % 3}"
        ack = peer.request(subject, payload(seq), header_block(Nats_Msg_Id=f"id-{seq}")).json
        assert ack["seq"] == seq


def flip(server: Server, stream: str, seq: int) -> None:
    """Damage a message: each was committed by itself, so it has a frame of its own where there are frames."""
    (block,) = server.store.rglob(f"streams/{stream}/msgs/*.blk")
    data = block.read_bytes()
    header = decode_header(data)
    assert header is not None
    offset = data.find(payload(seq) + seq.to_bytes(8, "little"))
    if offset < 0:
        offset, number = HEADER_SIZE, 1
        while number < seq:
            frame = frame_at(data, offset, header.hash_seed)
            assert frame is not None
            offset, number = frame.file_end, number + 1
        offset += 50
    with open(block, "r+b") as file:
        file.seek(offset)
        file.write(bytes([data[offset] ^ 1]))


def check(case: Case, consumer: str) -> None:
    """All that was not damaged or removed on purpose is there."""
    expected = [seq for seq in case.left if seq not in case.removed]
    found = case.consume(consumer)
    assert [seq for seq in found if seq <= COUNT] == expected
    state = case.api("STREAM.INFO.*")["state"]
    assert state["messages"] == len(found) and state["last_seq"] >= COUNT


@pytest.mark.parametrize(("kind", "seq"), PLACES)
def test_every_request_is_answered_and_only_the_damaged_message_is_missing(tmp_path: Path, kind: str, seq: int) -> None:
    keys, options = KINDS[kind]
    config = f'jetstream {{ sync_interval: "1m", {keys} }}'
    cases: dict[str, Case] = {}
    requests = REQUESTS[::5] if keys else REQUESTS  # deriving keys takes its time
    with Server(JETLAKE, tmp_path, config=config, environment={"JETLAKE_VERIFY": ""}) as server:
        with Peer(server) as peer:
            for request in requests:
                fill(peer, request.__name__.upper(), seq, options)
        assert server.stop() == 0
        server.start()
        with WatchedPeer(server) as peer:
            for request in requests:
                case = cases[request.__name__] = Case(server, peer, request.__name__.upper(), seq)
                flip(server, case.stream, seq)
                request(case)
                check(case, "check")
        assert server.stop() == 0
        server.start()
        with WatchedPeer(server) as peer:
            for case in cases.values():
                case.peer = peer
                check(case, "again")
        log = server.log()
        assert "Traceback" not in log and "offline" not in log
        for case in cases.values():
            lines = [line for line in log.splitlines() if f"messages lost name={case.stream} " in line]
            assert len(lines) <= 1 and all(f"seqs={seq} " in line for line in lines)

"""Stores that the real nats-server wrote, and what its clients saw in them last."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jetlake.wire.go_time import parse_time
from tests.compat.peer import Peer, header_block
from tests.compat.servers import NATS_SERVER, Server

KEY = "a key for the store"


class Seen(NamedTuple):
    """A message as a client gets it."""

    subject: str
    time_ns: int
    headers: bytes
    payload: bytes


@dataclass
class RealStore:
    """A directory, and its streams as clients of the server knew them."""

    path: str
    messages: dict[str, dict[int, Seen]] = field(default_factory=dict)
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    consumers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def look(self, peer: Peer, names: Sequence[str] = ()) -> None:
        """Take down everything that a client can see, of some streams or of all."""
        for name in names or peer.api("STREAM.NAMES")["streams"] or ():
            self.streams[name] = peer.api(f"STREAM.INFO.{name}")
            state = self.streams[name]["state"]
            found = {}
            for seq in range(state["first_seq"], state["last_seq"] + 1):
                answer = peer.api(f"STREAM.MSG.GET.{name}", {"seq": seq})
                if message := answer.get("message"):
                    found[message["seq"]] = _seen(message)
            self.messages[name] = found
            for consumer in peer.api(f"CONSUMER.LIST.{name}")["consumers"] or ():
                self.consumers[f"{name}/{consumer['name']}"] = consumer


def _seen(message: dict[str, Any]) -> Seen:
    headers, payload = (base64.b64decode(message.get(part, "")) for part in ("hdrs", "data"))
    return Seen(message["subject"], parse_time(message["time"]), headers, payload)


def write_store(
    directory: Path,
    fill: Callable[[Peer], None],
    *,
    cipher: str = "",
    is_clean: bool = True,
    key: str = KEY,
) -> RealStore:
    """Run nats-server on a directory, let it fill streams, and end it: by SIGTERM, or by SIGKILL."""
    encryption = f'key: "{key}", cipher: {cipher}' if cipher else ""
    config = f"jetstream {{ {encryption} }}" if encryption else ""
    server = Server(NATS_SERVER, directory, flags=("-js",), config=config)
    store = RealStore(str(server.store))
    with server, Peer(server) as peer:
        fill(peer)
        store.look(peer)
        if is_clean:
            server.stop()
    return store


def restarted(directory: Path, cipher: str = "", key: str = KEY) -> RealStore:
    """What nats-server itself makes of a directory when it starts again."""
    return write_store(directory, lambda peer: None, cipher=cipher, key=key)


def fill_everything(peer: Peer, compression: str = "none", seed: int = 7) -> None:
    """Streams that went through every kind of removal."""
    chance = random.Random(seed)

    def make(name: str, **config: Any) -> None:
        answer = peer.api(f"STREAM.CREATE.{name}", {"name": name, "compression": compression, **config})
        assert "error" not in answer, answer

    def publish(subject: str, count: int, size_max: int = 300, **headers: object) -> None:
        for number in range(count):
            payload = bytes(chance.choices(b"abcdefgh\0\xff", k=chance.randrange(size_max)))
            block = header_block(N=number, **headers) if headers or number % 3 == 0 else b""
            assert "seq" in peer.request(f"{subject}.{number % 7}", payload, block).json

    make("PLAIN", subjects=["plain.>"])
    publish("plain", 120)
    for seq, no_erase in ((3, False), (9, True), (120, True), (64, False)):
        assert peer.api("STREAM.MSG.DELETE.PLAIN", {"seq": seq, "no_erase": no_erase})["success"]
    peer.api("STREAM.PURGE.PLAIN", {"filter": "plain.2"})
    publish("plain", 20, Nats_Msg_Id="one")
    make("KV", subjects=["kv.>"], max_msgs_per_subject=1)
    publish("kv", 60)
    make("SMALL", subjects=["small.>"], max_bytes=120_000)
    publish("small", 250, size_max=1500)
    make("PURGED", subjects=["purged.>"])
    publish("purged", 30)
    peer.api("STREAM.PURGE.PURGED")
    make("CUT", subjects=["cut.>"], max_msgs=40)
    publish("cut", 90)
    peer.api("STREAM.PURGE.CUT", {"seq": 60})
    make("FIRST", subjects=["first.>"], first_seq=1000)
    publish("first", 5)
    make("EMPTY", subjects=["empty.>"])
    make("WORK", subjects=["work.>"], retention="workqueue")
    publish("work", 30)
    consumers(peer)


def consumers(peer: Peer) -> None:
    """Consumers half way through their streams."""
    for stream, name in (("PLAIN", "half"), ("WORK", "worker")):
        config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": 3600 * 10**9}
        answer = peer.api(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})
        assert "error" not in answer, answer
        batch = peer.requests(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", b'{"batch":10}', b"", 10)
        for place, message in enumerate(batch):
            if place not in (4, 7):
                peer.request(message.reply, b"+ACK")
        peer.publish(batch[4].reply, b"-NAK")
        peer.requests(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", b'{"batch":1}', b"", 1)
    peer.api(
        "CONSUMER.CREATE.PLAIN.idle",
        {"stream_name": "PLAIN", "config": {"name": "idle", "durable_name": "idle", "ack_policy": "all"}},
    )

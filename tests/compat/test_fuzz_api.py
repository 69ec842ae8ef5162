"""Odd requests, headers and acks to both servers, for a while: nobody loses a connection that nats-server keeps.

What is sent follows from a seed, which a failure names: `JETLAKE_FUZZ_SEED` replays it, and `JETLAKE_FUZZ_S` says for
how long to search. A case is one message: a request whose body is a right one with something odd in it (a value of
another type, a huge number, an odd time, bytes that are not UTF-8, deep nesting), or a publish with odd headers, or an
ack. Both servers get the same cases one by one. JetLake must not

    close a connection that nats-server keeps
    let an error through that nobody foresaw (any traceback in its log)
    work on anything for long, as the watchdog of its event loop measures it
    hang at the end, or come back with a stream offline or a stream less
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from tests.compat.conftest import ONLY
from tests.compat.peer import Closed, Peer
from tests.compat.servers import JETLAKE, NATS_SERVER, Server

SEED = int(os.environ.get("JETLAKE_FUZZ_SEED", secrets.randbits(32)))
SECONDS = float(os.environ.get("JETLAKE_FUZZ_S", "20"))
CPU_MS_MAX = 50.0  # of one turn of the loop; how long it waits for a core or a thread says more about the machine
LINES_MAX = 40
LOOK_EVERY = 500  # cases between two looks at the log
CONFIG = """
accounts {
  $SYS { users: [{user: s, password: s}] }
  A { jetstream: { max_mem: 100MB, max_file: 400MB }, users: [{user: a, password: a}] }
}
max_payload: 1MB
"""
_UNFORESEEN = re.compile(r"Traceback|\[ERR\] .* failed: ")


class Raw(NamedTuple):
    """JSON as it is: a number that Python has no type for, or something that is none."""

    text: bytes


# Odd values

_NUMBERS = [
    0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 10**9, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63),
    -(2**63) - 1, 0.5, Raw(b"1e3"), Raw(b"1e400"), Raw(b"-0"), Raw(b"01"), Raw(b"9" * 400), Raw(b"-" + b"9" * 30),
    100_000_000, 1_000_000_000, 3_600_000_000_000,
]  # fmt: skip
_TIMES = [
    "2030-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+12:00", "9999-12-31T23:59:59-12:00",
    "10000-01-01T00:00:00Z", "2024-02-30T00:00:00Z", "2024-01-01", "2024-01-01T00:00:00.999999999999Z",
    "1969-12-31T23:59:59.5Z", "0000-01-01T00:00:00Z", "2262-04-12T00:00:00Z", "1677-01-01T00:00:00Z",
]  # fmt: skip
_TEXTS = [
    "", "x", "F0", "C0", "f0.>", "f0.a", ">", "*", "f0.*", "f0.*.b", "a..b", ".", " ", "a b", "\x00", "\n", "é", "😀",
    "x" * 300, "y" * 5000, "..", "a/b", "a\\b", "%2e", "$JS.API.>", "$SYS.>", "_INBOX.x", "f0.{{wildcard(1)}}",
    "{{partition(0,1)}}", "explicit", "none", "all", "last", "by_start_time", "5s", "9" * 400 + "s", "-1s", "1h1m",
    "never", Raw(b'"\xff"'), Raw(b'"\\ud800"'), Raw(b'"\\udc00\\ud800"'), Raw(b'"\\u0000"'), Raw(b'"a\nb"'),
    Raw(b'"\\x"'),
]  # fmt: skip


def large_value(rng: random.Random) -> Any:
    """As much as a request may hold, more or less."""
    count = rng.choice([1_000, 10_000, 50_000])
    return rng.choice(
        [
            [f"f0.{number}" for number in range(count)],
            [{"name": "x", "src": ">"}] * (count // 5),
            {f"k{number}": str(number) for number in range(count // 2)},
            "z" * (8 * count),
            Raw(b"9" * (8 * count)),
            Raw(b"1s" * (4 * count)),
            Raw(b'"' + b"\\u00e9\\\\" * count + b'"'),
        ]
    )


def odd_value(rng: random.Random, depth: int = 0) -> Any:
    if rng.random() < 0.003:
        return large_value(rng)
    kind = rng.randrange(12)
    if kind < 4:
        return rng.choice(_NUMBERS)
    if kind < 7:
        return rng.choice(_TEXTS)
    if kind == 7:
        return rng.choice(_TIMES)
    if kind == 8:
        return rng.choice([True, False, None])
    if kind == 9 and depth < 3:
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 10 and depth < 3:
        return {str(rng.choice(_TEXTS)): odd_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    count = rng.choice([2, 30, 199, 500]) if rng.random() < 0.95 else rng.choice([5_000, 100_000])
    return Raw(rng.choice([b"[" * count + b"]" * count, b'{"a":' * count + b"1" + b"}" * count, b"[" * count]))


def to_json(value: Any) -> bytes:
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return b"{%s}" % b",".join(json.dumps(key).encode() + b":" + to_json(item) for key, item in value.items())
    if isinstance(value, list):
        return b"[%s]" % b",".join(map(to_json, value))
    return json.dumps(value, ensure_ascii=False).encode()


def changed(rng: random.Random, value: Any) -> Any:
    """The value with something odd somewhere in it."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        value, key = dict(value), rng.choice(list(value))
        act = rng.randrange(6)
        if act == 0:
            del value[key]
        elif act == 1:
            value[rng.choice([*_FIELDS, "unknown", key.upper()])] = odd_value(rng)
        else:
            value[key] = changed(rng, value[key])
        return value
    if isinstance(value, list) and value and rng.random() < 0.5:
        return [*value[:-1], changed(rng, value[-1])]
    return odd_value(rng)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """A byte changed, dropped or doubled, or a piece cut out."""
    at = rng.randrange(len(data) + 1)
    return rng.choice(
        [
            data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
            data[:at] + data[at + 1 :],
            data[:at] + b"\xff\xfe" + data[at:],
            data[:at],
            data + rng.choice([b"{}", b" ", b"\x00", b"x"]),
            data[:at] + data[at + rng.randrange(20) :],
        ]
    )


# Right requests

_STREAM: dict[str, Any] = {
    "retention": "limits", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0,
    "max_msgs_per_subject": -1, "max_msg_size": -1, "discard": "old", "storage": "file", "num_replicas": 1,
    "duplicate_window": 120_000_000_000, "compression": "none", "allow_direct": True, "sealed": False,
    "allow_rollup_hdrs": True, "allow_msg_ttl": True, "first_seq": 0, "metadata": {"a": "b"}, "description": "d",
    "subject_transform": {"src": "f0.>", "dest": "f0.>"}, "republish": {"src": ">", "dest": "re.>"},
    "consumer_limits": {"inactive_threshold": 0, "max_ack_pending": 0}, "placement": {"tags": ["x"]},
    "subject_delete_marker_ttl": 0, "discard_new_per_subject": False, "deny_delete": False, "deny_purge": False,
    "mirror": {"name": "M"}, "sources": [{"name": "M"}],
}  # fmt: skip
_CONSUMER: dict[str, Any] = {
    "deliver_policy": "all", "ack_policy": "explicit", "ack_wait": 30_000_000_000, "max_deliver": -1,
    "filter_subject": "f0.>", "filter_subjects": ["f0.a", "f0.b"], "replay_policy": "instant", "max_waiting": 512,
    "max_ack_pending": 1000, "inactive_threshold": 60_000_000_000, "num_replicas": 0, "backoff": [1_000_000_000],
    "opt_start_seq": 1, "opt_start_time": "2024-01-01T00:00:00Z", "pause_until": "2024-01-01T00:00:00Z",
    "deliver_subject": "push.x", "deliver_group": "g", "flow_control": True, "idle_heartbeat": 1_000_000_000,
    "headers_only": False, "max_batch": 0, "max_expires": 0, "max_bytes": 0, "rate_limit_bps": 0, "sample_freq": "100%",
    "priority_groups": ["g"], "priority_policy": "overflow", "priority_timeout": 0, "mem_storage": False,
    "metadata": {"a": "b"}, "description": "d", "direct": False,
}  # fmt: skip
_FIELDS = [*_STREAM, *_CONSUMER, "seq", "batch", "offset", "subject", "filter", "keep", "limit", "name"]


_STREAMS: list[dict[str, Any]] = [
    {}, {"retention": "workqueue"}, {"retention": "interest"}, {"storage": "memory"}, {"compression": "s2"},
    {"max_msgs_per_subject": 2}, {"max_age": 1_000_000_000, "duplicate_window": 500_000_000},
    {"discard": "new", "max_msgs": 20}, {"max_bytes": 10_000}, {"allow_rollup_hdrs": True},
    {"allow_msg_ttl": True, "subject_delete_marker_ttl": 1_000_000_000}, {"republish": {"src": ">", "dest": "re.>"}},
    {"subject_transform": {"src": "f0.*", "dest": "f0.x.{{wildcard(1)}}"}}, {"sealed": True}, {"deny_purge": True},
]  # fmt: skip
_CONSUMERS: list[dict[str, Any]] = [
    {}, {"ack_policy": "all"}, {"ack_policy": "none"}, {"deliver_policy": "last"}, {"deliver_policy": "new"},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 3}, {"filter_subject": "f0.a"}, {"headers_only": True},
    {"deliver_policy": "by_start_time", "opt_start_time": "2024-01-01T00:00:00Z"}, {"replay_policy": "original"},
    {"deliver_policy": "last_per_subject", "filter_subject": "f0.>"}, {"filter_subjects": ["f0.a", "f0.b"]},
    {"max_deliver": 3, "backoff": [1_000_000, 2_000_000]}, {"deliver_subject": "push.x"}, {"sample_freq": "100%"},
    {"deliver_subject": "push.x", "flow_control": True, "idle_heartbeat": 200_000_000}, {"max_ack_pending": 2},
    {"priority_groups": ["g"], "priority_policy": "overflow"}, {"mem_storage": True}, {"ack_wait": 1_000_000},
    {"priority_groups": ["g"], "priority_policy": "pinned_client", "priority_timeout": 1_000_000_000},
    {"pause_until": "2030-01-01T00:00:00Z"}, {"max_batch": 2, "max_expires": 1_000_000_000, "max_bytes": 100},
]  # fmt: skip


def _some(rng: random.Random, fields: dict[str, Any], few: int) -> dict[str, Any]:
    return {name: fields[name] for name in rng.sample(list(fields), rng.randrange(few))}


def _config(rng: random.Random, right: list[dict[str, Any]], fields: dict[str, Any]) -> dict[str, Any]:
    """One that is right by itself, with or without what may not go with it."""
    return {**rng.choice(right), **(_some(rng, fields, 4) if rng.random() < 0.3 else {})}


def stream_request(rng: random.Random, number: int) -> dict[str, Any]:
    return {"name": f"F{number}", "subjects": [f"f{number}.>"], **_config(rng, _STREAMS, _STREAM)}


def consumer_request(rng: random.Random, stream: str, name: str) -> dict[str, Any]:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", **_config(rng, _CONSUMERS, _CONSUMER)}
    return {"stream_name": stream, "config": config, "action": rng.choice(["", "", "create", "update"])}


def api_request(rng: random.Random) -> tuple[str, Any]:
    """A subject of the API and what to ask there."""
    number, consumer = rng.randrange(3), f"C{rng.randrange(4)}"
    stream = f"F{number}"
    make: list[Callable[[], tuple[str, Any]]] = [
        lambda: (f"STREAM.CREATE.{stream}", stream_request(rng, number)),
        lambda: (f"STREAM.UPDATE.{stream}", stream_request(rng, number)),
        lambda: (f"STREAM.INFO.{stream}", {"offset": 0, "deleted_details": True, "subjects_filter": ">"}),
        lambda: (f"STREAM.PURGE.{stream}", {"seq": 3, "filter": "f0.a", "keep": 1}),
        lambda: (rng.choice(["STREAM.NAMES", "STREAM.LIST"]), {"offset": 0, "subject": "f0.>"}),
        lambda: (f"STREAM.MSG.GET.{stream}", {"seq": 1, "last_by_subj": "f0.a", "next_by_subj": "f0.>", "batch": 5}),
        lambda: (f"STREAM.MSG.DELETE.{stream}", {"seq": rng.randrange(20), "no_erase": True}),
        lambda: (f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": "snap", "chunk_size": 1000}),
        lambda: (f"STREAM.RESTORE.{stream}", {"config": stream_request(rng, number), "state": {"messages": 1}}),
        lambda: (f"CONSUMER.CREATE.{stream}.{consumer}", consumer_request(rng, stream, consumer)),
        lambda: (f"CONSUMER.CREATE.{stream}.{consumer}.f0.a", consumer_request(rng, stream, consumer)),
        lambda: (f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": _some(rng, _CONSUMER, 6)}),
        lambda: (f"CONSUMER.DURABLE.CREATE.{stream}.{consumer}", consumer_request(rng, stream, consumer)),
        lambda: (f"CONSUMER.INFO.{stream}.{consumer}", {"x": 1}),
        lambda: (rng.choice(["CONSUMER.NAMES.", "CONSUMER.LIST."]) + stream, {"offset": 0, "subject": "x"}),
        lambda: (f"CONSUMER.PAUSE.{stream}.{consumer}", {"pause_until": rng.choice(_TIMES)}),
        lambda: (f"CONSUMER.UNPIN.{stream}.{consumer}", {"group": "g"}),
        lambda: (f"CONSUMER.RESET.{stream}.{consumer}", {"seq": rng.randrange(20)}),
        lambda: (f"CONSUMER.MSG.NEXT.{stream}.{consumer}", pull_request(rng)),
        lambda: (f"CONSUMER.MSG.NEXT.{stream}.{consumer}", pull_request(rng)),
        lambda: (f"DIRECT.GET.{stream}", {"seq": 1, "next_by_subj": "f0.>", "batch": 5, "max_bytes": 1000}),
        lambda: (f"DIRECT.GET.{stream}", {"multi_last": ["f0.*", ">"], "up_to_seq": 9, "batch": 4}),
        lambda: (f"DIRECT.GET.{stream}.f{number}.a", {"no_hdr": True}),
        lambda: ("INFO", {"x": 1}),
    ]
    if rng.random() < 0.03:
        return rng.choice([f"CONSUMER.DELETE.{stream}.{consumer}", f"STREAM.DELETE.{stream}"]), {}
    return rng.choice(make)()


def pull_request(rng: random.Random) -> dict[str, Any]:
    fields = {"batch": 2, "expires": 1_000_000, "max_bytes": 1000, "no_wait": True, "idle_heartbeat": 100_000,
              "group": "g", "min_pending": 1, "min_ack_pending": 1, "id": "x", "priority": 1}  # fmt: skip
    return _some(rng, fields, 6)


def system_request(rng: random.Random) -> tuple[str, Any]:
    page = rng.choice(["VARZ", "CONNZ", "SUBSZ", "JSZ", "ACCOUNTZ", "HEALTHZ", "STATSZ", "ROUTEZ", "LEAFZ", "IDZ", "X"])
    options = {"offset": 0, "limit": 5, "sort": "cid", "auth": True, "subscriptions": True, "account": "A", "acc": "A",
               "cid": 1, "state": 2, "user": "a", "streams": True, "consumer": True, "config": True, "test": "a.b",
               "accounts": True, "details": True, "include_unused": True, "filter_subject": ">"}  # fmt: skip
    whom = rng.choice(["SERVER.PING", "SERVER.PING", "ACCOUNT.A", "ACCOUNT.PING"])
    page = rng.choice([page, "CONNS", "INFO", "STATZ"]) if whom.startswith("ACCOUNT") else page
    return f"$SYS.REQ.{whom}.{page}", _some(rng, options, 5)


# Messages

_HEADERS = [
    "Nats-TTL", "Nats-Msg-Id", "Nats-Rollup", "Nats-Expected-Stream", "Nats-Expected-Last-Sequence",
    "Nats-Expected-Last-Subject-Sequence", "Nats-Expected-Last-Subject-Sequence-Subject", "Nats-Expected-Last-Msg-Id",
    "Nats-Schedule", "Nats-Schedule-Target", "Nats-Schedule-Time-Zone", "Nats-Schedule-TTL", "Nats-Scheduler",
    "Nats-Schedule-Next", "Nats-Incr", "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit",
    "Nats-Required-Api-Level", "Nats-Stream-Source", "Nats-Marker-Reason", "X", "", "nats-ttl", "\xe9",
]  # fmt: skip
_BLOCKS = [
    b"NATS/1.0\r\n\r\n", b"NATS/1.0 503\r\n\r\n", b"NATS/1.0", b"NATS/1.0\r\n", b"x", b"NATS/1.0\r\nA\r\n\r\n",
    b"\r\n\r\n", b"NATS/1.0 408 \xff\r\nA: b\r\n\r\n", b"NATS/1.0\r\n: v\r\n\r\n", b"NATS/1.0\nA: b\n\n",
    b"NATS/2.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nNats-TTL:\r\n\r\n", b"NATS/1.0\r\nNats-Msg-Id\r\n\r\n",
    b"NATS/1.0\r\nNats-Rollup: sub",
]  # fmt: skip


def header_block(rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return rng.choice(_BLOCKS)
    lines = b""
    for _ in range(rng.randrange(1, 4)):
        value = odd_value(rng)
        text = to_json(value).strip(b'"') if not isinstance(value, str) else value.encode()
        lines += rng.choice(_HEADERS).encode("latin-1") + rng.choice([b": ", b":", b":  "]) + text[:5000] + b"\r\n"
    block = b"NATS/1.0\r\n" + lines + b"\r\n"
    return damaged(rng, block) if rng.random() < 0.2 else block


def ack(rng: random.Random) -> tuple[bytes, bytes]:
    """The subject and payload of an ack."""
    numbers = [rng.choice([b"1", b"2", b"%d" % rng.randrange(40)]) for _ in range(5)]
    if rng.random() < 0.2:
        odd = [b"-1", b"x", b"9" * 19, b"9" * 400, b"18446744073709551615", b"0", b"\xff"]
        numbers[rng.randrange(5)] = rng.choice(odd)
    head = b"$JS.ACK.F%d.C%d." % (rng.randrange(3), rng.randrange(4))
    if rng.random() < 0.1:
        head = head.replace(b"$JS.ACK.", b"$JS.ACK._.hash.")
    subject = head + b".".join(numbers[: rng.choice([5, 5, 5, 5, 4, 2])])
    word = rng.choice([b"+ACK", b"", b"-NAK", b"+WPI", b"+TERM", b"+NXT", b"+OK", b"-nak", b"+NXT", b"-NAK"])
    arguments = [
        b"",
        b" " + to_json(odd_value(rng)),
        b' {"delay":%s}' % to_json(odd_value(rng)),
        b" " + to_json(changed(rng, pull_request(rng))),
        b" " + str(rng.choice(_TEXTS)).encode("utf-8", "replace"),
        rng.randbytes(8).replace(b"\r", b"r"),
    ]
    return subject, word + rng.choice(arguments)


class Case(NamedTuple):
    """One message, and who sends it."""

    is_system: bool
    subject: bytes
    headers: bytes
    payload: bytes

    def frame(self) -> bytes:
        """Its PUB or HPUB."""
        if self.headers:
            sizes = b"%d %d" % (len(self.headers), len(self.headers) + len(self.payload))
            return b"HPUB %s in.x %s\r\n%s%s\r\n" % (self.subject, sizes, self.headers, self.payload)
        return b"PUB %s in.x %d\r\n%s\r\n" % (self.subject, len(self.payload), self.payload)


def make_case(rng: random.Random) -> Case:
    kind = rng.randrange(10)
    headers = header_block(rng) if kind < 2 or rng.random() < 0.05 else b""
    if kind < 3:
        subject = b"f%d.%s" % (rng.randrange(3), rng.choice([b"a", b"b", b"\xff", b"c.d", b"*", b"x" * 200]))
        return Case(False, subject, headers, rng.randbytes(rng.choice([0, 5, 100])))
    if kind < 5:
        return Case(False, *_with(headers, *ack(rng)))
    name, body = system_request(rng) if kind == 5 else api_request(rng)
    subject = name.encode() if kind == 5 else b"$JS.API." + name.encode()
    payload = to_json(changed(rng, body)) if rng.random() < 0.6 else to_json(body)
    if rng.random() < 0.1:
        payload = damaged(rng, payload)
    if rng.random() < 0.05:
        subject = subject + rng.choice([b"\xff", b".x", b"%", b"\x01"])
    return Case(kind == 5, subject, headers, payload)


def _with(headers: bytes, subject: bytes, payload: bytes) -> tuple[bytes, bytes, bytes]:
    return subject, headers, payload


class Side:
    """One server, with a user of each kind."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind, self._directory, self._starts = kind, directory, itertools.count(1)
        self._peers: dict[bool, Peer] = {}
        self.start()

    def start(self) -> None:
        """Start a server that has nothing yet."""
        directory = self._directory / f"{self._kind}-{next(self._starts)}"
        self.server = Server(self._kind, directory, ("-js",), CONFIG)
        self.server.start()
        self._peers.clear()
        self.prepare()

    def ask(self, case: Case) -> bool:
        """Send a case; False when it cost the connection."""
        peer = self._peers.get(case.is_system) or self._connect(case.is_system)
        with suppress(OSError):
            peer.send(case.frame())
        peer.ask()
        if peer.is_closed:
            del self._peers[case.is_system]
        return not peer.is_closed

    def ask_mortal(self, case: Case) -> bool:
        """The same with a server that may end: nats-server does, for some headers. Another one takes its place."""
        try:
            return self.ask(case)
        except (OSError, Closed):
            self.server.kill()
            self.start()
            return False

    def prepare(self) -> None:
        """Make what most cases are about; they will change it, and delete it some time."""
        with Peer(self.server, user="a", **{"pass": "a"}) as peer:
            for number in range(3):
                name = f"F{number}"
                config = {"name": name, "subjects": [f"f{number}.>"], "allow_direct": True, "allow_msg_ttl": True}
                assert "error" not in peer.api(f"STREAM.CREATE.{name}", config)
                consumer = {"name": "C0", "durable_name": "C0", "ack_policy": "explicit"}
                request = {"stream_name": name, "config": consumer}
                assert "error" not in peer.api(f"CONSUMER.CREATE.{name}.C0", request)

    def _connect(self, is_system: bool) -> Peer:
        name = "s" if is_system else "a"
        peer = self._peers[is_system] = Peer(self.server, user=name, **{"pass": name})
        peer.ask(b"SUB in.> 1\r\nSUB push.> 2\r\nSUB re.> 3\r\n")
        return peer

    def names(self) -> set[str]:
        """The streams that outlive it."""
        with Peer(self.server, user="a", **{"pass": "a"}) as peer:
            configs = [stream["config"] for stream in peer.api("STREAM.LIST")["streams"]]
        return {config["name"] for config in configs if config["storage"] == "file"}

    def complaints(self) -> list[str]:
        """What its log should not have."""
        lines = self.server.log().splitlines()
        bad = [number for number, line in enumerate(lines) if _UNFORESEEN.search(line)]
        return self.server.stalls(CPU_MS_MAX, math.inf) + (lines[bad[0] :][:LINES_MAX] if bad else [])


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    """Both servers. Their files are in memory where that is possible: how long a disk takes is not looked for here."""
    kinds = (ONLY, ONLY) if ONLY else (NATS_SERVER, JETLAKE)
    with ExitStack() as stack:
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="jetlake-fuzz-", dir=memory)))
        found = []
        for number, kind in enumerate(kinds):
            found.append(Side(kind, directory / str(number)))
            stack.callback(lambda side=found[-1]: side.server.kill())
        yield found[0], found[1]


def test_odd_requests_headers_and_acks(sides: tuple[Side, Side]) -> None:
    real, ours = sides
    rng, stop, count = random.Random(SEED), time.monotonic() + SECONDS, 0
    print(f"JETLAKE_FUZZ_SEED={SEED}")
    while time.monotonic() < stop:
        case = make_case(rng)
        where = f"JETLAKE_FUZZ_SEED={SEED}, case {count}: {case!r:.1000}"
        try:
            is_kept = ours.ask(case)
        except (OSError, Closed) as error:
            pytest.fail(f"{where}: {error!r}\n" + "\n".join(ours.complaints()), pytrace=False)
        assert real.ask_mortal(case) <= is_kept, where
        count += 1
        if count % LOOK_EVERY == 0:
            assert not ours.complaints(), f"{where}, or before\n" + "\n".join(ours.complaints())
    before = ours.names()
    assert ours.server.stop() == 0
    ours.server.start()
    assert ours.names() == before
    assert " offline " not in ours.server.log()
    assert ours.server.stop() == 0
    assert not ours.complaints(), f"JETLAKE_FUZZ_SEED={SEED}\n" + "\n".join(ours.complaints())
    print(f"{count} cases")

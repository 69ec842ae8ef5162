"""The same requests to nats-server and to JetLake: the answers are the same, field by field and in the same order."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.broker.real_server import real_server
from tests.jetstream.harness import SERVER_NAME, FakeHost, InProcess

ANSWER_S_MAX = 10.0
SILENCE_S = 0.3
_TIMES = {"created", "ts", "first_ts", "last_ts", "time"}
_ZERO = "0001-01-01T00:00:00Z"


class RealServer:
    """nats-server by a raw socket."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S_MAX)
        self._file = self._socket.makefile("rb")
        self._file.readline()
        self._socket.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.* 1\r\n')
        self._count = 0

    def request(
        self, subject: str, payload: bytes = b"", headers: bytes = b"", *, is_silent: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Send a request; headers and payload of every answer, the last of which is no part of a batch."""
        self._count += 1
        reply = f"_INBOX.{self._count}"
        if headers:
            line = f"HPUB {subject} {reply} {len(headers)} {len(headers) + len(payload)}\r\n"
        else:
            line = f"PUB {subject} {reply} {len(payload)}\r\n"
        self._socket.sendall(line.encode() + headers + payload + b"\r\n")
        self._socket.settimeout(SILENCE_S if is_silent else ANSWER_S_MAX)
        is_row = "DIRECT.GET" in subject and (b'"batch"' in payload or b'"multi_last"' in payload)
        answers: list[tuple[bytes, bytes]] = []
        while not answers or (is_row and not answers[-1][0].startswith(b"NATS/1.0 ")):
            try:
                answers.append(self._message(reply.encode()))
            except TimeoutError:
                assert is_silent, "no answer"
                self._file = self._socket.makefile("rb")
                return []
        return answers

    def _message(self, reply: bytes) -> tuple[bytes, bytes]:
        """The next message for a reply subject; what is late for another one is dropped."""
        while True:
            words = self._file.readline().split()
            assert words, "nats-server hung up"
            if words[0] == b"PING":
                self._socket.sendall(b"PONG\r\n")
            elif words[0] in (b"MSG", b"HMSG"):
                size = int(words[-1])
                headers_size = int(words[-2]) if words[0] == b"HMSG" else 0
                data = self._file.read(size + 2)
                if words[1] == reply:
                    return data[:headers_size], data[headers_size:-2]
            else:
                raise AssertionError(words)

    def remove_streams(self) -> None:
        """Leave nothing to the next test."""
        names = json.loads(self.request("$JS.API.STREAM.NAMES")[0][1])["streams"]
        for name in names or []:
            self.request(f"$JS.API.STREAM.DELETE.{name}")


@pytest.fixture(scope="module")
def nats() -> Iterator[RealServer]:
    with real_server(f"server_name: {SERVER_NAME}\njetstream {{max_mem: 1TB, max_file: 1TB}}") as port:
        yield RealServer(port)


class Step(NamedTuple):
    subject: str
    payload: bytes = b""
    headers: bytes = b""
    is_silent: bool = False


def api(subject: str, body: Any = b"", headers: bytes = b"", *, is_silent: bool = False) -> Step:
    """A request to the API; the body is JSON unless it is text already."""
    if not isinstance(body, bytes | str):
        body = json.dumps(body)
    return Step(f"$JS.API.{subject}", body.encode() if isinstance(body, str) else body, headers, is_silent)


def create(name: str = "S", **fields: Any) -> Step:
    return api(f"STREAM.CREATE.{name}", {"name": name, **fields})


def update(name: str = "S", **fields: Any) -> Step:
    return api(f"STREAM.UPDATE.{name}", {"name": name, **fields})


def info(name: str = "S", **fields: Any) -> Step:
    return api(f"STREAM.INFO.{name}", fields)


def get(name: str = "S", **fields: Any) -> Step:
    return api(f"STREAM.MSG.GET.{name}", fields)


def direct(name: str = "S", **fields: Any) -> Step:
    return api(f"DIRECT.GET.{name}", fields)


def purge(name: str = "S", **fields: Any) -> Step:
    return api(f"STREAM.PURGE.{name}", fields)


def delete_msg(seq: int, name: str = "S", **fields: Any) -> Step:
    return api(f"STREAM.MSG.DELETE.{name}", {"seq": seq, **fields})


def pub(subject: str, payload: str = "x", headers: str = "") -> Step:
    return Step(subject, payload.encode(), f"NATS/1.0\r\n{headers}\r\n\r\n".encode() if headers else b"")


def comparable(answer: tuple[bytes, bytes]) -> Any:
    """An answer without what differs from one second to the next. Objects are lists of pairs: their order counts."""
    headers, payload = answer
    lines = [line for line in headers.split(b"\r\n") if not line.startswith(b"Nats-Time-Stamp")]
    if not payload.startswith(b'{"'):
        return lines, payload

    def pairs(items: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        return [(key, "T" if key in _TIMES and value != _ZERO else value) for key, value in items]

    return lines, json.loads(payload, object_pairs_hook=pairs)


def same(nats: RealServer, ours: InProcess, steps: list[Step]) -> None:
    """Take each step on both sides."""
    try:
        for step in steps:
            theirs = nats.request(step.subject, step.payload, step.headers, is_silent=step.is_silent)
            mine = ours.request(step.subject, step.payload, step.headers)
            assert list(map(comparable, mine)) == list(map(comparable, theirs)), f"{step}\n{mine=}\n{theirs=}"
    finally:
        nats.remove_streams()


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[InProcess]:
    server = InProcess(str(tmp_path), FakeHost())
    yield server
    server.stop()


SECOND = 10**9

CONFIGS: list[dict[str, Any]] = [
    {},
    {"description": "d" * 4096},
    {"description": "d" * 4097},
    {"metadata": {"b": "2", "a": "1"}},
    {"metadata": {"_nats.ver": "x", "_nats.req.level": "7", "_nats.level": "9", "mine": "1"}},
    {"metadata": {"k": "v" * (128 * 1024 - 1)}},
    {"metadata": {"k": "v" * (128 * 1024 + 1)}},
    {"subjects": ["a.>", "b.*.c"]},
    {"subjects": ["a..b"]},
    {"subjects": ["a b"]},
    {"subjects": [""]},
    {"subjects": ["a.>.b"]},
    {"subjects": ["a", "a"]},
    {"subjects": ["a.*", "a.b"]},
    {"subjects": ["a.b", "a.>"]},
    {"subjects": [">"]},
    {"subjects": [">"], "no_ack": True, "num_replicas": 3},
    {"subjects": ["$JS.API.>"]},
    {"subjects": ["$JS.EVENT.METRIC.>"]},
    {"subjects": ["$JSC.x"]},
    {"subjects": ["$NRG.>"]},
    {"subjects": ["$SYS.x"]},
    {"subjects": ["$SYS.ACCOUNT.>"]},
    {"subjects": ["*.>"]},
    {"subjects": ["$KV.b.>"]},
    {"retention": "interest"},
    {"retention": "workqueue"},
    {"storage": "memory"},
    {"num_replicas": 0},
    {"num_replicas": 3},
    {"num_replicas": 6},
    {"num_replicas": -1},
    {"max_msgs": 5, "max_bytes": 1000, "max_msgs_per_subject": 2, "max_msg_size": 100, "max_consumers": 3},
    {"max_msgs": 0, "max_bytes": -5, "max_msgs_per_subject": -2, "max_msg_size": -9, "max_consumers": -3},
    {"max_msgs": -5, "pedantic": True},
    {"max_bytes": -5, "pedantic": True},
    {"max_msgs_per_subject": -5, "pedantic": True},
    {"max_msg_size": -5, "pedantic": True},
    {"max_consumers": -5, "pedantic": True},
    {"max_msgs": 0, "pedantic": True},
    {"max_age": -1},
    {"max_age": 1},
    {"max_age": SECOND},
    {"max_age": SECOND, "pedantic": True},
    {"max_age": SECOND, "duplicate_window": 2 * SECOND},
    {"max_age": 3600 * SECOND},
    {"duplicate_window": -1},
    {"duplicate_window": 1},
    {"duplicate_window": SECOND},
    {"discard": "new"},
    {"discard": "NEW"},
    {"discard": "none"},
    {"discard_new_per_subject": True},
    {"discard_new_per_subject": True, "discard": "new"},
    {"discard_new_per_subject": True, "discard": "new", "max_msgs_per_subject": 1},
    {"no_ack": True},
    {"compression": "s2"},
    {"compression": "none"},
    {"compression": "lz4"},
    {"first_seq": 1},
    {"first_seq": 10},
    {"first_seq": 2**63},
    {"placement": {"cluster": "c", "tags": ["a", "b"]}},
    {"placement": {}},
    {"placement": {"preferred": "x"}},
    {"subject_transform": {"src": "S", "dest": "T"}},
    {"subject_transform": {"src": ">", "dest": "T.>"}},
    {"subject_transform": {"src": "", "dest": "T.>"}},
    {"subject_transform": {"src": "a..b", "dest": "T"}},
    {"subject_transform": {"src": "a.*", "dest": "T.{{wildcard(2)}}"}},
    {"subject_transform": {"src": "a.*", "dest": "T.{{nope(1)}}"}},
    {"subject_transform": {"src": "a.*", "dest": ""}},
    {"subject_transform": {"src": "a.>", "dest": "b"}},
    {"republish": {"dest": "R"}},
    {"republish": {"dest": "R.>"}},
    {"republish": {"dest": "R.>"}, "pedantic": True},
    {"republish": {"src": "S", "dest": "R", "headers_only": True}},
    {"republish": {"src": ">", "dest": "S"}},
    {"republish": {"src": ">", "dest": ">"}},
    {"republish": {"src": "a.*", "dest": "R.{{wildcard(2)}}"}},
    {"republish": {"src": ">", "dest": ">"}, "subject_transform": {"src": "S", "dest": "T"}},
    {"republish": {"src": ">", "dest": ">"}, "subject_transform": {"src": "S", "dest": "T"}, "pedantic": True},
    {"republish": {"src": "S", "dest": ""}},
    {"republish": {}},
    {"allow_direct": True},
    {"mirror_direct": True},
    {"sealed": True},
    {"deny_delete": True, "deny_purge": True},
    {"allow_rollup_hdrs": True},
    {"allow_rollup_hdrs": True, "deny_purge": True},
    {"consumer_limits": {"inactive_threshold": SECOND, "max_ack_pending": 5}},
    {"consumer_limits": {}},
    {"allow_msg_ttl": True},
    {"subject_delete_marker_ttl": SECOND},
    {"subject_delete_marker_ttl": SECOND, "deny_purge": True},
    {"subject_delete_marker_ttl": SECOND, "pedantic": True},
    {"subject_delete_marker_ttl": SECOND, "allow_msg_ttl": True, "pedantic": True},
    {"subject_delete_marker_ttl": 5},
    {"subject_delete_marker_ttl": -5},
    {"allow_msg_counter": True, "discard": "new"},
    {"allow_msg_counter": True, "allow_msg_ttl": True},
    {"allow_msg_counter": True, "allow_msg_schedules": True},
    {"allow_msg_counter": True, "retention": "interest"},
    {"allow_msg_schedules": True, "discard": "new"},
    {"allow_msg_schedules": True, "pedantic": True},
    {"persist_mode": "default"},
    {"persist_mode": ""},
    {"persist_mode": "async"},
    {"persist_mode": "async", "storage": "memory"},
    {"persist_mode": "async", "num_replicas": 3},
    {"persist_mode": "async", "allow_atomic": True},
    {"persist_mode": "other"},
    {"mirror": {"name": "O"}, "first_seq": 5},
    {"mirror": {"name": "O"}, "subjects": ["a"]},
    {"mirror": {"name": "O"}, "sources": [{"name": "P"}]},
    {"mirror": {"name": "O"}, "allow_msg_counter": True},
    {"mirror": {"name": "O"}, "allow_atomic": True},
    {"mirror": {"name": "O"}, "allow_batched": True},
    {"mirror": {"name": "O"}, "allow_msg_schedules": True},
    {"mirror": {"name": "O"}, "subject_delete_marker_ttl": SECOND},
    {"mirror": {"name": "a.b"}},
    {"mirror": {"name": "O", "filter_subject": "x", "subject_transforms": [{"src": "a", "dest": "b"}]}},
    {"mirror": {"name": "O", "subject_transforms": [{"src": "a..", "dest": "b"}]}},
    {"mirror": {"name": "O", "subject_transforms": [{"src": "a.*", "dest": "b.{{wildcard(3)}}"}]}},
    {"mirror": {"name": "O", "subject_transforms": [{"src": "a.*", "dest": "x"}, {"src": "a.b", "dest": "y"}]}},
    {"sources": [{"name": ""}]},
    {"sources": [None]},
    {"sources": [{"name": "a.b"}]},
    {"sources": [{"name": "P"}, {"name": "P"}]},
    {"sources": [{"name": "P"}], "allow_msg_schedules": True},
    {"sources": [{"name": "P", "filter_subject": "x", "subject_transforms": [{"src": "a", "dest": "b"}]}]},
    {"sources": [{"name": "P", "subject_transforms": [{"src": "a b", "dest": "b"}]}]},
    {"sources": [{"name": "P", "subject_transforms": [{"src": "a", "dest": "b.{{wildcard(1)}}"}]}]},
    {"sources": [{"name": "P", "subject_transforms": [{"src": "a.*", "dest": ""}, {"src": "a.b", "dest": ""}]}]},
]


@pytest.mark.parametrize("fields", CONFIGS, ids=lambda fields: json.dumps(fields)[:60])
def test_create(nats: RealServer, ours: InProcess, fields: dict[str, Any]) -> None:
    same(nats, ours, [create(**fields), create(**fields), info(), api("STREAM.LIST")])


@pytest.mark.parametrize("name", ["a b", "a/b", "a\\b", "a*b", "x" * 255, "x" * 256, "ü", "a\\u0009b"])
def test_names(nats: RealServer, ours: InProcess, name: str) -> None:
    body = f'{{"name":"{name}"}}'
    subject_name = name.replace(" ", "_")
    same(nats, ours, [api(f"STREAM.CREATE.{subject_name}", body), api(f"STREAM.UPDATE.{subject_name}", body)])


# Without these two, which change more than the configuration: interest retention removes messages, and nats-server
# turns a republish to nowhere into one to everywhere.
_UPDATABLE = [fields for fields in CONFIGS if fields.get("retention") != "interest" and "republish" not in fields]


@pytest.mark.parametrize("fields", _UPDATABLE, ids=lambda fields: json.dumps(fields)[:60])
def test_update(nats: RealServer, ours: InProcess, fields: dict[str, Any]) -> None:
    same(nats, ours, [update(**fields), create(), pub("S"), pub("S"), update(**fields), info(), update(), info()])


UPDATES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"storage": "memory"}, {"storage": "file"}),
    ({"retention": "workqueue"}, {"retention": "limits"}),
    ({"deny_delete": True}, {}),
    ({"deny_purge": True}, {}),
    ({"deny_purge": True}, {"deny_purge": True, "description": "x"}),
    ({"allow_msg_ttl": True}, {}),
    ({"persist_mode": "async"}, {}),
    ({"subject_delete_marker_ttl": SECOND}, {"allow_msg_ttl": True}),
    ({}, {"sealed": True}),
    ({"max_age": 10 * SECOND, "allow_rollup_hdrs": True}, {"sealed": True, "max_age": 10 * SECOND}),
    ({}, {"name": "T"}),
    ({"first_seq": 5}, {"first_seq": 50}),
    ({"max_msgs": 10}, {"max_msgs": 1}),
    ({"max_msgs_per_subject": 10}, {"max_msgs_per_subject": 1}),
    ({}, {"max_bytes": 40}),
    ({"metadata": {"a": "b"}}, {"metadata": {"c": "d"}}),
    ({}, {"subjects": ["S", "other.*"]}),
    ({}, {"subjects": ["taken.x"]}),
    ({}, {"compression": "s2"}),
    ({}, {"mirror": {"name": "O"}}),
    ({}, {"allow_msg_counter": True}),
    ({"subjects": ["a.*"]}, {"subjects": ["a.*"], "republish": {"src": "a.*", "dest": "r.{{wildcard(1)}}"}}),
]


@pytest.mark.parametrize(("old", "new"), UPDATES)
def test_update_from(nats: RealServer, ours: InProcess, old: dict[str, Any], new: dict[str, Any]) -> None:
    steps = [create("OTHER", subjects=["taken.>"]), create(**old), pub("S"), pub("S", "yy"), pub("S", "zzz")]
    if "subjects" in old:
        steps = steps[:2]
    same(nats, ours, [*steps, update(**new), info(), update(**old), update(**{"sealed": True, **old}), info()])


def test_a_sealed_stream_refuses_changes(nats: RealServer, ours: InProcess) -> None:
    steps = [create(), pub("S"), update(sealed=True), pub("S"), delete_msg(1), purge(), update(), create(), info()]
    same(nats, ours, [*steps, api("STREAM.DELETE.S"), info()])


def test_what_is_denied(nats: RealServer, ours: InProcess) -> None:
    same(nats, ours, [create(deny_delete=True, deny_purge=True), pub("S"), delete_msg(1), purge(), info()])


BODIES = [
    b"", b" ", b"{}", b"null", b"[1]", b'"x"', b"5", b"true", b"{", b'{"name":"S"', b'{"name":"S"}x', b"nul", b"\x01",
    b'{"name":"S"} {"max_msgs":5}', b'{"name":5}', b'{"name":"S","bogus":1}', b'{"name":"S","max_msgs":"5"}',
    b'{"name":"S","max_msgs":5.5}', b'{"name":"S","max_msgs":1e3}', b'{"name":"S","max_msgs":99999999999999999999}',
    b'{"name":"S","max_msg_size":99999999999}', b'{"name":"S","retention":"x"}', b'{"name":"S","retention":5}',
    b'{"name":"S","storage":null}', b'{"name":"S","discard":7}', b'{"name":"S","subjects":"a"}',
    b'{"name":"S","subjects":[1]}', b'{"name":"S","subjects":["a",null]}', b'{"name":"S","subjects":{}}',
    b'{"name":"S","subjects":null}', b'{"name":"S","placement":5}', b'{"name":"S","placement":{"foo":1}}',
    b'{"name":"S","placement":{"tags":[1]}}', b'{"name":"S","no_ack":"x"}', b'{"name":"S","metadata":{"a":1}}',
    b'{"name":"S","metadata":{"a":null}}', b'{"name":"S","metadata":[]}', b'{"NAME":"S","Subjects":["q"]}',
    b'{"name":"S","consumer_limits":{"x":1}}', b'{"name":"S","consumer_limits":{"max_ack_pending":"x"}}',
    b'{"name":"S","mirror":{"name":1}}', b'{"name":"S","mirror":{"opt_start_time":"x"}}',
    b'{"name":"S","mirror":{"opt_start_time":"2020-13-01T00:00:00Z"}}', b'{"name":"S","mirror":{"opt_start_time":5}}',
    b'{"name":"S","mirror":{"opt_start_time":"2020-01-01T00:00:00"}}', b'{"name":"S","sources":[{"name":1}]}',
    b'{"name":"S","sources":[{"subject_transforms":[{"src":1}]}]}', b'{"name":"S","sources":{}}',
    b'{"name":"S","compression":"zstd"}', b'{"name":"S","compression":1}', b'{"name":"S","persist_mode":"x"}',
    b'{"name":"S","max_age":"1s"}', b'{"name":"S","first_seq":-1}', b'{"name":"S","first_seq":1.0}',
    b'{"name":"S","pedantic":1}', b'{"name":"S","bogus":1,"max_msgs":"x"}', b'{"max_msgs":"x","bogus":1}',
    b'{"bogus":1,"retention":"foo"}', b'{"retention":"foo","bogus":1}', b'{"bogus":1,"name":tru}', b'{name:"S"}',
    b"{'name':1}", b'{"name":"S",}', b'{"name" "S"}', b'{"name":"a\nb"}', b'{"name":"a\\qb"}', b'{"a":01}',
    b'{"a":-}', b'{"a":1.}', b'{"a":1e}', b'{"a":1e+}', b'{"a":[1,]}', b'{"a":[1 2]}', b'{"a":nul}', b'{"a":fals}',
    b'{"name":"\\u12"}', b'{"name":"S","name":"T"}', b'{"name":"S","max_msgs":null,"allow_msg_ttl":null}',
    b'{"name":"S","num_replicas":true}', b'{"name":"S","republish":[]}', b'{"name":"S","republish":{"dest":1}}',
    b'{"name":"S","subject_transform":{"src":[]}}', b'{"name":"S","sealed":0}', b'{"name":"\xff"}',
    b"\xff", b'{"name":"S","description":"\xff"}', b'{"\xff":1}', b'{"a":"\xff\\q"}', b'{"name":"S"}  ',
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_json(nats: RealServer, ours: InProcess, body: bytes) -> None:
    same(nats, ours, [api("STREAM.CREATE.S", body), api("STREAM.UPDATE.S", body)])


OPTIONAL_BODIES = [b"", b"x", b"5", b"[]", b"{", b'{"offset":-1}', b'{"offset":"x"}', b'{"nope":1}', b' {"offset":0}']


@pytest.mark.parametrize("body", [*OPTIONAL_BODIES, b'{"offset":1}', b'{"offset":99}', b'{"subject":"a.*"}'])
def test_lists(nats: RealServer, ours: InProcess, body: bytes) -> None:
    makes = [create("B", subjects=["a.b"]), create("A", subjects=["x.>"]), create("C", subjects=["a.c.d", "y"])]
    lists = [api("STREAM.NAMES", body), api("STREAM.LIST", body)]
    same(nats, ours, [*lists, *makes, *lists])


@pytest.mark.parametrize("subject", ["a.>", ">", "x", "x.y", "*.b", "a..b", "a.c.*", "$KV.*.>", "*.*.*"])
def test_lists_about_a_subject(nats: RealServer, ours: InProcess, subject: str) -> None:
    makes = [create("B", subjects=["a.b"]), create("A", subjects=["x.>"]), create("C", subjects=["a.c.d", "y"])]
    body = {"subject": subject}
    same(nats, ours, [*makes, api("STREAM.NAMES", body), api("STREAM.LIST", body)])


FILLED = [
    create(subjects=["a.*", "b.>"], allow_direct=True),
    pub("a.1", "one"),
    pub("a.2", "two", "K: v\r\nL: w"),
    pub("b.x.y", ""),
    pub("a.1", "four"),
    pub("a.3", "five", "K: v"),
    pub("b.z", "six"),
    delete_msg(5),
]


@pytest.mark.parametrize(
    "body",
    [
        *OPTIONAL_BODIES,
        b'{"subjects_filter":">"}',
        b'{"subjects_filter":"a.*"}',
        b'{"subjects_filter":"a.1"}',
        b'{"subjects_filter":"none"}',
        b'{"subjects_filter":"a..b"}',
        b'{"subjects_filter":">","offset":2}',
        b'{"subjects_filter":">","offset":9}',
        b'{"deleted_details":true}',
        b'{"deleted_details":true,"subjects_filter":"b.>"}',
    ],
)
def test_info(nats: RealServer, ours: InProcess, body: bytes) -> None:
    same(nats, ours, [api("STREAM.INFO.S", body), *FILLED, api("STREAM.INFO.S", body)])


GETS: list[dict[str, Any]] = [
    {},
    {"seq": 1},
    {"seq": 2},
    {"seq": 2, "no_hdr": True},
    {"seq": 3},
    {"seq": 5},
    {"seq": 99},
    {"seq": 0},
    {"seq": 2**63},
    {"seq": 2**64 - 1},
    {"seq": 2**64 - 1, "next_by_subj": ">"},
    {"last_by_subj": "a.1"},
    {"last_by_subj": "a.*"},
    {"last_by_subj": ">"},
    {"last_by_subj": "none"},
    {"last_by_subj": "a..b"},
    {"next_by_subj": "a.1"},
    {"next_by_subj": "a.*", "seq": 2},
    {"next_by_subj": ">", "seq": 5},
    {"next_by_subj": "a.3"},
    {"next_by_subj": "a.*", "seq": 99},
    {"next_by_subj": "a..b"},
    {"start_time": "2020-01-01T00:00:00Z"},
    {"start_time": "2220-01-01T00:00:00Z"},
    {"start_time": "2020-01-01T00:00:00Z", "next_by_subj": "b.>"},
    {"seq": 1, "last_by_subj": "a.1"},
    {"seq": 1, "start_time": "2020-01-01T00:00:00Z"},
    {"start_time": "2020-01-01T00:00:00Z", "last_by_subj": "a.1"},
    {"last_by_subj": "a.1", "next_by_subj": "a.1"},
    {"seq": 1, "batch": 5},
    {"seq": 1, "max_bytes": 5},
    {"no_hdr": True},
    {"seq": "x"},
    {"seq": -1},
    {"nope": 1},
]


@pytest.mark.parametrize("fields", GETS, ids=json.dumps)
def test_get(nats: RealServer, ours: InProcess, fields: dict[str, Any]) -> None:
    same(nats, ours, [get(**fields), *FILLED, get(**fields)])


DIRECT_GETS: list[dict[str, Any]] = [
    *GETS,
    {"seq": 1, "batch": 2},
    {"seq": 1, "batch": 99},
    {"seq": 4, "batch": 99},
    {"seq": 99, "batch": 2},
    {"seq": 1, "batch": 99, "max_bytes": 10},
    {"seq": 1, "batch": 99, "max_bytes": 1},
    {"batch": 3},
    {"seq": 1, "batch": -1},
    {"next_by_subj": "a.*", "batch": 2},
    {"next_by_subj": "a.1", "batch": 9, "seq": 2},
    {"next_by_subj": "none", "batch": 9},
    {"start_time": "2020-01-01T00:00:00Z", "batch": 3},
    {"start_time": "2220-01-01T00:00:00Z", "batch": 3},
    {"last_by_subj": "a.1", "batch": 2},
    {"multi_last": ["a.1"]},
    {"multi_last": ["a.*"]},
    {"multi_last": [">"]},
    {"multi_last": ["b.>", "a.2"]},
    {"multi_last": ["none"]},
    {"multi_last": []},
    {"multi_last": ["a..b"]},
    {"multi_last": [">"], "up_to_seq": 3},
    {"multi_last": [">"], "up_to_seq": 99},
    {"multi_last": [">"], "up_to_time": "2020-01-01T00:00:00Z"},
    {"multi_last": [">"], "up_to_time": "2220-01-01T00:00:00Z"},
    {"multi_last": [">"], "up_to_seq": 3, "up_to_time": "2220-01-01T00:00:00Z"},
    {"multi_last": [">"], "batch": 2},
    {"multi_last": [">"], "seq": 4},
    {"multi_last": [">"], "seq": 99},
    {"multi_last": [">"], "max_bytes": 5},
    {"multi_last": [">"], "last_by_subj": "a.1"},
    {"multi_last": [">"], "next_by_subj": "a.1"},
    {"multi_last": [">"], "no_hdr": True},
    {"seq": 1, "batch": 2, "no_hdr": True, "max_bytes": 1},
]


@pytest.mark.parametrize("fields", DIRECT_GETS, ids=json.dumps)
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_direct_get(nats: RealServer, ours: InProcess, fields: dict[str, Any], storage: str) -> None:
    makes = [create(subjects=["a.*", "b.>"], allow_direct=True, storage=storage), *FILLED[1:]]
    same(nats, ours, [*makes, direct(**fields)])


@pytest.mark.parametrize("body", [b"", b"{", b"x", b"[]", b"5", b'{"seq":"x"}', b'{"seq":1}{"seq":2}', b"{}"])
def test_direct_get_of_anything(nats: RealServer, ours: InProcess, body: bytes) -> None:
    same(nats, ours, [*FILLED, api("DIRECT.GET.S", body), api("DIRECT.GET.S.a.1", body)])


@pytest.mark.parametrize("key", ["a.1", "a.9", "b.x.y", "b", "none"])
def test_direct_get_by_subject(nats: RealServer, ours: InProcess, key: str) -> None:
    bodies: list[Any] = [b"", {"no_hdr": True}, {"seq": 1}, {"batch": 1}, {"up_to_seq": 1}, {"multi_last": ["a"]}]
    same(nats, ours, [*FILLED, *(api(f"DIRECT.GET.S.{key}", body) for body in bodies)])


PURGES: list[dict[str, Any]] = [
    {},
    {"filter": "a.*"},
    {"filter": "a.1"},
    {"filter": "none"},
    {"filter": "a..b"},
    {"filter": ">"},
    {"seq": 1},
    {"seq": 3},
    {"seq": 6},
    {"seq": 7},
    {"seq": 100},
    {"seq": 2**63},
    {"keep": 2**63},
    {"keep": 2},
    {"keep": 99},
    {"keep": 0},
    {"filter": "a.*", "keep": 1},
    {"filter": "a.*", "seq": 3},
    {"filter": "a.*", "seq": 1},
    {"filter": "a.*", "seq": 100},
    {"filter": ">", "keep": 1},
    {"filter": ">", "seq": 4},
    {"seq": 1, "keep": 1},
    {"seq": -1},
    {"nope": 1},
]


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("fields", PURGES, ids=json.dumps)
def test_purge(nats: RealServer, ours: InProcess, fields: dict[str, Any], storage: str) -> None:
    makes = [create(subjects=["a.*", "b.>"], storage=storage), *FILLED[1:]]
    same(nats, ours, [purge(**fields), *makes, purge(**fields), info(deleted_details=True), pub("a.7"), info()])


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("no_erase", [False, True])
def test_delete_message(nats: RealServer, ours: InProcess, storage: str, no_erase: bool) -> None:
    makes = [create(subjects=["a.*", "b.>"], storage=storage), *FILLED[1:]]
    deletes = [delete_msg(seq, no_erase=no_erase) for seq in (1, 1, 3, 6, 6, 0, 99, 5)]
    same(nats, ours, [delete_msg(1), *makes, *deletes, info(deleted_details=True), get(seq=3), get(seq=4)])


@pytest.mark.parametrize("body", [b"", b"{}", b" {} ", b"{ }", b"x", b"[]", b'{"a":1}', b"null", b"{", b"5"])
def test_payloads_that_have_to_be_empty_or_not(nats: RealServer, ours: InProcess, body: bytes) -> None:
    subjects = ["STREAM.MSG.GET.S", "STREAM.MSG.DELETE.S", "STREAM.SNAPSHOT.S", "STREAM.DELETE.S", "STREAM.DELETE.T"]
    same(nats, ours, [create(), *(api(subject, body) for subject in subjects)])


@pytest.mark.parametrize("level", [b"0", b"5", b"6", b"99", b"x", b"-1", b"1.5", b""])
def test_required_api_level(nats: RealServer, ours: InProcess, level: bytes) -> None:
    headers = b"NATS/1.0\r\nNats-Required-Api-Level: %s\r\n\r\n" % level
    subjects = [
        "STREAM.INFO.S", "STREAM.UPDATE.S", "STREAM.NAMES", "STREAM.LIST", "STREAM.PURGE.S", "STREAM.MSG.GET.S",
        "STREAM.MSG.DELETE.S", "STREAM.LEADER.STEPDOWN.S", "STREAM.PEER.REMOVE.S", "STREAM.CANCEL_MOVE.S",
        "DIRECT.GET.S", "DIRECT.GET.S.x", "STREAM.DELETE.S", "STREAM.CREATE.S",
    ]  # fmt: skip
    same(nats, ours, [create(allow_direct=True), *(api(subject, b"", headers) for subject in subjects)])


@pytest.mark.parametrize(
    "subject",
    [
        "STREAM.LEADER.STEPDOWN.S",
        "STREAM.PEER.REMOVE.S",
        "STREAM.PEER.EVACUATE.S",
        "STREAM.CANCEL_MOVE.S",
        "CONSUMER.LEADER.STEPDOWN.S.C",
    ],
)
def test_calls_for_clusters(nats: RealServer, ours: InProcess, subject: str) -> None:
    same(nats, ours, [api(subject), api(subject, b"nonsense"), create(), api(subject)])


@pytest.mark.parametrize(
    "subject",
    ["NOPE", "STREAM", "STREAM.NOPE", "STREAM.INFO.a.b", "META.LEADER.STEPDOWN", "SERVER.REMOVE", "ACCOUNT.PURGE.A"],
)
def test_subjects_without_an_answer(nats: RealServer, ours: InProcess, subject: str) -> None:
    same(nats, ours, [api(subject, is_silent=True)])


def test_streams_may_not_overlap(nats: RealServer, ours: InProcess) -> None:
    makes = [create("A", subjects=["a.*"]), create("B", subjects=["a.b"]), create("B", subjects=["*.b.>"])]
    same(nats, ours, [*makes, create("C", subjects=["*.x"]), update("B", subjects=["a.>"]), api("STREAM.NAMES")])


def test_a_name_that_is_taken(nats: RealServer, ours: InProcess) -> None:
    same(nats, ours, [create(max_msgs=5), create(max_msgs=6), create(max_msgs=5), create(max_msgs=5, description="x")])


def test_a_stream_that_is_deleted_can_be_made_again(nats: RealServer, ours: InProcess) -> None:
    steps = [create(), pub("S"), api("STREAM.DELETE.S"), api("STREAM.DELETE.S"), info(), create(), info(), pub("S")]
    same(nats, ours, [*steps, info()])


def test_sequences_of_empty_streams(nats: RealServer, ours: InProcess) -> None:
    steps = [create(first_seq=10), info(), pub("S"), info(), delete_msg(10), info(), pub("S"), purge(), info()]
    same(nats, ours, [*steps, purge(seq=100), info(), pub("S"), info()])


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_sizes(nats: RealServer, ours: InProcess, storage: str) -> None:
    pubs = [pub("S", "x" * 100), pub("S", ""), pub("S", "abc", "A: b")]
    same(nats, ours, [create(storage=storage), *pubs, info(), get(seq=3)])


def test_account_info(nats: RealServer, ours: InProcess) -> None:
    before = json.loads(nats.request("$JS.API.INFO")[0][1])["api"]
    steps = [create(max_bytes=1000), create("M", storage="memory", max_bytes=500), pub("S", "abc"), pub("M", "abc")]
    for step in [*steps, info("NOPE"), get(seq=1), delete_msg(9)]:
        nats.request(step.subject, step.payload)
        ours.request(step.subject, step.payload)
    theirs, mine = (json.loads(peer.request("$JS.API.INFO")[0][1]) for peer in (nats, ours))
    nats.remove_streams()
    theirs["api"] = {**theirs["api"], "total": theirs["api"]["total"] - before["total"] - 1}
    theirs["api"]["errors"] -= before["errors"]
    theirs["api"].pop("inflight", None)  # what its other threads are doing
    assert mine == theirs

"""Streams: how publishes are stored, and when they are acknowledged. What nats-server says too is in tests/compat."""

from __future__ import annotations

import errno
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from jetlake.broker.broker import Broker
from jetlake.jetstream.service import JetStream
from jetlake.jetstream.streams import publish, slices
from jetlake.jetstream.streams import stream as stream_module
from jetlake.jetstream.streams.answers import refused_acks
from jetlake.jetstream.streams.config import Retention
from jetlake.jetstream.streams.stream import Stream
from jetlake.store import FileStore
from jetlake.testing.clock import FakeClock
from tests.broker.sessions import FakeConnection, connect, make_broker
from tests.jetstream.harness import FakeHost

SECOND_NS = 10**9


class Bench:
    """A broker with JetStream and one client."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.clock = FakeClock()
        self.host = FakeHost(clock=self.clock)
        self.start()

    def start(self) -> None:
        self.broker: Broker = make_broker()
        self.service = JetStream(self.host, self.directory)
        self.service.start([self.broker.default_account])
        self.client: FakeConnection = connect(self.broker)
        self.client.say(b"SUB in.* 1\r\n")

    def restart(self) -> None:
        self.host.settle()
        self.service.stop()
        self.start()

    def create(self, **config: Any) -> Stream:
        payload = json.dumps({"name": "S", "subjects": ["s.>"], **config}).encode()
        self.client.say(b"PUB $JS.API.STREAM.CREATE.S in.0 %d\r\n%s\r\n" % (len(payload), payload))
        self.host.settle()
        answer = self.client.heard()
        assert b'"did_create":true' in answer, answer
        return self.stream

    @property
    def stream(self) -> Stream:
        return self.service.accounts["$G"].streams["S"]

    def publish(self, *messages: bytes | tuple[bytes, bytes]) -> None:
        """Publish payloads, or headers and payloads, in one go."""
        text = b""
        for number, message in enumerate(messages):
            headers, payload = message if isinstance(message, tuple) else (b"", message)
            if headers:
                block = b"NATS/1.0\r\n" + headers + b"\r\n\r\n"
                sizes = b"%d %d" % (len(block), len(block) + len(payload))
                text += b"HPUB s.x in.%d %s\r\n%s%s\r\n" % (number, sizes, block, payload)
            else:
                text += b"PUB s.x in.%d %d\r\n%s\r\n" % (number, len(payload), payload)
        self.client.say(text)

    def ask(self, subject: str, payload: bytes = b"") -> list[dict[str, Any]]:
        """Send a request; what comes back before anything is committed."""
        return _bodies(self.client.say(b"PUB %s in.r %d\r\n%s\r\n" % (subject.encode(), len(payload), payload)))

    def acks(self) -> list[dict[str, Any]]:
        """What came back since the last time."""
        return _bodies(self.client.heard())

    def seqs(self) -> list[int]:
        return [ack["seq"] for ack in self.acks()]


def _bodies(heard: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in heard.split(b"\r\n") if line.startswith(b"{")]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_an_ack_comes_with_the_commit_and_not_before(bench: Bench, storage: str) -> None:
    bench.create(storage=storage)
    bench.publish(b"a", b"b", (b"Nats-Expected-Last-Sequence: 2", b"c"), b"d")
    assert bench.client.heard() == b""
    bench.host.settle()
    assert bench.seqs() == [1, 2, 3, 4]


def test_each_ack_goes_where_its_message_says(bench: Bench) -> None:
    bench.create()
    bench.client.say(b"SUB b.* 8\r\nSUB c.> 9\r\nSUB d 10\r\n")
    bench.client.heard()
    replies = [b"in.1", b"", b"b.1", b"b.2", b"c.1.2", b"d", b"", b"c.3", b"nobody", b"in.2", b"d", b"b.3"]
    bench.client.say(b"".join(b"PUB s.x %s 1\r\nx\r\n" % reply for reply in replies))
    bench.host.settle()
    lines = bench.client.heard().split(b"\r\n")
    heard = [(head.split()[1], json.loads(body)["seq"]) for head, body in zip(lines[::2], lines[1::2], strict=False)]
    assert heard == [(reply, seq) for seq, reply in enumerate(replies, 1) if reply not in (b"", b"nobody")]


def test_what_comes_during_a_commit_waits_for_the_next(bench: Bench) -> None:
    stream = bench.create()
    bench.publish(b"a")
    commit = stream.log.prepare_commit()
    bench.publish(b"b")
    commit.run()
    stream.log.complete_commit(commit)
    assert bench.seqs() == [1] and stream.log.committed_seq == 1
    bench.host.settle()
    assert bench.seqs() == [2] and stream.log.committed_seq == 2


GETS = {
    "$JS.API.DIRECT.GET.S.s.x": b"",
    "$JS.API.DIRECT.GET.S": b'{"seq":1}',
    "$JS.API.DIRECT.GET.S ": b'{"seq":1,"batch":2}',
    "$JS.API.DIRECT.GET.S  ": b'{"multi_last":["s.>"]}',
    "$JS.API.STREAM.MSG.GET.S": b'{"last_by_subj":"s.x"}',
}


@pytest.mark.parametrize("subject", GETS)
def test_a_message_is_got_when_it_is_committed_and_not_before(bench: Bench, subject: str) -> None:
    bench.create(allow_direct=True)
    bench.publish(b"payload")
    body = GETS[subject]
    bench.client.say(b"PUB %s in.r %d\r\n%s\r\n" % (subject.strip().encode(), len(body), body))
    assert bench.client.heard() == b""
    bench.host.settle()
    heard = bench.client.heard()
    assert heard.index(b"MSG in.0 ") < heard.index(b"MSG in.r ")
    assert b"payload" in heard or b64encode(b"payload") in heard


def test_a_get_of_what_could_not_be_stored_fails(bench: Bench) -> None:
    bench.create(allow_direct=True)
    bench.publish(b"payload")
    bench.client.say(b"PUB $JS.API.DIRECT.GET.S.s.x in.r 0\r\n\r\n")
    bench.host.fails = OSError(errno.EIO, "no luck")
    bench.host.settle()
    assert b"NATS/1.0 500 " in bench.client.heard()


def test_a_message_is_republished_after_its_ack(bench: Bench) -> None:
    bench.create(republish={"src": ">", "dest": "again.>"})
    bench.client.say(b"SUB again.> 2\r\n")
    bench.publish(b"payload")
    assert bench.client.heard() == b""
    bench.host.settle()
    heard = bench.client.heard()
    assert 0 <= heard.index(b"MSG in.0 1") < heard.index(b"MSG again.s.x 2")
    bench.publish(b"lost")
    bench.host.fails = OSError(errno.EIO, "no luck")
    bench.host.settle()
    assert b"again" not in bench.client.heard()


def test_a_commit_that_fails_is_answered_with_an_error(bench: Bench) -> None:
    stream = bench.create()
    bench.publish(b"a", (b"Nats-Expected-Last-Sequence: 1", b"b"))
    bench.host.fails = OSError(errno.EIO, "no luck")
    bench.host.settle()
    assert [ack["error"]["err_code"] for ack in bench.acks()] == [10077, 10077]
    bench.host.fails = None
    bench.publish(b"c")
    bench.host.settle()
    assert [ack["error"]["err_code"] for ack in bench.acks()] == [10077]
    assert stream.log.problem is not None


def test_a_full_disk_has_an_error_of_its_own(bench: Bench) -> None:
    bench.create()
    bench.publish(b"a")
    bench.host.fails = OSError(errno.ENOSPC, "full")
    bench.host.settle()
    assert [ack["error"]["err_code"] for ack in bench.acks()] == [10023]


REQUESTS = {
    "STREAM.PURGE.S": (b"", 10110),
    "STREAM.MSG.DELETE.S": (b'{"seq":1,"no_erase":true}', 10057),
    "STREAM.UPDATE.S": (b'{"name":"S","subjects":["s.>"],"max_msgs":9}', 10069),
    "STREAM.CREATE.T": (b'{"name":"T","subjects":["t"]}', 10049),
}


@pytest.mark.parametrize("is_running", [False, True], ids=["before-the-commit", "while-it-runs"])
@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_request_whose_commit_fails_is_answered_with_an_error(
    bench: Bench, request_name: str, is_running: bool
) -> None:
    bench.create()
    bench.publish(b"a", b"b")
    bench.host.settle()
    bench.acks()
    bench.ask(f"$JS.API.{request_name}", REQUESTS[request_name][0])
    bench.host.fails = OSError(errno.EIO, "no luck")
    stream = bench.service.accounts["$G"].streams[request_name[-1]]
    if is_running:
        stream.log.prepare_commit()
        stream.log.fail_commit(bench.host.fails)
    bench.host.settle()
    (answer,) = bench.acks()
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (500, REQUESTS[request_name][1])
    assert "no luck" in answer["error"]["description"]


def test_what_was_asked_before_a_stream_is_deleted_is_answered_before(bench: Bench) -> None:
    bench.create()
    bench.publish(b"a")
    assert bench.ask("$JS.API.STREAM.PURGE.S") == []
    bench.ask("$JS.API.STREAM.DELETE.S")
    bench.host.settle()
    answers = bench.acks()
    assert [answer.get("type", "")[25:] for answer in answers] == [
        "",
        "stream_purge_response",
        "stream_delete_response",
    ]
    assert answers[0]["seq"] == 1 and answers[1]["purged"] == 1 and answers[2]["success"]


def test_a_stream_goes_on_when_its_files_can_be_read_again(bench: Bench) -> None:
    stream = bench.create()
    bench.publish((b"Nats-Msg-Id: a", b"a"))
    bench.host.settle()
    bench.publish(b"lost")
    bench.host.fails = OSError(errno.EIO, "no luck")
    bench.host.settle()
    bench.acks()
    bench.host.fails = None
    bench.host.timers[-1].callback()
    assert stream.log.problem is None
    bench.publish(b"b", (b"Nats-Msg-Id: a", b"a"))
    bench.host.settle()
    acks = bench.acks()
    assert [ack["seq"] for ack in acks] == [2, 1] and acks[1]["duplicate"]


def test_a_rule_in_the_middle_of_a_run_stops_nobody(bench: Bench) -> None:
    bench.create()
    bench.publish(
        b"a",
        (b"Nats-Expected-Last-Sequence: 9", b"x"),
        b"b",
        (b"Nats-Msg-Id: i", b"c"),
        (b"Nats-Msg-Id: i", b"c"),
        b"d",
    )
    bench.host.settle()
    acks = bench.acks()
    assert [ack["seq"] for ack in acks] == [1, 0, 2, 3, 3, 4]
    assert acks[1]["error"]["err_code"] == 10071 and acks[4]["duplicate"]


def test_the_dedupe_window_survives_a_restart(bench: Bench) -> None:
    bench.create(duplicate_window=60 * SECOND_NS)
    bench.publish((b"Nats-Msg-Id: old", b"x"))
    bench.clock.advance(30)
    bench.publish((b"Nats-Msg-Id: new", b"x"), b"y")
    bench.restart()
    bench.clock.advance(31)
    bench.publish((b"Nats-Msg-Id: new", b"x"), (b"Nats-Msg-Id: old", b"x"))
    bench.host.settle()
    acks = bench.acks()
    assert [(ack["seq"], ack.get("duplicate")) for ack in acks] == [(2, True), (4, None)]


def test_ids_of_messages_that_a_limit_refused_are_not_remembered(bench: Bench) -> None:
    bench.create(max_msgs=2, discard="new")
    bench.publish(*((b"Nats-Msg-Id: %d" % number, b"x") for number in range(4)))
    bench.host.settle()
    assert bench.seqs() == [1, 2, 0, 0]
    assert [bench.stream.machine.find_msg_id(b"%d" % number, bench.clock()) for number in range(4)] == [1, 2, 0, 0]


def test_publishers_are_held_while_the_disk_is_behind(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetlake.jetstream.streams.log.UNCOMMITTED_SIZE_MAX", 100)
    bench.create()
    bench.publish(b"x" * 50)
    assert bench.client.holds == 0
    bench.publish(b"x" * 100)
    assert bench.client.holds == 1
    bench.host.settle()
    assert bench.client.holds == 0


def test_old_messages_leave_on_time(bench: Bench) -> None:
    stream = bench.create(max_age=SECOND_NS, duplicate_window=SECOND_NS)
    bench.publish(b"a")
    bench.host.settle()
    bench.clock.advance(1.5)
    due = [timer for timer in bench.host.timers if not timer.is_cancelled and timer.time_ns <= bench.clock()]
    assert due
    due[-1].callback()
    assert stream.store.fast_state().msgs == 0


def test_a_roll_up_replaces_what_was_before(bench: Bench) -> None:
    stream = bench.create(allow_rollup_hdrs=True)
    bench.publish(b"a", b"b", (b"Nats-Rollup: all", b"c"), b"d")
    bench.host.settle()
    assert [message.payload for message in stream.store.messages()] == [b"c", b"d"]


def test_a_wildcard_in_a_published_subject_is_text(bench: Bench) -> None:
    stream = bench.create()
    bench.client.say(b"PUB s.* in.0 0\r\n\r\nPUB s.a in.1 0\r\n\r\nPUB s.> in.2 0\r\n\r\n")
    bench.host.settle()
    assert bench.seqs() == [1, 2, 3]
    assert [message.subject for message in stream.store.messages(1, "s.*")] == ["s.*", "s.a", "s.>"]


def test_refused_acks_go_to_the_same_replies() -> None:
    frames = b'MSG in.1 1 12\r\n{"seq":1}\r\nMSG in.22 1 9\r\n{"seq":2}\r\n'
    assert refused_acks(frames, b"no") == b"MSG in.1 1 2\r\nno\r\nMSG in.22 1 2\r\nno\r\n"


def test_everything_is_there_after_a_restart(bench: Bench) -> None:
    bench.create(subjects=["s.>"], max_msgs=5)
    bench.publish(*(b"%d" % number for number in range(8)))
    bench.restart()
    assert [message.payload for message in bench.stream.store.messages()] == [b"3", b"4", b"5", b"6", b"7"]
    bench.publish(b"8")
    bench.host.settle()
    assert bench.seqs() == [9]


def test_with_an_interval_the_last_messages_are_synced_too(bench: Bench) -> None:
    jetstream = replace(bench.host.options.jetstream, sync_always=False, sync_interval_s=5.0)
    bench.host.options = replace(bench.host.options, jetstream=jetstream)
    stream = bench.create()
    bench.publish(b"a")
    bench.host.settle()
    assert bench.seqs() == [1] and isinstance(stream.store, FileStore)
    due_ns = stream.store.next_sync_ns()
    assert due_ns is not None
    bench.clock.advance(6)
    timer = next(timer for timer in bench.host.timers if timer.time_ns == due_ns)
    timer.callback()
    bench.host.settle()
    assert stream.store.next_sync_ns() is None


def test_a_stream_that_turns_to_interest_keeps_nothing_that_nobody_wants(bench: Bench) -> None:
    stream = bench.create()
    bench.publish(b"a", b"b")
    bench.host.settle()
    stream.update(replace(stream.config, retention=Retention.INTEREST))
    assert stream.store.fast_state().msgs == 0
    bench.publish(b"c")
    bench.host.settle()
    assert bench.seqs() == [3] and stream.store.fast_state().msgs == 0


def test_an_answer_that_fails_costs_no_other_answer_nor_the_stream(bench: Bench) -> None:
    stream, told = bench.create(), list[str]()
    bench.host.failures = []
    bench.publish(b"a")
    stream.log.when_durable(lambda: bool(1 // 0), lambda error: told.append(error.description))  # type: ignore[arg-type]
    bench.publish(b"b")
    bench.host.settle()
    assert bench.seqs() == [1, 2] and told == ["internal error"] and stream.log.problem is None
    assert [line.partition(":")[0] for line in bench.host.failures] == ["answer stream=S"]


def test_a_message_whose_rules_fail_is_refused_and_the_next_is_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.create()
    bench.host.failures = []
    monkeypatch.setattr(publish, "_check_ttl", lambda *_: 1 // 0)
    bench.publish((b"Nats-TTL: 1", b"a"), b"b")
    bench.host.settle()
    refused, stored = bench.acks()
    assert refused["error"] == {"code": 500, "err_code": 10051, "description": "internal error"}
    assert stored["seq"] == 1 and len(bench.host.failures) == 1


# Purges of many messages


def purge_request(bench: Bench, **fields: Any) -> bytes:
    """Ask for a purge, and what is heard at once."""
    return stream_request(bench, "PURGE", fields)


def stream_request(bench: Bench, verb: str, fields: dict[str, Any]) -> bytes:
    payload = json.dumps(fields).encode()
    return bench.client.say(b"PUB $JS.API.STREAM.%s.S in.9 %d\r\n%s\r\n" % (verb.encode(), len(payload), payload))


@pytest.mark.parametrize(
    ("fields", "purged", "left"),
    [({}, 10, []), ({"seq": 15}, 7, [15, 17, 19]), ({"keep": 4}, 6, [13, 15, 17, 19]), ({"seq": 99}, 10, [])],
)
def test_a_purge_of_many_takes_turns_with_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fields: dict[str, int], purged: int, left: list[int]
) -> None:
    monkeypatch.setattr(slices, "REMOVED_COUNT_MAX", 3)
    stream = bench.create()
    for number in range(20):
        stream.store.append("s.a" if number % 2 == 0 else "s.b", b"")
    assert purge_request(bench, filter="s.a", **fields) == b"" and stream.store.fast_state().msgs == 17
    stream.store.append("s.a", b"")  # it came after the purge
    bench.host.settle()
    assert b'"purged":%d' % purged in bench.client.heard()
    assert stream.store.matching_seqs("s.a", 1, 99) == [*left, 21]
    assert stream.store.fast_state().msgs == 11 + len(left)


@pytest.mark.parametrize(("fields", "left"), [({"seq": 15}, 6), ({"keep": 4}, 4)])
def test_a_purge_of_many_of_all_subjects_takes_turns_with_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fields: dict[str, int], left: int
) -> None:
    monkeypatch.setattr(slices, "REMOVED_COUNT_MAX", 3)
    stream = bench.create()
    for _ in range(20):
        stream.store.append("s.a", b"")
    assert purge_request(bench, **fields) == b"" and stream.store.fast_state().msgs == 17
    bench.host.settle()
    assert b'"purged":%d' % (20 - left) in bench.client.heard()
    assert stream.store.fast_state().msgs == left and stream.store.fast_state().first_seq == 21 - left


@pytest.mark.parametrize(
    ("fields", "first_step", "left"),
    [
        ({"max_msgs": 5}, 17, [16, 17, 18, 19, 20]),
        ({"max_msgs_per_subject": 2}, 17, [17, 18, 19, 20]),
        ({"max_msgs": 12, "max_msgs_per_subject": 3}, 17, [15, 16, 17, 18, 19, 20]),
        ({"max_msgs": 19}, 19, list(range(2, 21))),
    ],
)
def test_lower_limits_take_turns_with_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fields: dict[str, int], first_step: int, left: list[int]
) -> None:
    monkeypatch.setattr(slices, "REMOVED_COUNT_MAX", 3)
    stream = bench.create()
    for number in range(20):
        stream.store.append("s.a" if number % 2 == 0 else "s.b", b"")
    bench.host.settle()
    config = {"name": "S", "subjects": ["s.*"], **fields}
    assert stream_request(bench, "UPDATE", config) == b"" and stream.store.fast_state().msgs == first_step
    bench.host.settle()
    assert b'"error"' not in bench.client.heard()
    assert stream.store.matching_seqs(">", 1, 99) == left
    assert all(getattr(stream.config, name) == value for name, value in fields.items())


def test_consumers_are_told_of_what_lower_limits_took(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "REMOVED_COUNT_MAX", 3)
    stream = bench.create()
    bench.client.say(b"PUB s.a 1\r\nx\r\n" * 20)
    config = {"durable_name": "C", "ack_policy": "explicit"}
    payload = json.dumps({"stream_name": "S", "config": config}).encode()
    bench.client.say(b"PUB $JS.API.CONSUMER.DURABLE.CREATE.S.C in.9 %d\r\n%s\r\n" % (len(payload), payload))
    bench.client.say(b'PUB $JS.API.CONSUMER.MSG.NEXT.S.C in.9 12\r\n{"batch":20}\r\n')
    bench.host.settle()
    assert len(stream.consumers["C"].ledger.pending_seqs) == 20
    stream_request(bench, "UPDATE", {"name": "S", "subjects": ["s.*"], "max_msgs": 5})
    bench.host.settle()
    assert len(stream.consumers["C"].ledger.pending_seqs) == 5


def test_an_update_that_is_refused_takes_no_message(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "REMOVED_COUNT_MAX", 3)
    stream = bench.create()
    for _ in range(20):
        stream.store.append("s.a", b"")
    bench.host.settle()
    stream_request(bench, "UPDATE", {"name": "S", "subjects": ["s.*"], "max_msgs": 5, "storage": "memory"})
    bench.host.settle()
    assert stream.store.fast_state().msgs == 20


def test_a_purge_of_many_that_fails_halfway_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "REMOVED_COUNT_MAX", 3)
    stream = bench.create()
    for number in range(20):
        stream.store.append("s.a" if number % 2 == 0 else "s.b", b"")
    bench.host.settle()
    bench.client.heard()
    purge_request(bench, filter="s.a")
    bench.host.fails = OSError(errno.EIO, "no disk")
    bench.host.settle()
    assert b'"error"' in bench.client.heard()


def test_a_stream_that_is_deleted_ends_its_purge(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "REMOVED_COUNT_MAX", 3)
    stream = bench.create()
    for number in range(20):
        stream.store.append("s.a" if number % 2 == 0 else "s.b", b"")
    purge_request(bench, filter="s.a")
    bench.client.say(b"PUB $JS.API.STREAM.DELETE.S in.8 0\r\n\r\n")
    bench.host.settle()
    assert b'"description":"stream not found"' in bench.client.heard()


# Streams with many subjects


def api(bench: Bench, subject: str, **fields: Any) -> bytes:
    """Ask, and what is heard at once."""
    payload = json.dumps(fields).encode() if fields else b""
    return bench.client.say(b"PUB $JS.API.%s in.9 %d\r\n%s\r\n" % (subject.encode(), len(payload), payload))


def taken(bench: Bench, *subjects: str) -> list[str]:
    """The subjects whose messages a stream takes."""
    account = bench.broker.default_account
    return [subject for subject in subjects if account.capture_of(subject.encode()) is not None]


def test_a_stream_is_answered_when_it_takes_all_its_subjects(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "SUBJECTS_AT_ONCE", 2)
    assert api(bench, "STREAM.CREATE.S", name="S", subjects=["a", "b", "c", "d", "e"]) == b""
    assert taken(bench, *"abcde") == ["a", "b"]
    bench.host.settle()
    assert taken(bench, *"abcde") == [*"abcde"] and b'"did_create":true' in bench.client.heard()


def test_an_update_takes_the_place_of_one_that_is_not_through(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "SUBJECTS_AT_ONCE", 2)
    assert api(bench, "STREAM.CREATE.S", name="S", subjects=["a", "b", "c", "d", "e"]) == b""
    assert api(bench, "STREAM.UPDATE.S", name="S", subjects=["b", "c", "x", "y", "z"]) == b""
    assert taken(bench, *"abcdexyz") == ["b", "c", "x"]
    bench.host.settle()
    heard = bench.client.heard()
    assert taken(bench, *"abcdexyz") == [*"bcxyz"]
    assert b"stream_create_response" in heard and b"stream_update_response" in heard and b"error" not in heard


def test_a_stream_can_be_deleted_before_it_takes_all_its_subjects(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "SUBJECTS_AT_ONCE", 2)
    assert api(bench, "STREAM.CREATE.S", name="S", subjects=["a", "b", "c", "d", "e"]) == b""
    heard = api(bench, "STREAM.DELETE.S")
    bench.host.settle()
    heard += bench.client.heard()
    assert taken(bench, *"abcde") == []
    assert b"stream_create_response" in heard and b"stream_delete_response" in heard


def test_an_update_of_other_things_leaves_the_subjects_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.create(subjects=["a", "b"])
    monkeypatch.setattr(bench.broker.default_account, "add_capture_in_steps", None)
    api(bench, "STREAM.UPDATE.S", name="S", subjects=["a", "b"], max_msgs=7)
    bench.host.settle()
    assert b'"max_msgs":7' in bench.client.heard() and taken(bench, "a", "b") == ["a", "b"]


def test_a_stream_with_many_subjects_takes_them_all_after_a_restart(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "SUBJECTS_AT_ONCE", 2)
    bench.create(subjects=["a", "b", "c", "d", "e"])
    bench.restart()
    assert taken(bench, *"abcde") == [*"abcde"]

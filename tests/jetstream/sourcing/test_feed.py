"""A feed asks for a consumer, listens, asks again when it must, and says how it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jetlake.broker.subscription import Msg
from jetlake.clock import SECOND_NS
from jetlake.jetstream.sourcing import feed as feed_module
from jetlake.server.observe.healthz import Unhealthy
from jetlake.server.observe.healthz import _check_streams as check_streams
from jetlake.testing.clock import FakeClock
from tests.jetstream.harness import FakeHost, InProcess


class World:
    """A server with an origin O, and what passes through its account."""

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        self.server = InProcess(str(directory), FakeHost(clock=self.clock))
        self.requests: list[Msg] = []
        self.make("O", subjects=["o.>"])

    def make(self, name: str, **config: Any) -> Any:
        body = json.dumps({"name": name} | config).encode()
        return self.server.request(f"$JS.API.STREAM.CREATE.{name}", body)

    def publish(self, *subjects: str) -> None:
        for subject in subjects:
            self.server.request(subject, b"x")

    def stream(self, name: str) -> Any:
        return self.server.js.streams[name]

    def feed(self, name: str) -> Any:
        return next(iter(self.stream(name).copying.feeds()))

    def pass_time(self, seconds: float) -> None:
        """Let the timers that are due fire, in order."""
        end_ns = self.clock() + round(seconds * SECOND_NS)
        host = self.server.host
        while True:
            host.settle()
            due = [timer for timer in host.timers if not timer.is_cancelled and timer.time_ns <= end_ns]
            if not due:
                break
            timer = min(due, key=lambda each: each.time_ns)
            host.timers.remove(timer)
            self.clock.set(max(self.clock(), timer.time_ns))
            timer.callback()
        self.clock.set(end_ns)

    def seqs(self, name: str) -> list[int]:
        return [message.seq for message in self.stream(name).store.messages()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_mirror_follows_its_origin(world: World) -> None:
    world.publish("o.a", "o.b")
    world.make("M", mirror={"name": "O"})
    world.pass_time(1)
    world.publish("o.c")
    world.pass_time(0.1)
    assert world.seqs("M") == [1, 2, 3] and world.feed("M").lag == 0 and world.feed("M").error is None


def test_a_missing_origin_is_asked_for_more_and_more_rarely(world: World) -> None:
    world.make("M", mirror={"name": "X"})
    asked: list[int] = []
    world.server.account.subscribe(b"$JS.API.CONSUMER.CREATE.X", lambda msg: asked.append(world.clock()))
    start_ns = world.clock()
    world.pass_time(150)
    waits = [round((time_ns - start_ns) / SECOND_NS) for time_ns in asked]
    assert waits == pytest.approx([0, 12, 34, 66, 108], abs=3)
    assert world.feed("M").error == {"code": 404, "err_code": 10059, "description": "stream not found"}


def test_an_origin_that_falls_silent_is_asked_again(world: World) -> None:
    world.make("M", mirror={"name": "O"})
    world.pass_time(3)
    feed = world.feed("M")
    assert not feed.is_silent and feed.silent_ns < 2 * SECOND_NS
    for consumer in list(world.stream("O").consumers.values()):
        consumer.close(409, "Consumer Deleted")
    world.pass_time(6)
    assert feed.is_silent
    world.pass_time(16)
    world.publish("o.a")
    world.pass_time(0.1)
    assert world.seqs("M") == [1] and not feed.is_silent


def test_a_stall_is_told_within_ten_seconds_and_so_is_its_end(world: World) -> None:
    world.make("A", subjects=["$JS.EVENT.ADVISORY.STREAM.*.M"])
    world.make("M", mirror={"name": "O"})
    world.pass_time(3)
    for consumer in list(world.stream("O").consumers.values()):
        consumer.close(409, "Consumer Deleted")
    world.pass_time(10)
    world.pass_time(20)
    told = [line.split(" account")[0] for _, line in world.server.host.lines if line.startswith("copy ")]
    assert told == ["copy stalled", "copy resumed"]
    advisories = list(world.stream("A").store.messages(filters=["$JS.EVENT.ADVISORY.STREAM.*.M"]))
    stalled, resumed = [each for each in advisories if "COPY" in each.subject]
    assert stalled.subject.endswith("COPY_STALLED.M") and resumed.subject.endswith("COPY_RESUMED.M")
    first = json.loads(stalled.payload)
    assert first["origin"] == "O" and 5 * SECOND_NS < first["silent"] < 10 * SECOND_NS


def test_a_message_that_is_refused_again_and_again_is_a_stall_too(world: World) -> None:
    world.make("M", mirror={"name": "O"}, max_msgs=1, discard="new")
    world.publish("o.1", "o.2")
    world.pass_time(9)
    (line,) = [line for _, line in world.server.host.lines if line.startswith("copy ")]
    assert line.startswith("copy stalled") and "maximum messages exceeded" in line


def test_what_is_over_in_a_moment_is_not_told(world: World) -> None:
    world.make("M", mirror={"name": "X"})
    world.pass_time(3)
    world.make("X", subjects=["x"])
    world.feed("M").restart()
    world.pass_time(10)
    assert not [line for _, line in world.server.host.lines if line.startswith("copy ")]


def test_a_lost_delivery_makes_a_new_consumer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.make("M", mirror={"name": "O"})
    world.pass_time(1)
    feed = world.feed("M")
    before, take = feed.consumer, feed._take_frames
    feed._deliveries._take = lambda frames: None
    world.publish("o.lost")
    world.pass_time(0.1)
    feed._deliveries._take = take
    world.publish("o.next")
    world.pass_time(5)
    assert feed.consumer != before and world.seqs("M") == [1, 2]


@pytest.mark.parametrize("copy", [{"mirror": {"name": "O"}}, {"sources": [{"name": "O"}]}])
def test_a_full_stream_goes_on_when_there_is_room(world: World, copy: dict[str, Any]) -> None:
    world.make("C", max_msgs=2, discard="new", **copy)
    world.publish("o.1", "o.2", "o.3", "o.4")
    world.pass_time(6)
    assert [message.subject for message in world.stream("C").store.messages()] == ["o.1", "o.2"]
    assert world.feed("C").error["err_code"] == 10077
    world.server.request("$JS.API.STREAM.PURGE.C")
    world.pass_time(6)
    assert [message.subject for message in world.stream("C").store.messages()] == ["o.3", "o.4"]


def test_a_message_that_is_too_large_is_told(world: World) -> None:
    world.make("C", max_msg_size=3, sources=[{"name": "O"}])
    world.server.request("o.big", b"x" * 100)
    world.pass_time(3)
    assert world.feed("C").error["err_code"] == 10054


def test_answers_to_flow_control_wait_for_the_commit(world: World) -> None:
    world.make("Q", subjects=["q.>"], retention="workqueue")
    world.publish(*["q.a"] * 3)
    world.make("T", sources=[{"name": "Q"}])
    world.pass_time(3)
    assert world.seqs("T") == [1, 2, 3] and world.seqs("Q") == []


def test_a_closed_stream_listens_no_more(world: World) -> None:
    world.make("M", mirror={"name": "O"})
    world.pass_time(1)
    feed = world.feed("M")
    world.server.request("$JS.API.STREAM.DELETE.M")
    world.publish("o.a")
    world.pass_time(30)
    assert feed._deliveries is None and feed._timer is None


def test_an_older_origin_gets_a_plain_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def refuse(msg: Msg) -> None:
        config = json.loads(msg.payload)["config"]
        names.append(config["name"])
        if "sourcing" in config:
            error = {"error": {"code": 412, "err_code": 10185, "description": "JetStream minimum api level required"}}
            world.server.account.send(msg.reply, json.dumps(error).encode())

    world.server.account.subscribe(b"old.API.CONSUMER.CREATE.X", refuse)
    world.make("M", mirror={"name": "X", "external": {"api": "old.API", "deliver": "old.in"}})
    world.pass_time(6)
    assert len(names) == 2 and names[1].startswith(f"{names[0]}_") and feed_module.RETRY_NS == 2 * SECOND_NS


def test_a_source_added_to_a_trimmed_stream_begins_at_its_start(world: World) -> None:
    """A difference: nats-server begins at the time of the target's last message, and skips what is older."""
    world.publish("o.1", "o.2")
    world.pass_time(5)
    world.make("T", subjects=["t"], max_msgs=1)
    world.publish("t", "t", "t")
    config = {"name": "T", "subjects": ["t"], "max_msgs": -1, "sources": [{"name": "O"}]}
    world.server.request("$JS.API.STREAM.UPDATE.T", json.dumps(config).encode())
    world.pass_time(3)
    assert [message.subject for message in world.stream("T").store.messages()] == ["t", "o.1", "o.2"]


def test_a_transform_without_a_source_subject_takes_everything(world: World) -> None:
    """A difference: nats-server asks for such a source with a subject that never works."""
    world.publish("o.1")
    transforms = [{"src": "", "dest": "copied.>"}]
    answer = world.make("T", sources=[{"name": "O", "subject_transforms": transforms}])
    if b'"error"' in answer[0][1]:
        pytest.fail(str(answer))
    world.pass_time(3)
    assert [message.subject for message in world.stream("T").store.messages()] == ["copied.o.1"]


def test_health_names_a_stream_that_does_not_keep_up(world: World) -> None:
    accounts = list(world.server.service.accounts.values())
    world.make("M", mirror={"name": "X"})
    world.pass_time(7)
    with pytest.raises(Unhealthy, match="stream 'M' does not keep up with 'X': stream not found"):
        check_streams(accounts, "", "", "")


def test_a_mirror_answers_direct_gets_of_an_origin_elsewhere(world: World) -> None:
    world.make("M", mirror={"name": "X", "external": {"api": "far.API"}}, mirror_direct=True)
    assert world.stream("M").answers_for("X") and not world.stream("M").answers_for("O")

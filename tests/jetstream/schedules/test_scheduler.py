"""Schedules over time: what is made when, what survives a restart or a crash, and what ends one."""

from __future__ import annotations

import errno
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jetlake.clock import SECOND_NS
from jetlake.jetstream.schedules import scheduler as scheduler_module
from jetlake.jetstream.schedules.scheduler import FILE_NAME
from jetlake.testing.clock import FakeClock
from jetlake.wire.headers import header_value
from tests.jetstream.harness import FakeHost, InProcess

START = datetime(2026, 11, 18, 8, 0, 0, 200_000, UTC)


class World:
    """A server whose time a test moves."""

    def __init__(self, directory: Path, start: datetime = START, **config: Any) -> None:
        self.directory, self.clock = directory, FakeClock(int(start.timestamp() * 1000) * 10**6)
        self.start(directory)
        fields = {"name": "S", "subjects": ["s.*", "t.*"], "allow_msg_schedules": True, "allow_msg_ttl": True, **config}
        (answer,) = self.server.request("$JS.API.STREAM.CREATE.S", json.dumps(fields).encode())
        assert b"did_create" in answer[1], answer

    def start(self, directory: Path) -> None:
        self.host = FakeHost(clock=self.clock)
        self.server = InProcess(str(directory), self.host)
        self.host.settle()

    @property
    def stream(self) -> Any:
        return self.server.js.streams["S"]

    def publish(self, subject: str, payload: bytes = b"x", **headers: str) -> dict[str, Any]:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        block = f"NATS/1.0\r\n{lines}\r\n".encode() if headers else b""
        (answer,) = self.server.request(subject, payload, block)
        return dict(json.loads(answer[1]))

    def schedule(self, subject: str, when: str, target: str, **more: str) -> dict[str, Any]:
        return self.publish(subject, Nats_Schedule=when, Nats_Schedule_Target=target, **more)

    def advance(self, seconds: float) -> None:
        """Let time go by, with everything that happens meanwhile."""
        end_ns = self.clock() + round(seconds * SECOND_NS)
        while True:
            due = [timer for timer in self.host.timers if not timer.is_cancelled and timer.time_ns <= end_ns]
            if not due:
                break
            timer = min(due, key=lambda each: each.time_ns)
            self.host.timers.remove(timer)
            self.clock.set(max(self.clock(), timer.time_ns))
            timer.callback()
            self.host.settle()
        self.clock.set(end_ns)

    def restart(self, *, crash: bool = False, down_s: float = 0) -> None:
        """Begin anew with what is on the disk, from a copy after a crash."""
        if crash:
            copy = self.directory.with_name(self.directory.name + "x")
            shutil.copytree(self.directory, copy)
            self.directory = copy
        else:
            self.server.stop()
        self.clock.advance(down_s)
        self.start(self.directory)

    def made(self, subject: str = "t.*") -> list[tuple[float, str]]:
        """When messages of a subject were stored, in seconds since the start, and what they say of their schedule."""
        start_ns = int(START.timestamp()) * SECOND_NS
        return [
            ((each.time_ns - start_ns) / SECOND_NS, (header_value(each.headers, b"Nats-Schedule-Next") or b"").decode())
            for each in self.stream.store.messages(filters=subject)
        ]


def test_at_happens_once_and_takes_the_schedule_with_it(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    assert world.schedule("s.a", "@at 2026-11-18T08:00:03.5Z", "t.a", A="b", Nats_Msg_Id="one")["seq"] == 1
    world.advance(10)
    assert world.made() == [(3.5, "purge")]
    (message,) = world.stream.store.messages()
    assert message.headers == b"NATS/1.0\r\nA: b\r\nNats-Scheduler: s.a\r\nNats-Schedule-Next: purge\r\n\r\n"
    assert message.payload == b"x" and not world.stream.machine.schedules


def test_every_goes_on_from_when_it_was_due(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    world.schedule("s.a", "@every 2s", "t.a")
    world.advance(7)
    assert [time for time, _ in world.made()] == [2, 4, 6]


def test_cron_follows_the_clocks_of_its_zone(tmp_path: Path) -> None:
    world = World(tmp_path / "a", START.replace(month=10, day=31, year=2026))
    world.schedule("s.a", "0 30 1 * * *", "t.a", Nats_Schedule_Time_Zone="America/New_York")
    world.advance(3 * 86_400)
    assert [following for _, following in world.made()] == [
        "2026-11-01T01:30:00-05:00",  # the second half past one of that night
        "2026-11-02T01:30:00-05:00",
        "2026-11-03T01:30:00-05:00",
        "2026-11-04T01:30:00-05:00",
    ]


def test_samples_are_of_another_subject(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    world.schedule("s.a", "@every 1s", "t.a", Nats_Schedule_Source="s.value", Nats_Schedule_Rollup="sub")
    world.advance(1)
    world.publish("s.value", b"42", C="d", Nats_TTL="1h")
    world.advance(2)
    (message,) = world.stream.store.messages(filters="t.a")
    assert message.payload == b"42" and header_value(message.headers, b"C") == b"d"
    assert header_value(message.headers, b"Nats-TTL") is None


def test_made_messages_drop_the_headers_of_batches(tmp_path: Path) -> None:
    """nats-server keeps them."""
    world = World(tmp_path / "a")
    batch = {"Nats_Batch_Sequence": "1", "Nats_Batch_Commit": "1"}
    world.schedule("s.a", "@every 1s", "t.a", **batch)
    world.advance(1)
    (message,) = world.stream.store.messages(filters="t.a")
    assert b"Nats-Batch" not in message.headers


@pytest.mark.parametrize("how", ["plain", "delete", "purge", "ttl", "cancel", "all"])
def test_what_ends_a_schedule(tmp_path: Path, how: str) -> None:
    world = World(tmp_path / "a")
    world.schedule("s.a", "@every 5s", "t.a", **({"Nats_TTL": "2s"} if how == "ttl" else {}))
    if how == "plain":
        world.publish("s.a")
        world.server.request("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":2}')  # which does not bring it back
    elif how == "delete":
        world.server.request("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":1}')
    elif how == "purge":
        world.server.request("$JS.API.STREAM.PURGE.S", b'{"filter":"s.a"}')
    elif how == "all":
        world.server.request("$JS.API.STREAM.PURGE.S")
    elif how == "cancel":
        world.publish("s.b", Nats_Schedule_Next="purge", Nats_Scheduler="s.a")
        assert world.stream.log.last_seq_of("s.a") == 0
    world.advance(20)
    assert world.made() == []


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("has_file", [True, False])
def test_schedules_survive_restarts_and_miss_nothing_nor_happen_twice(
    tmp_path: Path, crash: bool, has_file: bool
) -> None:
    world = World(tmp_path / "a")
    world.schedule("s.a", "@every 2s", "t.a")
    world.schedule("s.b", "@at 2026-11-18T08:00:03Z", "t.b")
    world.schedule("s.c", "*/5 * * * * *", "t.c")
    world.schedule("s.d", "@at 2026-11-18T09:00:00Z", "t.d")
    world.advance(3.5)
    world.restart(crash=crash)
    if not has_file:
        world.server.stop()
        for path in world.directory.rglob(FILE_NAME):
            path.unlink()
        world.start(world.directory)
    world.advance(3.5)
    assert [time for time, _ in world.made("t.a")] == [2, 4, 6]
    assert [time for time, _ in world.made("t.b")] == [3]
    assert [time for time, _ in world.made("t.c")] == [5]
    assert len(world.stream.machine.schedules) == 3


def test_what_was_missed_happens_once_in_the_order_of_the_schedules(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    for name in "cab":
        world.schedule(f"s.{name}", "@every 2s", f"t.{name}")
    world.restart(crash=True, down_s=11)
    world.advance(4)
    assert [message.subject for message in world.stream.store.messages(filters="t.*")][:3] == ["t.c", "t.a", "t.b"]
    assert [round(time, 2) for time, _ in world.made("t.a")] == [11.45, 13, 15]


def test_a_schedule_whose_time_to_live_ended_while_nobody_served_it_does_not_happen(tmp_path: Path) -> None:
    """nats-server makes its message."""
    world = World(tmp_path / "a")
    world.schedule("s.a", "@at 2026-11-18T08:00:05Z", "t.a", Nats_TTL="3s")
    world.restart(crash=True, down_s=10)
    world.advance(2)
    assert world.made() == []


def test_a_schedule_that_is_due_after_its_time_to_live_does_not_happen(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    world.schedule("s.a", "@at 2026-11-18T08:00:05Z", "t.a", Nats_TTL="3s")
    world.clock.advance(10)  # as when the machine slept: nothing expired yet
    world.stream.scheduler._wake()
    assert world.made() == [] and not world.stream.machine.schedules


def test_the_file_keeps_what_a_restart_reads_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "STAMP_STEP", 10)
    world = World(tmp_path / "a")
    world.schedule("s.a", "@every 1h", "t.a")
    for _ in range(25):
        world.publish("s.x")
    assert world.stream.scheduler._stamp_seq >= 20
    world.restart(crash=True)
    assert len(world.stream.machine.schedules) == 1


def test_a_damaged_file_is_made_good_by_the_messages(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    world.schedule("s.a", "@every 1h", "t.a")
    world.server.stop()
    (path,) = world.directory.rglob(FILE_NAME)
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    world.start(world.directory)
    assert len(world.stream.machine.schedules) == 1


def test_schedules_begin_when_they_are_turned_on(tmp_path: Path) -> None:
    world = World(tmp_path / "a", allow_msg_schedules=False)
    assert world.schedule("s.a", "@every 1s", "t.a")["error"]["err_code"] == 10188
    fields = {"name": "S", "subjects": ["s.*", "t.*"], "allow_msg_schedules": True, "allow_msg_ttl": True}
    world.server.request("$JS.API.STREAM.UPDATE.S", json.dumps(fields).encode())
    world.schedule("s.a", "@every 1s", "t.a")
    world.advance(1)
    assert len(world.made()) == 1


def test_schedules_go_on_after_the_disk_failed(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    world.schedule("s.a", "@every 2s", "t.a")
    world.host.fails = OSError(errno.EIO, "broken")
    world.publish("s.b")
    world.advance(3)
    world.host.fails = None
    world.advance(8)
    assert len(world.made("t.a")) >= 3 and len(world.stream.machine.schedules) == 1


def test_a_message_that_cannot_be_stored_is_tried_again(tmp_path: Path) -> None:
    world = World(tmp_path / "a", max_msg_size=300)
    world.schedule("s.later", "@at 2036-11-18T08:00:02Z", "t.b")
    world.schedule("s.a", "@at 2026-11-18T08:00:02Z", "t.a", Nats_Schedule_Source="s.value")
    world.publish("s.value", b"v" * 290)
    world.advance(3)
    assert world.made() == [] and any("not stored" in line for _, line in world.host.lines)
    world.publish("s.value", b"small")
    world.advance(10)
    assert [following for _, following in world.made()] == ["purge"]


def test_a_thousand_schedules_cost_one_timer(tmp_path: Path) -> None:
    world = World(tmp_path / "a", storage="memory")
    for number in range(1000):
        world.schedule(f"s.{number}", "@at 2027-01-01T00:00:00Z", "t.a")
    waiting = [
        timer for timer in world.host.timers if not timer.is_cancelled and timer.time_ns > world.clock() + 10**15
    ]
    assert len(waiting) == 1
    world.advance(50 * 86_400)
    assert len(world.made()) == 1000

"""Consumers whose files cannot be read: the others are there, the stream serves, and what they wanted is kept."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jetlake.errors import CorruptBlock
from jetlake.jetstream.consumers.consumer import Consumer
from jetlake.store.consumer_state import ConsumerState
from jetlake.store.disk.files import OS_FILES
from tests.jetstream.consumer_world import World


class BadDisk:
    """The files of the operating system, some of which cannot be read."""

    def __init__(self, path: str, code: int) -> None:
        self._path, self._code = path, code

    def __getattr__(self, name: str) -> Any:
        return getattr(OS_FILES, name)

    def read(self, path: str) -> bytes:
        if path == self._path:
            raise OSError(self._code, "cannot be read", path)
        return OS_FILES.read(path)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)


def be_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def be_empty(path: Path) -> None:
    path.write_bytes(b"")


HARMS = pytest.mark.parametrize("harm", [flip, be_directory, be_empty])
Harm = Callable[[Path], None]


def file_of(world: World, name: str) -> Path:
    keeper = world.consumer(name).keeper
    assert keeper is not None
    return Path(keeper.path)


def two_consumers(tmp_path: Path, retention: str) -> World:
    """Two of four messages are acknowledged by a; b has read none."""
    world = World(tmp_path, retention=retention)
    world.create("a", filter_subject="s.a" if retention == "workqueue" else "s.>")
    world.create("b", filter_subject="s.b")
    for number in range(4):
        world.publish(b"x", subject=f"s.{'ab'[number % 2]}")
    return world


def harmed(world: World, harm: Harm, name: str = "b") -> World:
    path = file_of(world, name)
    world.stop()
    harm(path)
    world.start()
    return world


def errors(world: World, level: str = "error") -> list[str]:
    return [line for found, line in world.host.lines if found == level]


def stored(world: World) -> list[int]:
    return [message.seq for message in world.stream.store.messages()]


@HARMS
@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
def test_the_others_are_there_and_the_stream_serves(tmp_path: Path, retention: str, harm: Harm) -> None:
    world = harmed(two_consumers(tmp_path, retention), harm)
    assert world.service.accounts["$G"].offline == {}
    assert list(world.stream.consumers) == ["a"]
    (line,) = errors(world)
    assert line.startswith("consumer offline stream=S name=b error=")
    world.publish(b"y", subject="s.b")
    assert stored(world) == [1, 2, 3, 4, 5]
    assert len(world.next("a", batch=9)) == (2 if retention == "workqueue" else 5)


@HARMS
def test_an_interest_stream_keeps_what_the_lost_one_may_want(tmp_path: Path, harm: Harm) -> None:
    world = harmed(two_consumers(tmp_path, "interest"), harm)
    world.publish(b"y", subject="s.c")
    for each in world.next("a", batch=9):
        world.ack(each)
    world.peer.request("CONSUMER.DELETE.S.a")
    world.restart()
    assert stored(world) == [1, 2, 3, 4, 5]


@HARMS
def test_a_publish_is_stored_when_the_only_consumer_is_lost(tmp_path: Path, harm: Harm) -> None:
    world = World(tmp_path, retention="interest")
    world.create("b", filter_subject="s.b")
    harmed(world, harm)
    world.publish(b"x", subject="s.b")
    assert stored(world) == [1]


@HARMS
def test_one_of_the_same_name_takes_its_place(tmp_path: Path, harm: Harm) -> None:
    world = two_consumers(tmp_path, "interest")
    path = file_of(world, "b")
    harmed(world, harm)
    for each in world.next("a", batch=9):
        world.ack(each)
    assert stored(world) == [1, 2, 3, 4]
    world.wait(1)
    assert "error" not in world.create("b", filter_subject="s.b")
    assert stored(world) == [2, 4] and not path.exists() and Path(f"{path}.replaced").exists()
    world.restart()
    assert stored(world) == [2, 4] and sorted(world.stream.consumers) == ["a", "b"]
    assert world.stream.offline_consumers == {} and len(errors(world)) == 1
    assert errors(world, "warning") == [f"unknown file left alone path={path}.replaced"]
    world.peer.request("CONSUMER.DELETE.S.b")
    world.restart()
    assert stored(world) == [] and world.stream.offline_consumers == {}


def test_one_that_cannot_be_made_takes_no_place(tmp_path: Path) -> None:
    world = harmed(two_consumers(tmp_path, "interest"), flip)
    world.wait(1)
    world.host.fails = OSError(errno.ENOSPC, "No space left on device")
    assert world.create("b", filter_subject="s.b")["error"]["err_code"] == 10104
    world.host.fails = None
    world.wait(5)
    assert list(world.stream.offline_consumers) == ["b"]
    world.peer.request("CONSUMER.DELETE.S.a")
    assert stored(world) == [1, 2, 3, 4]


def test_a_crash_before_the_old_file_is_put_aside(tmp_path: Path) -> None:
    world = two_consumers(tmp_path, "interest")
    path = file_of(world, "b")
    harmed(world, flip)
    world.wait(1)
    world.create("b", filter_subject="s.b")
    world.stop()
    Path(f"{path}.replaced").rename(path)
    world.start()
    assert sorted(world.stream.consumers) == ["a", "b"] and world.stream.offline_consumers == {}
    assert any(line.startswith("old file of a consumer left alone") for line in errors(world, "warning"))


def test_the_api_tells_of_it(tmp_path: Path) -> None:
    world = harmed(two_consumers(tmp_path, "interest"), be_directory)
    reason = "Is a directory"
    for verb in ("INFO", "DELETE", "PAUSE"):
        answer = world.peer.request(f"CONSUMER.{verb}.S.b")
        assert answer["error"] == {"code": 500, "err_code": 10195, "description": f"consumer is offline: {reason}"}
    listed = world.peer.request("CONSUMER.LIST.S")
    assert [each["name"] for each in listed["consumers"]] == ["a"] and listed["offline"] == {"b": reason}


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_a_disk_that_does_not_give_it(tmp_path: Path, code: int) -> None:
    world = two_consumers(tmp_path, "interest")
    files = BadDisk(str(file_of(world, "b")), code)
    world.stop()
    world.start(files)  # type: ignore[arg-type]  # it is one in all that matters
    assert list(world.stream.consumers) == ["a"] and stored(world) == [1, 2, 3, 4]
    world.restart()
    assert sorted(world.stream.consumers) == ["a", "b"] and world.info("b")["num_pending"] == 2


@pytest.mark.parametrize("name", ["backup", "notes.txt", "b.12.old", ".hidden"])
@pytest.mark.parametrize("is_directory", [True, False])
def test_what_is_unknown_is_left_alone(tmp_path: Path, name: str, is_directory: bool) -> None:
    world = two_consumers(tmp_path, "interest")
    path = file_of(world, "b").parent / name
    world.stop()
    if is_directory:
        (path / "deep").mkdir(parents=True)
    else:
        path.write_bytes(b"mine")
    world.start()
    assert path.exists() and sorted(world.stream.consumers) == ["a", "b"]
    assert errors(world, "warning") == [f"unknown file left alone path={path}"] and errors(world) == []
    for each in world.next("a", batch=9):
        world.ack(each)
    assert stored(world) == [2, 4]


def test_a_temporary_file_that_is_a_directory_is_left_alone(tmp_path: Path) -> None:
    world = two_consumers(tmp_path, "limits")
    path = file_of(world, "b").parent / "x.0123456789abcdef.tmp"
    world.stop()
    path.mkdir()
    world.start()
    assert path.exists() and sorted(world.stream.consumers) == ["a", "b"]


def test_a_directory_that_cannot_be_listed(tmp_path: Path) -> None:
    world = two_consumers(tmp_path, "interest")
    directory = file_of(world, "b").parent
    world.stop()
    shutil.rmtree(directory)
    directory.write_bytes(b"")
    world.start()
    world.publish(b"y")
    assert world.stream.consumers == {} and stored(world) == [1, 2, 3, 4, 5] and len(errors(world)) == 1


def test_a_stream_whose_recovery_fails_serves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = two_consumers(tmp_path, "limits")
    world.stop()

    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("jetlake.jetstream.service.recover_consumers", fail)
        world.start()
    account = world.service.accounts["$G"]
    assert account.streams == {} and account.offline == {"S": "Input/output error"}
    world.publish(b"y")
    world.restart()
    assert stored(world) == [1, 2, 3, 4]


@pytest.mark.parametrize("error", [CorruptBlock("block", 0, "damaged"), OverflowError("too large")])
def test_a_consumer_that_cannot_be_restored_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    world = two_consumers(tmp_path, "interest")
    path, restore = file_of(world, "b"), Consumer.restore

    def fail(consumer: Consumer, state: ConsumerState) -> None:
        if consumer.name == "b":
            raise error
        restore(consumer, state)

    world.stop()
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Consumer, "restore", fail)
        world.start()
        world.wait(5)
    assert list(world.stream.consumers) == ["a"] and path.read_bytes() == before

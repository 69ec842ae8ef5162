"""What consumers remember, over restarts and crashes."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from jetlake.jetstream.consumers import state_files as consumer_keeper
from jetlake.jetstream.consumers.config import AckPolicy, ConsumerConfig, read_config
from jetlake.jetstream.consumers.state_files import ConsumerFiles, encode_meta
from jetlake.store.consumer_state import ConsumerState, encode_state
from jetlake.testing.memfiles import MemFiles
from tests.jetstream.consumer_world import S, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def numbers(info: dict[str, Any]) -> tuple[int, int, int, int, int]:
    delivered, floor = info["delivered"], info["ack_floor"]
    return (
        delivered["consumer_seq"],
        delivered["stream_seq"],
        floor["consumer_seq"],
        floor["stream_seq"],
        info["num_ack_pending"],
    )


def test_a_restart_keeps_everything(world: World) -> None:
    created = world.create(ack_wait=5 * S, metadata={"k": "v"}, filter_subjects=["s.a", "s.b"])
    world.publish(b"1", b"2", b"3")
    one, *_ = world.next(batch=2)
    world.ack(one)
    before = world.info()
    world.restart()
    after = world.info()
    assert after["config"] == before["config"] == created["config"] and after["created"] == created["created"]
    assert numbers(after) == numbers(before) == (2, 2, 1, 1, 1) and after["num_pending"] == 1
    world.wait(5.1)
    assert [each.ack[:3] for each in world.next(batch=5)] == [(2, 2, 3), (1, 3, 4)]


def test_a_create_is_answered_when_it_is_durable(world: World) -> None:
    world.create()
    world.crash()
    assert world.info()["name"] == "c"


def test_an_answered_ack_survives_a_crash(world: World) -> None:
    world.create()
    world.publish(b"1", b"2", b"3")
    one, two, _ = world.next(batch=3)
    world.ack(one, reply="in.ack")
    world.ack(two, b"+TERM", reply="in.ack")
    assert len(world.peer.take()) == 2
    world.crash()
    world.wait(31)
    assert [each.ack[1] for each in world.next(batch=5)] == [3]


def test_acks_that_nobody_waits_for_are_written_a_little_later(world: World) -> None:
    world.create()
    world.publish(b"1", b"2")
    one, _ = world.next(batch=2)
    world.ack(one)
    world.wait(1.1)
    world.crash()
    assert numbers(world.info()) == (2, 2, 1, 1, 1)


def test_a_consumer_stands_in_line_once_however_often_it_is_written(world: World) -> None:
    world.create()
    world.publish(*[b"%d" % number for number in range(20)])
    for message in world.next(batch=20):
        world.ack(message, reply="in.ack")
    assert len(world.peer.take()) == 20
    assert len(consumer_keeper._line(world.host)._keepers) == 1
    world.wait(1.1)
    assert not consumer_keeper._line(world.host)._keepers
    world.publish(b"more")
    world.ack(world.next()[0])
    world.wait(1.1)
    world.crash()
    assert numbers(world.info()) == (21, 21, 21, 21, 0)


def test_what_was_delivered_and_not_written_is_delivered_again(world: World) -> None:
    world.create()
    world.publish(b"1", b"2")
    world.wait(1.1)
    world.next(batch=2)
    world.crash()
    assert [each.payload for each in world.next(batch=5)] == [b"1", b"2"]


def test_a_deleted_consumer_stays_deleted(world: World) -> None:
    world.create()
    world.peer.request("CONSUMER.DELETE.S.c")
    world.crash()
    assert world.info()["error"]["err_code"] == 10014


def test_a_consumer_made_again_is_a_new_one_after_a_crash(world: World) -> None:
    world.publish(b"1")
    world.create()
    (message,) = world.next(batch=1)
    world.ack(message, reply="in.ack")
    world.peer.request("CONSUMER.DELETE.S.c")
    world.wait(0.1)
    world.create()
    world.crash()
    assert world.info()["num_pending"] == 1


def test_consumers_in_memory_are_gone_after_a_restart(world: World) -> None:
    world.create(mem_storage=True)
    world.restart()
    assert world.info()["error"]["err_code"] == 10014


def test_a_pause_survives_a_restart(world: World) -> None:
    from jetlake.wire.go_time import format_time

    world.create()
    world.publish(b"1")
    world.peer.request("CONSUMER.PAUSE.S.c", {"pause_until": format_time(world.clock() + 10 * S)})
    world.crash()
    assert world.next(batch=1) == []
    world.wait(10.1)
    assert [each.payload for each in world.peer.take()] == [b"1"]


def test_an_update_survives_a_crash(world: World) -> None:
    world.create()
    world.create(description="changed", max_ack_pending=7)
    world.crash()
    assert world.info()["config"]["description"] == "changed" and world.consumer().ledger.max_pending == 7


def test_an_ephemeral_consumer_comes_back_and_goes_when_unused(world: World) -> None:
    world.peer.request("CONSUMER.CREATE.S.e", {"stream_name": "S", "config": {"name": "e"}})
    world.restart()
    assert "e" in world.stream.consumers
    world.wait(7)
    assert "e" not in world.stream.consumers


def test_a_damaged_file_is_reported_and_left_alone(world: World) -> None:
    world.create("good")
    world.create("bad")
    world.stop()
    (path,) = Path(world.directory).rglob("bad.*")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    world.start()
    assert list(world.stream.consumers) == ["good"] and path.exists()
    assert any(level == "error" and "consumer offline" in line for level, line in world.host.lines)


def test_a_write_that_fails_is_tried_again(world: World) -> None:
    world.create()
    world.publish(b"1")
    (message,) = world.next(batch=1)
    world.settle()
    world.host.fails = OSError(errno.ENOSPC, "no room")
    keeper = world.consumer().keeper
    assert keeper is not None
    world.peer.connection.say(b"PUB %s in.ack 0\r\n\r\n" % message.reply.encode())
    keeper.prepare_commit()
    keeper.fail_commit(world.host.fails)
    world.host.fails = None
    assert world.peer.take() == []
    world.wait(3)
    assert [each.subject for each in world.peer.take()] == ["in.ack"]


def test_a_create_that_cannot_be_written_is_refused(world: World) -> None:
    world.settle()
    world.host.fails = OSError(errno.ENOSPC, "no room")
    assert world.create()["error"]["err_code"] == 10104
    assert "c" not in world.stream.consumers


def test_a_server_that_stops_tells_who_waits(world: World) -> None:
    world.create()
    world.next(batch=3)
    world.stop()
    (status,) = world.peer.take()
    assert status.status == "409 Server Shutdown" and b"Nats-Pending-Messages: 3" in status.headers


# Files


def test_of_two_files_for_one_name_the_younger_counts() -> None:
    files = MemFiles()
    files.make_dirs("d")
    for created_ns in (5, 9, 7):
        config = ConsumerConfig(name="n", ack_policy=AckPolicy.ALL)
        data = encode_state(ConsumerState(delivered_consumer_seq=created_ns), encode_meta("n", created_ns, config))
        with files.open(f"d/n.{created_ns:x}", create=True) as file:
            file.pwritev(0, [data])
    (kept,), unreadable, leftover, unknown = ConsumerFiles(files, "d").read()
    assert kept.created_ns == 9 and kept.state.delivered_consumer_seq == 9
    assert unreadable == unknown == [] and sorted(leftover) == ["d/n.5", "d/n.7"]


def test_a_configuration_is_read_as_it_was_written() -> None:
    import msgspec

    from jetlake.jetstream.consumers.config import config_json

    config = ConsumerConfig(
        durable_name="d",
        name="d",
        opt_start_time=1_700_000_000_123_456_789,
        pause_until=1_800_000_000_000_000_000,
        backoff=(1, 2),
        filter_subjects=("a", "b"),
        metadata={"k": "v"},
        priority_groups=("g",),
        flow_control=True,
    )
    assert read_config(msgspec.json.encode(config_json(config))) == config

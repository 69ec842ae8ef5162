"""The streams of an account: limits, usage, and how streams come and go on disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from jetlake.config.options import AccountJetStream, AccountOptions, JetStreamOptions, ServerOptions
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams.config import Storage, StreamConfig
from jetlake.jetstream.streams.meta import is_tomb, read_meta
from jetlake.jetstream.streams.stream import Stream
from jetlake.store.disk.files import OS_FILES, Files, OsFiles
from tests.jetstream.harness import FakeHost, InProcess


def server(
    directory: Path, limits: AccountJetStream | None = None, files: Files = OS_FILES, **jetstream: Any
) -> InProcess:
    """A server whose account A has these limits."""
    options = ServerOptions(
        server_name="test",
        accounts={"A": AccountOptions(name="A", jetstream=limits or AccountJetStream())},
        jetstream=JetStreamOptions(enabled=True, **{"max_memory": 1 << 30, "max_store": 1 << 30, **jetstream}),
    )
    return InProcess(str(directory), FakeHost(options=options), account="A", files=files)


def make(on: InProcess, name: str = "S", **fields: Any) -> Stream:
    config = StreamConfig(name=name, subjects=fields.pop("subjects", (f"{name}.>",)), **fields)
    stream: Stream = on.js.create(config)
    return stream


def refusal(on: InProcess, name: str = "S", **fields: Any) -> int:
    with pytest.raises(ApiError) as caught:
        make(on, name, **fields)
    return caught.value.err_code


def publish(on: InProcess, subject: str, payload: bytes = b"x") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(on.request(subject, payload)[0][1])
    return answer


def streams_dir(directory: Path) -> Path:
    return directory / "jetstream" / "A" / "streams"


# Limits


def test_the_number_of_streams_is_limited(tmp_path: Path) -> None:
    on = server(tmp_path, AccountJetStream(max_streams=2))
    make(on, "A"), make(on, "B")
    assert refusal(on, "C") == 10027
    make(on, "B")  # the same again is no further one


def test_reservations_add_up_to_the_limit_of_the_account(tmp_path: Path) -> None:
    on = server(tmp_path, AccountJetStream(max_store=1000, max_memory=500))
    make(on, "A", max_bytes=600)
    assert refusal(on, "B", max_bytes=401) == 10047
    assert refusal(on, "M", max_bytes=501, storage=Storage.MEMORY) == 10028
    make(on, "M", max_bytes=500, storage=Storage.MEMORY)
    assert refusal(on, "N", storage=Storage.MEMORY) == 10028  # without max_bytes one byte is needed
    make(on, "B", max_bytes=400)


def test_reservations_add_up_to_the_limit_of_the_server(tmp_path: Path) -> None:
    on = server(tmp_path, max_store=1000)
    make(on, "A", max_bytes=900)
    assert refusal(on, "B", max_bytes=101) == 10047


def test_an_update_reserves_the_difference(tmp_path: Path) -> None:
    on = server(tmp_path, AccountJetStream(max_store=1000))
    stream = make(on, "A", max_bytes=600)
    make(on, "B", max_bytes=300)
    on.js.update(stream, replace(stream.config, max_bytes=700))
    with pytest.raises(ApiError) as caught:
        on.js.update(stream, replace(stream.config, max_bytes=701))
    assert caught.value.err_code == 10047
    on.js.update(stream, replace(stream.config, max_bytes=1))
    assert on.js.reserved(Storage.FILE) == 301


def test_max_consumers_is_limited(tmp_path: Path) -> None:
    on = server(tmp_path, AccountJetStream(max_consumers=3))
    assert refusal(on, max_consumers=4) == 10026
    make(on, max_consumers=3)


@pytest.mark.parametrize("storage", list(Storage))
def test_publishing_stops_at_the_limit_of_the_account(tmp_path: Path, storage: Storage) -> None:
    on = server(tmp_path, AccountJetStream(max_store=400, max_memory=400))
    make(on, storage=storage)
    answers = [publish(on, "S.a", b"x" * 100) for _ in range(5)]
    assert [answer.get("error", {}).get("err_code") for answer in answers][-1] == 10002
    assert on.js.used(storage) <= 400


def test_publishing_stops_at_the_limit_of_the_server(tmp_path: Path) -> None:
    on = server(tmp_path, max_store=200)
    make(on)
    assert "error" not in publish(on, "S.a", b"x" * 100)
    assert publish(on, "S.a", b"x" * 100)["error"]["err_code"] == 10023


def test_room_is_never_more_than_is_left(tmp_path: Path) -> None:
    on = server(tmp_path, AccountJetStream(max_store=64 << 20))
    make(on)
    stored = 0
    while (room := on.js.room(Storage.FILE).left()) > 4096:
        assert room <= on.js.left(Storage.FILE)
        on.js.streams["S"].store.append("S.a", bytes(min(room, 1 << 20)))
        stored += 1
    assert stored > 64 and on.js.left(Storage.FILE) >= 0


def test_usage_in_numbers(tmp_path: Path) -> None:
    on = server(tmp_path, AccountJetStream(max_store=1 << 20, max_streams=9))
    make(on, "F", max_bytes=1000), make(on, "M", storage=Storage.MEMORY, max_bytes=100)
    publish(on, "F.a", b"abc"), publish(on, "M.a", b"abc")
    info = on.js.info()
    assert (info["storage"], info["memory"], info["streams"]) == (30 + 3 + 3, 16 + 3 + 3, 2)
    assert (info["reserved_storage"], info["reserved_memory"]) == (1000, 100)
    assert info["limits"]["max_streams"] == 9 and info["limits"]["max_memory"] == -1


# On disk


def test_a_stream_is_on_disk_when_it_is_made(tmp_path: Path) -> None:
    on = server(tmp_path)
    stream = make(on, max_msgs=7)
    on.host.settle()
    meta = read_meta(OS_FILES, str(streams_dir(tmp_path) / "S"))
    assert meta.config == stream.config and meta.created_ns == stream.created_ns


def test_an_update_is_on_disk(tmp_path: Path) -> None:
    on = server(tmp_path)
    stream = make(on)
    on.js.update(stream, replace(stream.config, max_msgs=7))
    on.host.settle()
    assert read_meta(OS_FILES, str(streams_dir(tmp_path) / "S")).config.max_msgs == 7


def test_streams_in_memory_leave_no_files(tmp_path: Path) -> None:
    make(server(tmp_path), storage=Storage.MEMORY)
    assert not streams_dir(tmp_path).exists()


def test_a_deleted_stream_leaves_no_files(tmp_path: Path) -> None:
    on = server(tmp_path)
    stream = make(on)
    publish(on, "S.a")
    done: list[str] = []
    on.js.remove(stream, lambda: done.append("done"), lambda error: done.append("failed"))
    on.host.commit_round()
    assert done == ["done"] and not (streams_dir(tmp_path) / "S").exists()
    on.host.settle()
    assert list(streams_dir(tmp_path).iterdir()) == []
    with pytest.raises(ApiError, match="stream not found"):
        on.js.stream("S")
    assert on.request("S.a") == []  # nobody stores it


def test_a_name_is_free_again_only_when_the_files_are_gone(tmp_path: Path) -> None:
    on = server(tmp_path)
    stream = make(on)
    publish(on, "S.a")
    waiting: list[Any] = []
    stream.log.when_idle = waiting.append  # type: ignore[method-assign]  # as while a commit runs
    on.js.remove(stream, lambda: None, lambda error: None)
    on.host.settle()
    answers = on.request("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["S.>"]}')
    assert answers == []
    waiting[0]()
    on.host.settle()
    assert publish(on, "S.a")["seq"] == 1
    assert on.js.streams["S"] is not stream


def test_a_deleted_streams_consumers_do_not_come_back_with_a_new_one(tmp_path: Path) -> None:
    on = server(tmp_path)
    stream = make(on)
    on.request("$JS.API.CONSUMER.CREATE.S.C", b'{"stream_name":"S","config":{"durable_name":"C","name":"C"}}')
    stream.consumers["C"].changed()  # and not yet written
    on.request("$JS.API.STREAM.DELETE.S")
    make(on)
    on.host.settle()
    on.stop()
    again = server(tmp_path)
    assert list(again.js.streams) == ["S"] and again.js.streams["S"].consumers == {}


class BrokenFiles(OsFiles):
    """A disk on which, once it is broken, no deleted stream can be renamed, or no meta.json."""

    is_broken = False

    def __init__(self, *, refuses_tombs: bool = False) -> None:
        self._refuses_tombs = refuses_tombs

    def rename(self, source: str, target: str) -> None:
        name = target.rsplit("/", 1)[1]
        if self.is_broken and (is_tomb(name) if self._refuses_tombs else name == "meta.json"):
            raise OSError(5, "Input/output error", source)
        super().rename(source, target)


def test_a_stream_that_cannot_be_removed_stays(tmp_path: Path) -> None:
    files = BrokenFiles(refuses_tombs=True)
    on = server(tmp_path, files=files)
    stream = make(on)
    on.host.settle()
    files.is_broken = True
    done: list[int] = []
    on.js.remove(stream, lambda: done.append(0), lambda error: done.append(error.err_code))
    on.host.settle()
    assert done == [10050]
    files.is_broken = False
    assert publish(on, "S.a")["seq"] == 1
    shutil.copytree(tmp_path, tmp_path / "copy")  # as after a crash: the log does not say that it is gone
    assert list(server(tmp_path / "copy").js.streams) == ["S"]


def test_a_stream_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    files = BrokenFiles()
    on = server(tmp_path, files=files)
    files.is_broken = True
    (answer,) = on.request("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["S.>"]}')
    assert json.loads(answer[1])["error"]["err_code"] == 10049
    assert not (streams_dir(tmp_path) / "S").exists() and "S" not in on.js.streams
    assert any(level == "error" and "name=S" in line for level, line in on.host.lines)
    files.is_broken = False
    make(on)
    assert publish(on, "S.a")["seq"] == 1


def test_an_update_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    files = BrokenFiles()
    on = server(tmp_path, files=files)
    make(on)
    on.host.settle()
    files.is_broken = True
    answer = json.loads(on.request("$JS.API.STREAM.UPDATE.S", b'{"name":"S","subjects":["S.>"],"max_msgs":1}')[0][1])
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (500, 10069)
    assert "Input/output error" in answer["error"]["description"]
    assert on.js.streams["S"].config.max_msgs == -1
    files.is_broken = False
    on.host.timers[-1].callback()  # it reads its files anew
    assert publish(on, "S.a")["seq"] == 1 and publish(on, "S.a")["seq"] == 2
    assert on.js.streams["S"].store.fast_state().msgs == 2

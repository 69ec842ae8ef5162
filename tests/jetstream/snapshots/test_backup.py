"""Backups of stream directories: incremental, while a server writes, and back."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from jetlake.errors import StoreError, StoreLocked
from jetlake.jetstream.snapshots import backup as backups
from jetlake.jetstream.snapshots.backup import Copied, backup, copy_file, find, restore
from jetlake.store import FileOptions, FileStore
from jetlake.store.disk.files import OS_FILES
from jetlake.store.verify.check import check_tree
from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, Server
from tests.store.nats.real_store import RealStore, fill_everything


def results(found: Any) -> dict[str, Copied]:
    return {each.stream: each for each in found}


@pytest.fixture
def old_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as settled at once, so that tests need not wait for that."""
    monkeypatch.setattr(backups, "_SETTLED_NS", -(10**18))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RealStore:
    """A store of ours at rest."""
    directory = tmp_path_factory.mktemp("server")
    with Server(JETLAKE, directory) as server, Peer(server) as peer:
        fill_everything(peer)
        store = RealStore(str(server.store))
        store.look(peer)
        server.stop()
    return store


def test_restored_backup_is_served_as_it_was(source: RealStore, tmp_path: Path) -> None:
    copied = results(backup(source.path, str(tmp_path / "backup")))
    assert {name: each.msgs for name, each in copied.items()} == {n: len(m) for n, m in source.messages.items()}
    assert not any(each.error or each.lost or each.problems for each in copied.values())
    assert all(report.ok for report in check_tree(str(tmp_path / "backup")).values())
    back = results(restore(str(tmp_path / "backup"), str(tmp_path / "server" / "store")))
    assert not any(each.error for each in back.values())
    served = RealStore("")
    with Server(JETLAKE, tmp_path / "server") as server, Peer(server) as peer:
        served.look(peer)
    assert served.messages == source.messages
    assert served.consumers.keys() == source.consumers.keys()
    for name, info in source.consumers.items():
        assert served.consumers[name]["num_ack_pending"] == info["num_ack_pending"]
        assert served.streams[name.partition("/")[0]]["created"] == source.streams[name.partition("/")[0]]["created"]


def make_stream(path: Path, count: int, **options: Any) -> FileStore:
    stream = path / "jetstream" / "%24G" / "streams" / "S"
    (stream / "msgs").mkdir(parents=True, exist_ok=True)
    (stream / "meta.json").write_text("{}")
    store = FileStore(stream / "msgs", options=FileOptions(block_size_max=20_000), autocommit=False, **options)
    for number in range(count):
        store.append(f"s.{number % 3}", b"%d" % number * 200)
    store.commit()
    return store


def test_second_backup_copies_what_changed(old_files: None, tmp_path: Path) -> None:
    store, target = make_stream(tmp_path / "a", 200), str(tmp_path / "b")
    first = results(backup(str(tmp_path / "a"), target))["S"]
    assert first.msgs == 200 and first.bytes > 100_000
    assert results(backup(str(tmp_path / "a"), target))["S"].files == 0
    store.append("s.new", b"one more")
    store.commit()
    again = results(backup(str(tmp_path / "a"), target))["S"]
    assert again.msgs == 201 and 0 < again.bytes < first.bytes / 2
    store.stop()


def test_erased_message_leaves_the_backup_too(old_files: None, tmp_path: Path) -> None:
    store, target = make_stream(tmp_path / "a", 100), tmp_path / "b"
    store.append("s.secret", b"S3CR3T" * 50)
    for number in range(100):
        store.append("s.0", b"%d" % number * 200)
    store.commit()
    results(backup(str(tmp_path / "a"), str(target)))
    assert any(b"S3CR3T" in path.read_bytes() for path in target.rglob("*.blk"))
    store.erase(101)
    store.commit()
    assert results(backup(str(tmp_path / "a"), str(target)))["S"].msgs == 200
    assert not any(b"S3CR3T" in path.read_bytes() for path in target.rglob("*.blk"))
    store.stop()


def test_backup_under_load_is_a_state_that_the_stream_had(tmp_path: Path) -> None:
    store = make_stream(tmp_path / "a", 50)
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            store.append(f"s.{number % 3}", b"%d" % number * 100)
            if number % 5 == 0:
                store.remove(store.fast_state().last_seq - 3)
            if number % 40 == 0:
                store.purge("s.1", keep=5)
            store.commit()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        copies = [results(backup(str(tmp_path / "a"), str(tmp_path / f"b{number}")))["S"] for number in range(5)]
    finally:
        is_over.set()
        thread.join()
    for number, copied in enumerate(copies):
        assert not copied.error and not copied.lost and not copied.problems, copied
        assert all(report.ok for report in check_tree(str(tmp_path / f"b{number}")).values())
        with FileStore(tmp_path / f"b{number}" / "jetstream/%24G/streams/S/msgs") as copy:
            assert copy.fast_state().msgs == copied.msgs and not copy.state().lost
            for message in copy.messages():
                payload = message.payload[: len(message.payload) // (200 if message.seq <= 50 else 100)]
                assert message.subject == f"s.{int(payload) % 3}"
    store.stop()


def test_streams_are_chosen_by_name_and_account(source: RealStore, tmp_path: Path) -> None:
    assert sorted(results(backup(source.path, str(tmp_path), streams="K*,PLAIN"))) == ["KV", "PLAIN"]
    with pytest.raises(StoreError, match="no stream"):
        find(source.path, "NONE")
    with pytest.raises(StoreError, match="no stream"):
        find(source.path, account="other")


def test_stream_that_is_there_is_left_alone(source: RealStore, tmp_path: Path) -> None:
    results(backup(source.path, str(tmp_path / "b"), streams="KV"))
    results(restore(str(tmp_path / "b"), str(tmp_path / "c")))
    assert "already" in results(restore(str(tmp_path / "b"), str(tmp_path / "c")))["KV"].error


def test_running_server_keeps_a_restore_out(source: RealStore, tmp_path: Path) -> None:
    (tmp_path / "jetstream").mkdir()
    with OS_FILES.lock(str(tmp_path / "jetstream" / "jetlake.lock")), pytest.raises(StoreLocked):
        results(restore(source.path, str(tmp_path)))


def test_restore_that_fails_leaves_nothing_behind(
    source: RealStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, target: str) -> int:
        if target.endswith(".idx") or "consumers" in target:
            raise OSError(28, "No space left on device", target)
        return copy_file(path, target)

    monkeypatch.setattr(backups, "copy_file", refuse)
    assert "No space" in results(restore(source.path, str(tmp_path), streams="PLAIN"))["PLAIN"].error
    assert os.listdir(tmp_path / "jetstream/%24G/streams") == []

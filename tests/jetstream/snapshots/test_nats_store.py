"""Importing a nats-server's store directory, and serving the result."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jetlake.errors import StoreError, StoreLocked
from jetlake.jetstream.snapshots.nats_store import Imported, import_store
from jetlake.store.disk.files import OS_FILES
from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, Server
from tests.store.nats.real_store import KEY, RealStore, fill_everything, write_store


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RealStore:
    return write_store(tmp_path_factory.mktemp("source"), lambda peer: fill_everything(peer, "s2"), cipher="chacha")


def run(source: str, target: Path, **options: str) -> dict[str, Imported]:
    return {each.stream: each for each in import_store(source, str(target), secrets=[KEY.encode()], **options)}


def test_imported_streams_are_served_as_they_were(source: RealStore, tmp_path: Path) -> None:
    results = run(source.path, tmp_path / "store")
    assert not any(result.error or result.lost or result.problems for result in results.values())
    served = RealStore(source.path)
    with Server(JETLAKE, tmp_path) as server, Peer(server) as peer:
        served.look(peer)
        assert served.messages == source.messages
        for name, theirs in source.streams.items():
            ours = served.streams[name]
            for part in ("messages", "bytes", "first_seq", "last_seq", "num_subjects", "num_deleted"):
                assert ours["state"].get(part) == theirs["state"].get(part), (name, part)
            assert ours["created"] == theirs["created"]
            assert {**ours["config"], "metadata": None} == {**theirs["config"], "metadata": None}
        for name, theirs in source.consumers.items():
            for part in ("created", "delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_pending"):
                seen = [
                    {**each[part], "last_active": ""} if isinstance(each[part], dict) else each[part]
                    for each in (served.consumers[name], theirs)
                ]
                assert seen[0] == seen[1], (name, part)
        again = peer.request("plain.0", b"", b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n").json
        assert again["duplicate"]
        assert peer.request("plain.0").json["seq"] == source.streams["PLAIN"]["state"]["last_seq"] + 1


def test_only_streams_that_are_named_are_imported(source: RealStore, tmp_path: Path) -> None:
    assert sorted(run(source.path, tmp_path, streams="P*, KV")) == ["KV", "PLAIN", "PURGED"]
    with pytest.raises(StoreError, match="no stream"):
        run(source.path, tmp_path, streams="NONE")


def test_stream_that_is_there_is_left_alone(source: RealStore, tmp_path: Path) -> None:
    run(source.path, tmp_path, streams="KV")
    assert "already" in run(source.path, tmp_path, streams="KV")["KV"].error


def test_store_of_a_running_server_is_refused(source: RealStore, tmp_path: Path) -> None:
    (tmp_path / "jetstream").mkdir()
    with OS_FILES.lock(str(tmp_path / "jetstream" / "jetlake.lock")), pytest.raises(StoreLocked):
        run(source.path, tmp_path)


def test_damage_is_listed_by_sequence(tmp_path: Path) -> None:
    store = write_store(tmp_path / "source", fill_everything)
    block = Path(store.path) / "jetstream/$G/streams/PLAIN/msgs/1.blk"
    data = bytearray(block.read_bytes())
    data[25] ^= 1
    block.write_bytes(data)
    result = run(store.path, tmp_path / "target", streams="PLAIN")["PLAIN"]
    assert result.lost == ((1, 1),) and result.msgs == len(store.messages["PLAIN"]) - 1
    assert any("1.blk" in problem for problem in result.problems)


def test_failed_import_leaves_nothing_behind(source: RealStore, tmp_path: Path) -> None:
    copy = shutil.copytree(source.path, tmp_path / "copy")
    for key in (copy / "jetstream/$G/streams/PLAIN/msgs").glob("*.key"):
        key.write_bytes(bytes(72))
    result = run(str(copy), tmp_path / "target", streams="PLAIN")["PLAIN"]
    assert "key" in result.error
    assert not list((tmp_path / "target").glob("jetstream/*/streams/*"))

"""How many files are open at a time, in one store and in many."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from jetlake.errors import StoreLocked
from jetlake.store import FileOptions, FileStore
from jetlake.store.blocks import block_file
from jetlake.store.blocks.block_file import OpenFiles
from jetlake.store.disk.files import OS_FILES, File, OsFiles
from jetlake.store.format import TREE_LOCK_NAME


@pytest.fixture
def open_files(monkeypatch: pytest.MonkeyPatch) -> OpenFiles:
    """At most four."""
    found = OpenFiles(4)
    monkeypatch.setattr(block_file, "OPEN_FILES", found)
    return found


def open_count(*stores: FileStore) -> int:
    return sum(file.is_open for store in stores for file in store.block_files.values())


def test_many_stores_share_a_few_descriptors(tmp_path: Path, open_files: OpenFiles) -> None:
    stores = [FileStore(tmp_path / f"{number}", tree_locked=True) for number in range(20)]
    for turn in range(3):
        for store in stores:
            assert store.append("a", b"%d" % turn) == turn + 1
            assert open_count(*stores) <= 4 + 1
    for store in stores:
        assert [message.payload for message in store.messages()] == [b"0", b"1", b"2"]
        store.stop()
    again = [FileStore(tmp_path / f"{number}", tree_locked=True) for number in range(20)]
    assert all(store.state().msgs == 3 and not store.damage for store in again)


def test_reads_of_many_blocks_share_them_too(tmp_path: Path, open_files: OpenFiles) -> None:
    store = FileStore(tmp_path / "s", options=FileOptions(block_size_max=300))
    for number in range(200):
        store.append("a", b"%d" % number)
    assert all(store.load(seq).payload == b"%d" % (seq - 1) for seq in range(1, 201))
    assert len(store.block_files) > 20
    assert open_count(store) <= 4 + 1


def test_a_file_that_waits_for_a_sync_stays_open(tmp_path: Path, open_files: OpenFiles) -> None:
    stores = [FileStore(tmp_path / f"{number}", options=FileOptions(sync=1e9)) for number in range(8)]
    for store in stores:
        store.append("a", b"")
        store.append("a", b"")
    assert open_count(*stores) == 8
    for store in stores:
        store.commit(sync=True)
    FileStore(tmp_path / "one more")
    assert open_count(*stores) <= 4


def test_a_lack_of_descriptors_closes_what_is_open(tmp_path: Path, open_files: OpenFiles) -> None:
    class Few(OsFiles):
        lacking = 0

        def open(self, path: str, *, write: bool = False, create: bool = False) -> File:  # type: ignore[override]
            if self.lacking and path.endswith(".blk"):
                self.lacking -= 1
                raise OSError(errno.EMFILE, "too many open files")
            return super().open(path, write=write, create=create)

    files = Few()
    stores = [FileStore(tmp_path / f"{number}", files=files) for number in range(3)]
    stores[0].block_files[1].release()
    files.lacking = 1
    assert stores[0].append("a", b"") == 1
    assert open_count(*stores) == 1


MANY = """
import sys
from jetlake.store import FileStore
stores = [FileStore(f"{sys.argv[1]}/{number}", tree_locked=True) for number in range(100)]
for store in stores:
    store.append("a", b"")
for store in stores:
    store.stop()
print("done")
"""


def test_a_hundred_stores_open_with_forty_descriptors(tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", MANY, str(tmp_path)],
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)),
        )
        assert (done.stdout, done.stderr) == ("done\n", "")


def test_a_store_whose_directory_a_server_has_is_locked(tmp_path: Path) -> None:
    directory = tmp_path / "$G" / "streams" / "ORDERS" / "msgs"
    server = OS_FILES.lock(f"{tmp_path}/{TREE_LOCK_NAME}")
    served = FileStore(directory, tree_locked=True)
    with pytest.raises(StoreLocked):
        FileStore(directory)
    served.stop()
    server.release()
    FileStore(directory).stop()


def test_a_store_that_somebody_has_open_is_not_opened_for_a_server(tmp_path: Path) -> None:
    directory = tmp_path / "$G" / "streams" / "ORDERS" / "msgs"
    OS_FILES.lock(f"{tmp_path}/{TREE_LOCK_NAME}").release()
    store = FileStore(directory)
    with OS_FILES.lock(f"{tmp_path}/{TREE_LOCK_NAME}"), pytest.raises(StoreLocked):
        FileStore(directory, tree_locked=True)
    store.stop()


def test_a_lock_can_be_shared_while_nobody_has_it_alone(tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    with OS_FILES.lock(path, shared=True), OS_FILES.lock(path, shared=True), pytest.raises(StoreLocked):
        OS_FILES.lock(path)
    with OS_FILES.lock(path), pytest.raises(StoreLocked):
        OS_FILES.lock(path, shared=True)

"""One sync for many stores: the redo log, with real stores on a disk that fails."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from jetlake.errors import JetLakeError, StoreFrozen
from jetlake.store import Cipher, FileStore, KeySource
from jetlake.store.blocks.block_file import BlockFile
from jetlake.store.disk.commit import SmallCommit
from jetlake.store.disk.file_options import FileOptions
from jetlake.store.disk.files import Files
from jetlake.store.redo import redo_log
from jetlake.store.redo.entries import Entry, Remove, Replace
from jetlake.store.redo.redo_files import RedoFiles
from jetlake.store.redo.redo_log import RedoLog
from jetlake.store.redo.replay import redo_directory, replay, unapplied
from jetlake.store.verify.check import check_store
from jetlake.testing.memfiles import MemFiles, PowerCut

ROOT = "jetstream"
STATE = f"{ROOT}/A/streams/S1/consumers/c.1"


class Consumer:
    """A whole file, which is written when the log is retired."""

    def __init__(self, data: bytes | None) -> None:
        self._data = data

    def entries(self) -> list[Entry]:
        return [Remove(STATE) if self._data is None else Replace(STATE, self._data)]

    def apply(self, files: Files) -> None:
        pass

    def block_files(self) -> list[BlockFile]:
        return []


class Server:
    """Some stores and a consumer under one log; what was told to be durable is remembered."""

    def __init__(self, files: MemFiles, options: FileOptions | None = None, segment_size: int = 6000) -> None:
        self.disk = files
        replay(files, ROOT)
        self.redo = RedoLog(files, ROOT, segment_size=segment_size)
        self.files = RedoFiles(files, self.redo)
        self.options = options or FileOptions()
        self.stores: dict[str, FileStore] = {}
        self.acked: dict[str, list[bytes]] = {}
        self.state: bytes | None = None

    def directory(self, name: str) -> str:
        return f"{ROOT}/A/streams/{name}/msgs"

    def open(self, name: str, *, is_new: bool = False) -> FileStore:
        self.stores[name] = FileStore(
            self.directory(name),
            options=self.options,
            files=self.files,
            autocommit=False,
            tree_locked=True,
            redo=self.redo,
            is_new=is_new,
        )
        return self.stores[name]

    def create(self, *names: str) -> None:
        self.files.make_dirs(f"{ROOT}/A/streams")
        for name in names:
            store = self.open(name, is_new=True)
            store.replaced.append((f"{ROOT}/A/streams/{name}/meta.json", name.encode()))
        self.commit(*names)
        self.acked.update((name, []) for name in names)

    def publish(self, payload: bytes, *names: str) -> None:
        for name in names:
            self.stores[name].append("a", payload)
        self.commit(*names)
        for name in names:
            self.acked[name].append(payload)

    def commit(self, *names: str) -> None:
        """Commit stores through the log, as far as they may be."""
        stores = [self.stores[name] for name in names]
        try:
            found = [store.prepare_small() or store.prepare_commit() for store in stores]
            commits = [commit for commit in found if commit is not None]
            logged = [commit for commit in commits if commit.redo is not None]
            errors = self.redo.commit(logged) if logged else []
            for commit in commits:
                if commit.redo is None:
                    commit.run()
        except (OSError, JetLakeError) as error:
            for store in stores:
                store.fail_commit(error)
            raise
        problems = [errors[logged.index(commit)] if commit in logged else None for commit in found]
        for store, made, problem in zip(stores, found, problems, strict=True):
            if problem is not None:
                store.fail_commit(problem)
            elif isinstance(made, SmallCommit):
                store.complete_small(made)
            elif made is not None:
                store.complete_commit(made)
        for problem in problems:
            if problem is not None:
                raise problem

    def save(self, data: bytes | None) -> None:
        self.state = data and self.state  # what is removed may be gone before that is told
        self.redo.commit([Consumer(data)])
        self.state = data

    def bury(self, name: str) -> None:
        self.stores.pop(name).release()
        del self.acked[name]
        tomb = f"{ROOT}/A/streams/~{name}"
        self.redo.rename(f"{ROOT}/A/streams/{name}", tomb)
        self.files.remove_tree(tomb)

    def stop(self) -> None:
        for store in self.stores.values():
            store.stop()
        self.redo.close()


def life(server: Server) -> None:
    """Everything that the log has to do with."""
    server.create("S1", "S2")
    server.create("S3")
    for number in range(4):
        server.publish(b"small %d" % number, "S1", "S2", "S3")
    server.save(b"one")
    server.publish(b"alone", "S1")
    server.redo.retire()
    server.save(b"two")
    server.publish(bytes(70_000), "S2")  # past the log
    server.publish(b"after", "S1", "S2")
    server.stores["S1"].remove(1)
    server.acked["S1"].pop(0)
    server.commit("S1")
    server.acked["S2"].pop(1)
    server.stores["S2"].erase(2)
    server.bury("S3")
    server.create("S3")
    server.publish(b"again", "S3", "S1")
    server.redo.retire()
    server.save(None)
    server.publish(b"last", "S1", "S2", "S3")
    server.stop()


def payloads(store: FileStore) -> list[bytes]:
    return [message.payload for message in store.messages()]


def whole(files: MemFiles, server: Server, *, is_ordered: bool = True) -> Server:
    """Start on what a crash left, and look whether all that was acked is there.

    Where writes to one file reach the disk in any order, or not at all after a failed sync, others may be damaged.
    """
    after = Server(files, server.options)
    for name, acked in server.acked.items():
        store = after.open(name)
        assert not (is_ordered and (store.damage or store.catalog.lost)), (name, store.damage, store.catalog.lost)
        found = payloads(store)
        missing = [payload for payload in acked if payload not in found]
        assert not missing, (name, missing, len(found))
        assert files.read(f"{ROOT}/A/streams/{name}/meta.json") == name.encode()
    if server.state is not None:
        assert files.read(STATE) in (b"one", b"two")
    after.stop()
    for name in after.stores if is_ordered else ():
        assert check_store(after.directory(name), files=files, keys=server.options.keys).ok
    return after


PLAIN = FileOptions()
SECRET = FileOptions(cipher=Cipher.AES_256_GCM, keys=[KeySource.key(b"k" * 32)])


@pytest.mark.parametrize("options", [PLAIN, SECRET], ids=["plain", "encrypted"])
def test_a_life_without_trouble_leaves_no_log(options: FileOptions) -> None:
    server = Server(MemFiles(), options)
    life(server)
    disk = server.disk.after_cut()
    assert disk.list(redo_directory(ROOT)) == []
    whole(disk, server)


def test_one_sync_makes_many_stores_durable() -> None:
    server = Server(MemFiles(), segment_size=1 << 20)
    names = [f"S{number}" for number in range(20)]
    server.create(*names)
    before = len(server.disk.ops)
    server.publish(b"hello", *names)
    assert [op for op in server.disk.ops[before:] if op.startswith("sync")] == [f"sync {ROOT}/~redo/00000001.log"]
    for name in names:
        assert server.disk.read(f"{server.directory(name)}/000001.blk").count(b"hello") == 1
    whole(server.disk.after_cut(), server)


@pytest.mark.parametrize(
    ("keep", "options", "step"),
    [("none", PLAIN, 1), ("all", PLAIN, 4), ("random", PLAIN, 3), ("none", SECRET, 5), ("random", SECRET, 5)],
)
def test_a_power_cut_at_any_call_loses_nothing_that_was_acked(keep: str, options: FileOptions, step: int) -> None:
    call, is_cut = 0, True
    while is_cut:
        call += step
        server = Server(MemFiles(), options)
        server.disk.cut(call)
        try:
            life(server)
            is_cut = False
        except PowerCut:
            is_cut = True
        torn = (None, 1, 100)[call % 3]
        disk = server.disk.after_cut(torn_bytes=torn, keep=keep, rng=random.Random(call))
        whole(disk, server, is_ordered=keep != "random")
    assert call > 150


def _reopened(server: Server) -> None:
    """What the server does after an error: frozen stores are opened again, and the rest goes on."""
    server.redo.check()
    for name, store in list(server.stores.items()):
        if store.frozen is not None:
            store.release()
            server.open(name)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("partial_bytes", [0, 50])
def test_an_error_at_any_call_loses_nothing_that_was_acked(code: int, partial_bytes: int) -> None:
    for call in range(1 + partial_bytes // 25, 170, 4):
        server = Server(MemFiles())
        server.disk.fail(call, OSError(code, "refused"), partial_bytes=partial_bytes)
        with suppress(OSError, JetLakeError):
            life(server)
        whole(server.disk.after_cut(), server, is_ordered=False)
        if len(server.acked) > 1 and not any(store.closed for store in server.stores.values()):
            _reopened(server)
            server.publish(b"after the error", "S1", "S2")
        whole(server.disk.after_cut(), server, is_ordered=False)


def test_a_failed_sync_of_the_log_fails_the_whole_turn_and_never_comes_back() -> None:
    server = Server(MemFiles())
    server.create("S1", "S2")
    server.publish(b"good", "S1", "S2")
    server.disk.fail(server.disk.op_count + 2, OSError(errno.EIO, "refused"))  # the write goes through
    with pytest.raises(OSError, match="refused"):
        server.publish(b"bad", "S1", "S2")
    with pytest.raises(StoreFrozen):
        server.stores["S1"].append("a", b"more")
    _reopened(server)
    server.publish(b"another", "S1", "S2")
    for keep in ("none", "all"):
        after = whole(server.disk.after_cut(keep=keep), server)
        assert payloads(after.open("S1")) == [b"good", b"another"]


def test_a_block_whose_sync_failed_gets_its_bytes_again() -> None:
    server = Server(MemFiles())
    server.create("S1", "S2")
    server.publish(b"good", "S1", "S2")
    block = f"{server.directory('S1')}/000001.blk"
    while True:
        probe = server.disk.op_count + 1
        server.disk.fail(probe, OSError(errno.EIO, "refused"))
        with pytest.raises(OSError, match="refused"):
            server.redo.retire()
        if server.disk.ops[probe - 1] == f"sync {block}":
            break
        server.redo.retire()
        server.publish(b"good", "S1", "S2")
    server.redo.retire()
    assert server.redo.is_clean
    whole(server.disk.after_cut(), server)


def test_damage_to_the_log_is_told_or_costs_nothing() -> None:
    server = Server(MemFiles(), segment_size=1 << 20)
    server.create("S1", "S2")
    for number in range(3):
        server.publish(b"small %d" % number, "S1", "S2")
    path = f"{ROOT}/~redo/00000001.log"
    killed, cut = server.disk.after_cut(keep="all").snapshot(), server.disk.after_cut().snapshot()
    used = len(server.disk.read(path).rstrip(b"\0"))
    for bit in range(8 * 4096, 8 * used, 211):
        hurt = MemFiles.from_snapshot(killed)
        hurt.flip(path, bit)
        whole(hurt, server)  # the files themselves have it all
        hurt = MemFiles.from_snapshot(cut)
        hurt.flip(path, bit)
        if not replay(hurt, ROOT).damage:
            whole(hurt, server)


def test_every_truncation_of_the_log_leaves_sound_stores() -> None:
    server = Server(MemFiles(), segment_size=1 << 20)
    server.create("S1", "S2")
    for number in range(3):
        server.publish(b"small %d" % number, "S1", "S2")
    path = f"{ROOT}/~redo/00000001.log"
    disk = server.disk.after_cut().snapshot()
    for size in range(4096, len(disk[path].rstrip(b"\0")), 7):
        after = Server(MemFiles.from_snapshot({**disk, path: disk[path][:size]}))
        for name in ("S1", "S2"):
            if after.disk.exists(after.directory(name)):
                store = after.open(name)
                found = payloads(store)
                assert found == [b"small 0", b"small 1", b"small 2"][: len(found)] and not store.damage


def test_what_is_erased_is_not_left_in_the_log() -> None:
    server = Server(MemFiles())
    server.create("S1", "S2")
    server.publish(b"a secret", "S1", "S2")
    server.stores["S1"].erase(1)
    server.stores["S2"].erase(1)
    server.redo.retire()
    server.publish(b"harmless", "S1", "S2")
    assert not any(b"a secret" in data for data in server.disk.after_cut(keep="all").snapshot().values())


def test_a_reader_of_a_directory_at_rest_is_told() -> None:
    server = Server(MemFiles())
    server.create("S1", "S2")
    server.publish(b"hello", "S1", "S2")
    assert unapplied(server.disk.after_cut(keep="all"), ROOT, server.directory("S1")) == []
    block = f"{server.directory('S1')}/000001.blk"
    assert block in unapplied(server.disk.after_cut(), ROOT, server.directory("S1"))


def test_the_log_is_due_to_be_retired_when_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redo_log, "RETIRE_SIZE", 3000)
    server = Server(MemFiles())
    server.create("S1", "S2")
    is_due: Callable[[], bool] = lambda: server.redo.is_due  # noqa: E731
    while not is_due():
        server.publish(bytes(100), "S1", "S2")
    server.redo.retire()
    assert not is_due() and server.redo.is_clean

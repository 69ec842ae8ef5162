"""The door to the OS: one contract for the real files and their twin in memory, then what is particular to each."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from jetlake.errors import StoreLocked
from jetlake.store.disk.files import OS_FILES, Buffer, File, Files, atomic_write, is_temp
from jetlake.testing.memfiles import MemFiles, PowerCut


@dataclass
class Place:
    """A directory on some file system."""

    files: Files
    root: str

    def path(self, *names: str) -> str:
        return "/".join((self.root, *names))

    def put(self, name: str, content: bytes) -> str:
        path = self.path(name)
        with self.files.open(path, create=True) as file:
            file.pwrite(0, content)
        return path

    def new(self, name: str = "f") -> File:
        return self.files.open(self.path(name), create=True)


@pytest.fixture(params=["os", "mem"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "os":
        return Place(OS_FILES, str(tmp_path))
    files = MemFiles()
    files.make_dirs("/base/dir")
    return Place(files, "/base/dir")


@pytest.fixture
def os_place(tmp_path: Path) -> Place:
    return Place(OS_FILES, str(tmp_path))


# Open and close


def test_create_refuses_a_file_that_exists(place: Place) -> None:
    path = place.put("f", b"old")
    with pytest.raises(FileExistsError):
        place.files.open(path, create=True)


def test_create_refuses_a_missing_directory(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.files.open(place.path("no", "f"), create=True)


@pytest.mark.parametrize("write", [False, True])
def test_open_refuses_a_missing_file(place: Place, write: bool) -> None:
    with pytest.raises(FileNotFoundError):
        place.files.open(place.path("f"), write=write)


def test_open_for_writing_keeps_the_content(place: Place) -> None:
    path = place.put("f", b"0123")
    with place.files.open(path, write=True) as file:
        file.pwrite(1, b"ab")
    assert place.files.read(path) == b"0ab3"


def test_open_for_reading_refuses_a_write(place: Place) -> None:
    path = place.put("f", b"old")
    with place.files.open(path) as file, pytest.raises(OSError):
        file.pwrite(0, b"new")
    assert place.files.read(path) == b"old"


def test_open_for_reading_refuses_to_truncate(place: Place) -> None:
    path = place.put("f", b"old")
    with place.files.open(path) as file, pytest.raises(OSError):
        file.truncate(0)


def test_a_file_knows_its_path(place: Place) -> None:
    with place.new() as file:
        assert file.path == place.path("f")


def test_close_twice_is_fine(place: Place) -> None:
    file = place.new()
    file.close()
    file.close()


CLOSED_CALLS: list[Callable[[File], object]] = [
    lambda file: file.pread(0, 1),
    lambda file: file.pread_into(0, bytearray(1)),
    lambda file: file.pwrite(0, b"x"),
    lambda file: file.pwritev(0, [b"x"]),
    lambda file: file.size(),
    lambda file: file.truncate(0),
    lambda file: file.sync(),
]


@pytest.mark.parametrize("call", CLOSED_CALLS)
def test_a_closed_file_refuses_everything(place: Place, call: Callable[[File], object]) -> None:
    file = place.new()
    file.close()
    with pytest.raises(OSError) as caught:
        call(file)
    assert caught.value.errno == errno.EBADF


def test_leaving_the_with_block_closes_the_file(place: Place) -> None:
    with place.new() as file:
        pass
    with pytest.raises(OSError):
        file.size()


# Read and write


def test_pread_gives_the_bytes_at_an_offset(place: Place) -> None:
    with place.files.open(place.put("f", b"0123456789")) as file:
        assert file.pread(3, 4) == b"3456"


@pytest.mark.parametrize(("offset", "expected"), [(8, b"89"), (10, b""), (99, b"")])
def test_pread_is_short_at_the_end_only(place: Place, offset: int, expected: bytes) -> None:
    with place.files.open(place.put("f", b"0123456789")) as file:
        assert file.pread(offset, 5) == expected


def test_pread_of_nothing_is_empty(place: Place) -> None:
    with place.files.open(place.put("f", b"0123")) as file:
        assert file.pread(0, 0) == b""


def test_pread_refuses_a_negative_offset(place: Place) -> None:
    with place.files.open(place.put("f", b"0123")) as file, pytest.raises(OSError):
        file.pread(-1, 2)


def test_pread_into_fills_a_buffer(place: Place) -> None:
    buffer = bytearray(4)
    with place.files.open(place.put("f", b"0123456789")) as file:
        assert file.pread_into(3, buffer) == 4
    assert buffer == b"3456"


def test_pread_into_leaves_the_rest_of_the_buffer_at_the_end_of_the_file(place: Place) -> None:
    buffer = bytearray(b"....")
    with place.files.open(place.put("f", b"0123456789")) as file:
        assert file.pread_into(8, memoryview(buffer)) == 2
    assert buffer == b"89.."


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(b"x" + data)[1:]])
def test_pwrite_takes_any_buffer(place: Place, kind: Callable[[bytes], Buffer]) -> None:
    with place.new() as file:
        file.pwrite(0, kind(b"hello"))
        assert file.pread(0, 9) == b"hello"


def test_pwrite_counts_bytes_and_not_items(place: Place) -> None:
    with place.new() as file:
        file.pwrite(0, memoryview(b"01234567").cast("I"))
        assert file.size() == 8


def test_a_write_past_the_end_leaves_zeros_between(place: Place) -> None:
    with place.new() as file:
        file.pwrite(3, b"x")
        assert file.pread(0, 9) == b"\0\0\0x"


def test_an_empty_write_past_the_end_leaves_the_size(place: Place) -> None:
    with place.new() as file:
        file.pwrite(3, b"")
        file.pwritev(3, [b"", b""])
        assert file.size() == 0


def test_pwrite_refuses_a_negative_offset(place: Place) -> None:
    with place.new() as file, pytest.raises(OSError):
        file.pwrite(-1, b"x")


def test_pwritev_writes_parts_one_after_the_other(place: Place) -> None:
    with place.new() as file:
        file.pwritev(1, [b"ab", b"", bytearray(b"c"), memoryview(b"xdefx")[1:4]])
        assert file.pread(0, 99) == b"\0abcdef"


def test_pwritev_takes_more_parts_than_the_system_does_at_once(place: Place) -> None:
    parts = [b"%d," % number for number in range(3000)]
    with place.new() as file:
        file.pwritev(0, parts)
        assert file.pread(0, file.size()) == b"".join(parts)


def test_pwritev_of_no_parts_writes_nothing(place: Place) -> None:
    with place.new() as file:
        file.pwritev(5, [])
        assert file.size() == 0


def test_truncate_cuts(place: Place) -> None:
    path = place.put("f", b"0123456789")
    with place.files.open(path, write=True) as file:
        file.truncate(4)
    assert place.files.read(path) == b"0123"


def test_truncate_extends_with_zeros(place: Place) -> None:
    path = place.put("f", b"01")
    with place.files.open(path, write=True) as file:
        file.truncate(4)
    assert place.files.read(path) == b"01\0\0"


def test_size_follows_writes(place: Place) -> None:
    with place.new() as file:
        file.pwrite(0, b"12345")
        assert (file.size(), place.files.size(file.path)) == (5, 5)


def test_sync_keeps_the_content(place: Place) -> None:
    with place.new() as file:
        file.pwrite(0, b"12345")
        file.sync()
        assert file.pread(0, 9) == b"12345"


def test_an_open_file_outlives_its_name(place: Place) -> None:
    with place.new() as file:
        file.pwrite(0, b"here")
        place.files.remove(file.path)
        file.pwrite(4, b"!")
        assert file.pread(0, 9) == b"here!"


def test_an_open_file_follows_a_rename(place: Place) -> None:
    with place.new() as file:
        place.files.rename(file.path, place.path("g"))
        file.pwrite(0, b"here")
    assert place.files.read(place.path("g")) == b"here"


# Directories and names


def test_list_is_sorted_and_names_files_and_directories(place: Place) -> None:
    place.put("b", b"")
    place.put("a", b"")
    place.files.make_dirs(place.path("aa"))
    assert place.files.list(place.root) == ["a", "aa", "b"]


def test_list_refuses_a_missing_directory(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.files.list(place.path("no"))


def test_list_refuses_a_file(place: Place) -> None:
    with pytest.raises(NotADirectoryError):
        place.files.list(place.put("f", b""))


def test_read_refuses_a_missing_file(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.files.read(place.path("no"))


def test_size_refuses_a_missing_file(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.files.size(place.path("no"))


def test_exists_knows_files_and_directories(place: Place) -> None:
    path = place.put("f", b"")
    assert place.files.exists(path)
    assert place.files.exists(place.root)


@pytest.mark.parametrize("names", [("no",), ("no", "no"), ("f", "below a file")])
def test_exists_is_false_for_what_is_not_there(place: Place, names: tuple[str, ...]) -> None:
    place.put("f", b"")
    assert not place.files.exists(place.path(*names))


def test_make_dirs_makes_parents(place: Place) -> None:
    place.files.make_dirs(place.path("a", "b", "c"))
    assert place.files.list(place.path("a", "b")) == ["c"]


def test_make_dirs_takes_a_trailing_slash(place: Place) -> None:
    place.files.make_dirs(place.path("a", "b") + "/")
    assert place.files.list(place.path("a")) == ["b"]


def test_make_dirs_keeps_what_is_there(place: Place) -> None:
    place.put("f", b"x")
    place.files.make_dirs(place.root)
    assert place.files.list(place.root) == ["f"]


@pytest.mark.parametrize("names", [("f",), ("f", "below")])
def test_make_dirs_refuses_a_file_in_the_way(place: Place, names: tuple[str, ...]) -> None:
    place.put("f", b"x")
    with pytest.raises(FileExistsError):
        place.files.make_dirs(place.path(*names))


def test_make_dirs_in_many_threads_at_once_is_fine(place: Place) -> None:
    run_in_threads(8, lambda number: place.files.make_dirs(place.path("a", "b", f"{number % 2}")))
    assert place.files.list(place.path("a", "b")) == ["0", "1"]


def test_rename_moves_the_content(place: Place) -> None:
    place.files.rename(place.put("f", b"x"), place.path("g"))
    assert place.files.list(place.root) == ["g"]
    assert place.files.read(place.path("g")) == b"x"


def test_rename_replaces(place: Place) -> None:
    old, new = place.put("old", b"old"), place.put("new", b"new")
    place.files.rename(new, old)
    assert place.files.list(place.root) == ["old"]
    assert place.files.read(old) == b"new"


def test_rename_to_the_same_name_keeps_the_file(place: Place) -> None:
    path = place.put("f", b"x")
    place.files.rename(path, path)
    assert place.files.read(path) == b"x"


def test_rename_moves_between_directories(place: Place) -> None:
    place.files.make_dirs(place.path("d"))
    place.files.rename(place.put("f", b"x"), place.path("d", "f"))
    assert place.files.list(place.root) == ["d"]
    assert place.files.read(place.path("d", "f")) == b"x"


def test_rename_moves_a_directory_with_its_content(place: Place) -> None:
    place.files.make_dirs(place.path("d"))
    place.put("d/f", b"x")
    place.files.rename(place.path("d"), place.path("e"))
    assert place.files.read(place.path("e", "f")) == b"x"


def test_rename_refuses_a_missing_source(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.files.rename(place.path("no"), place.path("g"))


def test_rename_refuses_to_replace_a_directory_by_a_file(place: Place) -> None:
    place.files.make_dirs(place.path("d"))
    with pytest.raises(IsADirectoryError):
        place.files.rename(place.put("f", b"x"), place.path("d"))


def test_rename_refuses_to_replace_a_file_by_a_directory(place: Place) -> None:
    place.files.make_dirs(place.path("d"))
    with pytest.raises(NotADirectoryError):
        place.files.rename(place.path("d"), place.put("f", b"x"))


def test_rename_refuses_to_replace_a_directory_that_is_not_empty(place: Place) -> None:
    place.files.make_dirs(place.path("d"))
    place.files.make_dirs(place.path("e", "full"))
    with pytest.raises(OSError) as caught:
        place.files.rename(place.path("d"), place.path("e"))
    assert caught.value.errno == errno.ENOTEMPTY


def test_rename_refuses_to_move_a_directory_into_itself(place: Place) -> None:
    place.files.make_dirs(place.path("d"))
    with pytest.raises(OSError) as caught:
        place.files.rename(place.path("d"), place.path("d", "e"))
    assert caught.value.errno == errno.EINVAL


def test_remove_removes_a_file(place: Place) -> None:
    place.files.remove(place.put("f", b"x"))
    assert place.files.list(place.root) == []


def test_remove_refuses_a_missing_file(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.files.remove(place.path("no"))


def test_remove_refuses_a_directory(place: Place) -> None:
    place.files.make_dirs(place.path("d"))
    with pytest.raises(OSError):
        place.files.remove(place.path("d"))


def test_remove_tree_removes_everything_below(place: Place) -> None:
    place.files.make_dirs(place.path("d", "e"))
    place.put("d/e/f", b"x")
    place.files.remove_tree(place.path("d"))
    assert place.files.list(place.root) == []


def test_remove_tree_of_what_is_gone_is_fine(place: Place) -> None:
    place.files.remove_tree(place.path("no"))


def test_remove_tree_refuses_a_file(place: Place) -> None:
    path = place.put("f", b"x")
    with pytest.raises(NotADirectoryError):
        place.files.remove_tree(path)
    assert place.files.exists(path)


def test_sync_dir_refuses_a_missing_directory(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.files.sync_dir(place.path("no"))


def test_sync_dir_refuses_a_file(place: Place) -> None:
    with pytest.raises(NotADirectoryError):
        place.files.sync_dir(place.put("f", b""))


# Locks


def test_lock_makes_its_file(place: Place) -> None:
    with place.files.lock(place.path("LOCK")) as lock:
        assert lock.path == place.path("LOCK")
        assert place.files.list(place.root) == ["LOCK"]


def test_a_second_lock_in_the_same_process_is_refused(place: Place) -> None:
    with place.files.lock(place.path("LOCK")), pytest.raises(StoreLocked, match="LOCK"):
        place.files.lock(place.path("LOCK"))


def test_a_released_lock_can_be_had_again(place: Place) -> None:
    place.files.lock(place.path("LOCK")).release()
    place.files.lock(place.path("LOCK")).release()


def test_releasing_twice_does_not_end_the_lock_of_the_next(place: Place) -> None:
    first = place.files.lock(place.path("LOCK"))
    first.release()
    with place.files.lock(place.path("LOCK")):
        first.release()
        with pytest.raises(StoreLocked):
            place.files.lock(place.path("LOCK"))


def test_locks_on_two_files_do_not_meet(place: Place) -> None:
    with place.files.lock(place.path("a")), place.files.lock(place.path("b")):
        pass


def test_lock_refuses_a_missing_directory(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.files.lock(place.path("no", "LOCK"))


def test_a_lock_of_another_process_is_refused_until_that_process_is_killed(os_place: Place) -> None:
    path = os_place.path("LOCK")
    with locking_process(path) as process:
        with pytest.raises(StoreLocked):
            OS_FILES.lock(path)
        process.kill()
        process.wait()
        OS_FILES.lock(path).release()


def test_a_refused_lock_leaves_no_open_file(os_place: Place) -> None:
    with os_place.files.lock(os_place.path("LOCK")):
        before = os.listdir("/proc/self/fd")
        with pytest.raises(StoreLocked):
            os_place.files.lock(os_place.path("LOCK"))
        assert os.listdir("/proc/self/fd") == before


# Atomic write


def test_atomic_write_makes_a_file_and_leaves_no_temp(place: Place) -> None:
    atomic_write(place.files, place.path("f"), [b"one", memoryview(b"two")])
    assert place.files.list(place.root) == ["f"]
    assert place.files.read(place.path("f")) == b"onetwo"


def test_atomic_write_replaces_a_longer_file(place: Place) -> None:
    path = place.put("f", b"something longer")
    atomic_write(place.files, path, [b"new"])
    assert place.files.read(path) == b"new"


@pytest.mark.parametrize("parts", [[], [b""]])
def test_atomic_write_of_nothing_makes_an_empty_file(place: Place, parts: list[bytes]) -> None:
    atomic_write(place.files, place.path("f"), parts)
    assert place.files.read(place.path("f")) == b""


def test_atomic_write_of_a_large_file_is_whole(place: Place) -> None:
    parts = [os.urandom(1_000_003) for _ in range(9)]
    atomic_write(place.files, place.path("f"), parts)
    assert place.files.read(place.path("f")) == b"".join(parts)


def test_atomic_write_without_durability_makes_the_same_file(place: Place) -> None:
    atomic_write(place.files, place.path("f"), [b"new"], durable=False)
    assert place.files.list(place.root) == ["f"]
    assert place.files.read(place.path("f")) == b"new"


def test_atomic_write_by_many_threads_leaves_one_whole_file(place: Place) -> None:
    contents = [bytes([number]) * 100_000 for number in range(8)]
    path = place.path("f")

    def write(number: int) -> None:
        for _ in range(10):
            atomic_write(place.files, path, [contents[number]])

    run_in_threads(8, write)
    assert place.files.read(path) in contents
    assert place.files.list(place.root) == ["f"]


def test_atomic_write_into_a_missing_directory_is_refused(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        atomic_write(place.files, place.path("no", "f"), [b"new"])


def test_atomic_write_over_a_directory_is_refused_and_leaves_no_temp(place: Place) -> None:
    place.files.make_dirs(place.path("d"))
    with pytest.raises(IsADirectoryError):
        atomic_write(place.files, place.path("d"), [b"new"])
    assert place.files.list(place.root) == ["d"]


def test_atomic_write_works_in_the_current_directory(os_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os_place.root)
    atomic_write(OS_FILES, "f", [b"here"])
    assert OS_FILES.list(".") == ["f"]


@pytest.mark.parametrize("step", ["create", "pwritev", "sync", "rename"])
def test_atomic_write_that_fails_leaves_the_old_file_and_no_temp(step: str) -> None:
    files = MemFiles.from_snapshot({"d/f": b"old"})
    number = op_number_of(step, lambda files: atomic_write(files, "d/f", [b"new"]), files.copy())
    files.fail(number, OSError(errno.ENOSPC, "no space"), partial_bytes=2)
    with pytest.raises(OSError, match="no space"):
        atomic_write(files, "d/f", [b"new"])
    assert files.snapshot() == {"d/f": b"old"}


def test_atomic_write_syncs_the_file_before_the_rename_and_the_directory_after() -> None:
    files = MemFiles()
    atomic_write(files, "f", [b"new"])
    assert [op.split()[0] for op in files.ops] == ["create", "pwritev", "sync", "rename", "sync_dir"]


def test_atomic_write_without_durability_syncs_nothing() -> None:
    files = MemFiles()
    atomic_write(files, "f", [b"new"], durable=False)
    assert [op.split()[0] for op in files.ops] == ["create", "pwritev", "rename"]


@pytest.mark.parametrize("keep", ["none", "all"])
@pytest.mark.parametrize("number", range(1, 6))
def test_atomic_write_cut_anywhere_leaves_the_old_or_the_new_file(number: int, keep: str) -> None:
    files = MemFiles.from_snapshot({"f": b"old"})
    files.cut(number)
    with pytest.raises(PowerCut):
        atomic_write(files, "f", [b"new"])
    after = files.after_cut(keep=keep, torn_bytes=2).snapshot()
    assert after["f"] in (b"old", b"new")
    assert all(name == "f" or is_temp(name) for name in after)


def test_atomic_write_that_returned_survives_a_cut() -> None:
    files = MemFiles.from_snapshot({"f": b"old"})
    atomic_write(files, "f", [b"new"])
    assert files.after_cut().snapshot() == {"f": b"new"}


def test_a_temp_name_is_told_from_others() -> None:
    files = MemFiles()
    files.cut(4)  # the rename
    with pytest.raises(PowerCut):
        atomic_write(files, "a.blk", [b"new"])
    (name,) = files.after_cut(keep="all").list(".")
    assert is_temp(name)
    assert name.startswith("a.blk.")


@pytest.mark.parametrize("name", ["a.blk", "a.tmp", ".tmp", "a.xyz.tmp", "a.0123456789abcdef.tmp.blk", "a.0123.tmp"])
def test_other_names_are_not_temp_names(name: str) -> None:
    assert not is_temp(name)


# What is particular to the OS


def test_pread_goes_on_after_a_short_read(os_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = os_place.put("f", bytes(range(100)))
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 7), offset))
    monkeypatch.setattr(os, "preadv", lambda fd, views, offset: preadv(fd, [views[0][:7]], offset))
    with OS_FILES.open(path) as file:
        assert file.pread(10, 50) == bytes(range(10, 60))
        assert file.pread(90, 50) == bytes(range(90, 100))


def test_pwrite_goes_on_after_a_short_write(os_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, view, offset: pwrite(fd, view[:7], offset))
    with os_place.new() as file:
        file.pwrite(3, bytes(range(100)))
        assert file.pread(3, 999) == bytes(range(100))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_pwritev_goes_on_after_a_short_write(os_place: Place, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(os, "pwritev", lambda fd, views, offset: os.pwrite(fd, b"".join(views)[:size], offset))
    parts = [b"abc", b"defg", b"", b"h", b"ijklm"]
    with os_place.new() as file:
        file.pwritev(2, parts)
        assert file.pread(2, 999) == b"".join(parts)


def test_a_write_that_writes_nothing_is_an_error(os_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pwrite", "pwritev"):
        monkeypatch.setattr(os, name, lambda fd, data, offset: 0)
    with os_place.new() as file:
        for parts in ([b"x"], [b"x", b"y"]):
            with pytest.raises(OSError, match="wrote nothing"):
                file.pwritev(0, parts)


def test_make_dirs_syncs_the_parent_of_each_new_directory(os_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(type(OS_FILES), "sync_dir", lambda self, path: synced.append(path))
    OS_FILES.make_dirs(os_place.path("a", "b"))
    OS_FILES.make_dirs(os_place.path("a", "b"))
    assert synced == [os_place.root, os_place.path("a")]


def test_exists_does_not_hide_an_error(os_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "no", path)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(PermissionError):
        OS_FILES.exists(os_place.path("f"))


def test_others_may_not_read_the_files_of_a_store(os_place: Place) -> None:
    path = os_place.put("f", b"secret")
    assert os.stat(path).st_mode & 0o007 == 0


# Helpers


def run_in_threads(count: int, work: Callable[[int], object]) -> None:
    """Run `work` with a number in each of `count` threads; the first error is raised here."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def op_number_of(verb: str, workload: Callable[[MemFiles], object], files: MemFiles) -> int:
    """The number of the first operation of this kind in a workload."""
    workload(files)
    verbs: Sequence[str] = [op.split()[0] for op in files.ops]
    return verbs.index(verb) + 1


@contextmanager
def locking_process(path: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds a lock until it is killed, here or at the end."""
    code = (
        "import sys, time; from jetlake.store.disk.files import OS_FILES\n"
        "lock = OS_FILES.lock(sys.argv[1]); print('locked', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"locked\n"
            yield process
        finally:
            process.kill()

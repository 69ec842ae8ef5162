"""The file system in memory: what is counted, what fails, and what a power cut leaves. Its contract as Files is tested
with the real one's, in tests/store/test_files.py."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store.disk.files import File
from jetlake.testing.memfiles import MemFiles, PowerCut

EIO = OSError(errno.EIO, "disk on fire")


def durable_file(content: bytes = b"") -> tuple[MemFiles, File]:
    """A file system with one durable file "f", open for writing."""
    files = MemFiles.from_snapshot({"f": content})
    return files, files.open("f", write=True)


def random_cuts(files: MemFiles, count: int = 200) -> list[dict[str, bytes]]:
    """What is left after random cuts, one per seed."""
    return [files.after_cut(keep="random", rng=random.Random(seed)).snapshot() for seed in range(count)]


# What is counted


def test_every_mutating_call_counts_and_is_logged() -> None:
    files = MemFiles()
    files.make_dirs("a/b")
    with files.open("a/f", create=True) as file:
        file.pwrite(4096, b"x" * 120)
        file.pwritev(0, [b"ab", b"c"])
        file.truncate(10)
        file.sync()
    files.rename("a/f", "a/b/g")
    files.sync_dir("a")
    files.remove("a/b/g")
    assert files.ops == [
        "make_dirs a/b",
        "create a/f",
        "pwrite a/f 4096+120",
        "pwritev a/f 0+3",
        "truncate a/f 10",
        "sync a/f",
        "rename a/f a/b/g",
        "sync_dir a",
        "remove a/b/g",
    ]
    assert files.op_count == 9


def test_calls_that_only_read_are_not_counted() -> None:
    files, file = durable_file(b"x")
    files.list(".")
    files.exists("f")
    files.size("f")
    files.read("f")
    file.pread(0, 1)
    file.size()
    file.close()
    assert files.op_count == 0


def test_make_dirs_that_makes_nothing_is_not_counted() -> None:
    files = MemFiles()
    files.make_dirs("a")
    files.make_dirs("a")
    assert files.op_count == 1


def test_remove_tree_counts_each_entry_it_removes() -> None:
    files = MemFiles.from_snapshot({"d/a": b"", "d/e/b": b"", "d/e/c": b"", "other": b""})
    files.remove_tree("d")
    assert files.ops == ["remove d/a", "remove d/e/b", "remove d/e/c", "remove d/e", "remove d"]


def test_remove_tree_of_what_is_gone_is_not_counted() -> None:
    files = MemFiles()
    files.remove_tree("d")
    assert files.op_count == 0


def test_a_lock_counts_when_it_makes_its_file() -> None:
    files = MemFiles()
    files.lock("LOCK").release()
    files.lock("LOCK").release()
    assert files.ops == ["create LOCK"]


def test_paths_with_and_without_a_leading_slash_are_the_same() -> None:
    files = MemFiles()
    files.make_dirs("/a")
    files.open("/a/./f", create=True).close()
    assert files.exists("a/f")
    assert list(files.snapshot()) == ["a/f"]


# What fails


def test_a_failing_call_raises_the_error_and_has_no_effect() -> None:
    files = MemFiles.from_snapshot({"f": b"x"})
    files.fail(1, EIO)
    with pytest.raises(OSError, match="on fire"):
        files.remove("f")
    assert files.exists("f")


def test_a_failing_call_fails_once() -> None:
    files = MemFiles.from_snapshot({"f": b"x"})
    files.fail(1, EIO)
    with pytest.raises(OSError):
        files.remove("f")
    files.remove("f")
    assert not files.exists("f")


MUTATING: list[Callable[[MemFiles, File], object]] = [
    lambda files, file: files.open("new", create=True),
    lambda files, file: file.pwrite(0, b"new"),
    lambda files, file: file.pwritev(0, [b"new"]),
    lambda files, file: file.truncate(0),
    lambda files, file: file.sync(),
    lambda files, file: files.rename("f", "g"),
    lambda files, file: files.remove("f"),
    lambda files, file: files.remove_tree("d"),
    lambda files, file: files.make_dirs("e"),
    lambda files, file: files.sync_dir("."),
    lambda files, file: files.lock("LOCK"),
]


@pytest.mark.parametrize("call", MUTATING)
def test_any_mutating_call_can_fail_without_effect(call: Callable[[MemFiles, File], object]) -> None:
    files = MemFiles.from_snapshot({"f": b"old", "d/x": b""})
    file = files.open("f", write=True)
    files.fail(1, EIO)
    with pytest.raises(OSError, match="on fire"):
        call(files, file)
    assert files.snapshot() == {"f": b"old", "d/x": b""}
    assert files.list(".") == ["d", "f"]


@pytest.mark.parametrize("verb", ["pwrite", "pwritev"])
def test_a_failing_write_can_write_its_first_bytes(verb: str) -> None:
    files, file = durable_file(b"......")
    files.fail(1, OSError(errno.ENOSPC, "full"), partial_bytes=2)
    with pytest.raises(OSError, match="full"):
        file.pwrite(1, b"abcd") if verb == "pwrite" else file.pwritev(1, [b"a", b"bcd"])
    assert files.read("f") == b".ab..."


def test_a_failed_sync_loses_what_it_was_to_write() -> None:
    files, file = durable_file()
    file.pwrite(0, b"lost")
    files.fail(2, EIO)
    with pytest.raises(OSError):
        file.sync()
    file.sync()
    assert files.read("f") == b"lost"
    assert files.after_cut().snapshot() == {"f": b""}


def test_what_is_written_after_a_failed_sync_becomes_durable_with_a_hole_before_it() -> None:
    files, file = durable_file()
    file.pwrite(0, b"lost")
    files.fail(2, EIO)
    with pytest.raises(OSError):
        file.sync()
    file.pwrite(4, b"kept")
    file.sync()
    assert files.after_cut().snapshot() == {"f": b"\0\0\0\0kept"}


def test_what_was_durable_before_a_failed_sync_stays_durable() -> None:
    files, file = durable_file(b"old")
    file.pwrite(0, b"new")
    files.fail(2, EIO)
    with pytest.raises(OSError):
        file.sync()
    assert files.after_cut().snapshot() == {"f": b"old"}


def test_a_kill_after_a_failed_sync_loses_nothing() -> None:
    files, file = durable_file()
    file.pwrite(0, b"seen")
    files.fail(2, EIO)
    with pytest.raises(OSError):
        file.sync()
    assert files.after_cut(keep="all").snapshot() == {"f": b"seen"}


def test_what_a_failed_sync_lost_is_on_the_disk_by_luck_but_never_over_what_was_synced_later() -> None:
    files, file = durable_file()
    file.pwrite(0, b"lost")
    files.fail(2, EIO)
    with pytest.raises(OSError):
        file.sync()
    file.pwrite(2, b"kept")
    file.sync()
    assert {cut["f"] for cut in random_cuts(files)} == {b"\0\0kept", b"lokept"}


def test_a_failed_sync_of_a_directory_can_be_tried_again() -> None:
    files = MemFiles()
    files.open("f", create=True).close()
    files.fail(2, EIO)
    with pytest.raises(OSError):
        files.sync_dir(".")
    files.sync_dir(".")
    assert files.after_cut().list(".") == ["f"]


@pytest.mark.parametrize("call", [lambda files: files.fail(1, EIO), lambda files: files.cut(1)])
def test_a_fault_in_the_past_is_refused(call: Callable[[MemFiles], object]) -> None:
    files = MemFiles()
    files.make_dirs("a")
    with pytest.raises(ValueError, match="past"):
        call(files)


# Power cuts


@pytest.mark.parametrize("call", MUTATING)
def test_a_cut_call_has_no_effect(call: Callable[[MemFiles, File], object]) -> None:
    files = MemFiles.from_snapshot({"f": b"old", "d/x": b""})
    file = files.open("f", write=True)
    files.cut(1)
    with pytest.raises(PowerCut):
        call(files, file)
    assert files.after_cut(keep="all").snapshot() == {"f": b"old", "d/x": b""}


def test_a_cut_call_is_counted_and_logged() -> None:
    files = MemFiles()
    files.cut(1)
    with pytest.raises(PowerCut, match="operation 1: make_dirs a"):
        files.make_dirs("a")
    assert files.ops == ["make_dirs a"]


def test_a_cut_is_no_exception_that_code_could_handle() -> None:
    assert not issubclass(PowerCut, Exception)


READING: list[Callable[[MemFiles, File], object]] = [
    lambda files, file: files.open("f"),
    lambda files, file: files.read("f"),
    lambda files, file: files.list("."),
    lambda files, file: files.exists("f"),
    lambda files, file: files.size("f"),
    lambda files, file: files.make_dirs("d"),
    lambda files, file: file.pread(0, 1),
    lambda files, file: file.pread_into(0, bytearray(1)),
    lambda files, file: file.size(),
]


@pytest.mark.parametrize("call", MUTATING + READING)
def test_after_the_cut_every_call_raises(call: Callable[[MemFiles, File], object]) -> None:
    files, file = durable_file(b"x")
    files.cut(1)
    with pytest.raises(PowerCut):
        files.make_dirs("d")
    with pytest.raises(PowerCut, match="off"):
        call(files, file)
    assert files.op_count == 1


def test_after_the_cut_files_and_locks_can_be_given_back() -> None:
    files, file = durable_file(b"x")
    lock = files.lock("LOCK")
    files.cut(2)
    with pytest.raises(PowerCut):
        files.make_dirs("d")
    file.close()
    lock.release()


def test_the_next_boot_has_power_and_counts_from_zero() -> None:
    files = MemFiles()
    files.cut(1)
    with pytest.raises(PowerCut):
        files.make_dirs("a")
    after = files.after_cut()
    after.make_dirs("a")
    assert after.ops == ["make_dirs a"]


def test_the_next_boot_has_no_locks() -> None:
    files = MemFiles.from_snapshot({"LOCK": b""})
    files.lock("LOCK")
    files.after_cut().lock("LOCK")


def test_the_next_boot_is_apart_from_this_one() -> None:
    files, file = durable_file(b"old")
    after = files.after_cut()
    file.pwrite(0, b"new")
    assert after.read("f") == b"old"


def test_an_unknown_keep_is_refused() -> None:
    with pytest.raises(ValueError, match="none, all or random"):
        MemFiles().after_cut(keep="some")


def test_keep_random_needs_an_rng() -> None:
    with pytest.raises(ValueError, match="rng"):
        MemFiles().after_cut(keep="random")


# What was not synced is gone


def test_a_write_is_lost_without_a_sync() -> None:
    files, file = durable_file(b"old")
    file.pwrite(0, b"new")
    assert files.after_cut().snapshot() == {"f": b"old"}


def test_a_write_survives_after_a_sync() -> None:
    files, file = durable_file(b"old")
    file.pwrite(0, b"new")
    file.sync()
    assert files.after_cut().snapshot() == {"f": b"new"}


def test_a_sync_covers_what_others_wrote_to_the_file() -> None:
    files, file = durable_file(b"old")
    file.pwrite(0, b"new")
    with files.open("f") as other:
        other.sync()
    assert files.after_cut().snapshot() == {"f": b"new"}


def test_a_truncation_is_undone_without_a_sync() -> None:
    files, file = durable_file(b"0123")
    file.truncate(1)
    assert files.after_cut().snapshot() == {"f": b"0123"}


def test_a_truncation_survives_after_a_sync() -> None:
    files, file = durable_file(b"0123")
    file.truncate(1)
    file.sync()
    assert files.after_cut().snapshot() == {"f": b"0"}


def test_a_synced_file_whose_name_is_not_synced_is_gone() -> None:
    files = MemFiles()
    with files.open("f", create=True) as file:
        file.pwrite(0, b"x")
        file.sync()
    assert files.after_cut().list(".") == []


def test_a_synced_name_of_a_file_that_is_not_synced_is_an_empty_file() -> None:
    files = MemFiles()
    with files.open("f", create=True) as file:
        file.pwrite(0, b"x")
    files.sync_dir(".")
    assert files.after_cut().snapshot() == {"f": b""}


def test_sync_dir_covers_the_names_of_that_directory_only() -> None:
    files = MemFiles()
    files.make_dirs("d")
    files.open("f", create=True).close()
    files.open("d/g", create=True).close()
    files.sync_dir(".")
    after = files.after_cut()
    assert (after.list("."), after.list("d")) == (["d", "f"], [])


def test_new_directories_are_durable() -> None:
    files = MemFiles()
    files.make_dirs("a/b")
    assert files.after_cut().list("a") == ["b"]


def test_a_rename_is_undone_without_a_sync_of_the_directory() -> None:
    files = MemFiles.from_snapshot({"f": b"old", "g": b"new"})
    files.rename("g", "f")
    assert files.after_cut().snapshot() == {"f": b"old", "g": b"new"}


def test_a_rename_survives_after_a_sync_of_the_directory() -> None:
    files = MemFiles.from_snapshot({"f": b"old", "g": b"new"})
    files.rename("g", "f")
    files.sync_dir(".")
    assert files.after_cut().snapshot() == {"f": b"new"}


def test_a_removed_file_is_back_without_a_sync_of_the_directory() -> None:
    files = MemFiles.from_snapshot({"f": b"x"})
    files.remove("f")
    assert files.after_cut().snapshot() == {"f": b"x"}


def test_a_removed_tree_is_back_without_a_sync_of_the_directories() -> None:
    files = MemFiles.from_snapshot({"d/f": b"x"})
    files.remove_tree("d")
    assert files.after_cut().snapshot() == {"d/f": b"x"}


def test_a_removed_tree_stays_away_after_a_sync_of_the_directory_it_was_in() -> None:
    files = MemFiles.from_snapshot({"d/f": b"x"})
    files.remove_tree("d")
    files.sync_dir(".")
    assert files.after_cut().list(".") == []


def test_a_directory_made_again_does_not_bring_back_what_the_old_one_held() -> None:
    files = MemFiles.from_snapshot({"d/f": b"x"})
    files.remove_tree("d")
    files.make_dirs("d")
    assert files.after_cut().list("d") == []


# Nothing is lost


def test_keep_all_keeps_everything_visible() -> None:
    files = MemFiles.from_snapshot({"f": b"old", "gone": b""})
    with files.open("f", write=True) as file:
        file.pwrite(0, b"new")
    files.open("d", create=True).close()
    files.remove("gone")
    assert files.after_cut(keep="all").snapshot() == {"d": b"", "f": b"new"}


def test_what_keep_all_kept_is_durable() -> None:
    files = MemFiles()
    files.open("f", create=True).close()
    assert files.after_cut(keep="all").after_cut().list(".") == ["f"]


# Something is lost


def test_keep_random_keeps_any_of_the_writes_in_order() -> None:
    files, file = durable_file(b"....")
    file.pwrite(0, b"aa")
    file.pwrite(1, b"bb")
    assert {cut["f"] for cut in random_cuts(files)} == {b"....", b"aa..", b".bb.", b"abb."}


def test_keep_random_leaves_a_hole_for_a_write_that_was_lost() -> None:
    files, file = durable_file()
    file.pwrite(0, b"aa")
    file.pwrite(2, b"bb")
    assert {cut["f"] for cut in random_cuts(files)} == {b"", b"aa", b"\0\0bb", b"aabb"}


def test_keep_random_keeps_truncations_or_not() -> None:
    files, file = durable_file(b"0123")
    file.truncate(1)
    file.pwrite(1, b"x")
    assert {cut["f"] for cut in random_cuts(files)} == {b"0123", b"0", b"0x23", b"0x"}


def test_keep_random_keeps_all_that_was_synced() -> None:
    files, file = durable_file()
    file.pwrite(0, b"aa")
    file.sync()
    file.pwrite(2, b"bb")
    assert {cut["f"] for cut in random_cuts(files)} == {b"aa", b"aabb"}


def test_keep_random_keeps_the_first_few_edits_of_a_directory() -> None:
    files = MemFiles()
    for name in "abc":
        files.open(name, create=True).close()
    files.remove("a")
    kept = {"".join(cut) for cut in random_cuts(files)}
    assert kept == {"", "a", "ab", "abc", "bc"}


def test_keep_random_keeps_a_rename_as_one_step() -> None:
    files = MemFiles.from_snapshot({"f": b"old", "g": b"new"})
    files.rename("g", "f")
    cuts = random_cuts(files)
    assert {"f": b"old", "g": b"new"} in cuts
    assert {"f": b"new"} in cuts
    assert all(cut in ({"f": b"old", "g": b"new"}, {"f": b"new"}) for cut in cuts)


def test_keep_random_gives_one_content_to_a_file_that_two_directories_name() -> None:
    files = MemFiles.from_snapshot({"a/x": b"", "b/y": b""})
    with files.open("a/x", write=True) as file:
        file.pwrite(0, b"new")
    files.rename("a/x", "b/x")
    both = [cut for cut in random_cuts(files) if "a/x" in cut and "b/x" in cut]
    assert both
    assert all(cut["a/x"] == cut["b/x"] for cut in both)


def test_keep_random_is_the_same_for_the_same_seed() -> None:
    files, file = durable_file()
    for offset in range(40):
        file.pwrite(offset, b"x")
    assert random_cuts(files, 10) == random_cuts(files, 10)


@given(st.data())
def test_a_synced_write_survives_any_cut(data: st.DataObject) -> None:
    files, file = durable_file()
    expected = bytearray(32)
    file.truncate(32)
    for _ in range(data.draw(st.integers(1, 8))):
        offset, content = data.draw(st.integers(0, 24)), data.draw(st.binary(min_size=1, max_size=8))
        file.pwrite(offset, content)
        expected[offset : offset + len(content)] = content
    file.sync()
    rng = random.Random(data.draw(st.integers(0, 99)))
    for keep in ("none", "all", "random"):
        assert files.after_cut(keep=keep, rng=rng, torn_bytes=3).read("f") == expected


# Torn writes


@pytest.mark.parametrize("size", range(6))
def test_a_write_that_the_cut_prevents_can_be_torn(size: int) -> None:
    files, file = durable_file(b"......")
    files.cut(1)
    with pytest.raises(PowerCut):
        file.pwrite(1, b"abcd")
    assert files.after_cut(torn_bytes=size).read("f") == b"." + b"abcd"[:size] + b"....."[min(size, 4) :]


def test_the_last_write_before_the_cut_can_be_torn() -> None:
    files, file = durable_file()
    file.pwrite(0, b"first")
    file.pwritev(5, [b"se", b"cond"])
    assert files.after_cut(torn_bytes=3).read("f") == b"\0\0\0\0\0sec"


def test_a_write_is_torn_on_top_of_all_that_is_visible() -> None:
    files, file = durable_file()
    file.pwrite(0, b"first")
    files.cut(2)
    with pytest.raises(PowerCut):
        file.pwrite(5, b"second")
    assert files.after_cut(keep="all", torn_bytes=3).read("f") == b"firstsec"


def test_a_write_is_not_torn_without_torn_bytes() -> None:
    files, file = durable_file()
    files.cut(1)
    with pytest.raises(PowerCut):
        file.pwrite(0, b"abc")
    assert files.after_cut(keep="all").read("f") == b""


def test_a_write_to_a_file_whose_name_is_lost_leaves_no_trace() -> None:
    files = MemFiles()
    file = files.open("f", create=True)
    files.cut(2)
    with pytest.raises(PowerCut):
        file.pwrite(0, b"abc")
    assert files.after_cut(torn_bytes=2).snapshot() == {}
    assert files.after_cut(torn_bytes=2, keep="all").snapshot() == {"f": b"ab"}


def test_a_write_that_was_synced_is_not_torn() -> None:
    files, file = durable_file()
    file.pwrite(0, b"abc")
    file.sync()
    file.truncate(0)
    file.sync()
    assert files.after_cut(torn_bytes=2).read("f") == b""


def test_a_write_that_failed_is_not_torn() -> None:
    files, file = durable_file()
    file.pwrite(0, b"first")
    files.fail(2, EIO)
    with pytest.raises(OSError):
        file.pwrite(0, b"second")
    assert files.after_cut(torn_bytes=3).read("f") == b"fir"


def test_writes_tried_after_the_cut_are_not_torn() -> None:
    files, file = durable_file()
    files.cut(1)
    with pytest.raises(PowerCut):
        file.pwrite(0, b"abc")
    with pytest.raises(PowerCut):
        file.pwrite(0, b"xyz")
    assert files.after_cut(torn_bytes=2).read("f") == b"ab"


def test_what_was_torn_is_durable_at_the_next_boot() -> None:
    files, file = durable_file()
    file.pwrite(0, b"abc")
    assert files.after_cut(torn_bytes=2).after_cut().read("f") == b"ab"


# Tools


def test_flip_changes_one_bit_that_everyone_sees() -> None:
    files = MemFiles.from_snapshot({"f": b"\x00\x00"})
    files.flip("f", 9)
    assert files.read("f") == b"\x00\x02"


@pytest.mark.parametrize("keep", ["none", "all"])
def test_flip_changes_the_disk_too(keep: str) -> None:
    files = MemFiles.from_snapshot({"f": b"\x00\x00"})
    files.flip("f", 0)
    assert files.after_cut(keep=keep).read("f") == b"\x01\x00"


def test_flip_changes_a_write_that_is_synced_later() -> None:
    files, file = durable_file()
    file.pwrite(0, b"\x00\x00")
    files.flip("f", 8)
    file.sync()
    assert files.after_cut().read("f") == b"\x00\x01"


@pytest.mark.parametrize("bit", [-1, 16])
def test_flip_refuses_a_bit_that_is_not_there(bit: int) -> None:
    files = MemFiles.from_snapshot({"f": b"\x00\x00"})
    with pytest.raises(ValueError, match="no bit"):
        files.flip("f", bit)


def test_a_snapshot_holds_what_is_visible_and_nothing_moves_it() -> None:
    files, file = durable_file(b"old")
    file.pwrite(0, b"new")
    snapshot = files.snapshot()
    file.pwrite(0, b"xxx")
    assert snapshot == {"f": b"new"}


def test_files_from_a_snapshot_are_durable() -> None:
    snapshot = {"a/b/f": b"x", "a/g": b"y", "h": b""}
    assert MemFiles.from_snapshot(snapshot).after_cut().snapshot() == snapshot


def test_load_replaces_everything() -> None:
    files = MemFiles.from_snapshot({"d/old": b"x"})
    files.load({"new": b"y"})
    assert files.list(".") == ["new"]


def test_loading_is_not_counted() -> None:
    assert MemFiles.from_snapshot({"d/f": b"x"}).op_count == 0


def test_a_copy_is_durable_and_apart() -> None:
    files, file = durable_file(b"old")
    file.pwrite(0, b"new")
    copy = files.copy()
    file.pwrite(0, b"xxx")
    assert copy.after_cut().snapshot() == {"f": b"new"}


def test_a_copy_keeps_empty_directories() -> None:
    files = MemFiles()
    files.make_dirs("a/b")
    assert files.copy().list("a") == ["b"]

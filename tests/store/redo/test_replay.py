"""What a start finds in the redo log after a crash."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from jetlake.store.format import BlockHeader
from jetlake.store.log.log import Log
from jetlake.store.redo.entries import Entry, Remove, Rename, Replace, Void, Write, encode_entries
from jetlake.store.redo.replay import PURPOSE, redo_directory, replay, unapplied
from jetlake.testing.memfiles import MemFiles, PowerCut

ROOT = "root"
BLOCK = f"{ROOT}/A/streams/S/msgs/000001.blk"
META = f"{ROOT}/A/streams/S/meta.json"
HEADER = BlockHeader(0, 0, 1, 0, 1, 0, 0, 77)
HEAD = HEADER.encode()


def _write(offset: int, data: bytes, *, seed: int = 77, is_new: bool = False) -> Write:
    return Write(BLOCK, seed, 0, offset, [data], is_new)


def _disk(turns: Sequence[Sequence[Entry]], *, block: bytes | None = None) -> MemFiles:
    files = MemFiles()
    files.make_dirs(redo_directory(ROOT))
    log = Log(files, redo_directory(ROOT), purpose=PURPOSE, reserve_size=64)
    for turn in turns:
        log.append([encode_entries(turn, ROOT)])
        log.sync()
    log.close()
    if block is not None:
        files.load({**files.snapshot(), BLOCK: block})
    return files


NEW: list[Entry] = [
    Replace(META, b"{}"),
    _write(0, HEAD, is_new=True),
    _write(len(HEAD), b"first"),
]


def test_a_stream_of_which_nothing_reached_the_disk_is_made() -> None:
    files = _disk([NEW, [_write(len(HEAD) + 5, b" second")]])
    found = replay(files, ROOT)
    assert (found.change_count, found.damage) == (4, [])
    disk = files.after_cut()  # all of it is durable
    assert disk.read(META) == b"{}" and disk.read(BLOCK) == HEAD + b"first second"
    assert disk.list(redo_directory(ROOT)) == [] and replay(disk, ROOT) == (0, [])


def test_a_hole_in_a_block_is_filled() -> None:
    files = _disk([[_write(len(HEAD) + 2, b"cd")], [_write(len(HEAD) + 4, b"ef")]], block=HEAD + b"ab\0\0ef")
    replay(files, ROOT)
    assert files.read(BLOCK) == HEAD + b"abcdef"


def test_what_was_meant_for_another_file_of_that_name_is_left_out() -> None:
    files = _disk([[_write(len(HEAD), b"old", seed=5)]], block=HEAD + b"new")
    assert replay(files, ROOT).damage == [] and files.read(BLOCK) == HEAD + b"new"


def test_a_block_that_vanished_is_told() -> None:
    found = replay(_disk([[_write(len(HEAD), b"part")]]), ROOT)
    assert len(found.damage) == 1 and "is missing" in found.damage[0]


def test_a_removed_file_goes() -> None:
    files = _disk([[Replace(META, b"{}")], [Remove(META)]], block=HEAD)
    files.load({**files.snapshot(), META: b"{}"})
    replay(files, ROOT)
    assert not files.after_cut().exists(META) and files.exists(BLOCK)


def test_a_renamed_directory_moves_as_it_is() -> None:
    consumer = f"{ROOT}/A/streams/S/consumers/c.1"
    files = _disk([[Remove(consumer)], [Rename(f"{ROOT}/A/streams/S", f"{ROOT}/A/streams/~1")]], block=HEAD)
    files.load({**files.snapshot(), consumer: b"state"})
    replay(files, ROOT)
    assert f"{ROOT}/A/streams/~1/msgs/000001.blk" in files.snapshot() and not files.exists(f"{ROOT}/A/streams/S")
    assert consumer.replace("/S/", "/~1/") in files.snapshot()  # with all the rest


def test_a_stream_made_again_after_its_removal_stays() -> None:
    tomb = f"{ROOT}/A/streams/~1"
    files = _disk([NEW, [Rename(f"{ROOT}/A/streams/S", tomb)], [Void(tomb)], [Replace(META, b"another")]])
    replay(files, ROOT)
    assert files.read(META) == b"another" and not files.exists(BLOCK) and not files.exists(tomb)


@pytest.mark.parametrize("keep", ["none", "all"])
def test_a_replay_that_is_cut_short_is_repeated(keep: str) -> None:
    call, is_cut = 0, True
    while is_cut:
        call += 1
        files = _disk([NEW, [_write(len(HEAD) + 5, b" second")], [Replace(META, b"2"), Replace(f"{META}.x", b"3")]])
        files.cut(files.op_count + call)
        try:
            replay(files, ROOT)
            is_cut = False
        except PowerCut:
            is_cut = True
        disk = files.after_cut(keep=keep)
        replay(disk, ROOT)
        found = {path: data for path, data in disk.snapshot().items() if not path.endswith(".tmp")}
        assert found == {META: b"2", f"{META}.x": b"3", BLOCK: HEAD + b"first second"}
    assert call > 10


def test_a_reader_is_told_which_files_lack_something() -> None:
    below = f"{ROOT}/A/streams/S"
    files = _disk([[_write(len(HEAD), b"first")], [_write(len(HEAD) + 5, b"second")]], block=HEAD + b"first")
    assert unapplied(files, ROOT, below) == [BLOCK]
    assert unapplied(files, ROOT, f"{ROOT}/A/streams/T") == []
    before = files.snapshot()
    assert files.snapshot() == before
    replay(files, ROOT)
    assert unapplied(files, ROOT, below) == []

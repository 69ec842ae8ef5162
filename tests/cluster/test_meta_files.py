"""The snapshots of the meta group on disk: kept twice, whole or not at all."""

from __future__ import annotations

import random

import pytest

from jetlake.cluster.meta_files import NAMES, MetaFiles, MetaKeeper, Snapshot, decode_file, encode_file
from jetlake.errors import CorruptBlock, WrongKey
from jetlake.store.blocks.envelope import Cipher, KeySource
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.testing.memfiles import MemFiles, PowerCut
from tests.jetstream.harness import FakeHost

OLD, NEW = Snapshot(5, b"old"), Snapshot(9, b"newer")
DIRECTORY = "/store/jetstream/_cluster_"


def kept(*snapshots: Snapshot) -> tuple[MemFiles, MetaFiles]:
    files = MemFiles()
    made = MetaFiles(files, DIRECTORY)
    for snapshot in snapshots:
        made.write(snapshot)
    return files, made


def damage(files: MemFiles, name: str) -> None:
    path = f"{DIRECTORY}/{name}"
    data = bytearray(files.read(path))
    data[-1] ^= 1
    with files.open(path, write=True) as file:
        file.pwrite(0, bytes(data))
        file.sync()


def read(made: MetaFiles) -> tuple[Snapshot | None, list[str]]:
    said: list[str] = []
    return made.read(lambda level, line: said.append(f"{level} {line}")), said


def test_nothing_is_read_where_nothing_was_written() -> None:
    assert read(kept()[1]) == (None, [])


def test_the_last_snapshot_is_read() -> None:
    assert read(kept(OLD, NEW)[1]) == (NEW, [])


@pytest.mark.parametrize("name", NAMES)
def test_one_damaged_copy_is_made_good_from_the_other(name: str) -> None:
    files, made = kept(NEW)
    damage(files, name)
    found, said = read(made)
    assert found == NEW and "checksum does not match" in said[0]
    assert read(made) == (NEW, [])


def test_two_damaged_copies_are_an_error_and_stay_as_they_are() -> None:
    files, made = kept(NEW)
    for name in NAMES:
        damage(files, name)
    before = [files.read(f"{DIRECTORY}/{name}") for name in NAMES]
    with pytest.raises(CorruptBlock):
        read(made)
    assert [files.read(f"{DIRECTORY}/{name}") for name in NAMES] == before


@pytest.mark.parametrize("size", range(24 + 5))
def test_every_truncation_and_every_flipped_bit_is_noticed(size: int) -> None:
    data = encode_file(NEW)
    with pytest.raises(CorruptBlock):
        decode_file(data[:size], "x")
    for bit in range(8):
        changed = bytearray(data)
        changed[size] ^= 1 << bit
        with pytest.raises(CorruptBlock):
            decode_file(bytes(changed), "x")


def test_a_keeper_writes_in_a_commit_and_says_when_it_is_durable() -> None:
    files, host, done = MemFiles(), FakeHost(), []
    keeper = MetaKeeper(MetaFiles(files, DIRECTORY), host)
    keeper.write(9, b"newer", lambda: done.append(9))
    assert done == []
    host.settle()
    assert done == [9] and read(MetaFiles(files, DIRECTORY))[0] == NEW and keeper.last_ns > 0


def test_a_snapshot_that_cannot_be_written_is_tried_again() -> None:
    files, host, done = MemFiles(), FakeHost(), []
    keeper = MetaKeeper(MetaFiles(files, DIRECTORY), host)
    host.fails = OSError(28, "No space left on device")
    keeper.write(9, b"newer", lambda: done.append(9))
    host.settle()
    assert done == [] and "meta snapshot not written" in host.lines[-1][1]
    host.fails = None
    host.timers[-1].callback()
    host.settle()
    assert done == [9]


@pytest.mark.parametrize("keep", ["none", "all", "random"])
def test_a_power_cut_at_any_moment_leaves_one_whole_snapshot(keep: str) -> None:
    files, made = kept(OLD)
    before = files.op_count
    made.write(NEW)
    count = files.op_count - before
    assert count >= 6
    for step in range(1, count + 1):
        files, made = kept(OLD)
        files.cut(files.op_count + step)
        with pytest.raises(PowerCut):
            made.write(NEW)
        survived = MetaFiles(files.after_cut(keep=keep, rng=random.Random(step)), DIRECTORY)
        found, _ = read(survived)
        assert found in (OLD, NEW)
        assert read(survived) == (found, [])


def test_an_encrypted_snapshot_tells_nothing_and_follows_the_key() -> None:
    old, new = KeySource.key(b"o" * 32), KeySource.key(b"n" * 32)
    files = MemFiles()
    MetaFiles(files, DIRECTORY, Sealer(Cipher.AES_256_GCM, [old])).write(NEW)
    assert not any(NEW.data in content for content in files.snapshot().values())
    MetaFiles(files, DIRECTORY, Sealer(Cipher.AES_256_GCM, [new, old])).convert()
    assert read(MetaFiles(files, DIRECTORY, Sealer(Cipher.AES_256_GCM, [new], accepts_plain=False))) == (NEW, [])
    with pytest.raises(WrongKey):
        read(MetaFiles(files, DIRECTORY, Sealer(Cipher.AES_256_GCM, [old])))

"""A store that is opened with another key, cipher or compression than it was written with."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from jetlake.errors import StoreError, WrongKey
from jetlake.store import Cipher, Compression, FileOptions, FileStore, KeySource
from jetlake.store.blocks.block_file import read_header
from jetlake.store.format import NO_STREAM, BlockHeader
from jetlake.store.verify.check import check_store
from jetlake.store.view import StreamView
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles, PowerCut

OLD, NEW = KeySource.key(b"o" * 32), KeySource.key(b"n" * 32)
BOTH = (NEW, OLD)
COUNT = 20


def options(
    cipher: Cipher = Cipher.NONE, *keys: KeySource, compression: Compression = Compression.NONE, **more: bool
) -> FileOptions:
    return FileOptions(300, compression=compression, cipher=cipher, keys=keys, convert=True, **more)


PLAIN = options()
AES_OLD = options(Cipher.AES_256_GCM, OLD)
AES = options(Cipher.AES_256_GCM, *BOTH)
CHACHA = options(Cipher.CHACHA20_POLY1305, *BOTH)
SNAPPY = options(compression=Compression.SNAPPY)


def open_store(files: MemFiles, chosen: FileOptions) -> FileStore:
    return FileStore("s", options=chosen, files=files, clock=FakeClock())


def filled(chosen: FileOptions, *, clean: bool = True) -> MemFiles:
    """A store of several blocks with deletes; the active block holds messages."""
    files = MemFiles()
    store = open_store(files, chosen)
    for number in range(1, COUNT + 1):
        store.append("secret.subject", b"secret %02d " % number * 4)
    store.remove(5)
    store.remove(17)
    assert len(store.catalog.blocks) > 3 and store.catalog.active.message_count
    if clean:
        store.stop()
    return files if clean else files.after_cut()


def headers(files: MemFiles) -> list[BlockHeader]:
    found = [read_header(files, f"s/{name}") for name in files.list("s") if name.endswith(".blk")]
    return [header for header in found if header is not None]


def contents(store: FileStore) -> dict[int, bytes]:
    live = [seq for seq in range(1, store.catalog.last_seq + 1) if store.catalog.is_live(seq)]
    return {seq: store.load(seq).payload for seq in live}


EXPECTED = {seq: b"secret %02d " % seq * 4 for seq in range(1, COUNT + 1) if seq not in (5, 17)}


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("before", [PLAIN, AES_OLD, SNAPPY], ids=["plain", "other-key", "snappy"])
@pytest.mark.parametrize("after", [AES, CHACHA], ids=["aes", "chacha"])
def test_everything_is_under_the_new_key_when_the_store_is_open(
    before: FileOptions, after: FileOptions, clean: bool
) -> None:
    files = filled(before, clean=clean)
    store = open_store(files, after)
    assert contents(store) == EXPECTED and not store.damage
    left = files.after_cut()  # nothing of it waits for a stop
    assert {(header.cipher, header.stream_id == NO_STREAM) for header in headers(left)} == {(after.cipher, False)}
    assert b"secret" not in b"".join(left.snapshot().values())
    only_new = options(after.cipher, NEW, requires_cipher=True)
    again = open_store(left, only_new)
    assert contents(again) == EXPECTED and not again.damage and not again.state().lost
    again.stop()
    assert check_store("s", files=left, keys=[NEW]).ok
    for keys, problem in (([OLD], "with another key"), ([], "no key was given")):
        unchanged = left.snapshot()
        with pytest.raises(WrongKey, match=problem):
            open_store(left, FileOptions(keys=keys))
        with pytest.raises(WrongKey, match=problem):
            StreamView("s", files=left, keys=keys).refresh()
        with pytest.raises(WrongKey, match=problem):
            check_store("s", files=left, keys=keys)
        assert left.snapshot() == unchanged


def test_what_is_as_it_should_be_is_not_rewritten() -> None:
    files = filled(AES)
    before = {name: data for name, data in files.snapshot().items() if name.endswith((".blk", ".idx"))}
    open_store(files, AES).stop()
    assert {name: files.read(name) for name in before} == before


def test_a_new_compression_holds_from_the_next_message_on_and_the_rest_follows() -> None:
    files = filled(PLAIN)
    store = open_store(files, SNAPPY)
    assert headers(files)[-1].compression == Compression.SNAPPY and store.has_more
    store.append("secret.subject", b"new")
    while store.has_more:
        store.commit()
    assert {header.compression for header in headers(files)} == {Compression.SNAPPY}
    assert contents(store) == {**EXPECTED, COUNT + 1: b"new"}
    store.stop()
    assert check_store("s", files=files).ok


def test_a_running_store_can_be_given_another_compression() -> None:
    files = filled(PLAIN)
    store = open_store(files, PLAIN)
    store.use_options(SNAPPY)
    store.append("secret.subject", b"new")
    while store.has_more:
        store.commit()
    assert {header.compression for header in headers(files)} == {Compression.SNAPPY}
    assert contents(store) == {**EXPECTED, COUNT + 1: b"new"}


def test_without_convert_blocks_stay_as_they_are() -> None:
    files = filled(PLAIN)
    with open_store(files, FileOptions(300, cipher=Cipher.AES_256_GCM, keys=(NEW,))) as store:
        assert contents(store) == EXPECTED
    assert {header.cipher for header in headers(files)} == {Cipher.NONE}


@pytest.mark.parametrize("keep", ["none", "all"])
@pytest.mark.parametrize("before", [PLAIN, AES_OLD], ids=["plain", "other-key"])
def test_a_power_cut_at_any_point_of_a_conversion_costs_nothing(before: FileOptions, keep: str) -> None:
    start = MemFiles.from_snapshot(filled(before).snapshot())
    whole = start.copy()
    open_store(whole, AES).release()
    for number in range(start.op_count + 1, whole.op_count + 1):
        files = start.copy()
        files.cut(number)
        with pytest.raises(PowerCut):
            open_store(files, AES)
        left = files.after_cut(keep=keep)
        store = open_store(left, AES)
        assert contents(store) == EXPECTED and not store.damage and not store.state().lost
        store.stop()
        assert b"secret" not in b"".join(left.snapshot().values())
        assert check_store("s", files=left, keys=[NEW]).ok


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failure_at_any_point_of_a_conversion_costs_nothing(error: int) -> None:
    start = MemFiles.from_snapshot(filled(PLAIN).snapshot())
    whole = start.copy()
    open_store(whole, AES).release()
    for number in range(start.op_count + 1, whole.op_count + 1):
        files = start.copy()
        files.fail(number, OSError(error, "injected"))
        with suppress(OSError, StoreError):
            open_store(files, AES).release()
        store = open_store(files, AES)
        assert contents(store) == EXPECTED and not store.damage and not store.state().lost
        store.stop()


@pytest.mark.damages
def test_what_damage_left_behind_is_encrypted_too() -> None:
    files = filled(PLAIN, clean=False)
    (stem,) = {name[:-4] for name, data in files.snapshot().items() if b"secret 07" in data and name.endswith("blk")}
    files.flip(f"{stem}.blk", 8 * (files.read(f"{stem}.blk").index(b"secret 07") + 3))
    files.remove(f"{stem}.idx")
    store = open_store(files, AES)
    assert len(store.state().lost) == 1
    evidence = [name for name in files.list("s") if name.endswith(".damaged")]
    assert evidence and b"secret" not in b"".join(files.snapshot().values())
    store.stop()
    files.flip(f"s/{evidence[0]}", 8 * 60)  # even evidence may be damaged
    with open_store(files, options(Cipher.CHACHA20_POLY1305, NEW)) as store:
        assert len(store.state().lost) == 1


@pytest.mark.damages
def test_a_plain_block_in_a_store_that_has_none_is_damage() -> None:
    strict = options(Cipher.AES_256_GCM, NEW, requires_cipher=True)
    files = filled(PLAIN)
    plain = files.read("s/000002.blk")
    open_store(files, AES).stop()
    files.remove("s/000002.blk")
    with files.open("s/000002.blk", create=True) as file:
        file.pwrite(0, plain)
    with open_store(files, strict) as store:
        assert store.state().lost and any("is not encrypted" in text for text in store.damage)
        assert contents(store).items() < EXPECTED.items()


def test_a_header_that_somebody_changed_is_noticed() -> None:
    files = filled(AES)
    header = headers(files)[1]
    with files.open("s/000002.blk", write=True) as file:
        file.pwrite(0, header._replace(first_seq=header.first_seq + 1).encode())
    with pytest.raises(WrongKey):
        open_store(files, AES)

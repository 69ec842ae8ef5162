"""Whose blocks a store serves."""

from __future__ import annotations

import pytest

from jetlake.store import Cipher, FileOptions, FileStore, KeySource
from jetlake.store.blocks.checkpoint import Checkpoint, read_checkpoint
from jetlake.store.blocks.identity import Identity, identify
from jetlake.store.disk.files import Files
from jetlake.store.format import NO_STREAM, BlockHeader, decode_header
from jetlake.store.verify.check import check_store
from jetlake.store.view import StreamView
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles, PowerCut

PLAIN = FileOptions(block_size_max=300)
KEYS = (KeySource.key(bytes(32)),)
SECRET = FileOptions(block_size_max=300, cipher=Cipher.AES_256_GCM, keys=KEYS)
MINE, OTHER = b"m" * 16, b"o" * 16


def header(block_id: int, stream_id: bytes = NO_STREAM, seed: int = 1) -> BlockHeader:
    return BlockHeader(0, 0, block_id, 0, 1, 1, 0, seed, stream_id=stream_id)


def filled(files: Files, directory: str, text: bytes, options: FileOptions = PLAIN) -> FileStore:
    store = FileStore(directory, options=options, files=files, clock=FakeClock())
    while len(store.catalog.blocks) < 4:
        store.append("a", text * 10)
    return store


def two_stores(options: FileOptions = PLAIN) -> MemFiles:
    """Directories `mine` and `other`, of equally many messages."""
    files = MemFiles()
    for directory in ("mine", "other"):
        filled(files, directory, directory[:4].encode(), options).stop()
    return files


def copy(files: MemFiles, block: str) -> None:
    """Put a block of the other store, with its sidecar, into mine."""
    for suffix in ("blk", "idx"):
        target = f"mine/{block}.{suffix}"
        if files.exists(target):
            files.remove(target)
        with files.open(target, create=True) as file:
            file.pwrite(0, files.read(f"other/{block}.{suffix}"))


def payloads(store: FileStore) -> set[bytes]:
    """The first bytes of all messages, which tell whose they are."""
    live = [seq for seq in range(1, store.catalog.last_seq + 1) if store.catalog.is_live(seq)]
    return {store.load(seq).payload[:4] for seq in live}


def unmark(files: MemFiles, directory: str) -> None:
    """Make a store what version 1 would have made of it."""
    for name in files.list(directory):
        if name.endswith(".blk"):
            with files.open(f"{directory}/{name}", write=True) as file:
                found = decode_header(file.pread(0, 256))
                assert found is not None
                file.pwrite(0, found._replace(stream_id=NO_STREAM).encode())
    files.remove(f"{directory}/stream.state")


def test_the_checkpoint_knows_the_stream() -> None:
    identity = identify(Checkpoint(1, 0, 0, 0, 0, stream_id=MINE.hex(), unmarked=[(3, 7)]), [header(1, OTHER)])
    assert identity.owns(header(1, MINE)) and not identity.owns(header(1, OTHER))
    assert identity.owns(header(3, seed=7)) and not identity.owns(header(3, seed=8)) and not identity.owns(header(4))


@pytest.mark.parametrize("checkpoint", [None, Checkpoint(1, 0, 0, 0, 0)])
def test_without_it_most_blocks_are_right(checkpoint: Checkpoint | None) -> None:
    headers = [header(1, MINE), header(2), header(3, OTHER), header(4, MINE)]
    assert identify(checkpoint, headers) == Identity(MINE, None)
    assert identify(checkpoint, headers[:3]) == Identity(OTHER, None)
    assert identify(checkpoint, [header(2)]) == Identity(NO_STREAM, None)


def test_all_blocks_of_a_stream_have_one_id_and_no_other_stream_has_it() -> None:
    files = two_stores()
    ids = {}
    for directory in ("mine", "other"):
        blocks = [decode_header(files.read(f"{directory}/00000{n}.blk")) for n in (1, 2, 3, 4)]
        (ids[directory],) = {found.stream_id for found in blocks if found is not None}
        checkpoint = read_checkpoint(files, directory)
        assert checkpoint is not None and checkpoint.stream_id == ids[directory].hex()
    assert ids["mine"] != ids["other"] and NO_STREAM not in ids.values()


@pytest.mark.damages
@pytest.mark.parametrize("options", [PLAIN, SECRET])
@pytest.mark.parametrize("block", ["000001", "000002", "000003"])
def test_a_block_of_another_stream_is_lost_and_kept_aside(block: str, options: FileOptions) -> None:
    files = two_stores(options)
    copy(files, block)
    foreign = files.read(f"other/{block}.blk")
    report = check_store("mine", files=files, keys=options.keys)
    assert "foreign" in {problem.kind for problem in report.problems} and not report.ok
    view = StreamView("mine", files=files, keys=options.keys)
    view.refresh()
    assert view.foreign == [f"mine/{block}.blk"] and "another stream" in view.damage[0]
    store = FileStore("mine", options=options, files=files, clock=FakeClock())
    assert payloads(store) == {b"mine"}
    assert store.state().lost == view.catalog.lost == report.lost and store.state().lost
    assert any("another stream" in text for text in store.damage)
    assert files.read(f"mine/{block}.blk.damaged") == foreign
    assert files.exists(f"mine/{block}.idx.damaged")
    store.stop()
    with FileStore("mine", options=options, files=files, clock=FakeClock()) as store:
        assert payloads(store) == {b"mine"}
        assert store.state().lost == view.catalog.lost


@pytest.mark.damages
def test_a_block_more_costs_nothing() -> None:
    files = two_stores()
    with FileStore("other", options=PLAIN, files=files, clock=FakeClock()) as other:
        while len(other.catalog.blocks) < 6:
            other.append("a", b"othr" * 10)
    copy(files, "000005")
    with FileStore("mine", options=PLAIN, files=files, clock=FakeClock()) as store:
        assert payloads(store) == {b"mine"} and not store.state().lost and len(store.damage) == 1


@pytest.mark.damages
def test_a_foreign_block_under_another_key_is_damage_not_a_wrong_key() -> None:
    files = MemFiles()
    filled(files, "mine", b"mine", SECRET).stop()
    other = FileOptions(block_size_max=300, cipher=Cipher.AES_256_GCM, keys=(KeySource.key(b"k" * 32),))
    filled(files, "other", b"othr", other).stop()
    copy(files, "000002")
    with FileStore("mine", options=SECRET, files=files, clock=FakeClock()) as store:
        assert payloads(store) == {b"mine"} and store.state().lost


def test_a_store_of_version_1_gets_an_id_and_keeps_its_blocks() -> None:
    files = two_stores()
    unmark(files, "mine")
    with FileStore("mine", options=PLAIN, files=files, clock=FakeClock()) as store:
        assert payloads(store) == {b"mine"} and not store.damage
        store.append("a", b"mine")
        last_seq = store.catalog.last_seq
    checkpoint = read_checkpoint(files, "mine")
    assert checkpoint is not None and checkpoint.stream_id
    assert [block_id for block_id, _ in checkpoint.unmarked] == [1, 2, 3, 4]
    with FileStore("mine", options=PLAIN, files=files, clock=FakeClock()) as store:
        assert (store.catalog.last_seq, store.damage) == (last_seq, [])
        store.remove(1)
        store.compact_files()
    rewritten = decode_header(files.read("mine/000001.blk"))
    assert rewritten is not None and rewritten.stream_id.hex() == checkpoint.stream_id
    assert check_store("mine", files=files).ok


@pytest.mark.damages
def test_a_foreign_block_of_version_1_is_noticed_too() -> None:
    files = two_stores()
    for directory in ("mine", "other"):
        unmark(files, directory)
    FileStore("mine", options=PLAIN, files=files, clock=FakeClock()).stop()
    copy(files, "000002")
    with FileStore("mine", options=PLAIN, files=files, clock=FakeClock()) as store:
        assert payloads(store) == {b"mine"} and store.state().lost


def reopen(files: MemFiles) -> None:
    with FileStore("mine", options=PLAIN, files=files, clock=FakeClock()) as store:
        store.append("a", b"mine" * 40)
        store.append("a", b"mine" * 40)


@pytest.mark.parametrize("keep", ["none", "all"])
def test_a_power_cut_while_a_store_gets_its_id_costs_nothing(keep: str) -> None:
    start = two_stores()
    unmark(start, "mine")
    start = MemFiles.from_snapshot(start.snapshot())
    whole = start.copy()
    reopen(whole)
    for number in range(start.op_count + 1, whole.op_count + 1):
        files = start.copy()
        files.cut(number)
        with pytest.raises(PowerCut):
            reopen(files)
        left = files.after_cut(keep=keep)
        reopen(left)
        with FileStore("mine", options=PLAIN, files=left, clock=FakeClock()) as store:
            assert payloads(store) == {b"mine"} and not store.damage and not store.state().lost

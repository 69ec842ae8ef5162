"""A view of a directory that a server writes to shows what the server's own store holds, and touches nothing."""

from __future__ import annotations

import copy

import pytest

from jetlake.errors import StoreError, WrongKey
from jetlake.store import FileOptions, FileStore
from jetlake.store.blocks.catalog import Catalog
from jetlake.store.blocks.checkpoint import Checkpoint, write_checkpoint
from jetlake.store.view import StreamView
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from tests.crash.workload import ENVELOPES, SCRIPTS, Life, Script

SMALL = FileOptions(block_size_max=350)


def open_store(files: MemFiles, options: FileOptions = SMALL) -> FileStore:
    return FileStore("s", options=options, files=files, clock=FakeClock())


def fill(store: FileStore, count: int) -> None:
    for number in range(count):
        store.append(f"s.{number % 3}", b"payload %d" % number)


def live(catalog: Catalog) -> list[int]:
    return [
        seq
        for block in catalog.blocks
        for first, last in block.live_runs(catalog.first_seq, catalog.last_seq)
        for seq in range(first, last + 1)
    ]


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize("envelope", ENVELOPES)
def test_a_view_agrees_with_the_store_after_every_step_of_its_life(envelope: str, script: Script) -> None:
    life = Life(MemFiles(), ENVELOPES[envelope], script)
    life.open()
    lasting = StreamView("s", files=life.files, keys=life.options.keys)
    for number, step in enumerate(script()):
        life.after = copy.deepcopy(life.before)
        step(life)
        life.before = life.after
        fresh = StreamView("s", files=life.files, keys=life.options.keys)
        for view in (fresh, lasting):
            catalog = view.refresh()
            assert live(catalog) == sorted(life.before.msgs), f"step {number}"
            assert (catalog.first_seq, catalog.last_seq) == (life.before.first, life.before.last), f"step {number}"
            assert not catalog.lost and not view.damage


def test_a_view_finds_messages_and_subjects_where_they_lie() -> None:
    files = MemFiles()
    store = open_store(files)
    fill(store, 20)
    view = StreamView("s", files=files)
    catalog = view.refresh()
    assert len(catalog.blocks) == 3
    for seq in live(catalog):
        block = catalog.block_of(seq)
        assert block is not None
        index = catalog.index(block)
        slot = index.ids[index.position(seq)]
        assert index.table.subject(slot).decode() == store.subject_of(seq)
        assert view.subjects(block).find(index.table.subject(slot)) >= 0


def test_a_view_changes_no_file_and_takes_no_lock() -> None:
    files = MemFiles()
    store = open_store(files)
    fill(store, 20)
    store.remove(4)
    before = files.snapshot()
    StreamView("s", files=files, sync=True).refresh()
    assert files.snapshot() == before
    store.append("s.1", b"the lock is still the store's")


def test_a_catalog_stays_as_it_was_when_the_stream_goes_on() -> None:
    files = MemFiles()
    store = open_store(files)
    fill(store, 10)
    view = StreamView("s", files=files)
    then = view.refresh()
    fill(store, 10)
    store.remove(2)
    store.purge("s.1")
    assert live(then) == list(range(1, 11))
    view.refresh()
    assert live(then) == list(range(1, 11))


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_an_unfinished_write_is_not_seen_until_it_is_finished(envelope: str) -> None:
    files = MemFiles()
    store = open_store(files, ENVELOPES[envelope])
    store.append("a", b"one")
    view = StreamView("s", files=files, keys=ENVELOPES[envelope].keys)
    view.refresh()
    path, size = store.catalog.active.path, files.size(store.catalog.active.path)
    store.append("a", b"two")
    whole = files.read(path)
    with files.open(path, write=True) as file:
        for cut in range(size, len(whole)):
            file.truncate(cut)
            assert live(view.refresh()) == [1] and not view.damage
            file.pwrite(cut, whole[cut:])
    assert live(view.refresh()) == [1, 2]


@pytest.mark.damages
def test_damaged_messages_are_lost_and_the_others_are_live() -> None:
    files = MemFiles()
    store = open_store(files, FileOptions())
    fill(store, 5)
    with files.open(store.catalog.active.path, write=True) as file:
        file.pwrite(256 + store.catalog.index(store.catalog.active).offsets[2] + 12, b"\xff\xff")
    view = StreamView("s", files=files)
    catalog = view.refresh()
    assert live(catalog) == [1, 2, 4, 5]
    assert list(catalog.lost) == [3] and len(view.damage) == 1


@pytest.mark.damages
def test_a_tail_that_vanished_is_lost() -> None:
    files = MemFiles()
    store = open_store(files)
    fill(store, 20)
    store.stop()
    for name in [name for name in files.list("s") if name.endswith(".blk")][1:]:
        files.remove(f"s/{name}")
    catalog = StreamView("s", files=files).refresh()
    assert catalog.last_seq == 20
    assert live(catalog) == [seq for seq in range(1, 21) if seq not in catalog.lost]


def test_a_sealed_block_without_its_sidecar_is_scanned() -> None:
    files = MemFiles()
    store = open_store(files)
    fill(store, 20)
    for name in files.list("s"):
        if name.endswith(".idx"):
            files.remove(f"s/{name}")
    assert live(StreamView("s", files=files).refresh()) == list(range(1, 21))
    store.stop()


def test_a_block_that_is_being_erased_from_is_found_under_its_other_name() -> None:
    files = MemFiles()
    store = open_store(files)
    fill(store, 20)
    files.rename("s/000002.blk", "s/000002.blk.shred")
    assert live(StreamView("s", files=files).refresh()) == list(range(1, 21))
    files.rename("s/000002.blk.shred", "s/000002.blk")
    store.stop()


def test_a_directory_that_never_holds_still_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemFiles()
    open_store(files)
    names = files.list("s")
    monkeypatch.setattr(files, "list", lambda directory: [*names, "000999.blk"])
    with pytest.raises(StoreError, match="changes faster than it can be read"):
        StreamView("s", files=files).refresh()


def test_a_wrong_key_is_refused() -> None:
    files = MemFiles()
    fill(open_store(files, ENVELOPES["none-aes_256_gcm"]), 3)
    with pytest.raises(WrongKey):
        StreamView("s", files=files).refresh()


def test_an_empty_directory_is_an_empty_stream() -> None:
    files = MemFiles()
    files.make_dirs("s")
    catalog = StreamView("s", files=files).refresh()
    assert (catalog.first_seq, catalog.last_seq, catalog.blocks) == (1, 0, [])
    with pytest.raises(FileNotFoundError):
        StreamView("t", files=files).refresh()


def test_a_truncation_under_way_counts_as_done() -> None:
    files = MemFiles()
    store = open_store(files)
    fill(store, 20)
    store.stop()
    write_checkpoint(files, "s", Checkpoint(1, 20, 0, 0, 0, truncate_seq=7))
    catalog = StreamView("s", files=files).refresh()
    assert live(catalog) == list(range(1, 8)) and catalog.last_seq == 7

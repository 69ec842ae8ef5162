"""Compaction by commits, while the store goes on."""

from __future__ import annotations

import pytest

from jetlake.errors import StoreFrozen
from jetlake.store import FileOptions, FileStore
from jetlake.store.disk.compaction import Compaction
from jetlake.store.verify.check import check_store
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from tests.crash.workload import ENVELOPES, ThriftyStore


def half_dead(
    files: MemFiles, options: FileOptions = ENVELOPES["none-none"], kind: type[FileStore] = FileStore
) -> FileStore:
    """A store of several blocks; every third message is gone."""
    store = kind("s", options=options, files=files, clock=FakeClock(), autocommit=False)
    for number in range(60):
        store.append("a", b"payload %d" % number)
    for seq in range(1, 61, 3):
        store.remove(seq)
    store.commit()
    return store


def run(store: FileStore, compaction: Compaction) -> int:
    """Commit until it is done; how often."""
    commits = 0
    while not compaction.is_done:
        store.commit()
        commits += 1
    return commits


def payloads(store: FileStore) -> list[bytes]:
    return [message.payload for message in store.messages()]


@pytest.mark.parametrize("options", ENVELOPES.values(), ids=ENVELOPES)
def test_each_commit_writes_one_block_anew(options: FileOptions) -> None:
    files = MemFiles()
    store = half_dead(files, options)
    before, sealed = payloads(store), len(store.catalog.blocks) - 1
    compaction = Compaction(store)
    assert not compaction.is_done and compaction.block_count == 0
    assert run(store, compaction) == compaction.block_count == sealed > 3
    assert compaction.size_after == store.utilisation()[0] < compaction.size_before
    assert payloads(store) == before and not store.has_more
    again = FileStore("s", options=options, files=files.after_cut(), clock=FakeClock())
    assert payloads(again) == before


def test_messages_come_and_go_meanwhile() -> None:
    files = MemFiles()
    store = half_dead(files)
    compaction = Compaction(store)
    seqs = iter(range(2, 60, 3))
    while not compaction.is_done:
        commit = store.prepare_commit()
        store.append("b", b"during")
        store.remove(next(seqs))
        assert commit is not None
        commit.run()
        store.complete_commit(commit)
    store.commit()
    assert compaction.block_count > 3
    state = store.state()
    assert state.num_subjects == 2 and state.msgs == len(payloads(store)) == 40
    cut = files.after_cut()
    assert check_store("s", files=cut).ok
    assert FileStore("s", options=store.options, files=cut, clock=FakeClock()).state() == state


def test_blocks_with_little_that_is_dead_stay() -> None:
    compaction = Compaction(half_dead(MemFiles()), 0.9)
    assert compaction.is_done and compaction.block_count == 0


def test_the_active_block_is_sealed_if_it_is_worth_it() -> None:
    store = half_dead(MemFiles(), FileOptions(), ThriftyStore)
    assert len(store.catalog.blocks) == 1
    before = payloads(store)
    compaction = Compaction(store, 0.1)
    run(store, compaction)
    assert compaction.block_count == 1 and payloads(store) == before
    assert Compaction(store, 0.1).is_done  # what is left is a block with nothing but live messages, and an empty one
    store = half_dead(MemFiles(), FileOptions())
    assert Compaction(store, 0.1).is_done and len(store.catalog.blocks) == 1


def test_what_says_that_messages_are_gone_is_not_dead() -> None:
    store = half_dead(MemFiles(), kind=ThriftyStore)
    block = store.catalog.blocks[0]
    for seq in range(block.first_seq, block.last_seq):
        store.remove(seq)
    store.remove(block.first_seq + 40)  # of another block, so that this one stays where it is
    left = payloads(store)
    compaction = Compaction(store)
    for _ in range(100):
        if not compaction.is_done:
            store.commit()
    assert compaction.is_done and not store.has_more and payloads(store) == left
    assert max(block.fixed_size for block in store.catalog.blocks[:-1]) > 0


def test_a_block_that_goes_while_it_waits_is_done_with() -> None:
    store = half_dead(MemFiles())
    compaction = Compaction(store)
    store.purge()
    store.commit()
    assert compaction.is_done and compaction.block_count == 0


def test_a_message_that_is_erased_does_not_keep_its_block_as_it_is() -> None:
    store = half_dead(MemFiles())
    compaction = Compaction(store)
    block = store.catalog.blocks[0]
    assert store.erase(3)
    run(store, compaction)
    assert block.header.generation > 0 and compaction.block_count == len(store.catalog.blocks) - 1


def test_two_compactions_at_a_time_end_both() -> None:
    store = half_dead(MemFiles())
    one, other = Compaction(store), Compaction(store)
    run(store, one)
    assert other.is_done and one.block_count == other.block_count > 3


def test_a_disk_that_fails_ends_it() -> None:
    files = MemFiles()
    store = half_dead(files)
    before = payloads(store)
    files.fail(files.op_count + 3, OSError("no luck"))
    with pytest.raises(StoreFrozen):
        store.compact_files()
    assert payloads(FileStore("s", options=store.options, files=files.after_cut(), clock=FakeClock())) == before

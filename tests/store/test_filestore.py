"""What is particular to files: durability, group commit, failure, keys, and room on the disk."""

from __future__ import annotations

import errno
import random
import threading
from array import array
from pathlib import Path
from typing import Any, Literal

import pytest

from jetlake.errors import BadRequest, MessageNotFound, StoreClosed, StoreFrozen, StoreLocked, WrongKey
from jetlake.ops import append_op
from jetlake.store import Cipher, Compression, Discard, FileOptions, FileStore, KeySource, StreamLimits
from jetlake.store.blocks import catalog as catalog_module
from jetlake.store.blocks.block import MsgBlock
from jetlake.store.blocks.checkpoint import read_checkpoint
from jetlake.store.disk.commit import SMALL_SIZE_MAX, UNSYNCED_SIZE_MAX
from jetlake.store.disk.recover import rebuild_sidecar
from jetlake.store.format import sidecar_name
from jetlake.store.verify.check import check_store
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from tests.crash.workload import ENVELOPES, ThriftyStore

SMALL = FileOptions(block_size_max=350)
STAGED = {"autocommit": False}


def open_store(files: MemFiles, options: FileOptions = SMALL, **more: object) -> FileStore:
    return FileStore("s", options=options, files=files, clock=FakeClock(), **more)  # type: ignore[arg-type]


def fill(store: FileStore, count: int, payload: bytes = b"payload") -> None:
    for number in range(count):
        store.append(f"s.{number % 3}", b"%s %d" % (payload, number))


def blocks(files: MemFiles) -> list[str]:
    return [name for name in files.list("s") if name.endswith(".blk")]


# Durability


def test_an_append_is_on_disk_when_it_returns() -> None:
    files = MemFiles()
    open_store(files).append("a", b"kept")
    assert open_store(files.after_cut()).load(1).payload == b"kept"


def test_a_new_store_syncs_everything_once() -> None:
    files = MemFiles()
    open_store(files)
    made, block, names, checkpoint, again = [op for op in files.ops if op.startswith(("make", "sync"))]
    assert [made, block, names, again] == ["make_dirs s", "sync s/000001.blk", "sync_dir s", "sync_dir s"]
    assert checkpoint.startswith("sync s/stream.state")


def test_a_directory_that_a_crash_left_behind_is_made_durable() -> None:
    files = MemFiles()
    files.make_dirs("s")
    open_store(files)
    syncs = [op for op in files.ops if op.startswith("sync")]
    assert len(syncs) == 5 and syncs[0].startswith("sync_dir") and syncs[0] != "sync_dir s"


def test_a_small_sync_finds_its_room_reserved_and_a_block_is_left_without_it() -> None:
    files = MemFiles()
    store = open_store(files, FileOptions(block_size_max=4000))
    sizes = []
    for _ in range(3):
        store.append("a", b"payload")
        sizes.append(files.size("s/000001.blk"))
    assert len(set(sizes)) == 1 and sizes[0] > 64 * 1024
    fill(store, 100)
    assert blocks(files)[0] == "000001.blk" and len(blocks(files)) > 1
    assert files.size("s/000001.blk") < 5000
    store.stop()
    assert all(files.size(f"s/{name}") < 5000 for name in blocks(files))


def test_reserved_room_is_no_unfinished_write() -> None:
    files = MemFiles()
    fill(open_store(files, FileOptions()), 10)
    store = open_store(files.after_cut(), FileOptions())
    assert (store.state().msgs, store.torn_size, store.damage) == (10, 0, [])
    assert [store.append("a", b"more"), store.load(10).payload] == [11, b"payload 9"]


def test_reserved_room_is_not_kept_as_evidence_when_a_store_is_truncated() -> None:
    files = MemFiles()
    store = open_store(files, FileOptions())
    fill(store, 10)
    store.truncate(5)
    assert store.state().last_seq == 5 and not [name for name in files.list("s") if name.endswith(".damaged")]


@pytest.mark.damages
def test_a_write_cut_short_in_reserved_room_is_told_from_a_damaged_one() -> None:
    files = MemFiles()
    store = open_store(files, FileOptions())
    fill(store, 10)
    end = store.block_files[1].file_size
    start, whole = end - 40, files.read("s/000001.blk")
    for cut in range(start, end):
        files.load(files.snapshot() | {"s/000001.blk": whole[:cut] + bytes(len(whole) - cut)})
        again = open_store(files.after_cut(), FileOptions())
        is_whole = not whole[cut:end].strip(b"\0")
        assert (again.state().last_seq, again.damage) == (10 if is_whole else 9, []), cut
    for place in range(start, end):
        data = bytearray(whole)
        data[place] ^= 1
        files.load(files.snapshot() | {"s/000001.blk": bytes(data)})
        again = open_store(files.after_cut(), FileOptions())
        assert again.damage[-1].startswith("s: lost SequenceSet(10-") and again.append("a", b"next") > 10, place


def test_what_is_staged_can_be_read_but_is_not_durable_before_the_commit() -> None:
    files = MemFiles()
    store = open_store(files, **STAGED)
    store.append("a", b"staged")
    assert store.load(1).payload == b"staged"
    assert open_store(files.after_cut()).state().msgs == 0
    assert store.commit() == 1
    assert open_store(files.after_cut()).state().msgs == 1


def test_a_commit_of_many_changes_is_one_write_and_one_sync() -> None:
    files = MemFiles()
    store = open_store(files, FileOptions(), **STAGED)
    fill(store, 1)
    store.commit()  # which writes the first checkpoint, too
    fill(store, 100)
    store.remove(50)
    before = files.op_count
    store.commit()
    assert [op.split()[0] for op in files.ops[before:]] == ["pwritev", "sync"]


def test_a_store_that_never_syncs_only_writes() -> None:
    files = MemFiles()
    store = open_store(files, FileOptions(sync="never"))
    fill(store, 1)
    before = files.op_count
    fill(store, 5)
    assert {op.split()[0] for op in files.ops[before:]} == {"pwritev"}
    assert open_store(files.after_cut(keep="all")).state().msgs == 6


def test_the_checkpoint_is_written_before_a_sequence_is_acknowledged_that_it_does_not_allow_for() -> None:
    files, clock = MemFiles(), FakeClock()
    store = FileStore("s", files=files, clock=clock, autocommit=False)
    for count in (1, 255, 2, 5000, 1, 100_000, 30_000):
        for _ in range(count):
            store.append("a", b"")
        store.commit()
        checkpoint = read_checkpoint(files.after_cut(), "s")
        assert checkpoint is not None
        assert store.catalog.last_seq <= checkpoint.reserved_seq
    assert sum(op.startswith("rename") for op in files.ops) <= 5


def test_a_quiet_stream_reserves_few_sequences() -> None:
    files, clock = MemFiles(), FakeClock()
    store = FileStore("s", files=files, clock=clock)
    for _ in range(1000):
        store.append("a", b"")
        clock.advance(60)
    checkpoint = read_checkpoint(files.after_cut(), "s")
    assert checkpoint is not None
    assert checkpoint.reserved_seq - store.catalog.last_seq <= 256


def test_an_interval_bounds_how_often_it_syncs() -> None:
    files, clock = MemFiles(), FakeClock()
    store = FileStore("s", options=FileOptions(sync=10.0), files=files, clock=clock)
    for _ in range(25):
        clock.advance(1)
        store.append("a", b"")
    syncs = [op for op in files.ops if op.startswith("sync ") and op.endswith(".blk")]
    assert len(syncs) in (2, 3)
    store.commit(sync=True)
    assert open_store(files.after_cut(), FileOptions()).state().msgs == 25


def test_stopping_makes_everything_durable_whatever_the_mode() -> None:
    files = MemFiles()
    store = open_store(files, FileOptions(sync="never", block_size_max=350))
    fill(store, 20)
    store.stop()
    assert open_store(files.after_cut()).state().msgs == 20


# Group commit in a thread


def test_a_commit_runs_in_a_thread_while_changes_go_on() -> None:
    store = open_store(MemFiles(), **STAGED)
    fill(store, 30)
    commit = store.prepare_commit()
    assert commit is not None
    thread = threading.Thread(target=commit.run)
    thread.start()
    fill(store, 30)
    store.remove(31)
    thread.join()
    assert store.complete_commit(commit) == 30
    assert store.commit() == 60
    assert store.state().msgs == 59


def test_blocks_that_empty_while_a_commit_is_under_way_are_removed_after_it() -> None:
    files = MemFiles()
    store = open_store(files, **STAGED)
    fill(store, 30)
    commit = store.prepare_commit()
    assert commit is not None
    store.purge()
    commit.run()
    store.complete_commit(commit)
    store.commit()
    assert len(blocks(files)) == 1
    assert open_store(files.after_cut()).state().last_seq == 30


# Failure


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["io-error", "disk-full"])
@pytest.mark.parametrize("envelope", ["none-none", "zstd-aes_256_gcm"])
def test_any_failing_call_freezes_the_store_and_loses_nothing_acknowledged(envelope: str, error: int) -> None:
    count = _acknowledged_before_failure(envelope, None, error)[1].op_count
    for number in range(6, count + 1):
        acknowledged, files = _acknowledged_before_failure(envelope, number, error)
        for left in (files.after_cut(), files.after_cut(keep="all")):
            store = FileStore("s", options=ENVELOPES[envelope], files=left, clock=FakeClock())
            assert all(store.load(seq).payload == b"payload %d" % seq for seq in acknowledged)
            assert not store.state().lost
            store.stop()
            assert check_store("s", files=left, keys=ENVELOPES[envelope].keys).ok


def _acknowledged_before_failure(envelope: str, number: int | None, error: int) -> tuple[list[int], MemFiles]:
    """Append until a call fails; what was acknowledged, and the disk."""
    files = MemFiles()
    store = FileStore("s", options=ENVELOPES[envelope], files=files, clock=FakeClock())
    if number is not None and number > files.op_count:
        files.fail(number, OSError(error, "injected"))
    acknowledged = []
    try:
        for seq in range(1, 16):
            acknowledged.append(store.append(f"a.{seq % 2}", b"payload %d" % seq))
    except StoreFrozen as frozen:
        assert isinstance(frozen.cause, OSError)
        with pytest.raises(StoreFrozen, match="injected"):
            store.append("a", b"refused")
        assert [store.load(seq).seq for seq in acknowledged] == acknowledged
        with pytest.raises(StoreFrozen):
            store.commit()
        store.stop()
    return acknowledged, files


def test_a_failed_sync_is_never_retried_as_if_it_had_succeeded() -> None:
    files = MemFiles()
    store = open_store(files)
    store.append("a", b"1")
    files.fail(files.op_count + 2, OSError(errno.EIO, "injected"))
    with pytest.raises(StoreFrozen):
        store.append("a", b"2")
    syncs = sum(op.startswith("sync ") for op in files.ops)
    store.stop()
    assert sum(op.startswith("sync ") for op in files.ops) == syncs
    assert open_store(files.after_cut()).state().msgs == 1


def test_a_directory_is_open_in_one_store_at_a_time(tmp_path: Path) -> None:
    with FileStore(tmp_path / "s") as store:
        store.append("a", b"")
        with pytest.raises(StoreLocked):
            FileStore(tmp_path / "s")
    FileStore(tmp_path / "s").stop()


# Keys


def test_a_wrong_or_missing_key_is_a_clear_error_that_changes_nothing() -> None:
    files = MemFiles()
    options = ENVELOPES["snappy-chacha20_poly1305"]
    with open_store(files, options) as store:
        fill(store, 20)
    before = files.snapshot()
    for keys in ((), (KeySource.key(bytes(32)),), (KeySource.passphrase("no"),)):
        with pytest.raises(WrongKey, match="encrypted"):
            open_store(files, FileOptions(keys=keys))
        assert files.snapshot() == before


def test_a_cipher_without_a_key_is_refused() -> None:
    with pytest.raises(BadRequest):
        FileOptions(cipher=Cipher.AES_256_GCM)


def test_a_passphrase_opens_what_it_closed() -> None:
    files = MemFiles()
    options = FileOptions(cipher=Cipher.AES_256_GCM, keys=(KeySource.passphrase("open sesame"),))
    with open_store(files, options) as store:
        fill(store, 5)
    again = FileOptions(cipher=Cipher.AES_256_GCM, keys=(KeySource.passphrase("open sesame"),))
    assert open_store(files, again).state().msgs == 5


def test_nothing_of_a_message_is_readable_on_disk_when_encrypted() -> None:
    files = MemFiles()
    with open_store(files, ENVELOPES["none-aes_256_gcm"]) as store:
        for number in range(20):
            store.append("secret.subject", b"secret payload %d" % number, b"NATS/1.0\r\nSecret: header\r\n\r\n")
        store.remove(3)
    disk = b"".join(files.snapshot().values())
    for secret in (b"secret.subject", b"secret payload", b"Secret: header"):
        assert secret not in disk


def test_keys_are_rotated_by_writing_every_block_anew() -> None:
    files = MemFiles()
    old, new = KeySource.key(bytes(32)), KeySource.key(bytes([1]) * 32)
    store = open_store(files, FileOptions(block_size_max=350, cipher=Cipher.AES_256_GCM, keys=(old,)))
    fill(store, 20)
    store.remove(5)
    store.rotate_keys(
        FileOptions(block_size_max=350, cipher=Cipher.CHACHA20_POLY1305, compression=Compression.ZSTD, keys=(new, old))
    )
    fill(store, 5)
    store.stop()
    again = open_store(files, FileOptions(keys=(new,)))
    assert (again.state().msgs, list(again.state().deleted)) == (24, [5])
    again.stop()
    with pytest.raises(WrongKey):
        open_store(files, FileOptions(keys=(old,)))


def test_rotating_keys_can_be_interrupted_and_repeated() -> None:
    old, new = KeySource.key(bytes(32)), KeySource.key(bytes([1]) * 32)
    before = FileOptions(block_size_max=350, cipher=Cipher.AES_256_GCM, keys=(old,))
    after = FileOptions(block_size_max=350, cipher=Cipher.AES_256_GCM, keys=(new, old))
    files = MemFiles()
    store = open_store(files, before)
    fill(store, 20)
    files.fail(files.op_count + 12, OSError(errno.EIO, "injected"))
    with pytest.raises((StoreFrozen, OSError)):
        store.rotate_keys(after)
    left = files.after_cut()
    store = open_store(left, after)
    assert store.state().msgs == 20
    store.rotate_keys(after)
    store.stop()
    assert open_store(left, FileOptions(keys=(new,))).state().msgs == 20


# Erasing


@pytest.mark.parametrize("envelope", ["none-none", "snappy-none", "zstd-none"])
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "active"])
def test_an_erased_message_is_nowhere_on_the_disk(envelope: str, sealed: bool) -> None:
    files = MemFiles()
    store = FileStore("s", options=ENVELOPES[envelope], files=files, clock=FakeClock())
    store.append("first", b"")
    store.append("who.is.it", b"a name not to be found", b"NATS/1.0\r\nToken: hunter2\r\n\r\n")
    fill(store, 20 if sealed else 1)
    store.erase(2)
    disk = b"".join(files.snapshot().values())
    for secret in (b"a name not to be found", b"hunter2", b"who.is.it"):
        assert secret not in disk
    assert store.state().lost.count == 0
    store.stop()
    again = FileStore("s", options=ENVELOPES[envelope], files=files, clock=FakeClock())
    assert list(again.state().deleted) == [2]
    assert again.load(3).payload == b"payload 0"


@pytest.mark.parametrize("envelope", ["none-none", "snappy-none", "zstd-none"])
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "active"])
@pytest.mark.parametrize("seq", [1, 2])
def test_commits_finish_what_is_erased_soon(envelope: str, sealed: bool, seq: int) -> None:
    files = MemFiles()
    store = FileStore("s", options=ENVELOPES[envelope], files=files, clock=FakeClock(), autocommit=False)
    for _ in range(2):
        store.append("who.is.it", b"a name not to be found %d" % store.state().last_seq)
    fill(store, 20 if sealed else 1)
    store.commit()
    assert store.erase_soon(seq) and not store.erase_soon(seq)
    with pytest.raises(MessageNotFound):
        store.load(seq)
    while store.is_erasing:
        store.commit()
    disk = b"".join(files.snapshot().values())
    assert b"a name not to be found %d" % (seq - 1) not in disk
    store.stop()
    again = FileStore("s", options=ENVELOPES[envelope], files=files, clock=FakeClock())
    assert again.state().msgs == (21 if sealed else 2) and again.state().lost.count == 0
    assert again.load(3 - seq).payload.startswith(b"a name")


@pytest.mark.parametrize("seed", range(8))
def test_after_an_erasure_the_sidecar_is_that_of_a_scan(seed: int) -> None:
    rng, files = random.Random(seed), MemFiles()
    store = open_store(files, FileOptions(block_size_max=2000))
    for number in range(150):
        headers = b"NATS/1.0\r\nA: b\r\n\r\n" if rng.random() < 0.2 else b""
        ttl_ns = 10**15 if rng.random() < 0.1 else 0
        store.append(f"s.{rng.randrange(9)}", rng.randbytes(rng.randrange(40)), headers, ttl_ns=ttl_ns)
        if rng.random() < 0.1:
            store.remove(rng.randint(1, number + 1))
    for seq in rng.sample(range(1, 140), 60):
        store.erase(seq)
        for block in store.catalog.blocks[:-1]:
            path = f"s/{sidecar_name(block.id)}"
            written = files.read(path)
            rebuild_sidecar(store, MsgBlock(block.header, block.path), store.block_files[block.id])
            assert files.read(path) == written
    assert check_store("s", files=files).ok
    store.stop()


def test_an_erasure_reads_nothing_of_its_block_but_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(MemFiles())
    fill(store, 30)
    monkeypatch.setattr("jetlake.store.disk.recover.scan_block", None)
    store.erase(3)
    assert list(store.state().deleted) == [3] and store.load(4).payload == b"payload 3"
    store.stop()


def test_a_block_that_goes_before_its_message_is_erased_is_shredded() -> None:
    files = MemFiles()
    store = FileStore("s", options=ENVELOPES["snappy-none"], files=files, clock=FakeClock(), autocommit=False)
    fill(store, 30)
    store.commit()
    path = store.catalog.blocks[0].path
    written: list[bytes] = []
    overwrite = files.open

    def watched(name: str, *args: Any, **options: Any) -> Any:
        if name == path:
            written.append(files.snapshot()[path])
        return overwrite(name, *args, **options)

    store.erase_soon(store.catalog.blocks[0].first_seq + 1)
    store.purge()
    assert not store.is_erasing
    files.open = watched  # type: ignore[method-assign]
    store.commit()
    assert written and path not in files.snapshot()


# Room on the disk


def test_a_block_without_messages_goes_at_the_front_and_in_the_middle() -> None:
    files = MemFiles()
    store = open_store(files)
    fill(store, 30)
    names = blocks(files)
    middle = store.catalog.blocks[2]
    for seq in range(middle.first_seq, middle.last_seq + 1):
        store.remove(seq)
    assert names[2] not in blocks(files)
    store.compact(store.catalog.blocks[1].first_seq)
    assert names[0] not in blocks(files)
    gone = list(store.state().deleted)
    store.stop()
    again = open_store(files)
    assert (list(again.state().deleted), again.state().lost.count) == (gone, 0)


def test_a_block_of_which_most_is_dead_is_written_anew() -> None:
    files = MemFiles()
    store = open_store(files, FileOptions(block_size_max=400_000))
    for number in range(900):
        store.append(f"s.{number % 7}", bytes(1000))
    total = store.utilisation()[0]
    for seq in range(2, 350):
        if seq % 5:
            store.remove(seq)
    assert store.utilisation()[0] < total - 150_000
    assert store.load(5).payload == bytes(1000)
    assert open_store(files.after_cut()).state() == store.state()


def test_compression_is_worth_it_even_if_every_message_is_committed_by_itself() -> None:
    files = MemFiles()
    store = open_store(files, FileOptions(block_size_max=300_000, compression=Compression.ZSTD))
    for number in range(700):
        store.append("s", b"%06d " % number * 140)
    total, live = store.utilisation()
    assert total < live / 2
    assert store.load(3).payload == b"000002 " * 140
    assert open_store(files.after_cut(), FileOptions()).state() == store.state()


def test_compacting_files_changes_nothing_but_their_size() -> None:
    files = MemFiles()
    store = open_store(files)
    fill(store, 40)
    store.purge("s.1")
    state, subjects, total = store.state(), store.subjects_state(), store.utilisation()[0]
    assert store.compact_files() > 0
    assert (store.state(), store.subjects_state()) == (state, subjects)
    assert store.utilisation()[0] < total
    assert open_store(files.after_cut()).state() == state


# Rewriting


def thinned(files: MemFiles, **more: object) -> ThriftyStore:
    """A store with a block between others of which most is dead: two messages are left of it."""
    options = FileOptions(block_size_max=350, **more)  # type: ignore[arg-type]
    store = ThriftyStore("s", options=options, files=files, clock=FakeClock(), autocommit=False)
    fill(store, 30)
    store.commit()
    block = store.catalog.blocks[1]
    for seq in range(block.first_seq, block.last_seq - 1):
        store.remove(seq)
    return store


def test_a_commit_rewrites_a_block_and_touches_the_disk_only_while_it_runs() -> None:
    files = MemFiles()
    store = thinned(files)
    state, size, before = store.state(), store.utilisation()[0], files.op_count
    commit = store.prepare_commit()
    assert commit is not None and commit.rewrite is not None
    assert files.op_count == before
    commit.run()
    done = files.op_count
    store.complete_commit(commit)
    assert files.op_count == done > before
    assert store.utilisation()[0] < size
    assert store.state() == state
    assert [block.header.generation for block in store.catalog.blocks[:3]] == [0, 1, 0]
    assert open_store(files.after_cut()).state() == state


def test_a_commit_rewrites_one_block_and_says_that_there_are_more() -> None:
    store = thinned(MemFiles())
    for seq in range(1, store.catalog.last_seq, 2):
        store.remove(seq)
    assert store.has_more
    commits = 0
    while store.has_more:
        generations = sum(block.header.generation for block in store.catalog.blocks)
        store.commit()
        commits += 1
        assert sum(block.header.generation for block in store.catalog.blocks) == generations + 1
    assert commits > 1
    assert store.prepare_commit() is None


def test_messages_are_read_from_the_old_file_until_the_new_one_is_known() -> None:
    store = thinned(MemFiles())
    expected = {message.seq: message for message in store.messages()}
    commit = store.prepare_commit()
    assert commit is not None and commit.rewrite is not None
    commit.run()
    block = store.catalog.blocks[1]
    store.catalog.forget(block)
    block.index = None  # as if there were no room for it
    store.block_files[block.id].release()
    assert {message.seq: message for message in store.messages()} == expected
    store.complete_commit(commit)
    assert {message.seq: message for message in store.messages()} == expected


@pytest.mark.parametrize("keep", ["none", "all"])
def test_what_is_removed_while_a_block_is_rewritten_stays_removed(keep: str) -> None:
    files = MemFiles()
    store = thinned(files)
    commit = store.prepare_commit()
    assert commit is not None and commit.rewrite is not None
    left = store.catalog.blocks[1].last_seq
    store.remove(left)
    fill(store, 20)  # a block is sealed, with the tombstone in it
    commit.run()
    store.complete_commit(commit)
    store.commit()
    again = open_store(files.after_cut(keep=keep))
    assert not again.catalog.is_live(left)
    assert (again.state(), again.subjects_totals()) == (store.state(), store.subjects_totals())
    assert check_store("s", files=files).ok


def test_a_block_of_tombstones_that_is_emptied_while_it_is_rewritten_hands_them_on() -> None:
    files = MemFiles()
    store = thinned(files)
    store._sparse.clear()
    store.commit()
    fill(store, 30)
    store.commit()
    holder = next(block for block in store.catalog.blocks if block.groups)  # tells what left the thinned block
    for seq in range(holder.first_seq, holder.last_seq):
        store.remove(seq)
    store._sparse = {holder.id}
    commit = store.prepare_commit()
    assert commit is not None and commit.rewrite is not None and commit.rewrite.block is holder
    store.remove(holder.last_seq)
    commit.run()
    store.complete_commit(commit)
    assert holder not in store.catalog.blocks
    store.commit()
    again = open_store(files.after_cut())
    assert (again.state(), again.subjects_totals()) == (store.state(), store.subjects_totals())


@pytest.mark.damages
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.SNAPPY])
def test_a_message_that_turns_out_to_be_damaged_by_a_rewrite_is_lost_and_listed(compression: Compression) -> None:
    files = MemFiles()
    store = thinned(files, compression=compression)
    seq, path = store.catalog.blocks[1].last_seq, store.catalog.blocks[1].path
    msgs, size = store.state().msgs, len(files.snapshot()[path])
    files.flip(path, 8 * (size - 40))
    end = files.snapshot()[path][-40:]
    store.commit()
    state = store.state()
    assert seq in state.lost and state.msgs == msgs - state.lost.count
    assert files.snapshot()[f"{path}.0.damaged"].endswith(end)
    again = open_store(files.after_cut())
    assert (again.state(), again.subjects_totals()) == (state, store.subjects_totals())


def test_an_erasure_finds_its_message_although_its_block_was_about_to_be_rewritten() -> None:
    files = MemFiles()
    store = thinned(files)
    seq = store.catalog.blocks[1].last_seq
    payload = store.load(seq).payload
    store.erase(seq)
    store.commit()
    assert payload not in b"".join(files.snapshot().values())
    assert not open_store(files.after_cut()).catalog.is_live(seq)


def test_a_block_is_rewritten_only_when_what_replaced_its_messages_is_durable() -> None:
    files = MemFiles()
    store = thinned(files, sync=60.0)
    store.append("new", b"not synced by itself")
    store.commit()
    assert store.catalog.blocks[1].header.generation == 1
    assert open_store(files.after_cut()).state() == store.state()


def test_a_rewrite_that_fails_freezes_the_store() -> None:
    files = MemFiles()
    store = thinned(files)
    store._sparse.clear()
    store.commit()
    files.fail(files.op_count + 1, OSError(5, "no"))
    with pytest.raises(StoreFrozen):
        store.compact_files()
    with pytest.raises(StoreFrozen):
        store.append("a", b"")


def test_dead_messages_take_no_more_room_than_live_ones_and_a_few_blocks() -> None:
    limits = StreamLimits(max_msgs_per_subject=1)
    store = ThriftyStore("s", limits, FileOptions(block_size_max=2000), files=MemFiles(), clock=FakeClock())
    for number in range(3000):
        store.append(f"key.{number * 7919 % 97}", b"value %d" % number)
        total, live = store.utilisation()
        assert total < 4 * live + 10 * 2000


def test_deleting_a_store_leaves_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "s")
    store.append("a", b"")
    store.delete()
    assert not (tmp_path / "s").exists()
    with pytest.raises(StoreClosed):
        store.append("a", b"")


# Memory


def test_a_sealed_block_keeps_no_bytes_in_memory() -> None:
    store = open_store(MemFiles())
    fill(store, 40)
    assert all(not block.chunks for block in store.catalog.blocks[:-1])
    assert store.catalog.active.chunks


def test_hot_blocks_take_eight_bytes_a_message_and_cold_ones_none() -> None:
    files = MemFiles()
    store = open_store(files, FileOptions(block_size_max=100_000), **STAGED)
    data, ops = bytearray(), array("I")
    for number in range(1000):
        append_op(ops, data, b"s.%d" % (number % 10), b"x" * 50)
    for _ in range(5):
        store.append_batch(bytes(data), ops)
    sealed = store.catalog.blocks[:-1]
    assert sealed
    for block in sealed:
        assert block.index is not None
        assert block.index.size_bytes == 8 * block.index.count
    store.commit()
    assert all(block.index is None for block in sealed), "they are cold once they are written"
    store.stop()
    again = open_store(files)
    assert all(block.index is None for block in again.catalog.blocks[:-1])


def test_loaded_indexes_are_let_go_beyond_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "INDEX_CACHE_SIZE_MAX", 1000)
    files = MemFiles()
    with open_store(files) as store:
        fill(store, 100)
    again = open_store(files)
    for seq in range(1, 101):
        again.load(seq)
    loaded = [block for block in again.catalog.blocks[:-1] if block.index is not None]
    assert 1 <= len(loaded) < len(again.catalog.blocks) - 1


def test_all_stores_share_the_bound_of_loaded_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "INDEX_CACHE_SIZE_MAX", 1)
    stores = []
    for _ in range(2):
        files = MemFiles()
        with open_store(files) as store:
            fill(store, 20)
        stores.append(open_store(files))
    for store in stores:
        assert store.load(1).payload == b"payload 0"
    assert [block.index is None for block in (store.catalog.blocks[0] for store in stores)] == [True, False]


# Reading


def test_many_threads_read_while_messages_are_stored(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "s", options=FileOptions(block_size_max=20_000, sync="never"))
    fill(store, 500)
    problems: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(3):
                for seq in range(1, 500, 7):
                    assert store.load(seq).payload == b"payload %d" % (seq - 1)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    fill(store, 1000)
    for thread in threads:
        thread.join()
    store.stop()
    assert problems == []


@pytest.mark.damages
def test_a_message_damaged_on_disk_is_lost_and_named_with_its_file() -> None:
    files = MemFiles()
    with open_store(files) as store:
        fill(store, 20)
    data = files.snapshot()["s/000001.blk"]
    files.flip("s/000001.blk", 8 * data.index(b"payload 3"))
    again = open_store(files)
    with pytest.raises(MessageNotFound):
        again.load(4)
    assert list(again.state().lost) == [4] and again.state().msgs == 19
    assert again.damage == ["s/000001.blk: at offset 126: lost SequenceSet(4-4)"]
    assert again.load(5).payload == b"payload 4"


@pytest.mark.damages
def test_a_damaged_message_can_still_be_removed() -> None:
    files = MemFiles()
    with open_store(files) as store:
        fill(store, 20)
    data = files.snapshot()["s/000001.blk"]
    for number in (0, 3):
        files.flip("s/000001.blk", 8 * data.index(b"payload %d" % number))
    again = open_store(files)
    assert again.remove(1)
    assert again.remove(4)
    assert again.state().msgs == 18
    assert sum(again.subjects_totals().values()) == 18


@pytest.mark.damages
def test_a_damaged_message_is_lost_and_its_bytes_kept_when_its_block_is_written_anew() -> None:
    files = MemFiles()
    with open_store(files) as store:
        fill(store, 20)
    data = files.snapshot()["s/000001.blk"]
    files.flip("s/000001.blk", 8 * data.index(b"payload 3"))
    again = open_store(files)
    again.remove(6)
    again.compact_files()
    assert (list(again.state().lost), again.state().msgs) == ([4], 18)
    assert sum(again.subjects_totals().values()) == 18
    assert b"ayload 3" in files.snapshot()["s/000001.blk.0.damaged"]
    again.stop()
    assert list(open_store(files).state().lost) == [4]


def test_limits_are_enforced_when_a_store_is_opened() -> None:
    files = MemFiles()
    with open_store(files) as store:
        fill(store, 20)
    again = FileStore("s", StreamLimits(max_msgs=4), SMALL, files=files, clock=FakeClock())
    assert again.state().first_seq == 17


def test_opening_with_discard_new_removes_nothing() -> None:
    files = MemFiles()
    with open_store(files) as store:
        fill(store, 20)
    limits = StreamLimits(max_msgs=4, max_bytes=100, discard=Discard.NEW)
    with FileStore("s", limits, SMALL, files=files, clock=FakeClock()) as again:
        assert again.state().msgs == 20


def test_the_environment_asks_for_a_check_at_every_opening_and_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JETLAKE_VERIFY", "1")
    files = MemFiles()
    with open_store(files) as store:
        fill(store, 20)
    files.remove("s/000001.idx")
    open_store(files).stop()
    store = open_store(files)
    files.flip("s/000001.blk", 8 * 300)
    with pytest.raises(AssertionError, match=r"000001\.blk"):
        store.stop()


@pytest.mark.parametrize(("sync", "is_small"), [("always", False), ("never", True)])
def test_more_is_committed_at_once_where_nobody_waits_for_the_disk(
    sync: Literal["always", "never"], is_small: bool
) -> None:
    store = FileStore("s", options=FileOptions(sync=sync), files=MemFiles(), clock=FakeClock(), autocommit=False)
    store.append("a", b"first")
    store.commit()
    store.append("a", bytes(SMALL_SIZE_MAX))
    assert store.commit_small() is is_small
    store.append("a", bytes(UNSYNCED_SIZE_MAX))
    assert not store.commit_small()
    assert store.commit() == 3

"""Stores that earlier versions wrote, in every compression and cipher, are read as they were meant."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jetlake.errors import WrongKey
from jetlake.store import FileOptions, FileStore, StoredMsg
from jetlake.store.blocks.block_file import read_header
from jetlake.store.disk.files import OS_FILES
from jetlake.store.format import LOCK_NAME
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.testing.clock import FakeClock
from tests.store.golden import make
from tests.store.golden.make import DELETED, FIRST_SEQS, HOME, KINDS, MESSAGES, START_NS, TTL_NS, options

every_kind = pytest.mark.parametrize("kind", KINDS)


def copy_of(kind: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(HOME / kind, tmp_path / kind))


def open_store(directory: Path, kind: str, time_ns: int = START_NS + TTL_NS) -> FileStore:
    return FileStore(directory, options=options(kind), clock=FakeClock(time_ns))


def contents(store: FileStore) -> list[StoredMsg]:
    found, seq = [], 0
    while (message := store.load_next(seq)) is not None:
        found.append(message)
        seq = message.seq + 1
    return found


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != LOCK_NAME}


@every_kind
def test_every_message_of_a_golden_store_is_read(kind: str, tmp_path: Path) -> None:
    with open_store(copy_of(kind, tmp_path), kind) as store:
        assert contents(store) == MESSAGES
        assert [store.load(message.seq) for message in MESSAGES] == MESSAGES


@every_kind
def test_a_golden_store_is_sound_and_its_numbers_are_right(kind: str, tmp_path: Path) -> None:
    with open_store(copy_of(kind, tmp_path), kind) as store:
        assert (store.damage, store.torn_size) == ([], 0)
        state = store.state()
        assert (state.msgs, state.first_seq, state.last_seq, state.num_subjects) == (len(MESSAGES), 1, 11, 4)
        assert (state.deleted, state.lost) == (SequenceSet((seq, seq) for seq in DELETED), SequenceSet())
        assert (state.first_time_ns, state.last_time_ns) == (MESSAGES[0].time_ns, MESSAGES[-1].time_ns)


@every_kind
def test_a_golden_store_is_two_sealed_blocks_and_an_active_one(kind: str) -> None:
    headers = [read_header(OS_FILES, str(path)) for path in sorted((HOME / kind).glob("*.blk"))]
    assert [(header.compression, header.cipher) for header in headers if header] == [KINDS[kind]] * 3
    assert [header.first_seq for header in headers if header] == FIRST_SEQS
    assert sorted(path.name for path in (HOME / kind).glob("*.idx")) == ["000001.idx", "000002.idx"]


@every_kind
def test_the_sidecars_of_a_golden_store_are_good_and_not_made_anew(kind: str, tmp_path: Path) -> None:
    directory = copy_of(kind, tmp_path)
    with open_store(directory, kind) as store:
        contents(store)
    before, after = files_of(HOME / kind), files_of(directory)
    assert {name: after[name] for name in before if name.endswith(".idx")} == {
        name: before[name] for name in before if name.endswith(".idx")
    }


@every_kind
def test_a_golden_store_is_read_without_its_sidecars_and_checkpoint(kind: str, tmp_path: Path) -> None:
    directory = copy_of(kind, tmp_path)
    for path in (*directory.glob("*.idx"), directory / "stream.state"):
        path.unlink()
    with open_store(directory, kind) as store:
        assert (contents(store), store.damage) == (MESSAGES, [])


@every_kind
def test_a_message_of_a_golden_store_goes_when_its_time_has_come(kind: str, tmp_path: Path) -> None:
    expiring = next(message for message in MESSAGES if message.expires_ns)
    directory = copy_of(kind, tmp_path)
    with open_store(directory, kind, expiring.expires_ns - 1) as store:
        assert expiring in contents(store)
    with open_store(directory, kind, expiring.expires_ns) as store:
        assert contents(store) == [message for message in MESSAGES if message != expiring]


@every_kind
def test_a_golden_store_can_be_written_to(kind: str, tmp_path: Path) -> None:
    directory = copy_of(kind, tmp_path)
    with open_store(directory, kind) as store:
        assert store.append("golden.new", b"new") == 12
        assert store.remove(3)
    with open_store(directory, kind) as store:
        kept = [message for message in MESSAGES if message.seq != 3]
        assert contents(store) == [*kept, StoredMsg(12, "golden.new", b"", b"new", START_NS + TTL_NS)]


def test_what_was_erased_is_not_in_the_files_of_the_plain_golden_store() -> None:
    content = b"".join(files_of(HOME / "none-none").values())
    assert content.count(b"SECRET " * 10) == 1  # that of the deleted message


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none-none"])
def test_what_was_erased_left_its_block_written_anew_in_the_others(kind: str) -> None:
    headers = [read_header(OS_FILES, str(path)) for path in sorted((HOME / kind).glob("*.blk"))]
    assert [header.generation for header in headers if header] == [0, 1, 0]


@pytest.mark.parametrize("kind", [kind for kind, (_, cipher) in KINDS.items() if cipher])
def test_an_encrypted_golden_store_needs_its_key_and_is_not_touched_without(kind: str, tmp_path: Path) -> None:
    directory = copy_of(kind, tmp_path)
    with pytest.raises(WrongKey):
        FileStore(directory, options=FileOptions())
    assert files_of(directory) == files_of(HOME / kind)


@every_kind
def test_this_version_still_writes_such_stores(kind: str, tmp_path: Path) -> None:
    make.make(tmp_path / kind, kind)
    with open_store(tmp_path / kind, kind) as store:
        assert contents(store) == MESSAGES

"""Checking a stream's directory: silence about sound stores, and the right word about every kind of problem."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jetlake.errors import WrongKey
from jetlake.store import (
    NEVER_NS,
    Cipher,
    Compression,
    FileOptions,
    FileStore,
    KeySource,
    StreamLimits,
)
from jetlake.store.blocks.block_scan import read_body, scan_block
from jetlake.store.blocks.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from jetlake.store.blocks.removal import ERASE, LOST, RemovalGroup
from jetlake.store.blocks.sidecar import HEAD_SIZE, encode_sidecar, seal
from jetlake.store.disk.files import File
from jetlake.store.format import HEADER_SIZE, TOMBSTONE, decode_header
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.records.record import BadRecord, Record, decode, encode
from jetlake.store.verify.check import Problem, Report, check_store, check_tree, show_ranges
from jetlake.store.verify.check_block import SIZES, check_header, open_block
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles

KEY = KeySource.key(bytes(range(32)))
ENVELOPES = {
    f"{compression.name}-{cipher.name}".lower(): FileOptions(
        block_size_max=600, compression=compression, cipher=cipher, keys=[KEY] if cipher else []
    )
    for compression in Compression
    for cipher in Cipher
}
PLAIN, ZSTD = ENVELOPES["none-none"], ENVELOPES["zstd-none"]


@dataclass
class Disk:
    """A store's directory in memory, and what a test does to it behind the store's back."""

    options: FileOptions = PLAIN
    files: MemFiles = field(default_factory=MemFiles)
    clock: FakeClock = field(default_factory=FakeClock)

    def open(self, limits: StreamLimits = StreamLimits()) -> FileStore:  # noqa: B008  frozen
        return FileStore("s", limits, self.options, files=self.files, clock=self.clock)

    def check(self) -> Report:
        return check_store("s", files=self.files, keys=self.options.keys)

    def read(self, name: str) -> bytes:
        return self.files.read(f"s/{name}")

    def write(self, name: str, content: bytes) -> None:
        self.files.load(self.files.snapshot() | {f"s/{name}": content})

    def remove(self, name: str) -> None:
        self.files.remove(f"s/{name}")

    def flip(self, name: str, offset: int) -> None:
        self.files.flip(f"s/{name}", 8 * offset)

    def seed(self, name: str) -> int:
        header = decode_header(self.read(name))
        assert header is not None
        return header.hash_seed

    def add_record(self, name: str, record: Record) -> None:
        """Put a sound record at the end of a block without an envelope."""
        self.write(name, self.sound_part(name) + encode(record, self.seed(name)))

    def add_group(self, name: str, group: RemovalGroup) -> None:
        self.add_record(name, Record(TOMBSTONE, b"", b"", group.encode(), group.seqs.first, 1))

    def record_offsets(self, name: str) -> list[int]:
        """Where the records of a block without an envelope begin in the file, and where the last one ends."""
        data, offset, offsets = self.read(name), HEADER_SIZE, []
        with suppress(BadRecord):
            while True:
                offsets.append(offset)
                offset = decode(data, offset, len(data), self.seed(name))[1]
        return offsets

    def sound_part(self, name: str) -> bytes:
        """A block without an envelope, without the room that is reserved at its end."""
        return self.read(name)[: self.record_offsets(name)[-1]]


def fill(store: FileStore, count: int = 40) -> None:
    for number in range(count):
        headers = b"NATS/1.0\r\nA: b\r\n\r\n" if number % 3 == 0 else b""
        store.append(f"orders.{number % 4}", b"payload %d" % number, headers)


def stopped(options: FileOptions = PLAIN, count: int = 40) -> Disk:
    """A store of several blocks after a clean stop."""
    disk = Disk(options)
    with disk.open() as store:
        fill(store, count)
    return disk


def killed(options: FileOptions = PLAIN, count: int = 40) -> Disk:
    """The same, still open: its checkpoint was written when the last block was sealed."""
    disk = Disk(options)
    fill(disk.open(), count)
    return disk


def kinds(report: Report) -> list[str]:
    return [problem.kind for problem in report.problems]


def only(report: Report) -> Problem:
    assert len(report.problems) == 1, report.problems
    return report.problems[0]


def assert_clean(disk: Disk, store: FileStore) -> None:
    """Nothing to complain of, and the same messages counted as the store counts."""
    report, state = disk.check(), store.state()
    assert report.problems == []
    assert (report.messages, report.bytes, report.lost) == (state.msgs, state.bytes, state.lost)


# Sound stores


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_a_sound_store_has_no_problems_whatever_its_envelope(envelope: str) -> None:
    disk = stopped(ENVELOPES[envelope])
    report = disk.check()
    assert report.ok and report.problems == []
    assert (report.messages, report.records) == (40, 40)
    assert report.blocks > 3
    assert report.file_size == sum(len(data) for name, data in disk.files.snapshot().items() if ".blk" in name)


def test_a_new_store_has_no_problems() -> None:
    disk = Disk()
    assert_clean(disk, disk.open())


def remove_some(store: FileStore) -> None:
    for seq in (2, 3, 5, 20, 38, 39):
        store.remove(seq)


def remove_at_the_front(store: FileStore) -> None:
    for seq in range(1, 18):
        store.remove(seq)


def remove_everything_one_by_one(store: FileStore) -> None:
    for seq in range(1, 41):
        store.remove(seq)


def purge(store: FileStore) -> None:
    store.purge()


def purge_and_go_on(store: FileStore) -> None:
    store.purge()
    fill(store)


def purge_a_subject(store: FileStore) -> None:
    store.purge("orders.2")
    store.purge("orders.1", keep=2)
    store.purge("orders.3", seq=20)


def compact(store: FileStore) -> None:
    store.compact(17)


def compact_beyond_the_end(store: FileStore) -> None:
    store.compact(100)
    fill(store, 3)


def erase(store: FileStore) -> None:
    for seq in (1, 2, 7, 20, 39, 40):
        store.erase(seq)


def erase_and_seal(store: FileStore) -> None:
    first, last = store.catalog.active.first_seq, store.catalog.last_seq
    store.erase(first)
    store.erase(last)
    fill(store)


def drop_middle_blocks(store: FileStore) -> None:
    first, last = store.catalog.blocks[1].first_seq, store.catalog.blocks[2].last_seq
    for seq in (1, *range(last, first - 1, -1)):
        store.remove(seq)
    fill(store, 20)


def drop_a_middle_block_that_holds_tombstones(store: FileStore) -> None:
    store.remove(3)
    fill(store, 20)
    block = next(block for block in store.catalog.blocks if block.groups)
    for seq in range(block.first_seq, block.last_seq + 1):
        store.remove(seq)


def rewrite(store: FileStore) -> None:
    remove_some(store)
    assert store.compact_files() > 0


def rewrite_and_remove_more(store: FileStore) -> None:
    rewrite(store)
    store.remove(4)
    store.remove(21)


def rewrite_a_block_that_holds_tombstones(store: FileStore) -> None:
    store.remove(3)
    fill(store, 20)
    block = next(block for block in store.catalog.blocks if block.groups)
    store.remove(block.first_seq + 1)
    store.compact_files()


def truncate(store: FileStore) -> None:
    remove_some(store)
    store.truncate(21)


def truncate_and_go_on(store: FileStore) -> None:
    truncate(store)
    fill(store, 20)


def truncate_into_a_dropped_block(store: FileStore) -> None:
    block = store.catalog.blocks[2]
    for seq in range(block.first_seq, block.last_seq + 1):
        store.remove(seq)
    store.truncate(block.last_seq - 1)
    fill(store, 3)


def expire(store: FileStore) -> None:
    for ttl_ns in (1, NEVER_NS, 10**9):
        store.append("ttl", b"", ttl_ns=ttl_ns)
    fill(store)
    store.expire(store.clock() + 10)


def age(store: FileStore) -> None:
    store.append("kept", b"", ttl_ns=NEVER_NS)
    assert isinstance(store.clock, FakeClock)
    store.clock.advance(5)
    store.update(StreamLimits(max_age_ns=10**9, subject_delete_marker_ttl_ns=10**9))
    fill(store, 20)


def skip(store: FileStore) -> None:
    store.skip(5)
    store.append_at(60, store.clock(), "a", b"")
    fill(store, 20)


def limit(store: FileStore) -> None:
    store.update(StreamLimits(max_msgs=12, max_msgs_per_subject=2))
    fill(store)


def rotate_keys(store: FileStore) -> None:
    remove_some(store)
    store.rotate_keys(FileOptions(600, cipher=Cipher.CHACHA20_POLY1305, keys=[KEY]))


LIVES = [
    remove_some,
    remove_at_the_front,
    remove_everything_one_by_one,
    purge,
    purge_and_go_on,
    purge_a_subject,
    compact,
    compact_beyond_the_end,
    erase,
    erase_and_seal,
    drop_middle_blocks,
    drop_a_middle_block_that_holds_tombstones,
    rewrite,
    rewrite_and_remove_more,
    rewrite_a_block_that_holds_tombstones,
    truncate,
    truncate_and_go_on,
    truncate_into_a_dropped_block,
    expire,
    age,
    skip,
    limit,
    rotate_keys,
]


@pytest.mark.parametrize("envelope", ["none-none", "snappy-none", "zstd-aes_256_gcm"])
@pytest.mark.parametrize("live", LIVES, ids=lambda life: life.__name__)
def test_what_a_store_does_leaves_no_problem(live: Callable[[FileStore], None], envelope: str) -> None:
    options = ENVELOPES[envelope]
    disk = Disk(FileOptions(600, compression=options.compression, cipher=options.cipher, keys=[KEY]))
    store = disk.open()
    fill(store)
    live(store)
    assert_clean(disk, store)
    disk.files = disk.files.copy()  # as after kill -9
    store = disk.open(store.limits)
    assert_clean(disk, store)
    store.stop()
    assert_clean(disk, store)


def test_checking_changes_nothing_and_never_opens_a_file_for_writing() -> None:
    class ReadOnly(MemFiles):
        def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
            assert not write and not create
            return super().open(path)

    disk = stopped()
    disk.files = ReadOnly.from_snapshot(disk.files.snapshot())
    before = disk.files.snapshot()
    assert disk.check().ok
    assert disk.files.snapshot() == before and disk.files.op_count == 0


def test_progress_adds_up_to_the_size_of_all_blocks() -> None:
    disk, steps = stopped(), list[int]()
    report = check_store("s", files=disk.files, progress=steps.append)
    assert len(steps) == report.blocks and sum(steps) == report.file_size


# Any damage


@pytest.mark.parametrize("envelope", ["none-none", "zstd-none", "zstd-aes_256_gcm"])
def test_no_flipped_bit_goes_unnoticed(envelope: str) -> None:
    disk = lived(ENVELOPES[envelope])
    last = last_block(disk)
    for path, content in disk.files.snapshot().items():
        for offset in range(len(path) % 7, len(content), 7):
            disk.files.flip(path, 8 * offset + offset % 8)
            report = disk.check()
            assert report.problems, f"{path} offset {offset}"
            assert not report.ok or not path.endswith(".blk") or path == f"s/{last}", f"{path} offset {offset}"
            disk.files.flip(path, 8 * offset + offset % 8)
    assert disk.check().problems == []


@pytest.mark.parametrize("envelope", ["none-none", "zstd-aes_256_gcm"])
def test_a_file_cut_anywhere_is_noticed(envelope: str) -> None:
    disk = lived(ENVELOPES[envelope])
    whole = disk.files.snapshot()
    for path, content in whole.items():
        for size in range(0, len(content), 11):
            disk.files.load(whole | {path: content[:size]})
            assert disk.check().problems, f"{path} cut to {size} bytes"


def lived(options: FileOptions) -> Disk:
    """A store with every kind of record in a few blocks, after a clean stop."""
    disk = Disk(options)
    with disk.open() as store:
        fill(store, 20)
        store.remove(5)
        store.erase(6)
        store.skip(3)
        store.append("ttl", b"", ttl_ns=NEVER_NS)
        store.compact(3)
    return disk


# Headers


@pytest.mark.parametrize(("offset", "copy"), [(20, 0), (150, 128)])
def test_a_damaged_copy_of_a_header_is_damage_though_the_other_serves(offset: int, copy: int) -> None:
    disk = stopped()
    disk.flip("000002.blk", offset)
    report = disk.check()
    assert not report.ok and report.messages == 40
    assert (only(report).file, only(report).offset, only(report).kind) == ("s/000002.blk", copy, "header")


def test_two_damaged_copies_of_a_header_lose_the_block() -> None:
    disk = stopped()
    first, last = block_range(disk, "000002.blk")
    disk.flip("000002.blk", 20)
    disk.flip("000002.blk", 150)
    report = disk.check()
    assert sorted(kinds(report)) == ["header", "lost"]
    assert list(report.lost.ranges()) == [(first, last)]


def test_a_block_whose_making_was_cut_short_is_a_note() -> None:
    disk = killed()
    disk.write("000099.blk", b"JLBLOCK1")
    report = disk.check()
    assert report.ok and kinds(report) == ["header"]


def test_a_block_under_the_name_of_another_is_damage() -> None:
    disk = stopped()
    disk.write("000099.blk", disk.read("000001.blk"))
    problem = only(disk.check())
    assert (problem.kind, problem.text) == ("header", "says that it is block 1")


def block_range(disk: Disk, name: str) -> tuple[int, int]:
    """The first and last sequence of a sound block."""
    header, _ = check_header(disk.files, f"s/{name}")
    assert header is not None
    block, file = open_block(disk.files, f"s/{name}", header, disk.options.keys)
    scan_block(block, file, read_body(file), SubjectTable(), SIZES)
    return block.first_seq, block.last_seq


# Records and frames


def test_a_damaged_record_is_named_with_its_place_and_its_sequence_is_lost() -> None:
    disk = stopped()
    offsets = disk.record_offsets("000002.blk")
    disk.flip("000002.blk", offsets[1] + 10)
    report = disk.check()
    damage = next(problem for problem in report.problems if problem.kind == "checksum")
    assert (damage.file, damage.offset) == ("s/000002.blk", offsets[1])
    assert damage.text == f"{offsets[2] - offsets[1]} bytes are not a sound record"
    assert list(report.lost) == [block_range(stopped(), "000002.blk")[0] + 1]
    assert sorted(kinds(report)) == ["checksum", "lost"] and report.messages == 39


def test_damage_to_a_message_that_was_deleted_loses_nothing() -> None:
    disk = stopped()
    with disk.open() as store:
        store.remove(5)
    disk.flip("000001.blk", disk.record_offsets("000001.blk")[4] + 10)
    report = disk.check()
    assert kinds(report) == ["checksum"] and not report.lost


def test_a_sound_record_out_of_order_is_told_from_a_damaged_one() -> None:
    disk = stopped()
    data, offsets = disk.read("000001.blk"), disk.record_offsets("000001.blk")
    disk.write("000001.blk", data[: offsets[3]] + data[offsets[0] : offsets[1]] + data[offsets[3] :])
    report = disk.check()
    assert "order" in kinds(report) and not report.lost
    assert next(it for it in report.problems if it.kind == "order").offset == offsets[3]


def test_a_record_that_makes_no_sense_is_damage() -> None:
    disk = killed()
    disk.add_record(last_block(disk), Record(TOMBSTONE, b"", b"", b"\xff", 1, 1))
    assert "record" in kinds(disk.check())


def test_blocks_whose_sequences_overlap_are_out_of_order() -> None:
    disk = killed()
    data = disk.read("000002.blk")
    header = decode_header(data)
    assert header is not None
    disk.write("000002.blk", header._replace(first_seq=header.first_seq - 2).encode() + data[HEADER_SIZE:])
    problem = next(problem for problem in disk.check().problems if problem.kind == "order")
    assert problem.file == "s/000001.blk" and "the next block begins with" in problem.text


def last_block(disk: Disk) -> str:
    return max(name for name in disk.files.list("s") if name.endswith(".blk"))


def test_an_unfinished_write_at_the_end_of_the_last_block_is_a_note() -> None:
    disk = killed()
    name = last_block(disk)
    content = disk.sound_part(name)
    for reserved in (b"", bytes(100)):
        disk.write(name, content + b"\x00\x05ab" + reserved)
        problem = only(disk.check())
        assert (problem.kind, problem.severity, problem.offset) == ("torn", "note", len(content))
        assert problem.text.startswith("4 bytes")


def test_room_that_is_reserved_is_no_problem_but_in_a_sealed_block_it_is() -> None:
    disk = killed()
    name = last_block(disk)
    assert len(disk.read(name)) > len(disk.sound_part(name)) and disk.check().problems == []
    disk.write("000002.blk", disk.read("000002.blk") + bytes(100))
    report = disk.check()
    assert not report.ok and sorted(kinds(report)) == ["checksum", "sidecar"]


def test_the_same_at_the_end_of_a_sealed_block_is_damage() -> None:
    disk = killed()
    disk.write("000002.blk", disk.read("000002.blk") + b"\x00\x05ab")
    report = disk.check()
    assert not report.ok and sorted(kinds(report)) == ["checksum", "sidecar"]


@pytest.mark.parametrize("envelope", ["zstd-none", "none-aes_256_gcm"])
def test_a_damaged_frame_is_named_with_its_place(envelope: str) -> None:
    disk = stopped(ENVELOPES[envelope])
    disk.flip("000002.blk", HEADER_SIZE + 30)
    report = disk.check()
    assert sorted(kinds(report)) == ["frame", "lost"]
    assert next(it for it in report.problems if it.kind == "frame").offset == HEADER_SIZE
    assert list(report.lost) == [block_range(stopped(ENVELOPES[envelope]), "000002.blk")[0]]


def test_a_frame_that_is_cut_out_is_missed() -> None:
    disk = stopped(ZSTD)
    header, _ = check_header(disk.files, "s/000002.blk")
    assert header is not None
    second = read_body(open_block(disk.files, "s/000002.blk", header, ())[1]).frames[1]
    data = disk.read("000002.blk")
    disk.write("000002.blk", data[: second.file_offset] + data[second.file_end :])
    report = disk.check()
    assert "frame" in kinds(report) and report.lost.count == 1


def test_an_unfinished_frame_at_the_end_of_the_last_block_is_a_note() -> None:
    disk = killed(ZSTD)
    name = last_block(disk)
    disk.write(name, disk.read(name)[:-5])
    assert only(disk.check()).kind == "torn"


# Tombstones


def test_a_tombstone_for_sequences_that_its_block_never_had_is_damage() -> None:
    disk = killed()
    disk.add_group(last_block(disk), RemovalGroup(1, 0, SequenceSet([(2, 30)])))
    assert "removes 2-30 from s/000001.blk: 1-" in only_removal(disk).text


def test_a_tombstone_that_miscounts_is_damage() -> None:
    disk = killed()
    disk.add_group(last_block(disk), RemovalGroup(1, 0, SequenceSet([(2, 2)]), {b"orders.1": (2, 90)}))
    assert "counts other messages or bytes than 2 of" in only_removal(disk).text


def test_a_tombstone_that_repeats_another_is_damage() -> None:
    disk = Disk()
    store = disk.open()
    fill(store)
    store.remove(5)
    group = store.catalog.active.groups[-1]
    disk.add_group(last_block(disk), RemovalGroup(group.block_id, group.generation, group.seqs))
    assert only_removal(disk).text == "removes some of 5 for a second time"


def test_a_tombstone_that_speaks_of_a_later_block_is_damage() -> None:
    disk = killed()
    disk.add_group("000001.blk", RemovalGroup(3, 0, SequenceSet([(20, 20)])))
    assert "speaks of block 3, which is later" in only_removal(disk).text


def test_a_tombstone_of_a_generation_that_is_not_there_yet_is_damage() -> None:
    disk = killed()
    disk.add_group(last_block(disk), RemovalGroup(1, 7, SequenceSet([(2, 2)])))
    assert "speaks of generation 7 of s/000001.blk, which is at 0" in only_removal(disk).text


def test_a_tombstone_of_an_older_generation_no_longer_counts() -> None:
    disk = Disk()
    store = disk.open()
    fill(store)
    remove_some(store)
    store.compact_files()
    disk.add_group(last_block(disk), RemovalGroup(1, 0, SequenceSet([(2, 99)])))
    assert disk.check().problems == []


def test_messages_of_a_block_that_a_tombstone_calls_gone_are_damage() -> None:
    disk = killed()
    disk.add_group(last_block(disk), RemovalGroup(0, 0, SequenceSet([(2, 3)])))
    assert "holds sequences 2-3" in only_removal(disk).text


def only_removal(disk: Disk) -> Problem:
    found = [problem for problem in disk.check().problems if problem.kind == "removal"]
    assert len(found) == 1
    assert found[0].severity == "damage"
    return found[0]


def test_a_message_that_is_to_be_erased_and_was_not_is_a_note_while_recovery_would_do_it() -> None:
    disk = killed()
    place = (0, disk.record_offsets("000001.blk")[1] - HEADER_SIZE)
    disk.add_group(last_block(disk), RemovalGroup(1, 0, SequenceSet([(1, 1)]), kind=ERASE, place=place))
    problem = only(disk.check())
    assert (problem.kind, problem.severity) == ("erase", "note")


def test_a_message_that_is_to_be_erased_and_never_will_be_is_damage() -> None:
    disk = killed()
    place = (0, disk.record_offsets("000001.blk")[1] - HEADER_SIZE)
    disk.add_group("000002.blk", RemovalGroup(1, 0, SequenceSet([(1, 1)]), kind=ERASE, place=place))
    problem = next(problem for problem in disk.check().problems if problem.kind == "erase")
    assert problem.severity == "damage"


# Sidecars


def test_a_missing_sidecar_is_a_note() -> None:
    disk = killed()
    disk.remove("000002.idx")
    problem = only(disk.check())
    assert (problem.file, problem.kind, problem.severity) == ("s/000002.idx", "sidecar", "note")
    assert problem.text == "is missing"


@pytest.mark.parametrize("envelope", ["none-none", "zstd-aes_256_gcm"])
@pytest.mark.parametrize(("offset", "part"), [(50, "head"), (HEAD_SIZE + 3, "summary"), (-20, "index")])
def test_a_damaged_sidecar_is_a_note(offset: int, part: str, envelope: str) -> None:
    disk = killed(ENVELOPES[envelope])
    disk.flip("000002.idx", offset % len(disk.read("000002.idx")))
    problem = only(disk.check())
    assert (problem.text, problem.severity) == (f"its {part} is damaged", "note")


def test_a_sidecar_of_an_earlier_state_of_its_block_is_a_note() -> None:
    disk = Disk()
    store = disk.open()
    fill(store)
    before = disk.read("000001.idx")
    store.remove(3)
    store.compact_files()
    disk.write("000001.idx", before)
    problem = only(disk.check())
    assert (problem.text, problem.severity) == ("is not of the block as it is now", "note")


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("gone sequences, subjects, index", lambda block: block.gone.add(3)),
        ("lost sequences", lambda block: block.lost.add(3)),
        ("last sequence", lambda block: setattr(block, "last_seq", block.last_seq + 1)),
        ("size", lambda block: setattr(block, "size", 1)),
        ("floor", lambda block: setattr(block, "floor_seq", 2)),
        ("last hash", lambda block: setattr(block, "last_hash", 1)),
        ("times", lambda block: setattr(block, "time_ns_max", 0)),
        ("removals", lambda block: block.groups.append(RemovalGroup(0, 0, SequenceSet([(1, 1)])))),
        ("expiring messages", lambda block: block.expiring.append((3, 99))),
        ("subjects, index", lambda block: block.index.ids.__setitem__(2, block.index.ids[3])),
        ("index", lambda block: block.index.offsets.__setitem__(2, 7)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_sound_sidecar_that_contradicts_its_block_is_damage(words: str, change: Callable[..., None]) -> None:
    disk = killed()
    header, _ = check_header(disk.files, "s/000001.blk")
    assert header is not None
    block, file = open_block(disk.files, "s/000001.blk", header, ())
    scan_block(block, file, read_body(file), SubjectTable(), SIZES)
    change(block)
    assert block.index is not None
    disk.write("000001.idx", encode_sidecar(seal(block, block.index), block.index, file))
    problem = only(disk.check())
    assert (problem.text, problem.severity) == (f"contradicts its block: {words}", "damage")


def test_a_stale_sidecar_of_the_last_block_is_of_no_interest() -> None:
    disk = killed()
    for name in disk.files.list("s"):
        if name[:6] > "000002" and name != "stream.lock":
            disk.remove(name)
    assert disk.check().problems == []  # sealed once, now the last
    disk.add_record("000002.blk", Record(0, b"a", b"", b"", block_range(disk, "000002.blk")[1] + 1, 1))
    assert disk.check().problems == []


# The checkpoint


def with_checkpoint(disk: Disk, **changes: object) -> Disk:
    checkpoint = decode_checkpoint(disk.read("stream.state"))
    for name, value in changes.items():
        setattr(checkpoint, name, value)
    disk.write("stream.state", encode_checkpoint(checkpoint))
    return disk


def test_a_missing_checkpoint_is_no_problem() -> None:
    disk = stopped()
    disk.remove("stream.state")
    assert disk.check().problems == []


def test_a_damaged_checkpoint_is_a_note() -> None:
    disk = stopped()
    disk.flip("stream.state", 15)
    problem = only(disk.check())
    assert (problem.kind, problem.severity) == ("checkpoint", "note")


def test_a_checkpoint_that_knows_of_later_sequences_tells_of_a_lost_end() -> None:
    report = with_checkpoint(stopped(), last_seq=43, gone=[(42, 42)]).check()
    assert sorted(kinds(report)) == ["checkpoint", "lost"] and not report.ok
    assert list(report.lost) == [41, 43]


def test_a_checkpoint_that_says_a_live_message_is_gone_is_damage() -> None:
    problem = only(with_checkpoint(stopped(), gone=[(7, 8)], msgs=38).check())
    assert (problem.kind, problem.severity) == ("checkpoint", "damage")
    assert problem.text == "says that sequences 7-8 are gone, and no block does"


def test_a_checkpoint_whose_first_sequence_is_past_live_messages_is_damage() -> None:
    report = with_checkpoint(stopped(), first_seq=4, msgs=37).check()
    assert only(report).text == "says that sequences 1-3 are gone, and no block does"
    assert report.messages == 37


def test_a_checkpoint_of_a_clean_stop_that_counts_other_bytes_is_damage() -> None:
    disk = stopped()
    size = disk.check().bytes
    problem = only(with_checkpoint(disk, bytes=1).check())
    assert problem.text == f"says 40 messages of 1 bytes, the blocks hold 40 of {size}"


def test_a_checkpoint_that_is_older_than_the_blocks_is_no_problem() -> None:
    disk = stopped()
    store = disk.open()
    remove_some(store)
    fill(store, 2)
    assert disk.check().problems == []


def test_a_truncation_under_way_is_a_note() -> None:
    report = with_checkpoint(stopped(), truncate_seq=7, last_seq=99).check()
    assert report.ok and only(report).text == "a truncation to sequence 7 is under way"


def test_a_checkpoint_without_any_block_lists_everything_as_lost() -> None:
    disk = Disk()
    disk.write("stream.state", encode_checkpoint(Checkpoint(3, 9, 0, 6, 99, gone=[(5, 5)])))
    report = disk.check()
    assert list(report.lost.ranges()) == [(3, 4), (6, 9)]
    assert sorted(kinds(report)) == ["checkpoint", "lost"]


# Lost sequences


def test_a_missing_block_is_lost_with_its_range() -> None:
    disk = stopped()
    first, last = block_range(disk, "000002.blk")
    disk.remove("000002.blk")
    disk.remove("000002.idx")
    report = disk.check()
    assert only(report).text == f"sequences {first}-{last} are lost"
    assert list(report.lost.ranges()) == [(first, last)] and not report.ok


def test_what_is_on_record_as_lost_stays_lost() -> None:
    disk = stopped()
    disk.flip("000001.blk", disk.record_offsets("000001.blk")[3] + 10)
    disk.remove("000001.idx")
    with disk.open() as store:
        store.remove(1)
        store.compact_files()
        assert list(store.state().lost) == [4]
    report = disk.check()
    assert kinds(report) == ["lost", "left-over"] and list(report.lost) == [4]


def test_a_tombstone_can_say_that_sequences_are_lost() -> None:
    disk = stopped()
    first, last = block_range(disk, "000002.blk")
    disk.remove("000002.blk")
    disk.remove("000002.idx")
    disk.add_group(last_block(disk), RemovalGroup(0, 0, SequenceSet([(first, last)]), kind=LOST))
    assert list(disk.check().lost.ranges()) == [(first, last)]


def test_a_tombstone_can_say_that_a_missing_block_was_let_go() -> None:
    disk = stopped()
    disk.remove("stream.state")
    first, last = block_range(disk, "000002.blk")
    disk.remove("000002.blk")
    disk.remove("000002.idx")
    disk.add_group(last_block(disk), RemovalGroup(0, 0, SequenceSet([(first, last)])))
    assert disk.check().problems == []


# Left-overs


@pytest.mark.parametrize(
    "name",
    [
        "000001.idx.0123456789abcdef.tmp",
        "000001.blk.new",
        "000001.blk.shred",
        "000099.blk.damaged",
        "000099.idx",
        "messages.migrating",
    ],
)
def test_a_file_that_is_left_over_is_a_note(name: str) -> None:
    disk = stopped()
    disk.write(name, b"x")
    report = disk.check()
    assert report.ok and (only(report).file, only(report).kind) == (f"s/{name}", "left-over")


@pytest.mark.parametrize("suffix", [".new", ".shred"])
def test_a_block_that_was_just_being_replaced_is_not_missed(suffix: str) -> None:
    disk = stopped()
    disk.files.rename("s/000002.blk", f"s/000002.blk{suffix}")
    report = disk.check()
    assert report.ok and report.messages == 40
    assert kinds(report) == ["left-over", "left-over"]  # itself and, until it has its name back, its sidecar


# Keys and trees


@pytest.mark.parametrize("keys", [(), (KeySource.key(bytes(32)),)])
def test_a_wrong_key_is_an_error(keys: tuple[KeySource, ...]) -> None:
    disk = stopped(ENVELOPES["none-aes_256_gcm"])
    with pytest.raises(WrongKey):
        check_store("s", files=disk.files, keys=keys)


def test_a_directory_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        check_store("nowhere", files=MemFiles())


def test_a_tree_is_checked_stream_by_stream(tmp_path: Path) -> None:
    for name, count in (("a/one", 3), ("a/b/two", 5)):
        with FileStore(tmp_path / name) as store:
            fill(store, count)
    (tmp_path / "a" / "note.txt").write_text("not a stream")
    reports = check_tree(str(tmp_path))
    assert {path: report.messages for path, report in reports.items()} == {
        f"{tmp_path}/a/one": 3,
        f"{tmp_path}/a/b/two": 5,
    }


def test_ranges_are_shown_shortly() -> None:
    assert show_ranges(SequenceSet([(3, 3), (5, 7)])) == "3, 5-7"
    assert show_ranges(SequenceSet((n, n) for n in range(1, 30, 2))) == "1, 3, 5, 7, 9, 11, 13, 15, ... 15 ranges"


def test_a_problem_reads_as_one_line() -> None:
    assert str(Problem("s/000001.blk", 8192, "checksum", "12 bytes")) == "s/000001.blk: at offset 8192: 12 bytes"
    assert str(Problem("s/000001.idx", None, "sidecar", "is missing")) == "s/000001.idx: is missing"

"""Sidecars: what is written is read, and what is damaged is never taken for something else."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetlake.store import FileOptions, FileStore
from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.blocks.block_file import BlockFile, Frame
from jetlake.store.blocks.envelope import Cipher, Compression, Envelope
from jetlake.store.blocks.removal import LOST, RemovalGroup
from jetlake.store.blocks.sidecar import (
    HEAD_SIZE,
    Seal,
    Sidecar,
    decode_head,
    decode_index,
    decode_summary,
    encode_sidecar,
    seal,
)
from jetlake.store.format import NO_ID, BlockHeader
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.records.record import Record, encode
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles

KEY = bytes(range(32))
SEED = 42
HEADER = BlockHeader(0, 0, 3, 2, 10, 8, 0, SEED)
ALL = [Envelope(compression, cipher, KEY if cipher else None) for compression in Compression for cipher in Cipher]


def name(envelope: object) -> str | None:
    if not isinstance(envelope, Envelope):
        return None
    return f"{envelope.compression.name}-{envelope.cipher.name}".lower()


every_envelope = pytest.mark.parametrize("envelope", ALL, ids=name)


@dataclass
class Sealed:
    """A sealed block and all that belongs to it."""

    block: MsgBlock
    index: BlockIndex
    file: BlockFile
    data: bytes

    @property
    def summary(self) -> bytes:
        return self.data[HEAD_SIZE:]

    @property
    def index_bytes(self) -> bytes:
        return self.data[head(self.data).index_start :]


def sealed_block(envelope: Envelope = ALL[0], seqs: tuple[int, ...] = (10, 11, 12, 15)) -> Sealed:
    """A block with some messages, of which 11 is gone, and something of everything that a sidecar can hold."""
    block = MsgBlock(HEADER)
    index = block.index = BlockIndex(SubjectTable())
    for number in range(5):  # the stream has other subjects too
        index.table.add(index.table.intern(b"other.%d" % number), number + 1)
    for seq in seqs:
        subject = b"a" if seq % 2 else b"b.c"
        offset = block.stage(encode(Record(0, subject, b"", b"payload", seq, 1000 + seq), SEED))
        slot = index.table.intern(subject)
        index.table.add(slot, seq)
        index.add(seq, offset, slot)
    block.last_seq, block.size, block.floor_seq = seqs[-1], 100, 9
    block.time_ns_min, block.time_ns_max = 1000 + seqs[0], 1000 + seqs[-1]
    block.gone, block.lost = SequenceSet([(11, 11), (13, 14)]), SequenceSet([(13, 13)])
    block.groups = [
        RemovalGroup(1, 0, SequenceSet([(2, 3)]), {b"x": (2, 64)}),
        RemovalGroup(0, 0, block.lost, kind=LOST),
    ]
    block.expiring = [(11, 5), (12, 6), (15, 2**63 - 1)]
    file = new_file(envelope)
    file.append(block.pending(), 0, [index.offsets[2], block.body_size], block.last_seq)
    return Sealed(block, index, file, encode_sidecar(seal(block, index), index, file))


def new_file(envelope: Envelope) -> BlockFile:
    files = MemFiles()
    file = BlockFile(files, "/000003.blk", HEADER, envelope)
    file.create()
    return file


def head(data: bytes) -> Sidecar:
    found = decode_head(data[:HEAD_SIZE], SEED)
    assert found is not None
    return found


def read(sealed: Sealed) -> tuple[Sidecar, BlockIndex, list[Frame]]:
    """A sidecar as it is read."""
    sidecar, envelope = head(sealed.data), sealed.file.envelope
    assert decode_summary(sidecar, sealed.summary, SEED, envelope)
    found = decode_index(sidecar, sealed.index_bytes, SEED, envelope)
    assert found is not None
    return sidecar, *found


def is_readable(data: bytes, envelope: Envelope, seed: int = SEED) -> bool:
    """Whether every part of a sidecar is sound."""
    sidecar = decode_head(data[:HEAD_SIZE], seed)
    if sidecar is None or not decode_summary(sidecar, data[HEAD_SIZE:], seed, envelope):
        return False
    return decode_index(sidecar, data[sidecar.index_start : sidecar.index_end], seed, envelope) is not None


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


# What is written is read


@every_envelope
def test_the_head_says_what_block_it_is_of(envelope: Envelope) -> None:
    sealed = sealed_block(envelope)
    found = head(sealed.data)
    assert (found.block_id, found.generation, found.first_seq, found.last_seq, found.floor_seq) == (3, 2, 10, 15, 9)
    assert (found.file_size, found.body_size) == (sealed.file.file_size, sealed.block.body_size)
    assert (found.last_hash, found.size) == (sealed.block.last_hash, 100)
    assert (found.time_ns_min, found.time_ns_max) == (1010, 1015)


@every_envelope
def test_the_summary_says_what_is_gone_lost_and_expiring(envelope: Envelope) -> None:
    sealed = sealed_block(envelope)
    found, _, _ = read(sealed)
    assert (found.gone, found.lost) == (sealed.block.gone, sealed.block.lost)
    assert found.groups == sealed.block.groups
    assert found.expiring == [(12, 6), (15, 2**63 - 1)]  # 11 is gone


@every_envelope
def test_the_summary_counts_the_live_messages_of_each_subject(envelope: Envelope) -> None:
    table = SubjectTable()
    read(sealed_block(envelope))[0].merge_into(table)
    slots = range(table.slot_limit)
    found = {table.subject(slot): (table.count(slot), table.first(slot), table.last(slot)) for slot in slots}
    assert found == {b"b.c": (2, 10, 12), b"a": (1, 15, 15)}


@every_envelope
@pytest.mark.parametrize("seqs", [(10, 11, 12, 13), (10, 11, 12, 15), (11, 12), (11,)], ids=str)
def test_the_index_is_that_of_the_block(envelope: Envelope, seqs: tuple[int, ...]) -> None:
    sealed = sealed_block(envelope, seqs) if len(seqs) > 2 else tiny_block(envelope, seqs)
    _, index, frames = read(sealed)
    assert (index.count, list(index.offsets)) == (len(seqs), list(sealed.index.offsets[: len(seqs)]))
    assert [index.seq(position) for position in range(index.count)] == list(seqs)
    assert (index.seqs, index.base_seq, frames) == (sealed.index.seqs, sealed.index.base_seq, sealed.file.frames)


def tiny_block(envelope: Envelope, seqs: tuple[int, ...]) -> Sealed:
    """A block with a message or two."""
    block = MsgBlock(HEADER)
    index = block.index = BlockIndex(SubjectTable())
    for seq in seqs:
        index.table.add(index.table.intern(b"a"), seq)
        index.add(seq, block.stage(encode(Record(0, b"a", b"", b"", seq, 1), SEED)), 0)
    block.last_seq, block.gone = seqs[-1], SequenceSet([(10, 10)])
    file = new_file(envelope)
    file.append(block.pending(), 0, [block.body_size], block.last_seq)
    return Sealed(block, index, file, encode_sidecar(seal(block, index), index, file))


def test_the_subject_of_each_live_message_is_in_the_index() -> None:
    _, index, _ = read(sealed_block())
    subjects = [None if slot == NO_ID else index.table.subject(slot) for slot in index.ids]
    assert subjects == [b"b.c", None, b"b.c", b"a"]


def test_only_the_subjects_of_the_block_are_in_its_table() -> None:
    _, index, _ = read(sealed_block())
    assert (index.table.slot_limit, index.table.total) == (2, 3)


def test_a_block_without_a_live_message_is_read() -> None:
    block = MsgBlock(HEADER)
    index = block.index = BlockIndex(SubjectTable())
    file = new_file(ALL[0])
    _, found, frames = read(Sealed(block, index, file, encode_sidecar(seal(block, index), index, file)))
    assert (found.count, found.table.total, frames) == (0, 0, [])


def test_the_parts_follow_each_other_to_the_end() -> None:
    sealed = sealed_block()
    found = head(sealed.data)
    assert found.index_start == HEAD_SIZE + found.summary_stored_size + 8
    assert found.index_end == len(sealed.data)


def test_what_happens_after_the_seal_is_not_in_the_sidecar() -> None:
    sealed = sealed_block()
    taken: Seal = seal(sealed.block, sealed.index)
    sealed.block.gone.add(12)
    sealed.block.size -= 40
    sealed.index.table.remove(sealed.index.table.find(b"b.c"), 12)
    assert encode_sidecar(taken, sealed.index, sealed.file) == sealed.data


def test_sealing_leaves_the_index_of_the_block_as_it_is() -> None:
    sealed = sealed_block()
    before = sealed.index.ids[: sealed.index.count]
    seal(sealed.block, sealed.index)
    assert sealed.index.ids[: sealed.index.count] == before
    assert NO_ID not in before


@every_envelope
def test_no_subject_is_readable_without_the_key(envelope: Envelope) -> None:
    is_visible = b"b.c" in sealed_block(envelope).data
    assert not (is_visible and envelope.cipher)


# Damage


@every_envelope
def test_every_flipped_bit_is_detected(envelope: Envelope) -> None:
    data = sealed_block(envelope).data
    assert is_readable(data, envelope)
    for bit in range(8 * len(data)):
        assert not is_readable(flipped(data, bit), envelope)


def test_damage_to_the_index_leaves_the_head_and_the_summary() -> None:
    sealed = sealed_block()
    sealed.data = flipped(sealed.data, 8 * len(sealed.data) - 1)
    found = head(sealed.data)
    assert decode_summary(found, sealed.summary, SEED, ALL[0])
    assert decode_index(found, sealed.index_bytes, SEED, ALL[0]) is None


@every_envelope
def test_a_sidecar_cut_at_any_byte_is_refused(envelope: Envelope) -> None:
    data = sealed_block(envelope).data
    for size in range(len(data)):
        assert not is_readable(data[:size], envelope)


@every_envelope
def test_the_sidecar_of_another_block_is_refused(envelope: Envelope) -> None:
    assert not is_readable(sealed_block(envelope).data, envelope, SEED + 1)


@pytest.mark.parametrize("cipher", [Cipher.CHACHA20_POLY1305, Cipher.AES_256_GCM])
def test_a_sidecar_under_another_key_is_refused(cipher: Cipher) -> None:
    sealed = sealed_block(Envelope(Compression.NONE, cipher, KEY))
    other, found = Envelope(Compression.NONE, cipher, bytes(32)), head(sealed.data)
    assert not decode_summary(found, sealed.summary, SEED, other)
    assert decode_index(found, sealed.index_bytes, SEED, other) is None


@pytest.mark.parametrize("cipher", [Cipher.CHACHA20_POLY1305, Cipher.AES_256_GCM])
def test_the_summary_cannot_be_taken_for_the_index(cipher: Cipher) -> None:
    sealed = sealed_block(Envelope(Compression.NONE, cipher, KEY))
    found = head(sealed.data)
    found.index_size, found.index_stored_size = found.summary_size, found.summary_stored_size
    assert decode_index(found, sealed.summary[: found.summary_stored_size + 8], SEED, sealed.file.envelope) is None


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_sidecar(data: bytes) -> None:
    assert not is_readable(data, ALL[0])
    assert not is_readable(data.ljust(HEAD_SIZE, b"\0"), ALL[0])


# A pure function of the block

VERBS = ["append"] * 8 + ["ttl", "headers", "remove", "remove", "skip", "purge", "compact"]
OPERATIONS = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 30)), min_size=1, max_size=40)


def write_store(files: MemFiles, options: FileOptions, operations: list[tuple[str, int]]) -> None:
    """Do things to a store, most likely with several small blocks."""
    with FileStore("/s", options=options, files=files, clock=FakeClock()) as store:
        for verb, number in operations:
            if verb == "remove":
                store.remove(number)
            elif verb == "erase":
                store.erase(number)
            elif verb == "skip":
                store.skip(1 + number % 3)
            elif verb == "purge":
                store.purge(f"s.{number % 4}")
            elif verb == "compact":
                store.compact(min(number // 2, store.fast_state().last_seq))
            else:
                headers = b"NATS/1.0\r\n\r\n" if verb == "headers" else b""
                store.append(f"s.{number % 4}", b"x" * number, headers, ttl_ns=10**18 if verb == "ttl" else 0)


def remade_sidecars(operations: list[tuple[str, int]], **options: int) -> list[tuple[bytes, bytes]]:
    """Each sidecar as it was written, and as it is made anew from its block when it is missing."""
    file_options, files = FileOptions(block_size_max=150, **options), MemFiles()
    write_store(files, file_options, operations)
    before = files.snapshot()
    files.load({path: data for path, data in before.items() if not path.endswith((".idx", ".lock"))})
    FileStore("/s", options=file_options, files=files, clock=FakeClock()).stop()
    after = files.snapshot()
    sidecars = [path for path in before if path.endswith(".idx") and path in after]
    kept = [path for path in sidecars if before[path[:-4] + ".blk"] == after[path[:-4] + ".blk"]]
    return [(before[path], after[path]) for path in kept]


@pytest.mark.parametrize("compression", Compression)
@settings(max_examples=60)
@given(operations=OPERATIONS)
def test_a_sidecar_made_anew_has_the_same_bytes(compression: Compression, operations: list[tuple[str, int]]) -> None:
    for written, remade in remade_sidecars(operations, compression=compression):
        assert remade == written


def test_a_sidecar_made_anew_has_the_same_bytes_after_a_delete_before_and_after_the_seal() -> None:
    operations = [("append", 30), ("append", 30), ("remove", 2), *[("append", 30)] * 5, ("remove", 5), ("append", 30)]
    sidecars = remade_sidecars(operations)
    assert len(sidecars) == 3
    assert all(written == remade for written, remade in sidecars)


def test_a_sidecar_made_anew_has_the_same_bytes_after_an_erasure_before_the_seal() -> None:
    sidecars = remade_sidecars([("append", 30), ("append", 30), ("erase", 2), ("append", 30), ("append", 30)])
    assert sidecars
    assert all(written == remade for written, remade in sidecars)


def test_ids_are_kept_as_they_are_whatever_the_byte_order() -> None:
    sealed = sealed_block()
    _, index, _ = read(sealed)
    assert index.ids == array("I", [0, NO_ID, 0, 1])

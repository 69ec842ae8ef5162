"""Write blocks anew, and make bytes unrecoverable.

A rewritten block keeps its id, its range of sequences and its hash seed, has the next generation, and begins with a
record of the sequences it left out. The new file is complete and durable before it takes the old one's name.

A Rewrite is made where the store is used: what is gone by then is taken down, and from that moment on the block has its
next generation. `run` touches files only, so that it may be part of a commit, in any thread, while the store goes on;
`FileStore.adopt` ends it. Readers have the old file, which stays open, and the old index meanwhile.

Why a crash at any point is harmless. The commit first makes durable all that was staged when the Rewrite was made: the
tombstones of what it leaves out, and the messages that replaced it. Until the rename nobody looks at the new file, and
opening the store removes it. After the rename the new file says by itself all that tombstones for the old generation
say, which are void now. What is removed meanwhile is bound to the new generation, and reaches the disk with a later
commit: after the rename, or not at all. So no tombstone ever speaks of a generation that is not there yet, and none is
on record only for one that is there no more.

Erasing. The intention (a tombstone of kind ERASE, with the record's place) is durable first; recovery finishes an
erasure that was cut short. Without an envelope the record is overwritten in place with random bytes. In a compressed
or encrypted block the whole block is written anew without it, and the old file is overwritten before it is removed:

    x.blk.new   complete           and x.blk: forget it         no x.blk: it takes its place
    x.blk.shred the old file       to be overwritten and removed, once x.blk is there
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from jetlake.store.blocks.block import MsgBlock
from jetlake.store.blocks.block_file import BlockFile, envelope_of, frame_cuts
from jetlake.store.blocks.block_scan import Body, missing_seqs, read_body, read_tombstones, scan_block
from jetlake.store.blocks.removal import ERASE, LOST, REMOVED, RemovalGroup, decode_group, still_said
from jetlake.store.blocks.sealed_file import EVIDENCE
from jetlake.store.blocks.sidecar import encode_sidecar, seal
from jetlake.store.disk.files import Files, atomic_write
from jetlake.store.format import ERASED, HEADER_SIZE, RECORD_SIZE_MIN, TOMBSTONE, parse_block_name, sidecar_name
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.records.record import BadRecord, Record, decode, encode
from jetlake.store.records.scan import Scan, copy_live, scan
from jetlake.store.records.varint import U64_MAX, varint_size

if TYPE_CHECKING:
    from jetlake.store.filestore import FileStore

_SHRED_STEP_SIZE = 1024 * 1024


class Rewrite:
    """A block on its way to its next generation."""

    def __init__(
        self,
        store: FileStore,
        block: MsgBlock,
        *,
        extra: Sequence[RemovalGroup] = (),
        last_seq: int | None = None,
        shred: bool = False,
    ) -> None:
        """Take down what is gone. What lies after `last_seq` is left out; `extra` is for the new file to say, too."""
        self.block, self.index, self.old = block, store.catalog.index(block), store.block_files[block.id]
        self.old.pin()
        self.old.trim()  # what is reserved is no damage
        self.missing = SequenceSet()  # messages that ought to be live and cannot be read
        old = block.header
        block.header = store.new_header(
            block.id, old.generation + 1, block.first_seq, block.floor_seq, old.last_time_ns, block.seed
        )
        self.after = MsgBlock(block.header, block.path)  # the block as its new file tells it
        envelope = envelope_of(block.header, store.options.keys, block.path)
        self.file = BlockFile(store.files, block.path, block.header, envelope)
        self._files, self._directory, self._shred = store.files, store.directory, shred
        self._sealer = store.sealer
        self._is_durable = store.options.sync != "never"
        self._sizes = (store.size_fixed, store.size_headers)
        self._last_seq = block.last_seq if last_seq is None else last_seq
        self._gone, self._lost = _up_to(block.gone, self._last_seq), _up_to(block.lost, self._last_seq)
        self._extra, self._first_seq = extra, store.catalog.first_seq
        self._generations = {other.id: other.header.generation for other in store.catalog.blocks}

    def run(self) -> None:
        """Write the new file and put it in place."""
        body = read_body(self.old)
        found = scan(body.data, 0, len(body.data), self.after.seed, self.after.first_seq - 1, SubjectTable(), 0, 0)
        self.missing = missing_seqs(found, self._gone, self.after.first_seq, self._last_seq)
        for seqs in (self._gone, self._lost):
            seqs.update(self.missing)
        if not self._shred:
            self._keep_evidence(body, found)
        plain, parts = self._encode(body, found)
        scanned = scan_block(self.after, self.file, plain, SubjectTable(), self._sizes)
        assert not scanned.damage and (self.after.gone, self.after.lost) == (self._gone, self._lost)
        assert self.after.index is not None
        sidecar = encode_sidecar(seal(self.after, self.after.index), self.after.index, self.file)
        self._put_in_place(parts)
        path = f"{self._directory}/{sidecar_name(self.block.id)}"
        atomic_write(self._files, path, [sidecar], durable=self._is_durable)

    def _keep_evidence(self, body: Body, found: Scan) -> None:
        """Keep the bytes that nobody can read beside the block that is written without them."""
        file, regions, sound_end = self.old, list(body.damage), body.file_end
        if file.envelope.is_plain:
            regions += [(HEADER_SIZE + offset, size) for offset, size in found.damage]
            sound_end = HEADER_SIZE + found.end
        if sound_end < body.file_size:
            regions.append((sound_end, body.file_size - sound_end))
        if regions:
            evidence = b"".join(file.file.pread(offset, size) for offset, size in regions)
            path = f"{file.path}.{file.header.generation}.damaged"
            atomic_write(self._files, path, [self._sealer.seal(evidence, EVIDENCE)])

    def _encode(self, old: Body, found: Scan) -> tuple[Body, list[bytes | bytearray]]:
        """The new body, and the new file in parts."""
        left_out = self._gone.copy()
        left_out.add_range(self._last_seq + 1, U64_MAX)
        seed, file = self.after.seed, self.file
        records = [encode(record, seed) for record in self._tombstones(old, found)]
        head = b"".join(records)
        plain, offsets = copy_live(head, old.data, found.offsets, found.seqs, seed, *left_out.arrays)
        if file.envelope.is_plain:
            size = HEADER_SIZE + len(plain)
            return Body(memoryview(plain), [], size, size, b"", [], 0), [file.header.encode(), plain]
        starts = [0, *accumulate(map(len, records[:-1])), *offsets]
        cuts = frame_cuts(starts, len(starts), 0, len(plain))
        frames = file.add_frames(memoryview(plain), 0, cuts, self._last_seq)
        body = Body(memoryview(plain), file.frames, file.file_size, file.file_size, b"", [], self._last_seq)
        return body, [file.header.encode(), *frames]

    def _tombstones(self, old: Body, found: Scan) -> Iterator[Record]:
        """What the new file leaves out, and what the old one said of other blocks, as far as it still matters."""
        removed = self._gone.copy()
        removed.difference_update(self._lost)
        groups = [RemovalGroup(0, 0, removed, kind=REMOVED), RemovalGroup(0, 0, self._lost, kind=LOST)]
        groups += still_said(self._outward(old, found), self._generations, self._first_seq)
        groups += self._extra
        for group in groups:
            if group.seqs:
                yield Record(TOMBSTONE, b"", b"", group.encode(), group.seqs.first, 0)

    def _outward(self, old: Body, found: Scan) -> Iterator[RemovalGroup]:
        """What the old file says of other blocks."""
        for _, record in read_tombstones(old.data, found.others, self.after.seed):
            group = decode_group(record.payload)
            is_own = group.block_id == self.block.id or (
                not group.block_id and group.seqs.first >= self.after.first_seq
            )
            if not is_own and group.kind != ERASE:
                yield group

    def _put_in_place(self, parts: Sequence[bytes | bytearray]) -> None:
        path, files = self.block.path, self._files
        if not self._shred:
            atomic_write(files, path, parts)
            return
        atomic_write(files, f"{path}.new", parts)
        files.rename(path, f"{path}.shred")
        files.sync_dir(self._directory)
        files.rename(f"{path}.new", path)
        files.sync_dir(self._directory)
        shred_file(files, self._directory, f"{path}.shred")


def rewrite_block(
    store: FileStore,
    block: MsgBlock,
    *,
    extra: Sequence[RemovalGroup] = (),
    last_seq: int | None = None,
    shred: bool = False,
) -> None:
    """Write a block anew, here and now."""
    rewrite = Rewrite(store, block, extra=extra, last_seq=last_seq, shred=shred)
    rewrite.run()
    store.adopt(rewrite)


def erase_bytes(
    store: FileStore, block: MsgBlock, seq: int, size: int, place: tuple[int, int], time_ns: int = 0
) -> None:
    """Overwrite a record, which is no longer live, on disk and in memory. `size` is what JetStream counts for it."""
    file = store.block_files[block.id]
    if not file.envelope.is_plain:
        rewrite_block(store, block, shred=True)
        return
    noise = overwrite(file, seq, place, time_ns)
    for chunk in block.chunks:
        if chunk.base <= place[0] < chunk.end:
            chunk.data[place[0] - chunk.base : place[0] - chunk.base + place[1]] = noise
    if block.sealed:
        store.reattach(block, seq, size)
    elif block.index is not None:
        block.index.drop(block.index.position(seq))


def overwrite(file: BlockFile, seq: int, place: tuple[int, int], time_ns: int) -> bytes:
    """Put noise in a record's place, durably; the noise."""
    noise = _erased_record(place[1], seq, time_ns, file.header.hash_seed)
    file.files.settle(file.path)
    file.file.pwrite(HEADER_SIZE + place[0], noise)
    file.file.sync()
    return noise


def is_erased(file: BlockFile, place: tuple[int, int], seed: int) -> bool:
    """Has the record at a place been overwritten already?"""
    data = file.file.pread(HEADER_SIZE + place[0], place[1])
    try:
        return bool(decode(data, 0, len(data), seed)[0].flags & ERASED)
    except BadRecord:
        return False


def finish_shredding(store: FileStore, names: list[str]) -> None:
    """Finish what `rewrite_block` was doing when it was cut short."""
    for name in names:
        path = f"{store.directory}/{name}"
        if name.endswith(".new") and parse_block_name(name.removesuffix(".new")) is not None:
            target = path.removesuffix(".new")
            if store.files.exists(target):
                store.files.remove(path)
            else:
                store.files.rename(path, target)
            store.files.sync_dir(store.directory)
    for name in names:
        path = f"{store.directory}/{name}"
        if name.endswith(".shred") and parse_block_name(name.removesuffix(".shred")) is not None:
            if not store.files.exists(path.removesuffix(".shred")):  # the new file is damaged or missing: take it back
                store.files.rename(path, path.removesuffix(".shred"))
                store.files.sync_dir(store.directory)
            else:
                shred_file(store.files, store.directory, path)


def _up_to(seqs: SequenceSet, last_seq: int) -> SequenceSet:
    """The sequences of a set up to one."""
    copy = seqs.copy()
    copy.remove_range(last_seq + 1, U64_MAX)
    return copy


def _erased_record(size: int, seq: int, time_ns: int, seed: int) -> bytes:
    """A record of exactly `size` bytes that holds nothing but noise and its sequence."""
    room = size - RECORD_SIZE_MIN + 1  # for the payload and its length
    payload_size = room - varint_size(room)
    padding = room - payload_size - varint_size(payload_size)  # a length just below a power of 128 leaves a byte over
    noise = secrets.token_bytes(padding + payload_size)
    record = encode(Record(ERASED, b"", noise[:padding], noise[padding:], seq, time_ns), seed)
    assert len(record) == size
    return record


def shred_file(files: Files, directory: str, path: str) -> None:
    """Overwrite a file with random bytes, and remove it."""
    files.settle(path)
    with files.open(path, write=True) as file:
        size = file.size()
        for offset in range(0, size, _SHRED_STEP_SIZE):
            file.pwrite(offset, secrets.token_bytes(min(_SHRED_STEP_SIZE, size - offset)))
        file.sync()
    files.remove(path)
    files.sync_dir(directory)

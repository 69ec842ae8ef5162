"""Open what is on disk: after a clean stop, after `kill -9`, after a power cut, after damage.

0. A store that is synced by checkpoints is cut at the last one first: nothing after it counts, nor does the checkpoint
   file, which may tell of it.
1. Every header is read, and every key tried, before anything is touched. Blocks of other streams are set aside.
2. Sealed blocks are known by their sidecars; one that has no good sidecar is scanned and gets one. The last block is
   always scanned; an unfinished write at its end is cut off.
3. What blocks say of each other is put together: floors, removal groups, ranges that are gone. Sequences that nothing
   accounts for are lost, and listed. The checkpoint is the second witness for the last sequence and for deletes.
4. Subjects are counted: from the summaries of sidecars less the removal groups, or, for a block that the floor cuts
   in two, from its records.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.blocks.block_file import BlockFile, Frame, envelope_of, read_header
from jetlake.store.blocks.block_scan import BlockScan, Body, read_body, scan_block, uncount_gone
from jetlake.store.blocks.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from jetlake.store.blocks.identity import Identity, identify
from jetlake.store.blocks.removal import LOST, RemovalGroup, still_said
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.blocks.sidecar import (
    HEAD_SIZE,
    Sidecar,
    decode_head,
    decode_index,
    decode_summary,
    encode_sidecar,
    seal,
)
from jetlake.store.disk.commit import remove_block
from jetlake.store.disk.files import Files, atomic_write, is_no_space, temp_target
from jetlake.store.disk.rewrite import finish_shredding, is_erased, overwrite, rewrite_block
from jetlake.store.format import (
    BLOCK_MAGIC,
    HEADER_SIZE,
    NO_STREAM,
    BlockHeader,
    block_name,
    is_own_name,
    parse_block_name,
    parse_sidecar_name,
    sidecar_name,
)
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.index.summary import subject_bits

if TYPE_CHECKING:
    from jetlake.store.filestore import FileStore


@dataclass(slots=True)
class _Part:
    """A block while it is being recovered."""

    block: MsgBlock
    file: BlockFile
    sidecar: Sidecar | None = None  # None: the last block, which was scanned into the stream's own table
    body: Body | None = None
    scanned: BlockScan | None = None
    groups: list[RemovalGroup] = field(default_factory=list)  # that later blocks hold against this one
    recount: bool = False
    taught: SequenceSet = field(default_factory=SequenceSet)  # removed, as only the checkpoint knows


def recover(store: FileStore, first_seq: int, cut: tuple[int, int] | None = None) -> None:
    """Fill a new FileStore from its directory; `cut`: remove what lies after this block and offset first."""
    headers, checkpoint, identity = check_keys(store.files, store.directory, store.sealer)
    if cut is not None:
        _take_identity(store, identity, checkpoint, headers)
        _cut(store, *cut)
        headers, checkpoint, identity = check_keys(store.files, store.directory, store.sealer)
    for header in headers:
        if header.cipher and identity.owns(header) and not store.options.salt:
            store.store_salt = header.store_salt
    _tidy(store, store.files.list(store.directory))
    _take_identity(store, identity, checkpoint, headers)
    store.truncations = checkpoint.truncations if checkpoint is not None else 0
    parts = _open_blocks(store, identity)
    store.scratch = None
    if checkpoint is not None and checkpoint.truncate_seq is not None:
        parts = _cut_parts(store, parts, checkpoint)
        if not parts:
            write_checkpoint(store.files, store.directory, _empty_checkpoint(store), store.sealer)
            first_seq, checkpoint = checkpoint.truncate_seq + 1, None
    if not parts:
        _start_empty(store, first_seq, checkpoint)
        return
    parts = _put_together(store, parts, checkpoint)
    _count(store, parts)
    _finish(store, parts, checkpoint)
    if checkpoint is not None and checkpoint.truncate_seq is not None:
        _finish_truncation(store, checkpoint.truncate_seq)


def _cut(store: FileStore, last_id: int, offset: int) -> None:
    """Remove all that was written after a place. Done again after a crash, it comes to the same end."""
    files, directory = store.files, store.directory
    # First: it tells of what will be missing. Whose the blocks are is all that it is to know.
    write_checkpoint(files, directory, _empty_checkpoint(store), store.sealer)
    for name in files.list(directory):
        block_id = _block_of(name)
        path = f"{directory}/{name}"
        if block_id is None or block_id < last_id:
            continue
        if block_id > last_id or name != block_name(last_id):
            files.remove(path)
        elif files.size(path) > offset:
            with files.open(path, write=True) as file:
                file.truncate(offset)
                file.sync()
    files.sync_dir(directory)


def _block_of(name: str) -> int | None:
    """The block that a file belongs to: its own, its sidecar, or one on its way in or out; not evidence of damage."""
    name = (temp_target(name) or name).removesuffix(".shred").removesuffix(".new")
    found = parse_block_name(name)
    return parse_sidecar_name(name) if found is None else found


def load_index(store: FileStore, block: MsgBlock) -> tuple[BlockIndex, list[Frame], SequenceSet]:
    """The index of a sealed block, and its frames, from its sidecar or, when that is damaged, from the block itself.

    Then there may be messages that were not found: their sequences.
    """
    file = store.block_files[block.id]
    sidecar = _load_sidecar(store, block, file)
    if sidecar is not None:
        found = _read_index(store, block, file, sidecar)
        if found is not None:
            return *found, SequenceSet()
    fresh = MsgBlock(block.header, block.path)
    rebuild_sidecar(store, fresh, file)
    assert fresh.index is not None
    return fresh.index, file.frames, fresh.lost


def outward_groups(store: FileStore, block: MsgBlock) -> Iterable[RemovalGroup]:
    """What a sealed block's tombstones say of other blocks, as far as it still matters."""
    sidecar = _load_sidecar(store, block, store.block_files[block.id])
    groups = block.groups if sidecar is None else sidecar.groups
    generations = {other.id: other.header.generation for other in store.catalog.blocks}
    return still_said(groups, generations, store.catalog.first_seq)


def rebuild_sidecar(store: FileStore, block: MsgBlock, file: BlockFile) -> Sidecar:
    """Scan a sealed block and write its sidecar anew."""
    body = read_body(file, store.scratch)
    sizes = (store.size_fixed, store.size_headers)
    scanned = scan_block(block, file, body, SubjectTable(), sizes)
    assert block.index is not None
    uncount_gone(block, block.index, body, sizes)
    if scanned.torn_size:  # nobody was writing to a sealed block
        scanned.damage.append(f"{body.file_size - file.file_size} bytes at offset {file.file_size} are not sound")
        file.file_size = body.file_size
    elif body.file_size > file.file_size:  # room was reserved in a block that was on its way out before it was full
        file.file.truncate(file.file_size)
    store.damage += [f"{block.path}: {text}" for text in scanned.damage]
    return _write_sidecar(store, block, block.index, file)


def sidecar_without(store: FileStore, block: MsgBlock, file: BlockFile, seq: int, size: int) -> Sidecar | None:
    """Write a sealed block's sidecar anew after one message was overwritten; its size is what JetStream counts.

    Only the sidecar is read: the noise kept the message's place and time. None where the block has to be scanned: the
    first or the last record was overwritten, or the sidecar is not sound.
    """
    old = _load_sidecar(store, block, file)
    found = _read_index(store, block, file, old) if old is not None else None
    if old is None or found is None:
        return None
    index, file.frames = found
    position = index.position(seq)
    if position <= 0 or seq in old.gone or index.end(position, old.body_size) == old.body_size:
        return None
    fresh = MsgBlock(block.header, block.path)
    old.fill(fresh)
    fresh.groups = old.groups
    fresh.gone.add(seq)
    fresh.size -= size
    file.file_size = old.file_size
    index.drop(position)
    return _write_sidecar(store, fresh, index, file)


def _write_sidecar(store: FileStore, block: MsgBlock, index: BlockIndex, file: BlockFile) -> Sidecar:
    data = encode_sidecar(seal(block, index), index, file)
    path = f"{store.directory}/{sidecar_name(block.id)}"
    try:
        atomic_write(store.files, path, [data], durable=store.options.sync != "never")
    except OSError as error:
        if not is_no_space(error):  # on a full disk, the next one who needs it makes it again
            raise
    sidecar = decode_head(data, block.seed)
    is_good = sidecar is not None and decode_summary(sidecar, data[HEAD_SIZE:], block.seed, file.envelope)
    assert sidecar is not None and is_good, "what was just encoded is sound"
    return sidecar


def check_keys(files: Files, directory: str, sealer: Sealer) -> tuple[list[BlockHeader], Checkpoint | None, Identity]:
    """The headers of all blocks, the checkpoint, and whose they are; WrongKey before anything is touched."""
    names = [name for name in files.list(directory) if parse_block_name(name.removesuffix(".shred")) is not None]
    found = {f"{directory}/{name}": read_header(files, f"{directory}/{name}") for name in names}
    headers = {path: header for path, header in found.items() if header is not None}
    checkpoint = read_checkpoint(files, directory, sealer)
    identity = identify(checkpoint, headers.values())
    for path, header in headers.items():
        if identity.owns(header):
            envelope_of(header, sealer.keys, path)
    return list(headers.values()), checkpoint, identity


def _take_identity(
    store: FileStore, identity: Identity, checkpoint: Checkpoint | None, headers: Iterable[BlockHeader]
) -> None:
    """Know the stream's id, or give it one; the checkpoint is told by the first commit."""
    if identity.stream_id != NO_STREAM:
        store.stream_id = identity.stream_id
    elif store.stream_id == NO_STREAM:
        store.stream_id = secrets.token_bytes(len(NO_STREAM))
    own = [header for header in headers if header.stream_id == NO_STREAM and identity.owns(header)]
    store.unmarked = {header.block_id: header.hash_seed for header in own}
    store.is_new_identity = checkpoint is None or checkpoint.stream_id != store.stream_id.hex()


def _empty_checkpoint(store: FileStore, last_time_ns: int = 0) -> Checkpoint:
    """One that says nothing but whose it is, and that messages were undone."""
    return Checkpoint(
        first_seq=0,
        last_seq=0,
        last_time_ns=last_time_ns,
        msgs=0,
        bytes=0,
        truncations=store.truncations,
        stream_id=store.stream_id.hex(),
        unmarked=list(store.unmarked.items()),
    )


def _tidy(store: FileStore, names: list[str]) -> None:
    """Remove what a crash left half done, and nothing that the store did not make."""
    finish_shredding(store, names)
    for name in names:
        block_id = parse_sidecar_name(name)
        is_orphan = block_id is not None and not store.files.exists(f"{store.directory}/{block_name(block_id)}")
        if is_orphan or is_own_name(temp_target(name)):
            store.files.remove(f"{store.directory}/{name}")


def _open_blocks(store: FileStore, identity: Identity) -> list[_Part]:
    """Every block of the stream that has a header, in order; the last one scanned."""
    names = store.files.list(store.directory)
    ids = sorted(block_id for name in names if (block_id := parse_block_name(name)) is not None)
    parts = []
    for block_id in ids:
        path = f"{store.directory}/{block_name(block_id)}"
        header = read_header(store.files, path)
        if header is None:
            _set_aside_unreadable(store, block_id)
            continue
        if header.block_id != block_id:
            _set_aside(store, block_id, f"says that it is block {header.block_id}")
            continue
        if not identity.owns(header):
            _set_aside(store, block_id, "is a block of another stream")
            continue
        if store.options.requires_cipher and not header.cipher:
            _set_aside(store, block_id, "is not encrypted, as everything else is")
            continue
        block = MsgBlock(header, path)
        part = _Part(block, store.attach(block))
        _mend_header(store, part.file)
        parts.append(part)
    for part in parts[:-1]:
        _open_sealed(store, part)
    if parts:
        _open_last(store, parts[-1])
        _finish_erases_in_place(store, parts)
    return parts


def _mend_header(store: FileStore, file: BlockFile) -> None:
    """Write both copies of a header again when one of them is damaged, or was never written."""
    stored, sound = file.file.pread(0, HEADER_SIZE), file.header.encode()
    if stored != sound:
        if len(stored) == HEADER_SIZE:
            store.damage.append(f"{file.path}: one of the two headers was damaged, and is mended")
        file.file.pwrite(0, sound)
        file.file.sync()


def _set_aside_unreadable(store: FileStore, block_id: int) -> None:
    """A block without a readable header: of no use, but evidence, unless it never got that far."""
    path = f"{store.directory}/{block_name(block_id)}"
    with store.files.open(path) as file:
        size, start = file.size(), file.pread(0, len(BLOCK_MAGIC))
    if size > HEADER_SIZE or not BLOCK_MAGIC.startswith(start.rstrip(b"\0")):
        _set_aside(store, block_id, "both headers are damaged")
    else:
        store.files.remove(path)
        store.files.sync_dir(store.directory)


def _set_aside(store: FileStore, block_id: int, problem: str) -> None:
    """Take a block out of the stream, and keep it, with its sidecar, as evidence."""
    for name in (sidecar_name(block_id), block_name(block_id)):  # a sidecar without its block would be removed
        path = f"{store.directory}/{name}"
        if store.files.exists(path):
            kept = _unused_path(store, f"{path}.damaged")
            store.files.rename(path, kept)
    store.damage.append(f"{path}: {problem}; kept as {kept}")
    store.files.sync_dir(store.directory)


def _unused_path(store: FileStore, path: str) -> str:
    """The path, or, when something is there already, one with a number before its suffix."""
    stem, _, suffix = path.rpartition(".")
    number, found = 0, path
    while store.files.exists(found):
        number += 1
        found = f"{stem}.{number}.{suffix}"
    return found


def _open_sealed(store: FileStore, part: _Part, *, rebuild: bool = False) -> None:
    """Know a block by its sidecar, or by a scan when there is no good one."""
    block, file = part.block, part.file
    sidecar = None if rebuild else _load_sidecar(store, block, file)
    if sidecar is None:
        fresh = MsgBlock(block.header, block.path)
        sidecar = rebuild_sidecar(store, fresh, file)
    part.sidecar = sidecar
    sidecar.fill(block)
    file.file_size = sidecar.file_size
    block.subject_bits = subject_bits(sidecar.summary, sidecar.subjects_start, len(sidecar.summary))


def _load_sidecar(store: FileStore, block: MsgBlock, file: BlockFile) -> Sidecar | None:
    """The head and summary of a block's sidecar, when they are sound and speak of the block as it is."""
    try:
        with store.files.open(f"{store.directory}/{sidecar_name(block.id)}") as source:
            sidecar = decode_head(source.pread(0, HEAD_SIZE), block.seed)
            if sidecar is None or (sidecar.block_id, sidecar.generation) != (block.id, block.header.generation):
                return None
            if sidecar.file_size != store.files.size(block.path):
                return None
            summary = source.pread(HEAD_SIZE, sidecar.summary_stored_size + 8)
    except FileNotFoundError:
        return None
    return sidecar if decode_summary(sidecar, summary, block.seed, file.envelope) else None


def _read_index(
    store: FileStore, block: MsgBlock, file: BlockFile, sidecar: Sidecar
) -> tuple[BlockIndex, list[Frame]] | None:
    with store.files.open(f"{store.directory}/{sidecar_name(block.id)}") as source:
        stored = source.pread(sidecar.index_start, sidecar.index_stored_size + 8)
    return decode_index(sidecar, stored, block.seed, file.envelope)


def _open_last(store: FileStore, part: _Part) -> None:
    """Scan the block that was being written to, and cut off an unfinished write."""
    block, file = part.block, part.file
    part.body = read_body(file)
    scanned = scan_block(block, file, part.body, store.catalog.table, (store.size_fixed, store.size_headers))
    part.scanned = scanned
    store.damage += [f"{block.path}: {text}" for text in scanned.damage]
    store.torn_size += scanned.torn_size
    if part.body.file_size > file.file_size:  # more than that when room was reserved
        file.file.truncate(file.file_size)
    file.file.sync()  # what was read is given out from now on, so it must be there to stay
    block.written_seq = block.last_seq


def _put_together(store: FileStore, parts: list[_Part], checkpoint: Checkpoint | None) -> list[_Part]:
    """Apply what blocks say of each other; the parts that remain."""
    catalog = store.catalog
    store.logged_floor_seq = floor_seq = max(part.block.floor_seq for part in parts)
    if checkpoint is not None and checkpoint.truncate_seq is None:
        floor_seq = max(floor_seq, checkpoint.first_seq)
    gone, lost = SequenceSet(), SequenceSet()
    for part in parts:
        for group in _groups(part):
            if not group.block_id:
                (lost if group.kind == LOST else gone).update(group.seqs)
    known = gone.copy()
    known.update(lost)
    parts = [part for part in parts[:-1] if not _is_dropped(store, part, floor_seq, known)] + parts[-1:]
    by_target = {(part.block.id, part.block.header.generation): part for part in parts}
    for holder in parts:
        for group in _groups(holder):
            target = by_target.get((group.block_id, group.generation))
            if target is not None and target is not holder:
                target.groups.append(group)
                target.recount = not _apply_group(target.block, group) or target.recount
                if group.kind == LOST:
                    target.block.lost.update(group.seqs)
    if checkpoint is not None:
        _hear_checkpoint(parts, checkpoint, lost)
    expected = floor_seq
    for part in parts:
        block = part.block
        if block.first_seq < floor_seq and block.first_seq <= min(floor_seq - 1, block.last_seq):
            cut = block.gone.add_range(block.first_seq, min(floor_seq - 1, block.last_seq))
            part.recount = part.recount or cut > 0
        if block.first_seq > expected:
            lost.update(SequenceSet(gone.gaps(expected, block.first_seq - 1)))
        lost.update(block.lost)
        expected = max(expected, block.last_seq + 1)
    lost.difference_update(_explained(parts, gone))
    if floor_seq > 0:
        lost.remove_range(0, floor_seq - 1)
    catalog.lost = lost
    if lost:
        store.damage.append(f"{store.directory}: lost {lost}")
    catalog.first_seq = floor_seq
    return parts


def _apply_group(block: MsgBlock, group: RemovalGroup) -> bool:
    """Remove a group's sequences from its block; False when some are not there, so that its counts are not right."""
    ranges = group.seqs.ranges_between(block.first_seq, block.last_seq)
    return sum(block.gone.add_range(first, last) for first, last in ranges) == group.seqs.count


def _groups(part: _Part) -> list[RemovalGroup]:
    return part.block.groups if part.sidecar is None else part.sidecar.groups


def _is_dropped(store: FileStore, part: _Part, floor_seq: int, known: SequenceSet) -> bool:
    """Was this block on its way out when the lights went out? Then let it go."""
    block = part.block
    if block.last_seq < block.first_seq:
        return False  # it holds no sequence, but perhaps tombstones
    covered = known.count_between(block.first_seq, block.last_seq)
    if block.last_seq >= floor_seq and covered < block.last_seq - block.first_seq + 1:
        return False
    del store.block_files[block.id]
    remove_block(store.files, store.directory, part.file)
    return True


def _hear_checkpoint(parts: list[_Part], checkpoint: Checkpoint, lost: SequenceSet) -> None:
    """Believe the checkpoint where it knows of deletes and losses that the blocks no longer tell."""
    gone = checkpoint.gone_seqs
    lost.update(checkpoint.lost_seqs)
    for part in parts:
        block = part.block
        for first, last in gone.ranges_between(block.first_seq, block.last_seq):
            for taught_first, taught_last in list(block.gone.gaps(first, last)):
                part.taught.add_range(taught_first, taught_last)
        block.gone.update(part.taught)
        part.recount = part.recount or bool(part.taught)


def _explained(parts: list[_Part], gone: SequenceSet) -> SequenceSet:
    """Sequences that were removed on purpose, whatever happened to their bytes later."""
    explained = gone.copy()
    for part in parts:
        erases = part.scanned.erases if part.scanned is not None else []
        for group in [*part.groups, *erases]:
            if group.kind != LOST:
                explained.update(group.seqs)
    return explained


def _count(store: FileStore, parts: list[_Part]) -> None:
    """Count messages and subjects of everything that is live."""
    if not all(_count_part(store, part) for part in parts):  # summaries and tombstones contradict each other
        store.catalog.table.clear()
        for part in parts:
            _recount(store, part)


def _count_part(store: FileStore, part: _Part) -> bool:
    """Count one block; False when what is on record about it cannot be true."""
    block, table = part.block, store.catalog.table
    if part.sidecar is None:
        assert block.index is not None and part.body is not None
        uncount_gone(block, block.index, part.body, (store.size_fixed, store.size_headers))
        return True
    if part.recount:
        _recount(store, part)
        return True
    part.sidecar.merge_into(table)
    for group in part.groups:
        for subject, (count, size) in group.subjects.items():
            block.size -= size
            slot = table.find(subject)
            if slot < 0 or table.count(slot) < count:
                return False
            table.remove(slot, 0, count)
    return True


def _recount(store: FileStore, part: _Part) -> None:
    """Count a block by its records, knowing what is gone of it."""
    block = part.block
    fresh = MsgBlock(block.header, block.path)
    sizes = (store.size_fixed, store.size_headers)
    body = read_body(part.file)
    scanned = scan_block(fresh, part.file, body, store.catalog.table, sizes)
    assert fresh.index is not None
    if fresh.last_seq < block.last_seq:  # its end is damaged
        fresh.lost.add_range(fresh.last_seq + 1, block.last_seq)
    fresh.gone.update(fresh.lost)
    fresh.lost.difference_update(block.gone)
    store.catalog.lost.update(fresh.lost)
    block.lost.update(fresh.lost)
    if part.sidecar is not None:  # the scan of the last block was reported already
        store.damage += [f"{block.path}: {text}" for text in scanned.damage]
    fresh.gone.update(block.gone)
    uncount_gone(fresh, fresh.index, body, sizes)
    block.gone, block.size, block.index = fresh.gone, fresh.size, fresh.index


def _finish(store: FileStore, parts: list[_Part], checkpoint: Checkpoint | None) -> None:
    """Set the whole stream's counters, and finish erasures that were cut short."""
    catalog = store.catalog
    catalog.blocks = [part.block for part in parts]
    catalog.size = sum(block.size for block in catalog.blocks)
    floor_seq = catalog.first_seq
    catalog.last_seq = max(catalog.active.last_seq, floor_seq - 1)
    catalog.last_time_ns = max(
        *(max(block.time_ns_max, block.header.last_time_ns) for block in catalog.blocks),
        checkpoint.last_time_ns if checkpoint is not None else 0,
    )
    if checkpoint is not None and checkpoint.truncate_seq is None:
        end_seq = checkpoint.end_seq(catalog.active.id)
        if end_seq > catalog.last_seq:
            _mourn_tail(store, checkpoint, end_seq)
        elif checkpoint.block_id == catalog.active.id:
            store.reserved_seq = checkpoint.reserved_seq
    following = catalog.next_live(floor_seq)
    catalog.first_seq = catalog.last_seq + 1 if following is None else following
    for part in parts:
        if part.taught:
            store.stage_removed(part.block, part.taught)
        for seq, expires_ns in part.block.expiring:
            if part.block.is_live(seq):
                store.expiry.add(seq, expires_ns)
    for part in parts:
        for group in part.scanned.erases if part.scanned is not None else ():
            _finish_erase(store, group)
    if any(not block.message_count for block in catalog.blocks[:-1]):
        store.drop_empty()


def _finish_erases_in_place(store: FileStore, parts: list[_Part]) -> None:
    """Do what ERASE tombstones say of blocks without an envelope, as far as it was not done, and read those again."""
    last = parts[-1]
    assert last.scanned is not None
    targets = {(part.block.id, part.block.header.generation): part for part in parts}
    for group in last.scanned.erases:
        part = targets.get((group.block_id, group.generation))
        if part is None or not part.file.envelope.is_plain:
            continue
        done = is_erased(part.file, group.place, part.block.seed)
        if not done:
            overwrite(part.file, group.seqs.first, group.place, 0)
        if part is not last and not (done and group.seqs.first in part.block.gone):
            _open_sealed(store, part, rebuild=True)
        elif not done:
            _reopen_last(store, last)


def _finish_erase(store: FileStore, group: RemovalGroup) -> None:
    """Do what an ERASE tombstone says of a block with an envelope, unless the block was written anew already."""
    block = store.catalog.block_of(group.seqs.first)
    if block is None or (block.id, block.header.generation) != (group.block_id, group.generation):
        return
    if block.is_live(group.seqs.first):
        store.erase_live(block, group)


def _mourn_tail(store: FileStore, checkpoint: Checkpoint, last_seq: int) -> None:
    """The checkpoint knows of later sequences than the blocks do: they are lost, and must not be used again."""
    catalog, text = store.catalog, f"sequences {store.catalog.last_seq + 1} to {last_seq}"
    if checkpoint.block_id > catalog.active.id:
        path = f"{store.directory}/{block_name(checkpoint.block_id)}"
        store.damage.append(f"{path}: is missing; {text}, and deletes, may have been in it")
    else:
        store.damage.append(f"{store.directory}: {text} are missing at the end")
    catalog.lost.add_range(catalog.last_seq + 1, last_seq)
    catalog.last_seq = last_seq
    store.lose_tail()


def _start_empty(store: FileStore, first_seq: int, checkpoint: Checkpoint | None) -> None:
    catalog = store.catalog
    catalog.first_seq, catalog.last_seq = first_seq, first_seq - 1
    end_seq = checkpoint.end_seq(0) if checkpoint is not None else 0
    if checkpoint is not None and end_seq >= first_seq:
        lost = SequenceSet(checkpoint.gone_seqs.gaps(checkpoint.first_seq, end_seq))
        catalog.lost, catalog.last_time_ns = lost, checkpoint.last_time_ns
        catalog.first_seq, catalog.last_seq = end_seq + 1, end_seq
        if lost:
            store.damage.append(f"{store.directory}: no block is left of sequences up to {end_seq}")
    else:
        store.reserved_seq = catalog.last_seq
    store.add_block(1)


def _cut_parts(store: FileStore, parts: list[_Part], checkpoint: Checkpoint) -> list[_Part]:
    """A truncation was under way: blocks that lie wholly after it go first, or all when no message was before it."""
    seq = checkpoint.truncate_seq
    assert seq is not None
    kept = [part for part in parts if part.block.first_seq <= seq] if seq >= checkpoint.first_seq else []
    if len(kept) == len(parts):
        return parts
    for part in parts[len(kept) :]:
        del store.block_files[part.block.id]
        remove_block(store.files, store.directory, part.file)
    if kept:
        _reopen_last(store, kept[-1])
    return kept


def _reopen_last(store: FileStore, part: _Part) -> None:
    """Scan the last block as if for the first time."""
    part.file.release()
    part.block = MsgBlock(part.block.header, part.block.path)
    part.sidecar, part.file = None, store.attach(part.block)
    store.catalog.table.clear()
    _open_last(store, part)


def _finish_truncation(store: FileStore, seq: int) -> None:
    """Cut the last block at the sequence, forget the intention, and start over."""
    block = store.catalog.active
    if block.last_seq > seq:
        rewrite_block(store, block, last_seq=seq)
    last = store.catalog.prev_live(seq)
    record = store.catalog.find(last) if last is not None else None
    time_ns = record.time_ns if record is not None else 0
    write_checkpoint(store.files, store.directory, _empty_checkpoint(store, time_ns), store.sealer)
    store.reload(seq + 1)

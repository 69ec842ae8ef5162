"""What is asked of a FileStore now and then, and changes files that are already written.

    compact_files   blocks without what is dead
    rotate_keys     every file under another key, cipher or compression
    convert         the same for what was written with other options than the store's
    erase           one message made unrecoverable; `erase_soon` leaves the disk's part of it to the commits that follow
    truncate        everything after a sequence undone

Each puts on record, durably, what it is about to do before the first byte of what it replaces goes: a crash in the
middle is finished, or forgotten, when the store is opened again. All but `erase_soon` waits for the disk, here and now.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from jetlake.errors import CorruptBlock, StoreFrozen, WrongKey
from jetlake.store.blocks.block import MsgBlock
from jetlake.store.blocks.checkpoint import write_checkpoint
from jetlake.store.blocks.removal import ERASE, RemovalGroup
from jetlake.store.blocks.sealed_file import EVIDENCE, HEAD_SIZE, Sealer
from jetlake.store.disk.compaction import Compaction
from jetlake.store.disk.files import atomic_write
from jetlake.store.disk.rewrite import erase_bytes, rewrite_block
from jetlake.store.format import CHECKPOINT_NAME, SALT_SIZE, is_own_name
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.records.record import Record, encode

if TYPE_CHECKING:
    from jetlake.store.disk.file_options import FileOptions
    from jetlake.store.filestore import FileStore


def compact_files(store: FileStore, dead_part_max: float) -> int:
    """Rewrite every block of which more than a part is dead; how many."""
    compaction = Compaction(store, dead_part_max)
    store.commit(sync=True)
    while not compaction.is_done:
        store.commit(sync=True)
    return compaction.block_count


def rotate_keys(store: FileStore, options: FileOptions) -> None:
    """Write everything that is under other options again, here and now."""
    store.commit(sync=True)
    store.options = options
    store.store_salt = options.salt or secrets.token_bytes(SALT_SIZE)
    begin_conversion(store)
    store.commit(sync=True)
    while store.has_more:
        store.commit(sync=True)
    _seal_evidence(store)
    write_checkpoint(store.files, store.directory, store._checkpoint(), store.sealer)


def convert(store: FileStore) -> None:
    """Bring a store that was just opened to its options: at once what is not encrypted as they say, the rest soon.

    Nothing more is written to a block under other options. Blocks of another compression are rewritten by the commits
    that follow, one by each. What is under no key, or under another one, does not wait for those.
    """
    if begin_conversion(store):
        store.commit(sync=True)
    while any(block.id in store._sparse and not store.is_under_key(block) for block in store.catalog.blocks):
        store.commit(sync=True)
    if _seal_evidence(store) or not _is_checkpoint_current(store):
        write_checkpoint(store.files, store.directory, store._checkpoint(), store.sealer)


def begin_conversion(store: FileStore) -> bool:
    """Have the blocks rewritten that are not as the options say. Was the active one of them? It gets a successor."""
    is_active_stale = not store.is_current(store.catalog.active)
    if is_active_stale:
        store.seal_active()
    store.rewrite_soon(block for block in store.catalog.blocks[:-1] if not store.is_current(block))
    return is_active_stale


def _is_checkpoint_current(store: FileStore) -> bool:
    path = f"{store.directory}/{CHECKPOINT_NAME}"
    return not store.files.exists(path) or store.sealer.is_current(store.files.read(path))


def _seal_evidence(store: FileStore) -> bool:
    """Encrypt what damage left behind, as far as it is not; whether there was any."""
    sealer, is_any = store.sealer, False
    for name in store.files.list(store.directory):
        if name.endswith(".damaged") and is_own_name(name):
            path = f"{store.directory}/{name}"
            with store.files.open(path) as file:
                if sealer.is_current(file.pread(0, HEAD_SIZE)):
                    continue
            with suppress(CorruptBlock, WrongKey):  # it is encrypted, and what it says can wait
                plain = Sealer(keys=sealer.keys).open(store.files.read(path), EVIDENCE, path)
                atomic_write(store.files, path, [sealer.seal(plain, EVIDENCE)])
                is_any = True
    return is_any


def erase(store: FileStore, seq: int) -> None:
    """Put the intention on record, durably; then overwrite the bytes."""
    catalog = store.catalog
    block = catalog.block_of(seq)
    assert block is not None
    if block is catalog.active and not store.block_files[block.id].envelope.is_plain:
        store.seal_active()  # its block will be written anew
    record = catalog.find(seq)
    if record is None:
        _erase_unreadable(store, block)
        return
    group = _erase_group(store, block, record)
    store._stage_group(group)
    is_sparse = block.id in store._sparse
    store._sparse.discard(block.id)  # it must stay as it is until this is done
    store.commit(sync=True)
    erase_live(store, block, group)
    if is_sparse and block.id in store.block_files:
        store._sparse.add(block.id)


def erase_soon(store: FileStore, seq: int) -> None:
    """Remove a message of a block with an envelope; later commits write the block anew, and shred its old file.

    The tombstone is part of the next commit, and so durable before the old file goes. If the block itself goes before
    that, its file is shredded instead. After a crash in between the message is erased by recovery, or there as before.
    """
    catalog = store.catalog
    block = catalog.block_of(seq)
    assert block is not None
    if block is catalog.active:
        store.seal_active()
    record = catalog.find(seq)
    if record is None:
        _erase_unreadable(store, block)
        return
    store._stage_group(_erase_group(store, block, record))
    slot = catalog.table.find(record.subject)
    store._leave(block, seq, slot, store._size(record.subject, record.headers, record.payload))
    store._erasing.add(block.id)
    store._sparse.add(block.id)
    if seq == catalog.first_seq:
        store._advance_first(seq)
    else:
        store._after_removal(block)


def erase_at_checkpoint(store: FileStore, seq: int) -> None:
    """Remove a message; the next checkpoint writes its block anew, and shreds the old file.

    A power cut between the two leaves the bytes in the file, though not the message in the stream.
    """
    catalog = store.catalog
    block = catalog.block_of(seq)
    assert block is not None
    if block is catalog.active:
        store.seal_active()
    store._erasing.add(block.id)
    store._sparse.add(block.id)
    store._remove(seq)


def _erase_group(store: FileStore, block: MsgBlock, record: Record) -> RemovalGroup:
    """What says that a message is to be erased, and where it lies."""
    index, seq = store.catalog.index(block), record.seq
    place = (index.offsets[index.position(seq)], len(encode(record, block.seed)))
    return RemovalGroup(block.id, block.header.generation, SequenceSet([(seq, seq)]), kind=ERASE, place=place)


def erase_live(store: FileStore, block: MsgBlock, group: RemovalGroup) -> None:
    """Remove the message of an ERASE tombstone that is on record, and overwrite it."""
    catalog, seq = store.catalog, group.seqs.first
    record = catalog.find(seq)
    if record is None:
        _erase_unreadable(store, block)
        return
    slot, size = catalog.table.find(record.subject), store._size(record.subject, record.headers, record.payload)
    store._leave(block, seq, slot, size)
    with _freezing(store):
        erase_bytes(store, block, seq, size, group.place, record.time_ns)
    if seq == catalog.first_seq:
        store._advance_first(seq)
    else:
        store._after_removal(block)


def _erase_unreadable(store: FileStore, block: MsgBlock) -> None:
    """Overwrite what is left of messages that turned out to be unreadable, with the file that they lie in."""
    if block is store.catalog.active:
        store.seal_active()
    store.commit(sync=True)
    if block.id in store.block_files:  # else it went with the message, as its last one
        with _freezing(store):
            rewrite_block(store, block, shred=True)


def truncate(store: FileStore, seq: int) -> None:
    """Undo everything after a sequence."""
    catalog = store.catalog
    if catalog.active.body_size:
        store.seal_active()
    store.commit(sync=True)
    # What says that messages are gone may lie in what is cut off: the blocks that stay must say it themselves.
    kept = [block for block in catalog.blocks[:-1] if block.first_seq <= seq]
    for block in kept[:-1]:
        if block.gone:
            _rewrite(store, block)
    if kept:
        between = _between(kept)
        between.difference_update(catalog.lost)
        kept[-1].floor_seq = catalog.first_seq
        _rewrite(store, kept[-1], [RemovalGroup(0, 0, between)])
    store.truncations += 1
    checkpoint = store._checkpoint()
    checkpoint.truncate_seq = seq
    write_checkpoint(store.files, store.directory, checkpoint, store.sealer)
    store.reload(seq + 1)
    if store.catalog.last_seq < seq:
        store._skip(seq - store.catalog.last_seq, store._now())


def _between(blocks: Sequence[MsgBlock]) -> SequenceSet:
    """The sequences between blocks, which belonged to blocks that were let go."""
    between = SequenceSet()
    for block, following in pairwise(blocks):
        if following.first_seq > block.last_seq + 1:
            between.add_range(block.last_seq + 1, following.first_seq - 1)
    return between


def _rewrite(store: FileStore, block: MsgBlock, extra: Sequence[RemovalGroup] = ()) -> None:
    with _freezing(store):
        rewrite_block(store, block, extra=extra)


@contextmanager
def _freezing(store: FileStore) -> Iterator[None]:
    """An error in here leaves the disk in a state that only opening it again finds out."""
    try:
        yield
    except Exception as error:
        store.fail_commit(error)
        raise StoreFrozen(store.name, error) from error

"""Which pieces of which blocks hold the messages that are wanted, and how they are shared out.

Blocks are ruled out by what their sidecars say of sequences, times and subjects, before a byte of them is read; the
decoder then filters exactly. All cores get equally many partitions of about the same size, none much larger than the
option `partitionSize` says: several small blocks, one block, or a part of one.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeVar

from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.blocks.catalog import Catalog
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectFilter
from jetlake.store.view import BlockChanged, StreamView
from jetlake.table.blocks import Piece, Selection

PARTITION_SIZE_DEFAULT = 512 * 1024 * 1024
SHARE_SIZE_MIN = 8 * 1024 * 1024  # to start a task takes as long as to read so much


class Plan(NamedTuple):
    """The pieces of a stream to be read, and what is known to be missing from it."""

    pieces: list[Piece]
    damaged: SequenceSet


def plan(view: StreamView, selection: Selection, size_max: int = PARTITION_SIZE_DEFAULT) -> Plan:
    """Pieces of at most about a size, oldest first, that cover everything wanted."""
    catalog = view.catalog
    first, last = max(selection.first_seq, catalog.first_seq), min(selection.last_seq, catalog.last_seq)
    pieces: list[Piece] = []
    matcher = SubjectFilter(selection.filters)
    for block in catalog.blocks_from(first):
        if block.first_seq > last:
            break
        if _can_match(view, block, selection, matcher):
            pieces += _cut_block(catalog, block, max(first, block.first_seq), min(last, block.last_seq), size_max)
    return Plan(pieces, SequenceSet(catalog.lost.ranges_between(selection.first_seq, selection.last_seq)))


class Stretch(Protocol):
    """Some bytes of a file."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


S = TypeVar("S", bound=Stretch)


def partitions(pieces: list[S], size_max: int = PARTITION_SIZE_DEFAULT) -> list[list[S]]:
    """Pieces in rows of about the same size, as many for each core of this machine."""
    size_all, cores = sum(piece.end - piece.start for piece in pieces), os.cpu_count() or 1
    if not size_all:
        return [pieces] if pieces else []
    count_min = -(-size_all // size_max)
    turns = -(-count_min // cores)  # of each core, all of them equally long
    count = max(count_min, min(turns * cores, size_all // SHARE_SIZE_MIN))
    while True:
        rows = _even_rows(pieces, size_all, count)
        sizes = [sum(piece.end - piece.start for piece in row) for row in rows if len(row) > 1]
        if max(sizes, default=0) <= size_max + size_max // 8:
            return rows
        count += cores


def _even_rows(pieces: list[S], size_all: int, count: int) -> list[list[S]]:
    """Cut a line of pieces into so many equal lengths: a piece belongs where its middle lies."""
    rows: list[list[S]] = [[] for _ in range(count)]
    offset = 0
    for piece in pieces:
        size = piece.end - piece.start
        rows[min((2 * offset + size) * count // (2 * size_all), count - 1)].append(piece)
        offset += size
    return [row for row in rows if row]


def first_seq_at(catalog: Catalog, time_ns: int) -> int:
    """Where the first block with a message stored at or after a time begins; the next sequence when there is none.

    Times need not ascend in a store that was written by others than a server, so only blocks can be ruled out.
    """
    for block in catalog.blocks:
        if block.time_ns_max >= time_ns:
            return max(block.first_seq, catalog.first_seq)
    return catalog.last_seq + 1


def nth_live(catalog: Catalog, start: int, count: int) -> int:
    """The sequence of the `count`-th live message at or after `start`, or the last of the stream."""
    for block in catalog.blocks_from(start):
        for first, last in block.live_runs(start, block.last_seq):
            if count <= last - first + 1:
                return first + count - 1
            count -= last - first + 1
    return catalog.last_seq


def last_within(catalog: Catalog, start: int, size_max: int) -> int:
    """The last sequence such that the records from `start` to it take at most so many bytes; at least one message."""
    first = catalog.next_live(start)
    if first is None:
        return catalog.last_seq
    for block in catalog.blocks_from(first):
        index = _index(catalog, block)
        position = index.position_from(first) if index is not None else 0
        if index is not None and position == index.count:
            continue
        rest = block.body_size - (index.offsets[position] if index is not None else 0)
        if rest <= size_max or index is None:
            size_max = max(size_max - rest, 0)
            continue
        fits = _fitting(index, block, position, index.count, size_max)
        return max(index.seq(fits - 1) if fits > position else block.first_seq - 1, first)
    return catalog.last_seq


def size_between(catalog: Catalog, first: int, last: int) -> int:
    """How many bytes the records from one sequence to another take."""
    size = 0
    for block in catalog.blocks_from(first):
        if block.first_seq > last:
            break
        index = _index(catalog, block)
        if index is None:
            size += block.body_size
            continue
        position, stop = index.position_from(first), index.position_from(last + 1)
        if position < stop:
            size += index.end(stop - 1, block.body_size) - index.offsets[position]
    return size


def _index(catalog: Catalog, block: MsgBlock) -> BlockIndex | None:
    """Where the messages of a block lie; None when that changed since: who reads it will see what is left of it."""
    try:
        return catalog.index(block)
    except BlockChanged:
        return None


def _fitting(index: BlockIndex, block: MsgBlock, position: int, stop: int, size_max: int) -> int:
    """The position after the last message that ends at most so many bytes after the start of the one at `position`."""
    start = index.offsets[position]
    return bisect_right(range(stop), size_max, lo=position, key=lambda at: index.end(at, block.body_size) - start)


def _can_match(view: StreamView, block: MsgBlock, selection: Selection, matcher: SubjectFilter) -> bool:
    if not block.message_count or not selection.time_ns_min <= block.time_ns_max:
        return False
    if block.time_ns_min > selection.time_ns_max:
        return False
    return matcher.is_all or bool(len(view.subjects(block).match(matcher)))


def _cut_block(catalog: Catalog, block: MsgBlock, first: int, last: int, size_max: int) -> Iterator[Piece]:
    """The live messages of a block between two sequences, in pieces."""
    is_whole = first == block.first_seq and last == block.last_seq and block.body_size <= size_max
    index = None if is_whole else _index(catalog, block)
    if index is None:
        yield _piece(block, first, last, 0, block.body_size)
        return
    position, stop = index.position_from(first), index.position_from(last + 1)
    while position < stop:
        following = max(_fitting(index, block, position, stop, size_max), position + 1)
        start, end = index.offsets[position], index.end(following - 1, block.body_size)
        piece_last = last if following == stop else index.seq(following - 1)
        piece = _piece(block, first, piece_last, start, end)
        if piece.live:
            yield piece
        first, position = piece_last + 1, following


def _piece(block: MsgBlock, first: int, last: int, start: int, end: int) -> Piece:
    gone = SequenceSet(block.gone.ranges_between(first, last))
    header, sizes = block.header, (first, last, start, end)
    return Piece(
        block.path, header.generation, block.first_seq, *sizes, gone.encode(), header.hash_seed, header.stream_id
    )

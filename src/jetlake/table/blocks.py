"""Read a piece of a block into Arrow arrays: what an executor does for each piece of its partition.

A piece was planned from a view of the directory (`plan.py`); when it is read the stream may have gone on. Deleted
messages are still returned while their bytes are there, for the set of messages was fixed by the plan. Ones that cannot
be had any more are counted, found by sequence and told to `Losses`: *gone* when the block was dropped, written anew or
erased from since, *damaged* when the bytes are there and not sound.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from jetlake.errors import CorruptBlock
from jetlake.store.blocks.block_scan import Body, read_body
from jetlake.store.blocks.envelope import KeySource
from jetlake.store.disk.files import OS_FILES, File, Files
from jetlake.store.format import ERASED, HEADER_SIZE, BlockHeader, Buffer
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.records.record import decode as decode_record
from jetlake.store.records.scan import scan
from jetlake.store.verify.check import show_ranges
from jetlake.store.view import header_of, open_block_file, pinned
from jetlake.table.arrow import FIELDS, HEADERS_TYPE, ColumnPool, Wanted, arrays, decode
from jetlake.table.errors import MessagesDamaged, MessagesGone

WINDOW_SIZE = 2 * 1024 * 1024
_log = logging.getLogger("jetlake.spark")


class Selection(NamedTuple):
    """Which messages of a stream are wanted; times are inclusive."""

    first_seq: int = 1
    last_seq: int = 2**63 - 1
    time_ns_min: int = -(2**63)
    time_ns_max: int = 2**63 - 1
    filters: tuple[str, ...] = ()


class Piece(NamedTuple):
    """A range of a block's messages, as a plan fixed it."""

    path: str
    generation: int
    block_first_seq: int
    first_seq: int
    last_seq: int
    start: int  # plain body offsets between which they lie, in this generation of the block
    end: int
    gone: bytes  # an encoded SequenceSet: which of them are not live
    seed: int = 0  # the block's hash seed, which every generation of it has, and no other block
    stream_id: bytes = b""

    @property
    def live(self) -> SequenceSet:
        """The sequences that the piece must yield."""
        return SequenceSet(SequenceSet.decode(self.gone).gaps(self.first_seq, self.last_seq))


class Losses:
    """What to do about messages that cannot be read: fail, or go on and say so."""

    def __init__(self, stream: str, *, fail_on_gap: bool, fail_on_damage: bool) -> None:
        self.stream, self._fail_on_gap, self._fail_on_damage = stream, fail_on_gap, fail_on_damage

    def gone(self, seqs: SequenceSet) -> None:
        if seqs and self._fail_on_gap:
            raise MessagesGone(self.stream, seqs)
        if seqs:
            _log.warning("messages removed before they were read stream=%s seqs=%s", self.stream, show_ranges(seqs))

    def damaged(self, seqs: SequenceSet, where: str) -> None:
        if seqs and self._fail_on_damage:
            raise MessagesDamaged(self.stream, seqs, where)
        if seqs:
            _log.warning("messages damaged stream=%s seqs=%s where=%s", self.stream, show_ranges(seqs), where)


class PieceReader:
    """Reads pieces, one after the other, into buffers that it uses again."""

    def __init__(
        self,
        names: Sequence[str],
        selection: Selection,
        losses: Losses,
        keys: Sequence[KeySource] = (),
        files: Files = OS_FILES,
        headers_type: pa.DataType = HEADERS_TYPE,
    ) -> None:
        self._names = [name for name in names if name in FIELDS]
        self._headers_type = headers_type
        self._selection, self._losses, self._keys, self._files = selection, losses, keys, files
        self._scratch = bytearray(WINDOW_SIZE)
        self._pool = ColumnPool.of(self._names)

    def read(self, piece: Piece) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """Batches of the piece's messages: how many rows, and their columns."""
        try:
            file, header, body = self._open(piece)
        except FileNotFoundError:
            self._losses.gone(piece.live)
            return
        with file:
            if header is None:
                self._losses.damaged(piece.live, f"{piece.path}: both headers are damaged")
                return
            if (
                header.hash_seed != piece.seed and header.stream_id == piece.stream_id
            ):  # the stream was cut, and went on
                self._losses.gone(piece.live)
                return
            if header.hash_seed != piece.seed:
                self._losses.damaged(piece.live, f"{piece.path}: is another block than the one that was planned for")
                return
            seen = 0
            for rows, batch, count in self._decode(file, header, body, piece):
                seen += count
                if rows:
                    yield rows, batch
            if seen < piece.live.count:
                self._explain(file, header, body, piece, piece.live.count - seen)

    def _open(self, piece: Piece) -> tuple[File, BlockHeader | None, Body | None]:
        """The piece's file, and its whole body where that lies in frames.

        To erase a message from frames, the block is written anew, and the old file is overwritten under those who read
        it: what looks damaged is read again if there is another file.
        """
        while True:
            file = open_block_file(self._files, piece.path)
            header, body = header_of(file), None
            source = pinned(file, header, self._files, self._keys) if header is not None else None
            if source is not None and not source.envelope.is_plain:
                body = read_body(source)
            is_sound = header is not None and (body is None or not (body.damage or body.tail))
            if is_sound or self._header_now(piece) == header:
                return file, header, body
            file.close()

    def _header_now(self, piece: Piece) -> BlockHeader | None:
        with open_block_file(self._files, piece.path) as file:
            return header_of(file)

    def _decode(
        self, file: File, header: BlockHeader, body: Body | None, piece: Piece
    ) -> Iterator[tuple[int, dict[str, pa.Array], int]]:
        """Decode the piece's bytes; also how many of its messages each batch saw, wanted or not."""
        wanted = self._wanted(piece)
        prev_seq = piece.block_first_seq - 1
        for data, is_final in self._windows(file, header, body, piece):
            start = 0
            while True:
                columns = self._pool.take(len(data) - start)
                found = decode(data, start, len(data), header.hash_seed, prev_seq, is_final, *wanted, columns)
                prev_seq = found.last_seq
                yield found.rows, arrays(self._names, columns, found, self._headers_type), found.seen
                if found.rows < columns.rows_max or found.end == len(data):
                    break
                start = found.end
            self._rest = len(data) - found.end

    def _wanted(self, piece: Piece) -> Wanted:
        selection, gone = self._selection, SequenceSet.decode(piece.gone)
        times = {"time_ns_min": selection.time_ns_min, "time_ns_max": selection.time_ns_max}
        return Wanted.of(piece.first_seq, piece.last_seq, gone, selection.filters, **times)

    def _windows(
        self, file: File, header: BlockHeader, body: Body | None, piece: Piece
    ) -> Iterator[tuple[Buffer, bool]]:
        """The piece's bytes, some at a time, and whether they are the last ones.

        What the caller leaves over of a window (`_rest`) comes again in the next. A window of which nothing was taken
        holds a record larger than it, or damage: the next one is twice as large, up to all there is.
        """
        same = header.generation == piece.generation
        if body is not None:
            yield (memoryview(body.data)[piece.start : piece.end] if same else body.data), True
            return
        start, end = (piece.start, piece.end) if same else (0, file.size() - HEADER_SIZE)
        size = WINDOW_SIZE
        while start < end:
            if size > len(self._scratch):
                self._scratch = bytearray(size)
            view = memoryview(self._scratch)[: min(size, end - start)]
            count = file.pread_into(HEADER_SIZE + start, view)
            is_final = count < len(view) or start + count >= end
            self._rest = 0
            yield view[:count], is_final
            if is_final:
                return
            taken = count - self._rest
            size = WINDOW_SIZE if taken else 2 * size
            start += taken

    def _explain(self, file: File, header: BlockHeader, body: Body | None, piece: Piece, count: int) -> None:
        """Some of the piece's messages were not found: which, and why?"""
        data = (body if body is not None else read_body(pinned(file, header, self._files, self._keys))).data
        found = scan(data, 0, len(data), header.hash_seed, header.first_seq - 1, SubjectTable(), 0, 0)
        missing = piece.live
        missing.difference_update(SequenceSet((seq, seq) for seq in found.seqs))
        if header.generation != piece.generation:
            self._losses.gone(missing)
            return
        erased = SequenceSet()
        for offset in found.others:
            if data[offset] & ERASED:
                erased.add(decode_record(data, offset, len(data), header.hash_seed)[0].seq)
        gone = SequenceSet((seq, seq) for seq in missing if seq in erased)
        missing.difference_update(gone)
        if missing.count > count:
            raise CorruptBlock(piece.path, 0, f"{count} messages could not be read, a moment later {missing.count}")
        if missing.count < count:  # else they were erased after they had been read
            self._losses.gone(gone)
        self._losses.damaged(missing, piece.path)

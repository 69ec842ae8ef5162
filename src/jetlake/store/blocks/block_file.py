"""A block's file: its header, and the body in plain or in frames. `format.py` has the layout.

Readers and writers speak of plain body offsets; only this module knows that a body may be compressed and encrypted.
A frame holds whole records, so that damage to one costs no record of another.
"""

from __future__ import annotations

import errno
import resource
import threading
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from jetlake.errors import CorruptBlock, WrongKey
from jetlake.store.blocks.envelope import Cipher, Compression, Envelope, EnvelopeError, KeySource, block_key, key_check
from jetlake.store.disk.files import File, Files, is_no_space
from jetlake.store.format import (
    BODY_SIZE_MAX,
    FRAME_HEAD,
    FRAME_HEAD_SIZE,
    FRAME_MAGIC,
    FRAME_TAIL_SIZE,
    HEADER_SIZE,
    NO_STREAM,
    BlockHeader,
    Buffer,
    decode_header,
    hash64,
)

FRAME_SIZE_TARGET = 256 * 1024
_DECODED_FRAMES_MAX = 4
_OPEN_FILES_MAX = 4096
_ZEROS = memoryview(bytes(64 * 1024))  # what is reserved at a time


class Frame(NamedTuple):
    """Where a frame lies in the plain body and in the file."""

    plain_offset: int
    plain_size: int
    file_offset: int
    stored_size: int

    @property
    def file_end(self) -> int:
        return self.file_offset + FRAME_HEAD_SIZE + self.stored_size + FRAME_TAIL_SIZE


class BlockFile:
    """The file of one block."""

    def __init__(self, files: Files, path: str, header: BlockHeader, envelope: Envelope) -> None:
        self.files, self.path, self.header, self.envelope = files, path, header, envelope
        self.frames: list[Frame] = []
        self.file_size = HEADER_SIZE  # where the next bytes go
        self._reserved_size = 0  # up to where there are zeros behind them
        self.is_pinned = False  # stays open: its name is about to lead to another file
        self.is_dirty = False  # written to, and not synced: stays open too, so that a sync hears of every error
        self._write_count = 0
        self.was_used = False  # since `OPEN_FILES` last looked for a file to close
        self.is_secret = False  # when it goes, its bytes must be overwritten
        self._file: File | None = None
        self._decoded: OrderedDict[int, bytes] = OrderedDict()

    @property
    def file(self) -> File:
        """The open file; opened again after `release`."""
        file = self._file  # another thread may release it meanwhile
        if file is None:
            file = self._file = OPEN_FILES.open(self, write=True)
        self.was_used = True
        return file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def create(self) -> None:
        """Make the file, with its header. Its name is durable once the directory is synced."""
        self.is_dirty = True
        if self._file is None:  # else the disk was full when it was made
            self._file = OPEN_FILES.open(self, create=True)
        self.file.pwrite(0, self.header.encode())

    def pin(self) -> None:
        """Keep the file open, whatever its name leads to from now on."""
        with OPEN_FILES.lock:
            self.is_pinned = True
        assert self.file

    def release(self) -> None:
        """Give the descriptor back; the next use opens the file again."""
        if not self.is_pinned:
            self._file = None  # closes when nobody reads from it any more
        self._decoded = OrderedDict()

    def sync(self) -> None:
        """Make what was written durable."""
        self.file.sync()
        self.is_dirty = False

    def sync_beside(self) -> None:
        """The same in a thread of its own, while others may be writing."""
        count = self._write_count
        self.file.sync()
        if count == self._write_count:
            self.is_dirty = False

    def place(
        self, parts: Sequence[memoryview], plain_offset: int, cuts: Sequence[int], last_seq: int
    ) -> tuple[int, Sequence[Buffer]]:
        """Where body bytes are to lie in the file, and what is to lie there: see `write_placed`."""
        offset = HEADER_SIZE + plain_offset if self.envelope.is_plain else self.file_size
        if self.envelope.is_plain:
            self.file_size = offset + sum(map(len, parts))
            return offset, parts
        return offset, self.add_frames(memoryview(b"".join(parts)), plain_offset, cuts, last_seq)

    def write_placed(self, offset: int, parts: Sequence[Buffer]) -> None:
        """Write what was placed. The redo log has it: it is not reserved for, nor synced."""
        self.is_dirty = True
        self._write_count += 1
        self.file.pwritev(offset, parts)

    def append(
        self,
        parts: Sequence[memoryview],
        plain_offset: int,
        cuts: Sequence[int],
        last_seq: int,
        *,
        reserve: bool = False,
    ) -> None:
        """Write body bytes from `plain_offset` on. `cuts` are the offsets at which a frame must end.

        `reserve` puts zeros behind them, when there are none yet. Syncing what is written over those is cheaper by a
        good part, because it does not change the size of the file.
        """
        self.is_dirty = True
        self._write_count += 1
        if self.envelope.is_plain:
            offset = HEADER_SIZE + plain_offset
            self.file_size = offset + sum(map(len, parts))
            if reserve and self.file_size > self._reserved_size:
                self._write_and_reserve(offset, parts)
            else:
                self.file.pwritev(offset, parts)
            return
        file_offset, frame_count = self.file_size, len(self.frames)
        frames = self.add_frames(memoryview(b"".join(parts)), plain_offset, cuts, last_seq)
        try:
            self.file.pwritev(file_offset, frames)
        except OSError:
            self.file_size = file_offset
            del self.frames[frame_count:]
            raise

    def _write_and_reserve(self, offset: int, parts: Sequence[memoryview]) -> None:
        try:
            self.file.pwritev(offset, [*parts, _ZEROS])
            self._reserved_size = self.file_size + len(_ZEROS)
        except OSError as error:
            if not is_no_space(error):
                raise
            self.file.pwritev(offset, parts)  # there may still be enough for what matters
            self.file.truncate(self.file_size)  # and for others

    def stamp_floor(self, floor_seq: int) -> None:
        """Say in the header, durably, that every sequence below one is gone. It takes no room on the disk."""
        self.files.settle(self.path)
        header = self.header._replace(floor_seq=floor_seq)
        self.file.pwrite(0, header.encode())
        self.file.sync()
        self.header = header

    def drop_body(self) -> None:
        """Give back the room of the records, none of which is needed any more."""
        self.files.settle(self.path)
        self.file.truncate(HEADER_SIZE)
        self.file_size, self._reserved_size, self.frames = HEADER_SIZE, 0, []

    def trim(self) -> None:
        """Take back what was reserved: nothing more is written for now."""
        if self._reserved_size > self.file_size:
            self.file.truncate(self.file_size)
        self._reserved_size = 0

    def add_frames(self, plain: memoryview, plain_offset: int, cuts: Sequence[int], last_seq: int) -> list[bytes]:
        """Body bytes as frames, which are about to be written at the end of the file."""
        encoded, start = [], 0
        for cut in cuts:
            piece = plain[start : cut - plain_offset]
            data = encode_frame(self.envelope, piece, plain_offset + start, last_seq, self.header.hash_seed)
            stored_size = len(data) - FRAME_HEAD_SIZE - FRAME_TAIL_SIZE
            self.frames.append(Frame(plain_offset + start, len(piece), self.file_size, stored_size))
            encoded.append(data)
            self.file_size += len(data)
            start += len(piece)
        assert start == len(plain), "the last cut is the end"
        return encoded

    def read(self, start: int, end: int) -> bytes:
        """Body bytes start..end-1, or as many of them as come before damage; CorruptBlock when there are none."""
        if self.envelope.is_plain:
            data = self.file.pread(HEADER_SIZE + start, end - start)
            if not data and end > start:
                raise CorruptBlock(self.path, HEADER_SIZE + start, f"{end - start} bytes wanted, the file ends")
            return data
        parts, at = list[bytes](), start
        place = max(bisect_right(self.frames, start, key=lambda frame: frame.plain_offset) - 1, 0)
        for frame in self.frames[place:]:
            if at >= end or not frame.plain_offset <= at < frame.plain_offset + frame.plain_size:
                break
            try:
                plain = self._plain(frame)
            except CorruptBlock:
                if parts:
                    break
                raise
            parts.append(plain[at - frame.plain_offset : end - frame.plain_offset])
            at = frame.plain_offset + frame.plain_size
        if not parts and end > start:
            raise CorruptBlock(self.path, start, f"{end - start} bytes wanted, no readable frame holds them")
        return b"".join(parts)

    def damaged_frame(self, offset: int) -> Frame | None:
        """The frame that holds a body offset, if it cannot be read."""
        place = bisect_right(self.frames, offset, key=lambda frame: frame.plain_offset) - 1
        frame = self.frames[place] if place >= 0 else None
        if frame is None or offset >= frame.plain_offset + frame.plain_size:
            return None
        try:
            self._plain(frame)
        except (CorruptBlock, OSError):
            return frame
        return None

    def frame_after(self, offset: int, end: int) -> int:
        """Where the first frame that begins after a body offset does; `end` when none does."""
        place = bisect_right(self.frames, offset, key=lambda frame: frame.plain_offset)
        return self.frames[place].plain_offset if place < len(self.frames) else end

    def _plain(self, frame: Frame) -> bytes:
        decoded = self._decoded  # another thread may release the file meanwhile
        plain = decoded.get(frame.plain_offset)
        if plain is None:
            data = self.file.pread(frame.file_offset, frame.file_end - frame.file_offset)
            found = open_frame(self.envelope, data, 0, self.header.hash_seed)
            if isinstance(found, str):
                raise CorruptBlock(self.path, frame.file_offset, found)
            plain = decoded[frame.plain_offset] = found[1]
            if len(decoded) > _DECODED_FRAMES_MAX:
                decoded.popitem(last=False)
        return plain


class OpenFiles:
    """The files of blocks that are open, of all stores of a process: no more than a part of what the system allows.

    Files that were not used lately are closed first. What needs to stay open does: see `BlockFile`.
    """

    def __init__(self, count_max: int | None = None) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.count_max = min(max(limit // 4, 16), _OPEN_FILES_MAX) if count_max is None else count_max
        self._files: dict[int, weakref.ref[BlockFile]] = {}  # in the order in which they were opened, or spared
        self.lock = threading.Lock()

    def open(self, file: BlockFile, *, write: bool = False, create: bool = False) -> File:
        """Open a block's file, and close others that are too many."""
        self._close(len(self._files) + 1 - self.count_max)
        try:
            opened = file.files.open(file.path, write=write, create=create)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self._close(len(self._files), spare=False)
            opened = file.files.open(file.path, write=write, create=create)
        with self.lock:
            self._files.pop(id(file), None)
            self._files[id(file)] = weakref.ref(file)
        return opened

    def _close(self, count: int, *, spare: bool = True) -> None:
        """Close so many files, if there are; `spare` those that were used lately or wait for a sync."""
        with self.lock:
            for key in 2 * list(self._files) if count > 0 else ():
                file = self._files.pop(key, _nobody)()
                is_spared = file is not None and spare and (file.was_used or file.is_dirty)
                if file is not None and file.is_open and (file.is_pinned or is_spared):
                    file.was_used = False
                    self._files[key] = weakref.ref(file)
                    continue
                if file is not None:
                    file.release()
                    count -= 1
                if not count:
                    return


def _nobody() -> None:
    return None


OPEN_FILES = OpenFiles()


def frame_cuts(offsets: Sequence[int], count: int, start: int, end: int) -> list[int]:
    """Where to end frames between two body offsets: in front of a message, at the target size or sooner."""
    cuts = []
    while start < end:
        place = bisect_right(offsets, start + FRAME_SIZE_TARGET, 0, count)
        cut = offsets[place - 1] if place else start
        if cut <= start:  # one record is larger than a frame should be: it gets one of its own
            cut = offsets[place] if place < count else end
        start = end if end - start <= FRAME_SIZE_TARGET else min(cut, end)
        cuts.append(start)
    return cuts


def encode_frame(envelope: Envelope, plain: memoryview | bytes, plain_offset: int, last_seq: int, seed: int) -> bytes:
    """The bytes of a frame."""
    stored = envelope.seal(plain, _aad(envelope, plain_offset, len(plain), last_seq.to_bytes(8, "little")))
    head = FRAME_HEAD.pack(FRAME_MAGIC, plain_offset, len(plain), len(stored))
    head += hash64(head, seed).to_bytes(8, "little")
    data = head + stored + last_seq.to_bytes(8, "little") + (last_seq ^ seed).to_bytes(8, "little")
    return data + hash64(data, seed).to_bytes(8, "little")


def open_frame(envelope: Envelope, data: bytes, start: int, seed: int) -> tuple[Frame, bytes] | str:
    """The frame at `start` and its plain bytes, or what is wrong with it."""
    frame = frame_at(data, start, seed)
    if frame is None:
        return "frame header is damaged"
    if frame.file_end > len(data):
        return f"frame says {frame.file_end - start} bytes, {len(data) - start} remain"
    stored_hash = int.from_bytes(data[frame.file_end - 8 : frame.file_end], "little")
    if hash64(memoryview(data)[start : frame.file_end - 8], seed) != stored_hash:
        return "frame checksum does not match"
    stored = memoryview(data)[start + FRAME_HEAD_SIZE : frame.file_end - FRAME_TAIL_SIZE]
    last_seq = data[frame.file_end - FRAME_TAIL_SIZE : frame.file_end - FRAME_TAIL_SIZE + 8]
    aad = _aad(envelope, frame.plain_offset, frame.plain_size, last_seq)
    try:
        return frame, envelope.open(stored, aad, frame.plain_size)
    except EnvelopeError as error:
        return str(error)


def _aad(envelope: Envelope, plain_offset: int, plain_size: int, last_seq: bytes) -> bytes:
    """What is authenticated with a frame."""
    head = FRAME_HEAD.pack(FRAME_MAGIC, plain_offset, plain_size, 0)
    return head + last_seq if envelope.is_bound else head


def frame_at(data: bytes, start: int, seed: int) -> Frame | None:
    """The head of a frame, when there is a sound one at `start`."""
    head = data[start : start + FRAME_HEAD_SIZE]
    if len(head) < FRAME_HEAD_SIZE or int.from_bytes(head[-8:], "little") != hash64(head[:-8], seed):
        return None
    magic, plain_offset, plain_size, stored_size = FRAME_HEAD.unpack_from(head)
    if magic != FRAME_MAGIC or plain_size > BODY_SIZE_MAX - plain_offset:
        return None
    return Frame(plain_offset, plain_size, start, stored_size)


def read_header(files: Files, path: str) -> BlockHeader | None:
    """The header of a block file; None when both copies are damaged or missing."""
    with files.open(path) as file:
        try:
            return decode_header(file.pread(0, HEADER_SIZE))
        except ValueError as error:
            raise CorruptBlock(path, 0, str(error)) from error


def envelope_of(header: BlockHeader, keys: Sequence[KeySource], path: str) -> Envelope:
    """How a block's frames are sealed; WrongKey when none of the keys is its key."""
    try:
        cipher, compression = Cipher(header.cipher), Compression(header.compression)
    except ValueError as error:
        raise CorruptBlock(path, 0, f"header: {error}") from error
    if cipher is Cipher.NONE:
        return Envelope(compression, cipher, None)
    if not keys:
        raise WrongKey(path, "is encrypted, and no key was given")
    for source in keys:
        key = key_of(header, source)
        if key_check(key) == header.key_check:
            return Envelope(compression, cipher, key, is_bound=header.stream_id != NO_STREAM)
    raise WrongKey(path, "is encrypted with another key")


def key_of(header: BlockHeader, source: KeySource) -> bytes:
    """The key that a block would have if it were encrypted with this source's."""
    return block_key(source.master(header.store_salt), header.block_salt, header.key_context)


def is_under(header: BlockHeader, cipher: Cipher, keys: Sequence[KeySource]) -> bool:
    """Whether a block is encrypted with the cipher and the first of the keys; with none, whether it is not."""
    if header.cipher != cipher or cipher is Cipher.NONE:
        return header.cipher == cipher
    return key_check(key_of(header, keys[0])) == header.key_check

"""A log in segments: append, sync, and after a crash read it from the beginning.

    log = Log(files, directory, purpose=1)
    log.append([body])                # written
    log.sync()                        # durable
    ...
    found = read_log(files, directory, purpose=1)

A new Log never writes to a segment that is there already: it begins one of its own, behind those. Which segments are
still needed only the owner knows; `retire` takes those away that are before one. They are overwritten with zeros, which
leaves no bytes of erased messages behind, and one of them is kept as the next segment. After an error of `append` or
`sync` nobody knows what the file holds, so the log takes no more: the owner has to begin a new one.

Each append is to be synced before the next one. A Log is used by one thread at a time; only `retire` may be called in
another. `segment.py` has the format.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from jetlake.store.disk.files import File, Files, atomic_write, is_no_space, temp_target
from jetlake.store.format import Buffer
from jetlake.store.log.segment import (
    HEADER_SIZE,
    NOTE_SIZE,
    Record,
    SegmentHeader,
    decode_header,
    encode_record,
    parse_segment_name,
    record_size,
    scan,
    segment_name,
)

SEGMENT_SIZE = 16 * 1024 * 1024
RESERVE_SIZE = 1024 * 1024
SPARE_NAME = "spare"
_RETIRED = ".old"


class Log:
    """The writing end of a log."""

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        purpose: int,
        next_seq: int = 1,
        next_number: int = 1,
        note: bytes = bytes(NOTE_SIZE),
        segment_size: int = SEGMENT_SIZE,
        reserve_size: int = RESERVE_SIZE,
    ) -> None:
        """The directory must be there. `next_seq` and `next_number` come after all that `read_log` found."""
        self._files, self.directory = files, directory
        self._purpose, self._note = purpose, note
        self.next_seq, self.number = next_seq, next_number - 1  # of the segment that is written to
        self.segment_size = segment_size
        self._zeros = bytes(reserve_size)
        self._file: File | None = None
        self._seed = self._end = self._reserved_end = 0
        self._has_spare = files.exists(f"{directory}/{SPARE_NAME}")
        self.error: BaseException | None = None  # why nothing can be written any more

    @property
    def size(self) -> int:
        """How many bytes of the current segment are used."""
        return self._end if self._file is not None else 0

    def append(self, bodies: Sequence[Buffer]) -> int:
        """Write records, all into one segment; its number. They are durable after `sync`."""
        self._check()
        try:
            size = sum(record_size(len(body)) for body in bodies)
            if self._file is None or self._end + size > max(self.segment_size, HEADER_SIZE + size):
                self._begin_segment()
            parts, offset, seq = list[Buffer](), self._end, self.next_seq
            for body in bodies:
                parts.append(encode_record(body, seq, offset, self._seed))
                offset, seq = offset + len(parts[-1]), seq + 1
            self._write(parts, offset)
        except BaseException as error:
            self.error = error
            raise
        self._end, self.next_seq = offset, seq
        return self.number

    def _write(self, parts: list[Buffer], end: int) -> None:
        assert self._file is not None
        if end <= self._reserved_end:
            self._file.pwritev(self._end, parts)
            return
        try:
            self._file.pwritev(self._end, [*parts, self._zeros])
            self._reserved_end = end + len(self._zeros)
        except OSError as error:
            if not is_no_space(error):
                raise
            self._file.pwritev(self._end, parts)  # there may still be enough for what matters
            self._file.truncate(end)  # and for others

    def sync(self) -> None:
        """Make what was appended durable."""
        self._check()
        if self._file is not None:
            try:
                self._file.sync()
            except BaseException as error:
                self.error = error
                raise

    def _check(self) -> None:
        if self.error is not None:
            raise OSError(f"{self.directory}: the log takes no more after: {self.error}")

    def _begin_segment(self) -> None:
        """Start another file. It has its header before it has its name."""
        if self._file is not None:
            self._file.sync()
        self.close()
        self.number += 1
        self._seed = secrets.randbits(64) | 1 << 63
        header = SegmentHeader(self._purpose, self.number, self._seed, self.next_seq, self._note)
        path, spare = f"{self.directory}/{segment_name(self.number)}", f"{self.directory}/{SPARE_NAME}"
        self._end = self._reserved_end = HEADER_SIZE
        if not self._has_spare:
            atomic_write(self._files, path, [header.encode()])
            self._file = self._files.open(path, write=True)
            return
        self._has_spare = False
        self._file = self._files.open(spare, write=True)
        self._file.pwrite(0, header.encode())
        self._file.sync()
        self._files.rename(spare, path)
        self._files.sync_dir(self.directory)
        self._reserved_end = self._file.size()

    def next_segment(self) -> int:
        """Let the next append begin a segment; the number that it will have."""
        self.close()
        return self.number + 1

    def retire(self, number: int) -> None:
        """Take away all segments before one: their bytes are overwritten, and one of the files is kept for later."""
        for name in self._files.list(self.directory):
            found = parse_segment_name(name)
            if found is not None and found < number:
                path = f"{self.directory}/{name}{_RETIRED}"
                self._files.rename(f"{self.directory}/{name}", path)
                self._files.sync_dir(self.directory)  # from here on it is no part of the log
                size = _overwrite(self._files, path, self._zeros)
                if self._has_spare or size > self.segment_size + len(self._zeros):
                    self._files.remove(path)
                else:
                    self._files.rename(path, f"{self.directory}/{SPARE_NAME}")
                    self._has_spare = True

    def close(self) -> None:
        """Give the file back; the log goes on in another segment."""
        if self._file is not None:
            self._file.close()
        self._file = None


def _overwrite(files: Files, path: str, zeros: bytes) -> int:
    """Fill a file with zeros; its size."""
    with files.open(path, write=True) as file:
        size = file.size()
        for offset in range(0, size, len(zeros)):
            file.pwrite(offset, zeros[: size - offset])
        file.sync()
    return size


def clear_log(files: Files, directory: str) -> None:
    """Remove all segments, the oldest first, and what a crash left half made or half retired."""
    own = ((name, (temp_target(name) or name).removesuffix(_RETIRED)) for name in files.list(directory))
    names = [name for name, target in own if target == SPARE_NAME or parse_segment_name(target) is not None]
    for name in names:
        files.remove(f"{directory}/{name}")
    if names:
        files.sync_dir(directory)


class LogContents(NamedTuple):
    """What is in a log's directory."""

    records: list[Record]  # in the order in which they were appended
    damage: list[str]  # what was durable once, and cannot be read
    tail: str  # what is wrong with the very last record, if that may be an interrupted write; else empty
    next_seq: int
    next_number: int
    notes: list[bytes]  # of the segments


def read_log(files: Files, directory: str, *, purpose: int) -> LogContents:
    """Read all segments. What cannot be read is skipped, and told. Nothing is changed."""
    records: list[Record] = []
    damage: list[str] = []
    notes: list[bytes] = []
    tail, tail_path, next_seq, number = "", "", 0, 0
    for name in files.list(directory) if files.exists(directory) else ():
        found = parse_segment_name(name)
        if found is None:
            continue
        path, number = f"{directory}/{name}", found
        data = files.read(path)
        header = decode_header(data)
        if header is None or (header.number, header.purpose) != (number, purpose):
            problem = "both headers are damaged" if header is None else "is a segment of another log"
            damage.append(f"{path}: {problem}")
            continue
        if tail:  # an older segment was complete before this one was begun
            damage.append(f"{tail_path}: {tail}")
        if next_seq and header.first_seq > next_seq and not tail:
            damage.append(f"{path}: records {next_seq} to {header.first_seq - 1} before it are missing")
        scanned = scan(data, header)
        records += scanned.records
        damage += [f"{path}: {problem}" for problem in scanned.damage]
        notes.append(header.note)
        tail, tail_path = scanned.tail, path
        next_seq = scanned.records[-1].seq + 1 if scanned.records else header.first_seq
    return LogContents(records, damage, f"{tail_path}: {tail}" if tail else "", max(next_seq, 1), number + 1, notes)

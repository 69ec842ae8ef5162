"""Brings the write-ahead log of a node under the server's key, or under another one, at a start.

Each segment is written anew as a whole and takes the place of the old one in one step, so an interrupted conversion
continues with the next start. Records that cannot be read are left out. The next replay notices their missing numbers,
and takes them for damage. Where the last record cannot be read, its end mark is kept, so that the next replay still
sees that there was one.
"""

from __future__ import annotations

from jetlake.cluster.wal import PURPOSE, record_kind
from jetlake.errors import CorruptBlock
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.disk.files import Files, atomic_write
from jetlake.store.log.segment import (
    HEADER_SIZE,
    SegmentHeader,
    decode_header,
    encode_record,
    end_mark,
    parse_segment_name,
    scan,
)


def convert_wal(files: Files, directory: str, sealer: Sealer) -> None:
    """Seal every record anew that is not under the first key. WrongKey when one is under none of the keys."""
    for name in files.list(directory) if files.exists(directory) else ():
        number = parse_segment_name(name)
        if number is None:
            continue
        path = f"{directory}/{name}"
        data = files.read(path)
        header = decode_header(data)
        if header is not None and (header.number, header.purpose) == (number, PURPOSE):
            converted = _converted(data, header, sealer, path)
            if converted is not None:
                atomic_write(files, path, converted)


def _converted(data: bytes, header: SegmentHeader, sealer: Sealer, path: str) -> list[bytes] | None:
    """The bytes of a segment under the first key; None when it is."""
    found = scan(data, header)
    if all(sealer.is_current(record.body) for record in found.records):
        return None
    parts, offset, next_seq = [header.encode()], HEADER_SIZE, header.first_seq
    for record in found.records:
        kind = record_kind(record.seq)
        try:
            body = sealer.seal(sealer.open(record.body, kind, path), kind)
        except CorruptBlock:
            continue
        parts.append(encode_record(body, record.seq, offset, header.seed))
        offset, next_seq = offset + len(parts[-1]), record.seq + 1
    if found.tail or next_seq <= found.records[-1].seq:
        parts.append(bytes(HEADER_SIZE) + end_mark(next_seq, header.seed))
    return parts

"""Bring a store of the old kind, `messages.jsonl`, into blocks when it is first opened.

One JSON object a line: `sequence`, `subject`, `headers` and `payload` in base64 (headers may be absent), `timestamp` in
nanoseconds. Every line is read and checked before the first block is written, so that a bad line changes nothing. The
old file goes once the blocks are durable; as long as it is there, blocks beside it are an unfinished migration, and it
is done again from the start.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from jetlake.errors import BadRequest, MigrationError
from jetlake.store.api import StoredMsg, StreamLimits
from jetlake.store.disk.files import atomic_write
from jetlake.store.format import MARKER_NAME, SEQ_MAX
from jetlake.store.records._record_py import check_sizes
from jetlake.subjects import check_subject, encode_subject

if TYPE_CHECKING:
    from jetlake.store.filestore import FileStore

LEGACY_NAME = "messages.jsonl"
_COMMIT_COUNT = 10_000


class _Line(msgspec.Struct):
    sequence: int
    subject: str
    timestamp: int
    payload: str = ""
    headers: str | None = None


def migrate(store: FileStore) -> int:
    """Turn an old store into blocks; how many messages."""
    path, marker = f"{store.directory}/{LEGACY_NAME}", f"{store.directory}/{MARKER_NAME}"
    if not store.files.exists(path):
        if store.files.exists(marker):
            store.files.remove(marker)
        return 0
    is_used = any(block.body_size for block in store.catalog.blocks)
    if is_used and not store.files.exists(marker):
        raise MigrationError(path, 0, "the directory holds blocks as well; move one of the two away")
    lines = store.files.read(path).splitlines()
    count = sum(1 for _ in _messages(path, lines))
    atomic_write(store.files, marker, [b""])
    limits, autocommit = store.limits, store.autocommit
    store.limits, store.autocommit = StreamLimits(), False
    try:
        store.discard_blocks()
        for number, message in enumerate(_messages(path, lines), 1):
            store.append_at(message.seq, message.time_ns, message.subject, message.payload, message.headers)
            if number % _COMMIT_COUNT == 0:
                store.commit()
        store.commit(sync=True)
    finally:
        store.autocommit = autocommit
        store.limits = limits
    store.files.remove(path)
    store.files.sync_dir(store.directory)
    store.files.remove(marker)
    store.update(limits)
    return count


def _messages(path: str, lines: list[bytes]) -> Iterator[StoredMsg]:
    """Every message of the old file; MigrationError with the number of a line that is not one."""
    last_seq = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            message = _parse(line)
            if not last_seq < message.seq <= SEQ_MAX:
                raise ValueError(f"sequence {message.seq} does not follow {last_seq}")
            check_subject(message.subject)
            check_sizes(len(encode_subject(message.subject)), len(message.headers), len(message.payload))
        except (msgspec.DecodeError, binascii.Error, ValueError, BadRequest) as error:
            raise MigrationError(path, number, str(error)) from error
        last_seq = message.seq
        yield message


def _parse(line: bytes) -> StoredMsg:
    fields = msgspec.json.decode(line, type=_Line)
    if not -(2**63) <= fields.timestamp < 2**63:
        raise ValueError(f"timestamp {fields.timestamp} is not a number of nanoseconds in 64 bits")
    headers = base64.b64decode(fields.headers or "", validate=True)
    payload = base64.b64decode(fields.payload, validate=True)
    return StoredMsg(fields.sequence, fields.subject, headers, payload, fields.timestamp)

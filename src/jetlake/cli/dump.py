"""`jetlake dump FILE`: print what a file of a stream's directory says, record by record.

It ends with 0 when the file is sound, with 1 when a part of it is damaged, and with 2 when it cannot be read. Offsets
of records are those of `format.py`: plain bytes from the start of the body; offsets of problems are in the file.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from heapq import merge
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from jetlake.cli.terminal import (
    EXIT_DAMAGE,
    EXIT_OK,
    AsJson,
    KeyFiles,
    PassphraseFiles,
    fail,
    load_keys,
    progress,
)
from jetlake.clock import SECOND_NS
from jetlake.errors import BadRequest, CorruptBlock, StoreError
from jetlake.store import KeySource
from jetlake.store.blocks.block_scan import Body, read_body, scan_block
from jetlake.store.blocks.checkpoint import KIND as CHECKPOINT_KIND
from jetlake.store.blocks.checkpoint import decode_checkpoint
from jetlake.store.blocks.envelope import Cipher, Compression
from jetlake.store.blocks.removal import RemovalGroup, decode_group
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.disk.files import OS_FILES
from jetlake.store.format import (
    CHECKPOINT_NAME,
    ERASED,
    EXPIRES,
    FLOOR,
    IN_BATCH,
    MORE,
    MSG_ID,
    NEVER_NS,
    NO_ID,
    REST,
    SKIP,
    TOMBSTONE,
    BlockHeader,
    parse_block_name,
)
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.records.record import Record, decode
from jetlake.store.records.scan import scan
from jetlake.store.records.varint import decode_varint
from jetlake.store.verify.check import Problem, show_ranges
from jetlake.store.verify.check_block import SIZES, check_header, decode_sidecar, file_offset, open_block, unsound_bytes

_RECORD_KINDS = {TOMBSTONE: "tombstone", SKIP: "skip", ERASED: "erased", FLOOR: "floor"}
_GROUP_KINDS = ("removed", "lost", "erase")

Fields = dict[str, Any]


def dump(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .blk or .idx file, or stream.state.")],
    as_json: AsJson = False,
    payload: Annotated[bool, typer.Option("--payload", help="Print headers and payloads too.")] = False,
    limit: Annotated[int | None, typer.Option(min=0, metavar="N", help="Print at most so many records.")] = None,
    key_file: KeyFiles = None,
    passphrase_file: PassphraseFiles = None,
) -> None:
    """Print what a block, a sidecar or a checkpoint says.

    Exit code: 0 the file is sound, 1 a part of it is damaged, 2 it cannot be read.
    """
    try:
        keys = load_keys(key_file, passphrase_file)
        document = _read(file, keys, limit, payload)
    except (OSError, BadRequest, StoreError) as error:
        fail(error)
    if as_json:
        if "records" in document:
            document["records"] = list(document["records"])
        typer.echo(msgspec.json.encode(document))
    else:
        for line in _lines(document):
            print(line if line.isprintable() else _printable(line))  # a file may hold what a terminal would obey
    raise typer.Exit(EXIT_DAMAGE if any(it["severity"] == "damage" for it in document["problems"]) else EXIT_OK)


def _read(file: Path, keys: Sequence[KeySource], limit: int | None, payload: bool) -> Fields:
    """The content of a file as a JSON document."""
    path = str(file)
    if file.name == CHECKPOINT_NAME:
        return _checkpoint(path, keys)
    if file.suffix == ".idx":
        return _sidecar(path, str(file.with_suffix(".blk")), keys, limit)
    if parse_block_name(file.name.removesuffix(".new").removesuffix(".shred").removesuffix(".damaged")) is not None:
        return _block(path, keys, limit, payload)
    fail(f"{path}: not the name of a block, a sidecar or a checkpoint")


# Checkpoints


def _checkpoint(path: str, keys: Sequence[KeySource]) -> Fields:
    document: Fields = {"file": path, "type": "checkpoint", "problems": []}
    try:
        data = Sealer(keys=keys).open(OS_FILES.read(path), CHECKPOINT_KIND, path)
        document |= msgspec.to_builtins(decode_checkpoint(data))
    except CorruptBlock as error:
        document["problems"] = [_problem(Problem(path, error.offset, "checkpoint", error.problem))]
    except ValueError as error:
        document["problems"] = [_problem(Problem(path, None, "checkpoint", str(error)))]
    return document


# Blocks


def _block(path: str, keys: Sequence[KeySource], limit: int | None, payload: bool) -> Fields:
    """A block; its records are an iterator, for there may be many."""
    header, problems = check_header(OS_FILES, path)
    document: Fields = {"file": path, "type": "block", "file_size": OS_FILES.size(path), "header": None, "records": ()}
    if header is not None:
        block, file = open_block(OS_FILES, path, header, keys)
        body = read_body(file)
        file.release()
        is_last = _is_last(path)
        try:
            scanned = scan_block(block, file, body, SubjectTable(), SIZES)
            found, is_torn = scanned.records, is_last and scanned.torn_size > 0
        except (ValueError, LookupError) as error:  # a record that makes no sense: show it all the same
            problems.append(Problem(path, None, "record", str(error)))
            found = scan(body.data, 0, len(body.data), block.seed, block.first_seq - 1, SubjectTable(), *SIZES)
            is_torn = False
        problems += unsound_bytes(block, file, body, found, is_last=is_last, is_torn=is_torn)
        offsets = sorted([*found.offsets, *found.others])
        document |= {"header": _header(header), "frames": [frame._asdict() for frame in body.frames]}
        document |= {"record_count": len(offsets), "records": _records(header, body, offsets[:limit], payload)}
    document["problems"] = [_problem(problem) for problem in problems]
    return document


def _records(header: BlockHeader, body: Body, offsets: list[int], payload: bool) -> Iterator[Fields]:
    with progress("Reading", len(offsets), is_printing=True) as advance:
        for offset in offsets:
            record, end = decode(body.data, offset, len(body.data), header.hash_seed)
            fields = {"offset": offset, "size": end - offset, "file_offset": file_offset(body, offset)}
            yield fields | _record(record, payload)
            advance(1)


def _is_last(path: str) -> bool:
    """Is it the last block of its directory?"""
    names = [name for name in OS_FILES.list(str(Path(path).parent)) if parse_block_name(name) is not None]
    return not names or Path(path).name == max(names, key=lambda name: (len(name), name))


def _header(header: BlockHeader) -> Fields:
    fields = header._asdict()
    fields["compression"] = Compression(header.compression).name.lower()
    fields["cipher"] = Cipher(header.cipher).name.lower()
    for name in ("store_salt", "block_salt", "key_check", "stream_id"):
        fields[name] = fields[name].hex()
    return fields


def _record(record: Record, payload: bool) -> Fields:
    kind = next((kind for flag, kind in _RECORD_KINDS.items() if record.flags & flag), "message")
    fields: Fields = {"kind": kind, "seq": record.seq, "time_ns": record.time_ns}
    if kind in ("message", "erased"):
        fields |= {"headers_size": len(record.headers), "payload_size": len(record.payload)}
    if kind == "message":
        fields["subject"] = _subject(record.subject)
        fields["has_msg_id"] = bool(record.flags & MSG_ID)
    if record.flags & IN_BATCH:
        fields["batch"] = {MORE: "first", REST: "last"}.get(record.flags & IN_BATCH, "middle")
    if record.flags & EXPIRES:
        fields["expires_ns"] = record.expires_ns
    if payload and kind == "message":
        fields["headers"] = base64.b64encode(record.headers).decode()
        fields["payload"] = base64.b64encode(record.payload).decode()
    try:
        if kind == "skip":
            fields["count"] = decode_varint(record.payload, 0)[0]
        if kind == "tombstone":
            fields["removal"] = _group(decode_group(record.payload))
    except ValueError as error:
        fields["error"] = str(error)
    return fields


def _group(group: RemovalGroup) -> Fields:
    fields: Fields = {
        "kind": _GROUP_KINDS[group.kind],
        "block_id": group.block_id,
        "generation": group.generation,
        "seqs": list(group.seqs.ranges()),
        "subjects": {_subject(subject): totals for subject, totals in group.subjects.items()},
    }
    if _GROUP_KINDS[group.kind] == "erase":
        fields["place"] = group.place
    return fields


# Sidecars


def _sidecar(path: str, block_path: str, keys: Sequence[KeySource], limit: int | None) -> Fields:
    data = OS_FILES.read(path)
    if not OS_FILES.exists(block_path):
        fail(f"{path}: cannot be read without {block_path}, which is not there")
    header, _ = check_header(OS_FILES, block_path)
    if header is None:
        fail(f"{path}: cannot be read without {block_path}, whose header is damaged")
    _, file = open_block(OS_FILES, block_path, header, keys)
    found = decode_sidecar(data, header.hash_seed, file.envelope)
    document: Fields = {"file": path, "type": "sidecar", "file_size": len(data), "problems": []}
    if isinstance(found, str):
        document["problems"] = [_problem(Problem(path, None, "sidecar", found))]
        return document
    sidecar, index, frames = found
    names = ("block_id", "generation", "body_size", "last_hash", "first_seq", "last_seq", "floor_seq", "size")
    document["head"] = {name: getattr(sidecar, name) for name in (*names, "time_ns_min", "time_ns_max")}
    document["head"]["block_file_size"] = sidecar.file_size
    document["gone"], document["lost"] = list(sidecar.gone.ranges()), list(sidecar.lost.ranges())
    document["removals"] = [_group(group) for group in sidecar.groups]
    document["expiring"] = sidecar.expiring
    table = index.table
    document["subjects"] = [
        {
            "subject": _subject(table.subject(slot)),
            "count": table.count(slot),
            "first_seq": table.first(slot),
            "last_seq": table.last(slot),
        }
        for slot in range(table.slot_limit)
    ]
    document["record_count"] = index.count
    document["index"] = [
        {
            "seq": index.seq(position),
            "offset": index.offsets[position],
            "subject": None if index.ids[position] == NO_ID else _subject(table.subject(index.ids[position])),
        }
        for position in range(index.count if limit is None else min(limit, index.count))
    ]
    document["frames"] = [frame._asdict() for frame in frames]
    return document


def _subject(subject: bytes) -> str:
    """A subject as text that any program can read; bytes that are not UTF-8 become \\xff."""
    return subject.decode("utf-8", "backslashreplace")


def _problem(problem: Problem) -> Fields:
    return msgspec.to_builtins(problem)  # type: ignore[no-any-return]


# For people


def _lines(document: Fields) -> Iterator[str]:
    """A document as text: its facts, then its records, with problems where they are."""
    yield f"{document['file']}: {document['type']}"
    for name, value in document.items():
        if name in ("head", "header"):
            yield from (f"{key}: {number}" for key, number in (value or {}).items())
        elif name == "subjects":
            yield from (
                f"subject {it['subject']}: {it['count']}, {it['first_seq']} to {it['last_seq']}" for it in value
            )
        elif name == "removals":
            yield from (f"removal: {_group_text(group)}" for group in value)
        elif name == "frames":
            yield from (
                "frame: {plain_offset} +{plain_size} at {file_offset} +{stored_size}".format(**it) for it in value
            )
        elif name == "expiring":
            yield from (f"expiring {seq}: {_expiry(expires_ns)}" for seq, expires_ns in value)
        elif name in ("gone", "lost"):
            yield f"{name}: {show_ranges(SequenceSet(value or ()))}"
        elif name not in ("file", "type", "problems", "records", "index"):
            yield f"{name}: {value}"
    problems = ((it["offset"] or 0, 0, _problem_text(it)) for it in document["problems"])
    records = ((it["file_offset"], 1, _record_text(it)) for it in document.get("records", ()))
    yield from (line for *_, line in merge(sorted(problems), records, key=lambda placed: placed[:2]))
    for entry in document.get("index", ()):
        yield f"{entry['offset']:>10} message {entry['seq']} {entry['subject'] or '(gone)'}"


def _printable(line: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in line)


def _problem_text(problem: Fields) -> str:
    place = "" if problem["offset"] is None else f"at {problem['offset']} of the file: "
    return f"!! {problem['severity']}: {problem['kind']}: {place}{problem['text']}"


def _record_text(record: Fields) -> str:
    parts = [f"{record['offset']:>10} +{record['size']:<6} {record['kind']} {record['seq']}", _time(record["time_ns"])]
    if "subject" in record:
        parts.append(record["subject"])
    if "payload_size" in record:
        parts.append(f"headers {record['headers_size']} payload {record['payload_size']}")
    if "expires_ns" in record:
        parts.append(f"expires {_expiry(record['expires_ns'])}")
    if "count" in record:
        parts.append(f"{record['count']} sequences")
    if "removal" in record:
        parts.append(_group_text(record["removal"]))
    if "error" in record:
        parts.append(f"(not readable: {record['error']})")
    for part in ("headers", "payload"):
        if part in record:
            parts.append(f"{part}={base64.b64decode(record[part])!r}")
    return " ".join(parts)


def _group_text(group: Fields) -> str:
    target = f"block {group['block_id']} generation {group['generation']}" if group["block_id"] else "no block"
    subjects = "".join(f", {subject} {count} ({size} bytes)" for subject, (count, size) in group["subjects"].items())
    place = "" if "place" not in group else ", {} bytes at offset {}".format(*reversed(group["place"]))
    return f"{group['kind']} {show_ranges(SequenceSet(group['seqs']))} of {target}{subjects}{place}"


def _expiry(expires_ns: int) -> str:
    return "never" if expires_ns == NEVER_NS else _time(expires_ns)


def _time(time_ns: int) -> str:
    """A time as people and other programs read it, or the number where no calendar has it."""
    seconds, rest_ns = divmod(time_ns, SECOND_NS)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest_ns:09d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"

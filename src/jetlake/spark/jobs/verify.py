"""Check every checksum of every block, several blocks at a time.

A task reads whole blocks and compares each with what it says itself: header, frames, records, sidecar. What blocks say
of each other (deletes, sequences that nothing accounts for) is put together on the driver before, from sidecars; where
that cannot be done there is a problem of the kind `unreadable`. The other kinds are those of `store.verify`, which
goes through one block after the other and compares more; this is for stores too large for one core.
"""

from __future__ import annotations

import threading
from dataclasses import astuple
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jetlake.errors import StoreError
from jetlake.spark.worker import settle
from jetlake.store.blocks.block_scan import read_body, scan_block, uncount_gone
from jetlake.store.disk.files import OS_FILES
from jetlake.store.format import parse_block_name, sidecar_name
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.verify.check import Report, find_streams, show_ranges
from jetlake.store.verify.check_block import (
    SIZES,
    BlockRecords,
    Problem,
    check_header,
    decode_sidecar,
    open_block,
    sidecar_differences,
    unsound_bytes,
)
from jetlake.store.view import StreamView
from jetlake.table.options import Options, parse_options

_TASK_BLOCKS_MIN = 16  # to start a task takes as long as to check one
_TASKS_PER_CORE, _REMOTE_TASKS = 2, 64
_kept = threading.local()
Range = tuple[int, int]  # of sequences
_NOTHING: dict[str, Any] = {"records": 0, "messages": 0, "bytes": 0, "lost": []}
_RESULT = (
    "directory string, file_size long, records long, messages long, bytes long, "
    "lost array<struct<first: long, last: long>>, "
    "problems array<struct<file: string, offset: long, kind: string, text: string, severity: string>>"
)


def verify(spark: SparkSession, path: str, *, tasks: int = 0, **options: str) -> list[Report]:
    """Check the streams at or below a directory, in so many tasks; `options` are keyFile and passphraseFile."""
    settings = parse_options({"path": path, **options})
    reports = {directory: Report(directory) for directory in find_streams(path)}
    gone: dict[str, list[Range]] = {}
    foreign: set[str] = set()
    for report in reports.values():
        gone |= _look_together(report, settings, foreign)
    names = [(directory, name) for directory in reports for name in OS_FILES.list(directory) if _is_block(name)]
    blocks = [(directory, name) for directory, name in names if f"{directory}/{name}" not in foreign]
    for row in _check_blocks(spark, blocks, gone, settings, tasks):
        report = reports[row["directory"]]
        report.blocks += 1
        report.records += row["records"]
        report.messages += row["messages"]
        report.bytes += row["bytes"]
        report.file_size += row["file_size"]
        report.problems += [Problem(*problem) for problem in row["problems"]]
        report.lost.update(SequenceSet(row["lost"]))
    for report in reports.values():
        if report.lost:
            text = f"sequences {show_ranges(report.lost)} are lost"
            report.problems.append(Problem(report.directory, None, "lost", text))
        report.problems.sort(key=lambda problem: (problem.file, problem.offset or 0))
    return list(reports.values())


def _is_block(name: str) -> bool:
    return parse_block_name(name) is not None


def _check_blocks(
    spark: SparkSession, blocks: list[tuple[str, str]], gone: dict[str, list[Range]], settings: Options, tasks: int
) -> list[dict[str, Any]]:
    if not blocks:
        return []
    last = dict(blocks)

    def check(number: int) -> dict[str, Any]:
        directory, name = blocks[number]
        removed = SequenceSet(gone.get(f"{directory}/{name}", ()))
        return check_block(directory, name, last[directory] == name, removed, settings)

    if hasattr(spark, "sparkContext"):  # as an RDD: what a query costs before it begins would be a third of a gigabyte
        cores = spark.sparkContext.defaultParallelism
        tasks = tasks or max(cores, min(_TASKS_PER_CORE * cores, len(blocks) // _TASK_BLOCKS_MIN))
        return spark.sparkContext.parallelize(range(len(blocks)), min(len(blocks), tasks)).map(check).collect()
    # Spark Connect has none. A plain UDF: Arrow would gain nothing with a row for each block, and wants pandas.
    udf = F.udf(check, _RESULT, useArrow=False)
    found = spark.range(0, len(blocks), 1, min(len(blocks), tasks or _REMOTE_TASKS)).select(udf("id").alias("found"))
    return [row.found.asDict() for row in found.collect()]


def check_block(directory: str, name: str, is_last: bool, removed: SequenceSet, settings: Options) -> dict[str, Any]:
    """Check one block by itself, and count what is live of it, knowing what others say was removed."""
    settle()
    path = f"{directory}/{name}"
    header, problems = check_header(OS_FILES, path)
    found: dict[str, Any] = {"directory": directory, "file_size": OS_FILES.size(path)} | _NOTHING
    if header is not None:
        block, file = open_block(OS_FILES, path, header, settings.keys)
        body = read_body(file, _scratch())
        scanned = scan_block(block, file, body, SubjectTable(), SIZES)
        records = scanned.records
        found["records"] = len(records.seqs) + len(records.others)
        is_torn = is_last and scanned.torn_size > 0
        problems += unsound_bytes(block, file, body, records, is_last=is_last, is_torn=is_torn)
        assert block.index is not None
        uncount_gone(block, block.index, body, SIZES)  # a sidecar counts live messages
        sidecar = f"{directory}/{sidecar_name(header.block_id)}"
        if not is_last and OS_FILES.exists(sidecar):
            decoded = decode_sidecar(OS_FILES.read(sidecar), header.hash_seed, file.envelope)
            if isinstance(decoded, str):
                problems.append(Problem(sidecar, None, "sidecar", decoded, "note"))
            else:
                problems += [
                    Problem(sidecar, None, "sidecar", text) for text in sidecar_differences(block, file, *decoded)
                ]
        removed.difference_update(block.gone)
        found["messages"] = block.index.count - sum(
            BlockRecords(block, body).count(seqs) for seqs in (block.gone, removed)
        )
        block.gone = removed
        uncount_gone(block, block.index, body, SIZES)
        found["bytes"], found["lost"] = block.size, list(block.lost.ranges())
    found["problems"] = [astuple(problem) for problem in problems]
    return found


def _scratch() -> bytearray:
    """Room for a block, which a thread keeps from one to the next."""
    if not hasattr(_kept, "scratch"):
        _kept.scratch = bytearray()
    scratch: bytearray = _kept.scratch
    return scratch


def _look_together(report: Report, settings: Options, foreign: set[str]) -> dict[str, list[Range]]:
    """What only all blocks together tell: what is gone of each, and which belong to other streams."""
    view = StreamView(report.directory, keys=settings.keys)
    try:
        catalog = view.refresh()
    except (OSError, StoreError) as error:
        report.problems.append(Problem(report.directory, None, "unreadable", str(error)))
        return {}
    report.lost = catalog.lost.copy()
    foreign.update(view.foreign)
    report.blocks += len(view.foreign)
    report.file_size += sum(map(OS_FILES.size, view.foreign))
    report.problems += [Problem(path, 0, "foreign", "is a block of another stream") for path in view.foreign]
    return {block.path: list(block.gone.ranges()) for block in catalog.blocks if block.gone}

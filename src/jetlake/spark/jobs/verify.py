"""Check every checksum of every block, several blocks at a time.

A task reads whole blocks and compares each with what it says itself: header, frames, records, sidecar. What blocks say
of each other (deletes, sequences that nothing accounts for) is put together on the driver, from sidecars. This is for
stores too large for one core; `jetlake verify` goes through one block after the other and compares more.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jetlake.errors import StoreError
from jetlake.spark.options import Options, parse_options
from jetlake.spark.worker import settle
from jetlake.store.block_scan import read_body, scan_block, uncount_gone
from jetlake.store.check import find_streams
from jetlake.store.check_block import (
    SIZES,
    Problem,
    check_header,
    decode_sidecar,
    open_block,
    sidecar_differences,
    unsound_bytes,
)
from jetlake.store.files import OS_FILES
from jetlake.store.format import parse_block_name, sidecar_name
from jetlake.store.sequence_set import SequenceSet
from jetlake.store.subject_table import SubjectTable
from jetlake.store.view import StreamView

_TASK_BLOCKS_MIN = 16  # to start a task takes as long as to check one
_TASKS_PER_CORE, _REMOTE_TASKS = 2, 64
_kept = threading.local()
_RESULT = "directory string, path string, records long, file_size long, damage array<string>, notes array<string>"


@dataclass
class Verified:
    """What was found of one stream."""

    directory: str
    blocks: int = 0
    records: int = 0
    messages: int = 0
    file_size: int = 0
    lost: SequenceSet = field(default_factory=SequenceSet)
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.damage and not self.lost


def verify(spark: SparkSession, path: str, *, tasks: int = 0, **options: str) -> list[Verified]:
    """Check the streams at or below a directory, in so many tasks; `options` are keyFile and passphraseFile."""
    settings = parse_options({"path": path, **options})
    reports = {directory: Verified(directory) for directory in find_streams(path)}
    blocks = [(directory, name) for directory in reports for name in OS_FILES.list(directory) if _is_block(name)]
    for row in _check_blocks(spark, blocks, settings, tasks):
        report = reports[row["directory"]]
        report.blocks += 1
        report.records += row["records"]
        report.file_size += row["file_size"]
        report.damage += row["damage"]
        report.notes += row["notes"]
    for report in reports.values():
        _check_together(report, settings)
    return list(reports.values())


def _is_block(name: str) -> bool:
    return parse_block_name(name) is not None


def _check_blocks(
    spark: SparkSession, blocks: list[tuple[str, str]], settings: Options, tasks: int
) -> list[dict[str, Any]]:
    if not blocks:
        return []
    last = dict(blocks)

    def check(number: int) -> dict[str, Any]:
        directory, name = blocks[number]
        return check_block(directory, name, last[directory] == name, settings)

    if hasattr(spark, "sparkContext"):  # as an RDD: what a query costs before it begins would be a third of a gigabyte
        cores = spark.sparkContext.defaultParallelism
        tasks = tasks or max(cores, min(_TASKS_PER_CORE * cores, len(blocks) // _TASK_BLOCKS_MIN))
        return spark.sparkContext.parallelize(range(len(blocks)), min(len(blocks), tasks)).map(check).collect()
    # Spark Connect has none. A plain UDF: Arrow would gain nothing with a row for each block, and wants pandas.
    udf = F.udf(check, _RESULT, useArrow=False)
    found = spark.range(0, len(blocks), 1, min(len(blocks), tasks or _REMOTE_TASKS)).select(udf("id").alias("found"))
    return [row.found.asDict() for row in found.collect()]


def check_block(directory: str, name: str, is_last: bool, settings: Options) -> dict[str, Any]:
    """Check one block by itself."""
    settle()
    path = f"{directory}/{name}"
    header, problems = check_header(OS_FILES, path)
    found: dict[str, Any] = {"directory": directory, "path": path, "records": 0, "file_size": OS_FILES.size(path)}
    if header is not None:
        block, file = open_block(OS_FILES, path, header, settings.keys)
        body = read_body(file, _scratch())
        scanned = scan_block(block, file, body, SubjectTable(), SIZES)
        records = scanned.records
        found["records"] = len(records.seqs) + len(records.others)
        is_torn = is_last and scanned.torn_size > 0
        problems += unsound_bytes(block, file, body, records, is_last=is_last, is_torn=is_torn)
        sidecar = f"{directory}/{sidecar_name(header.block_id)}"
        if not is_last and OS_FILES.exists(sidecar):
            decoded = decode_sidecar(OS_FILES.read(sidecar), header.hash_seed, file.envelope)
            if isinstance(decoded, str):
                problems.append(Problem(sidecar, None, "sidecar", decoded, "note"))
            else:
                assert block.index is not None
                uncount_gone(block, block.index, body, SIZES)  # a sidecar counts live messages
                problems += [
                    Problem(sidecar, None, "sidecar", text) for text in sidecar_differences(block, file, *decoded)
                ]
    found["damage"] = [f"{problem.kind}: {problem}" for problem in problems if problem.severity == "damage"]
    found["notes"] = [f"{problem.kind}: {problem}" for problem in problems if problem.severity == "note"]
    return found


def _scratch() -> bytearray:
    """Room for a block, which a thread keeps from one to the next."""
    if not hasattr(_kept, "scratch"):
        _kept.scratch = bytearray()
    scratch: bytearray = _kept.scratch
    return scratch


def _check_together(report: Verified, settings: Options) -> None:
    """What only all blocks together tell."""
    view = StreamView(report.directory, keys=settings.keys)
    try:
        catalog = view.refresh()
    except (OSError, StoreError) as error:
        report.damage.append(str(error))
        return
    report.messages = sum(block.message_count for block in catalog.blocks)
    report.lost = catalog.lost

"""How long does a store take to open after `kill -9`, and how much memory does it hold then?

A child process writes and is killed in the middle of it. The peer is what opening costs without sidecars: every block
read and verified. With them only the last block is, however large the stream. Files are in the page cache, except
where the row says that they were dropped from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks._load import PAYLOAD_SIZE, SEED, few_reads, store_reads
from benchmarks._report import ROUNDS, Stopwatch, goal, heading, in_child, killed_child, rss_size, scratch, table
from jetlake.store import FileOptions, FileStore

SUBJECT_COUNT = 1000
OPEN_GOAL_S = 0.3
REBUILD_GOAL_S = 1.5
INDEX_GOAL_SIZE = 8


class Opened(NamedTuple):
    """What a fresh process saw when it opened a store."""

    msgs: int
    wall_s: float
    cpu_s: float
    rss_delta: int
    cold_index_size: int  # held for sealed blocks before anything was read from them
    hot_index_size: float  # bytes a message, once each sealed block was read from
    hot_rss_delta: int


def write(directory: Path, options: FileOptions, count: int) -> Iterator[int]:
    """Store `count` messages, say so, and go on."""
    store, reads = FileStore(directory, options=options, autocommit=False), few_reads(SUBJECT_COUNT)
    yield store_reads(store, reads, count)
    while True:
        store_reads(store, reads, 1)


def reopen(directory: Path, options: FileOptions) -> Opened:
    """Open a store, and read one message of each block."""
    before = rss_size()
    with Stopwatch() as watch:
        store = FileStore(directory, options=options, autocommit=False)
    opened = rss_size() - before
    sealed = store.catalog.blocks[:-1]
    cold_size = sum(block.index.size_bytes for block in sealed if block.index is not None)
    msgs = store.fast_state().msgs
    for block in sealed:
        store.load(block.first_seq)
    hot = [block.index for block in sealed if block.index is not None]
    hot_size = sum(index.size_bytes for index in hot) / max(sum(index.count for index in hot), 1)
    times = (watch.wall_ns / 1e9, watch.cpu_ns / 1e9)
    return Opened(msgs, *times, opened, cold_size, hot_size, rss_size() - before)


def without_sidecars(directory: Path, options: FileOptions) -> Opened:
    for path in [*directory.glob("*.idx"), directory / "stream.state"]:
        path.unlink(missing_ok=True)
    opened: Opened = in_child(reopen, directory, options)
    return opened


def from_disk(directory: Path, options: FileOptions) -> Opened:
    """Open with nothing in the page cache."""
    for path in directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    opened: Opened = in_child(reopen, directory, options)
    return opened


def main(smoke: bool = False) -> None:
    counts, rounds, block_size = ((4_000,), 1, 2**17) if smoke else ((1_000_000, 5_000_000), ROUNDS, 2**25)
    options = FileOptions(block_size_max=block_size, sync="never")
    heading(
        __doc__,
        f"messages of {PAYLOAD_SIZE} B over {SUBJECT_COUNT:,} subjects in blocks of {block_size >> 10:,} KiB; "
        f"seed {SEED}, median of {rounds}",
    )
    rows = []
    with scratch() as directory:
        for count in counts:
            stream = directory / str(count)
            with killed_child(write, stream, options, count):
                pass
            cases: dict[str, list[Opened]] = {"after kill -9": [], "the same, from disk": [], "peer: no sidecars": []}
            for _ in range(rounds):
                cases["after kill -9"].append(in_child(reopen, stream, options))
                cases["the same, from disk"].append(from_disk(stream, options))
                cases["peer: no sidecars"].append(without_sidecars(stream, options))
            for label, opens in cases.items():
                rows.append(_row(label, opens, cases["after kill -9"]))
    table(["case", "messages", "s", "CPU s", "times the first", "RSS MB", "RSS MB, all blocks hot"], rows)
    killed, rebuilt = _seconds(cases["after kill -9"]), _seconds(cases["peer: no sidecars"])
    last = cases["after kill -9"][-1]
    print(f"  ratio peer / open: {rebuilt / killed:.1f}")
    print(f"  open after kill -9: {killed:.3f} s ({goal(killed, OPEN_GOAL_S, at_most=True)})")
    print(f"  open without sidecars: {rebuilt:.3f} s ({goal(rebuilt, REBUILD_GOAL_S, at_most=True)})")
    print(
        f"  index: {last.hot_index_size:.1f} B a message of hot blocks "
        f"({goal(last.hot_index_size, INDEX_GOAL_SIZE, at_most=True)}), {last.cold_index_size} B of cold ones"
    )


def _seconds(opens: list[Opened]) -> float:
    return median(opened.wall_s for opened in opens)


def _row(label: str, opens: list[Opened], first: list[Opened]) -> list[str]:
    cpu_s = median(opened.cpu_s for opened in opens)
    ratio = cpu_s / median(opened.cpu_s for opened in first)
    sizes = (median(opened.rss_delta for opened in opens), median(opened.hot_rss_delta for opened in opens))
    times = [f"{_seconds(opens):.3f}", f"{cpu_s:.3f}", f"{ratio:.2f}"]
    return [label, f"{opens[0].msgs:,}", *times, *(f"{size / 1e6:.1f}" for size in sizes)]

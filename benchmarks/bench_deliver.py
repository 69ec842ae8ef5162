"""How fast do stored messages become frames for a consumer, beside copying their bytes and doing nothing else?

The peer is the least that any delivery must do: copy each block's body once. A run is what one pull request of 5,000
gets. The other rows show filters, payloads left out, small runs, blocks read from files, and what the kernel is worth.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from benchmarks._load import PAYLOAD_SIZE, SEED, few_reads, store_reads
from benchmarks._report import (
    ROUNDS,
    Cost,
    Stopwatch,
    cpu_ns,
    goal,
    heading,
    interleaved,
    scratch,
    speed_ratio,
    table,
    wall_ns,
)
from jetlake.jetstream.consumers import _deliver_py, deliver
from jetlake.jetstream.consumers.deliver import END, NO_LIMIT, frames
from jetlake.store import FileOptions, FileStore, MemStore

SUBJECT_COUNT = 1000
RUN_COUNT = 5000
RATE_GOAL_M = 5.0
SID, ACK_PREFIX = b"12", b"$JS.ACK.ORDERS.worker."


class Cases:
    """Each case delivers a whole stream and returns what a message costs."""

    def __init__(self, directory: Path, count: int) -> None:
        reads = few_reads(SUBJECT_COUNT, read_count=min(50, count // 1500))
        self.memory = MemStore(autocommit=False)
        self.count = store_reads(self.memory, reads, count)
        self.file = FileStore(directory / "store", options=FileOptions(sync="never"), autocommit=False)
        store_reads(self.file, reads, count)
        self.file._rotate()  # so that all is read from files
        self.file.commit()

    def all(self) -> Cost:
        return self._deliver(self.memory)

    def peer(self) -> Cost:
        watch = Stopwatch()
        for block in self.memory.catalog.blocks:
            for chunk in block.chunks:
                with watch:
                    bytes(chunk.data)
        return watch.per(self.count)

    def from_files(self) -> Cost:
        return self._deliver(self.file)

    def tenth(self) -> Cost:
        return self._deliver(self.file, "orders.3.*")

    def one_subject(self) -> Cost:
        return self._deliver(self.file, "orders.3.3")

    def headers_only(self) -> Cost:
        return self._deliver(self.memory, headers_only=True)

    def small_runs(self) -> Cost:
        return self._deliver(self.memory, run_count=50)

    def twin(self) -> Cost:
        with patch.multiple(deliver, Framer=_deliver_py.Framer, select=_deliver_py.select):
            return self._deliver(self.memory, last_seq=self.count // 20)

    def _deliver(
        self,
        store: MemStore | FileStore,
        pattern: str = ">",
        *,
        run_count: int = RUN_COUNT,
        last_seq: int = NO_LIMIT,
        **options: Any,
    ) -> Cost:
        filter = store.queries.filter(pattern)
        run = SimpleNamespace(next_seq=1, reason=None)
        delivered = 0
        pending = store.num_pending(1, pattern).msgs
        with Stopwatch() as watch:
            while run.reason != END:
                limits = (last_seq, filter, run_count, NO_LIMIT)
                numbers = (delivered + 1, pending - delivered)
                run = frames(store, run.next_seq, *limits, SID, ACK_PREFIX, *numbers, **options)
                delivered += run.count
        return watch.per(delivered)


def main(smoke: bool = False) -> None:
    count, rounds = (6_000, 1) if smoke else (1_000_000, ROUNDS)
    heading(
        __doc__,
        f"{count:,} messages of {PAYLOAD_SIZE} B over {SUBJECT_COUNT:,} subjects, {RUN_COUNT:,} at a time; "
        f"seed {SEED}, median of {rounds}",
    )
    with scratch() as directory:
        cases = Cases(directory, count)
        costs = interleaved(
            {
                "all, from memory": cases.all,
                "peer: copy the blocks": cases.peer,
                "all, from files": cases.from_files,
                "a tenth of the subjects, from files": cases.tenth,
                "one subject, from files": cases.one_subject,
                "headers only, from memory": cases.headers_only,
                "50 at a time, from memory": cases.small_runs,
                "all, the Python twin": cases.twin,
            },
            rounds,
        )
        cases.file.delete()
    ours, peer, *_, twin = costs.values()
    rows = []
    for label, cost in costs.items():
        figures = (1e9 / wall_ns(cost), wall_ns(cost), cpu_ns(cost))
        rows.append([label, *(f"{figure:,.0f}" for figure in figures), f"{speed_ratio(cost, ours):.3f}"])
    table(["case", "messages/s", "ns each", "CPU ns each", "ratio to the first"], rows)
    rate_m = 1e3 / cpu_ns(ours)
    print(f"  all: {rate_m:.2f} M messages per CPU second ({goal(rate_m, RATE_GOAL_M)})")
    print(f"  ratio all / peer: {speed_ratio(ours, peer):.2f}")
    print(f"  ratio all / its twin: {speed_ratio(ours, twin):.0f}")

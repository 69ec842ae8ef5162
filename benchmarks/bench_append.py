"""How fast does a store take messages, beside hashing and writing the same bytes and doing nothing else?

The peer is the least that any store with checksums must do: XXH64 over the encoded bytes and `pwrite` of them, in
pieces of 1 MiB, to a file in the same directory. The other rows show what each promise costs: a sync for every commit,
limits that evict, one message at a time, many subjects; and what the kernel is worth.
"""

from __future__ import annotations

import os
import random
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import xxhash

from benchmarks._load import PAYLOAD_SIZE, SEED, Read, few_reads, random_subjects, socket_reads, store_reads, subject
from benchmarks._report import (
    ROUNDS,
    Cost,
    Stopwatch,
    calls,
    cpu_ns,
    goal,
    heading,
    interleaved,
    scratch,
    speed_ratio,
    table,
    wall_ns,
)
from jetlake.store import Discard, FileOptions, FileStore, MemStore, StreamLimits
from jetlake.store.index import _subject_table_py
from jetlake.store.index import subject_table as subject_table_face
from jetlake.store.records import _encode_py, encode

PIECE_SIZE = 1024 * 1024
SUBJECT_COUNT = 1000
MANY_SUBJECT_COUNT = 300_000
RATE_GOAL_M = 1.5
RATIO_GOAL = 0.35
KEYS_RATE_GOAL_K = 400
UNSYNCED = FileOptions(sync="never")
UNLIMITED = StreamLimits()
KEYS = StreamLimits(max_msgs_per_subject=1, discard=Discard.NEW)


class Cases:
    """Each case returns what a message costs."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory, self.count = directory, count
        self.reads = few_reads(SUBJECT_COUNT, read_count=min(50, count // 1500))
        names = [subject(number) for number in range(min(MANY_SUBJECT_COUNT, count))]
        random.Random(SEED).shuffle(names)
        self.many_reads, self.many_count = socket_reads(names), len(names)
        with FileStore(directory / "kept", options=UNSYNCED, autocommit=False) as store:
            self.kept_count = store_reads(store, self.reads, count)

    def batches(self) -> Cost:
        return self._append(self.count, self.reads)

    def peer(self) -> Cost:
        """Hash and write what `batches` writes."""
        watch, offset = Stopwatch(), 0
        fd = os.open(self.directory / "peer", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        for path in sorted((self.directory / "kept").glob("*.blk")):
            data = memoryview(path.read_bytes())
            with watch:
                for at in range(0, len(data), PIECE_SIZE):
                    piece = data[at : at + PIECE_SIZE]
                    xxhash.xxh64_intdigest(piece, SEED)
                    os.pwrite(fd, piece, offset + at)
            offset += len(data)
        os.close(fd)
        os.unlink(self.directory / "peer")
        return watch.per(self.kept_count)

    def synced(self) -> Cost:
        return self._append(self.count // 10, self.reads, options=FileOptions(sync="always"))

    def evicting(self) -> Cost:
        fill_count = self.count // 10
        return self._append(self.count // 2, self.reads, StreamLimits(max_msgs=fill_count), fill_count=fill_count)

    def keys(self) -> Cost:
        return self._append(self.count // 4, self.reads, KEYS)

    def keys_with_history(self) -> Cost:
        limits = StreamLimits(max_msgs_per_subject=64, discard=Discard.NEW)
        return self._append(self.count // 4, self.reads, limits, fill_count=64 * SUBJECT_COUNT)

    def keys_singly(self) -> Cost:
        return self._append_singly(KEYS, autocommit=False)

    def new_subjects(self) -> Cost:
        return self._append(self.many_count, self.many_reads)

    def known_subjects(self) -> Cost:
        return self._append(self.many_count, self.many_reads, fill_count=self.many_count)

    def singly(self) -> Cost:
        return self._append_singly(UNLIMITED, autocommit=True)

    def memory(self) -> Cost:
        store = MemStore(autocommit=False)
        with Stopwatch() as watch:
            done = store_reads(store, self.reads, self.count // 2)
        return watch.per(done)

    def kernel(self) -> Cost:
        return self._encode(encode.encode_batch, subject_table_face, self.count // 2)

    def twin(self) -> Cost:
        return self._encode(_encode_py.encode_batch, _subject_table_py, self.count // 40)

    def _append(
        self,
        count: int,
        reads: list[Read],
        limits: StreamLimits = UNLIMITED,
        options: FileOptions = UNSYNCED,
        fill_count: int = 0,
    ) -> Cost:
        with self._store(limits, options) as store:
            if fill_count:
                store_reads(store, reads, fill_count)
            with Stopwatch() as watch:
                done = store_reads(store, reads, count)
            return watch.per(done)

    def _append_singly(self, limits: StreamLimits, *, autocommit: bool) -> Cost:
        names = [name.decode() for name in random_subjects(self.count // 40, SUBJECT_COUNT)]
        payload = random.Random(SEED).randbytes(PAYLOAD_SIZE)
        with self._store(limits, UNSYNCED, autocommit=autocommit) as store:
            return calls(lambda name: store.append(name, payload), names)

    @contextmanager
    def _store(self, limits: StreamLimits, options: FileOptions, *, autocommit: bool = False) -> Iterator[FileStore]:
        store = FileStore(self.directory / "store", limits, options, autocommit=autocommit)
        try:
            yield store
        finally:
            store.delete()  # not `stop`, which would sync it all

    def _encode(self, encode_batch: Callable[..., tuple[int, int, int]], subjects: ModuleType, count: int) -> Cost:
        """Encode one read after the other into the same chunk, with neither a store nor a file around it."""
        names, chunk, over = subjects.SubjectTable(), bytearray(2 * PIECE_SIZE), list[int]()
        offsets, ids = array("I", bytes(16_000)), array("I", bytes(16_000))
        done, time_ns = 0, 1
        with Stopwatch() as watch:
            while done < count:
                read = self.reads[done % len(self.reads)]
                places = (chunk, 0, 0, offsets, ids, 0, names)
                encode_batch(read.data, read.ops[:], 0, read.count, *places, done + 1, time_ns, SEED, 30, 4, 0, over)
                done += read.count
        return watch.per(done)


def main(smoke: bool = False) -> None:
    count, rounds = (8_000, 1) if smoke else (2_000_000, ROUNDS)
    heading(
        __doc__,
        f"{count:,} messages of {PAYLOAD_SIZE} B over {SUBJECT_COUNT:,} subjects, a commit after each read of 256 KiB; "
        f"seed {SEED}, median of {rounds}",
    )
    with scratch() as directory:
        cases = Cases(directory, count)
        labels = {
            "batches, not synced": cases.batches,
            "peer: XXH64 and pwrite of the same bytes": cases.peer,
            "batches, each one synced": cases.synced,
            "batches, max_msgs reached": cases.evicting,
            "batches, key-value: discard=new, 1 per subject": cases.keys,
            "batches, key-value: discard=new, 64 per subject": cases.keys_with_history,
            f"batches, {cases.many_count:,} subjects, all new": cases.new_subjects,
            f"batches, {cases.many_count:,} subjects, all known": cases.known_subjects,
            "one by one, not synced": cases.singly,
            "one by one, key-value, not committed": cases.keys_singly,
            "batches, MemStore": cases.memory,
            "kernel alone": cases.kernel,
            "kernel's Python twin": cases.twin,
        }
        costs = interleaved(labels, rounds)
    ours, peer, kernel, twin = (list(costs.values())[i] for i in (0, 1, -2, -1))
    rows = []
    for label, cost in costs.items():
        figures = (1e9 / wall_ns(cost), wall_ns(cost), cpu_ns(cost))
        rows.append([label, *(f"{figure:,.0f}" for figure in figures), f"{speed_ratio(cost, ours):.2f}"])
    table(["case", "messages/s", "ns each", "CPU ns each", "ratio to the first"], rows)
    rate_m, to_peer = 1e3 / wall_ns(ours), speed_ratio(ours, peer)
    print(f"  batches: {rate_m:.2f} M messages/s ({goal(rate_m, RATE_GOAL_M)})")
    keys_rate_k = 1e6 / wall_ns(costs["batches, key-value: discard=new, 1 per subject"])
    print(f"  key-value: {keys_rate_k:,.0f} k messages/s ({goal(keys_rate_k, KEYS_RATE_GOAL_K)})")
    print(f"  ratio batches / peer: {to_peer:.2f} ({goal(to_peer, RATIO_GOAL)})")
    print(f"  ratio kernel / its twin: {speed_ratio(kernel, twin):.0f}")

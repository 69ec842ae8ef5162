"""How fast are records walked and verified, beside one XXH64 over the same bytes?

Recovery, rebuilt sidecars and `check` are as fast as this. The last rows show what looking for the next sound record
costs where there is damage.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

import xxhash

from benchmarks._load import PAYLOAD_SIZE, SEED, few_reads
from benchmarks._report import ROUNDS, Cost, Stopwatch, cpu_ns, goal, heading, interleaved, speed_ratio, table, wall_ns
from jetlake.store.index import _subject_table_py
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.records import _scan_py
from jetlake.store.records.encode import encode_batch
from jetlake.store.records.scan import Scan, scan

SUBJECT_COUNT = 1000
RATIO_GOAL = 0.4
TWIN_COUNT = 10_000
NOISE_SIZE = 1024 * 1024  # not more: the search through noise was quadratic once


def block_body(count: int) -> tuple[bytes, array[int]]:
    """Records as a block holds them, and where each one starts."""
    reads = few_reads(SUBJECT_COUNT, read_count=min(50, max(1, count // 1500)))
    chunk = bytearray(count * (PAYLOAD_SIZE + 48))
    offsets, ids = array("I", bytes(4 * count)), array("I", bytes(4 * count))
    names, over = SubjectTable(), list[int]()
    done = used = 0
    while done < count:
        read = reads[done % len(reads)]
        stored, used, _ = encode_batch(
            read.data, read.ops[:], 0, read.count, chunk, used, 0, offsets, ids, done, names, done + 1, 1, SEED, 30, 4,
            0, over,
        )  # fmt: skip
        done += stored
    return bytes(chunk[:used]), offsets


def damaged(body: bytes, offsets: array[int], part: float) -> bytes:
    """The same with one byte changed in a part of the records."""
    rng, data = random.Random(SEED), bytearray(body)
    for place in rng.sample(range(len(offsets) - 1), int(part * len(offsets))):
        data[rng.randrange(offsets[place], offsets[place + 1])] ^= 0xFF
    return bytes(data)


def main(smoke: bool = False) -> None:
    count, rounds = (3_000, 1) if smoke else (400_000, 2 * ROUNDS + 1)
    heading(
        __doc__,
        f"{count:,} messages of {PAYLOAD_SIZE} B over {SUBJECT_COUNT:,} subjects in one buffer; seed {SEED}, "
        f"median of {rounds}",
    )
    body, offsets = block_body(count)
    twin_count = min(TWIN_COUNT, count - 1)
    few = body[: offsets[twin_count]]
    bad, noise = damaged(body, offsets, 0.01), random.Random(SEED).randbytes(min(NOISE_SIZE, len(body)))

    def walk(data: bytes, message_count: int, walker: Callable[..., Scan] = scan, names: type = SubjectTable) -> Cost:
        with Stopwatch() as watch:
            found = walker(data, 0, len(data), SEED, 0, names(), 30, 4)
        assert len(found.offsets) == message_count
        return watch.per(len(data))

    def hash_all() -> Cost:
        with Stopwatch() as watch:
            xxhash.xxh64_intdigest(body, SEED)
        return watch.per(len(body))

    costs = interleaved(
        {
            "scan": lambda: walk(body, count),
            "peer: XXH64 of the whole buffer": hash_all,
            "scan's Python twin": lambda: walk(few, twin_count, _scan_py.scan, _subject_table_py.SubjectTable),
            "scan, 1 % of the records damaged": lambda: walk(bad, count - int(0.01 * count)),
            f"scan of {len(noise) // 1024:,} KiB of random bytes": lambda: walk(noise, 0),
        },
        rounds,
    )
    ours, peer, twin = list(costs.values())[:3]
    record_size = len(body) / count
    rows = []
    for label, cost in costs.items():
        figures = (1e3 / wall_ns(cost), 1e3 / cpu_ns(cost), record_size * cpu_ns(cost))
        rows.append([label, *(f"{figure:,.0f}" for figure in figures), f"{speed_ratio(cost, ours):.3f}"])
    table(["case", "MB/s", "MB per CPU s", "CPU ns a record", "ratio to the first"], rows)
    to_peer = speed_ratio(ours, peer)
    print(f"  ratio scan / peer: {to_peer:.2f} ({goal(to_peer, RATIO_GOAL)})")
    print(f"  ratio scan / its twin: {speed_ratio(ours, twin):.0f}")

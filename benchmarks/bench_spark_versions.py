"""Is a batch scan as fast on PySpark 4.0, 4.1 and 4.2 as on the newest?

The same stream is read by sessions of all the versions that are there, which take turns: the newest in this
environment, the others in those that `make spark-matrix` makes. The medians of paired ratios count.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks._load import SEED
from benchmarks._report import goal, heading, scratch, table
from benchmarks.bench_spark import CORES, fill, scan

ROOT = Path(__file__).parents[1]
RATIO_MAX = 1.3
WARM_UPS, ROUNDS = 30, 15


def main(smoke: bool = False) -> None:
    count, warm_ups, rounds = (2_000, 1, 1) if smoke else (1_000_000, WARM_UPS, ROUNDS)
    heading(__doc__, f"{count:,} messages of 128 B; {CORES} cores, seed {SEED}, medians of {rounds} rounds")
    others = [] if smoke else sorted(ROOT.glob(".venv-spark-*/bin/python"))
    with scratch() as directory, ExitStack() as stack:
        stream = directory / "BENCH"
        fill(stream, count, 128, max(count * 178 // 100, 4096))
        readers = [stack.enter_context(reader(Path(python), stream)) for python in (sys.executable, *others)]
        for _ in range(warm_ups):
            for one in readers:
                one.scan()
        times = [[one.scan() for one in readers] for _ in range(rounds)]
    rows = []
    for number, one in enumerate(readers):
        seconds = statistics.median(turn[number] for turn in times)
        ratio = statistics.median(turn[number] / turn[0] for turn in times)
        rows.append(
            [f"PySpark {one.version}", f"{seconds:.2f} s", f"{ratio:.2f}", goal(ratio, RATIO_MAX, at_most=True)]
        )
    table(["full scan, all columns", "took", "ratio", "goal"], rows, left=(0, 3))
    if not others and not smoke:
        print("  no other version is there: `make spark-matrix SPARK_TESTS=tests/spark/test_types.py` makes them\n")


class Reader:
    """A session in a process of its own, which scans when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.version = self._line()

    def scan(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("scan\n")
        self._process.stdin.flush()
        return float(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the session ended; its errors are above"
        return line


@contextmanager
def reader(python: Path, stream: Path) -> Iterator[Reader]:
    command = [str(python), "-m", "benchmarks.bench_spark_versions", str(stream)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Reader(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def serve(stream: str) -> None:
    """Say the version; then scan for each line, and say how long it took."""
    import pyspark

    from jetlake.spark import read, session

    spark = session("bench", master=f"local[{CORES}]")
    print(pyspark.__version__, flush=True)
    work = scan(read(spark, path=stream))
    for _ in sys.stdin:
        started = time.perf_counter()
        work()
        print(time.perf_counter() - started, flush=True)
    spark.stop()


if __name__ == "__main__":
    serve(sys.argv[1])

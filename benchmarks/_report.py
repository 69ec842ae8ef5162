"""How the benchmarks measure and print.

Machines are shared. So every case runs once a round, one after the other, and the median round counts: a busy moment
then hits all cases alike, or only one round. Beside the time on the wall stands the CPU time, the system's share
included, which a busy neighbour cannot take away; ratios are of CPU time. What needs a process of its own (memory,
crashes) gets a fresh one. Each heading says whether the kernels were loaded: a build under way takes them away, and
figures of the Python twins would pass for ours.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

from jetlake.store.kernels import COMPILED

ROUNDS = 3
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class Cost(NamedTuple):
    """What one message, call or byte costs in a round."""

    wall_ns: float
    cpu_ns: float


class Stopwatch:
    """Adds up the time spent in `with` blocks."""

    def __init__(self) -> None:
        self.wall_ns = self.cpu_ns = 0

    def __enter__(self) -> Self:
        self.wall_ns -= time.perf_counter_ns()
        self.cpu_ns -= time.process_time_ns()
        return self

    def __exit__(self, *error: object) -> None:
        self.cpu_ns += time.process_time_ns()
        self.wall_ns += time.perf_counter_ns()

    def per(self, count: int) -> Cost:
        return Cost(self.wall_ns / count, self.cpu_ns / count)


Costs = dict[str, list[Cost]]


def interleaved(cases: Mapping[str, Callable[[], Cost]], rounds: int = ROUNDS) -> Costs:
    """What each case costs in each round, all of them run in turn."""
    costs: Costs = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            costs[name].append(case())
    return costs


def calls(function: Callable[[Any], object], arguments: Sequence[Any], wall_s_max: float = 60.0) -> Cost:
    """What a call costs, over calls with each of the arguments, or as many as there is time for."""
    done, stop = 0, time.perf_counter() + wall_s_max
    with Stopwatch() as watch:
        for argument in arguments:
            function(argument)
            done += 1
            if time.perf_counter() > stop:
                break
    return watch.per(done)


def wall_ns(costs: Sequence[Cost]) -> float:
    return median(cost.wall_ns for cost in costs)


def cpu_ns(costs: Sequence[Cost]) -> float:
    return median(cost.cpu_ns for cost in costs)


def speed_ratio(ours: Sequence[Cost], others: Sequence[Cost]) -> float:
    """How many times as fast as the others we are: the median over rounds, by CPU time."""
    return median(other.cpu_ns / max(our.cpu_ns, 1e-3) for our, other in zip(ours, others, strict=True))


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for one benchmark, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="jetlake-bench-") as directory:
        yield Path(directory)


def rss_size() -> int:
    """Resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_SIZE


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call in a fresh process, which is killed as soon as it has told us."""
    with killed_child(function, *arguments) as result:
        return result


@contextmanager
def killed_child(function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    """Run `function` in a fresh process, yield what it says first, and have it dead by SIGKILL at the end.

    A generator yields what it has to say, and then goes on until it is killed.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_tell, args=(theirs, function, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        compiled, said = ours.recv()
        assert compiled == COMPILED, "the kernels came or went during the run"
        yield said
    finally:
        process.kill()
        process.join()
        ours.close()


def _tell(pipe: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    found = function(*arguments)
    if isinstance(found, Iterator):
        pipe.send((COMPILED, next(found)))
        for _ in found:
            pass
    else:
        pipe.send((COMPILED, found))
    time.sleep(60)  # to be killed: an orderly exit would close files and say goodbye


def heading(doc: str | None, facts: str) -> None:
    """Print the question that a benchmark answers, and with what."""
    assert doc is not None
    print(f"\n{doc.strip().splitlines()[0]}")
    print(f"  {facts}")
    print("  with compiled kernels\n" if COMPILED else "  WITHOUT KERNELS: the Python twins are measured\n")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> None:
    """Print rows under their columns: numbers to the right, the columns named in `left` to the left."""
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, ["-" * width for width in widths], *rows]:
        cells = [
            text.ljust(width) if i in left else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())
    print(flush=True)


def goal(value: float, bound: float, *, at_most: bool = False) -> str:
    """A figure's goal, and whether this run reached it."""
    reached = value <= bound if at_most else value >= bound
    return f"goal {'≤' if at_most else '≥'} {bound:g}{'' if reached else ': MISSED'}"

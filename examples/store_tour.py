"""A tour of JetLake's storage engine: what it stores, how it is asked, and what it survives.

    python examples/store_tour.py [--messages 200000] [--directory DIR]

It fills a stream with a day of orders and sensor readings, asks it questions, deletes and erases, kills a process in
the middle of writing, and damages a file. Nothing is staged: every figure comes from the run you see. Without
--directory it works in a temporary directory, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from jetlake.clock import SECOND_NS
from jetlake.errors import MessageNotFound
from jetlake.ops import append_op
from jetlake.store import FileOptions, FileStore
from jetlake.store.verify.check import check_store

SEED = 42
BATCH_COUNT = 1500
DAY_NS = 24 * 3600 * SECOND_NS
REGIONS, STATES = ("eu", "us", "apac"), ("created", "paid", "shipped")
SITES, DEVICE_COUNT = ("berlin", "lima", "osaka"), 40
BROKEN_DEVICE = 13
SECRET = b"IBAN DE89 3704 0044 0532 0130 00"
ACKS_BEFORE_KILL = 25

console = Console(highlight=False)


class Clock:
    """A clock that the tour sets, so that a day of messages is stored in a second."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns


class Results:
    """What the tour found out, for the table at its end."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str]] = []

    def add(self, step: str, result: str, spent_s: float) -> None:
        self.rows.append((step, result, show_time(spent_s)))
        console.print(f"  [green]✓[/] {result} [dim]({show_time(spent_s)})[/]")

    def show(self) -> None:
        table = Table(title="What happened")
        for column in ("step", "result"):
            table.add_column(column)
        table.add_column("time", justify="right")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


def show_time(spent_s: float) -> str:
    for unit_s, unit in ((1.0, "s"), (1e-3, "ms")):
        if spent_s >= unit_s:
            return f"{spent_s / unit_s:.2f} {unit}"
    return f"{spent_s * 1e6:.0f} µs"


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and how long it took."""
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="A tour of JetLake's storage engine.")
    parser.add_argument("--messages", type=int, default=200_000, help="how many to store (default 200000)")
    parser.add_argument("--directory", type=Path, help="where to leave the stream (default: nowhere)")
    parser.add_argument("--crash-writer", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.crash_writer:
        write_until_killed(arguments.crash_writer)
    with tempfile.TemporaryDirectory(prefix="jetlake-tour-") as temporary:
        parent = arguments.directory or Path(temporary)
        parent.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix="stream-", dir=parent))  # a new one, so that it can be run again
        tour(directory, max(arguments.messages, 2_000))
        if arguments.directory:
            console.print(f"\nThe stream is in {directory}. Look at it with: jetlake verify {directory}")


def tour(directory: Path, count: int) -> None:
    results, clock = Results(), Clock(time.time_ns() - DAY_NS)
    options = FileOptions(block_size_max=max(count * 20, 64 * 1024))  # small, so that there are several blocks
    with FileStore(directory, options=options, clock=clock, autocommit=False) as store:
        fill(store, clock, count, results)
        ask(store, clock, results)
        delete(store, results)
        erase(store, directory, results)
    crash(directory, options, results)
    damage(directory, options, count // 10, results)
    console.print()
    results.show()


def day_of_messages(count: int) -> Iterator[tuple[bytes, array[int], int]]:
    """Orders and sensor readings in batches, as a server would hand them over: a buffer, and where things lie in it."""
    rng = random.Random(SEED)
    buffer, ops = bytearray(), array("I")
    for number in range(1, count + 1):
        if rng.random() < 0.4:
            subject = f"orders.{rng.choice(REGIONS)}.{rng.choice(STATES)}"
            facts = {
                "order": number,
                "customer": f"c-{rng.randrange(20_000)}",
                "total": rng.randrange(500, 90_000) / 100,
            }
            headers = b"NATS/1.0\r\nSource: shop-%d\r\n\r\n" % rng.randrange(8)
        else:
            subject = f"sensors.{rng.choice(SITES)}.{rng.randrange(DEVICE_COUNT)}.temperature"
            facts = {"reading": number, "celsius": round(rng.gauss(21, 4), 2), "battery": round(rng.random(), 2)}
            headers = b""
        append_op(ops, buffer, subject.encode(), json.dumps(facts).encode(), headers)
        if number % BATCH_COUNT == 0 or number == count:
            yield bytes(buffer), ops, number
            buffer, ops = bytearray(), array("I")


def fill(store: FileStore, clock: Clock, count: int, results: Results) -> None:
    console.rule("Store a day of orders and sensor readings")
    spent_s, start_ns = 0.0, clock.now_ns
    commits = 0
    for data, ops, number in day_of_messages(count):
        clock.now_ns = start_ns + DAY_NS * number // count
        start = time.perf_counter()
        store.append_batch(data, ops)
        durable_seq = store.commit()
        spent_s += time.perf_counter() - start
        commits += 1
        assert durable_seq == number
    state, blocks = store.fast_state(), len(list(Path(store.directory).glob("*.blk")))
    console.print(f"  {state.num_subjects} subjects, {state.bytes / 1e6:.1f} MB in {blocks} block files")
    console.print(f"  {count / spent_s:,.0f} messages a second")
    results.add("store", f"{state.msgs:,} messages stored in {commits} commits, each one synced to disk", spent_s)


def ask(store: FileStore, clock: Clock, results: Results) -> None:
    console.rule("Ask")
    since_ns = clock.now_ns - DAY_NS // 2
    since_seq, spent_s = timed(lambda: store.seq_from_time(since_ns))
    console.print(
        f"  the first message of the last twelve hours is number {since_seq:,} [dim]({show_time(spent_s)})[/]"
    )
    total_s = spent_s
    questions: list[tuple[str, Callable[[], Any]]] = [
        ("messages on orders.eu.>", lambda: store.num_pending(1, "orders.eu.>").msgs),
        ("of them since then", lambda: store.num_pending(since_seq, "orders.eu.>").msgs),
        ("devices in lima", lambda: len(store.subjects_totals("sensors.lima.*.temperature"))),
        ("the first paid order among them", lambda: store.load_next(since_seq, "orders.*.paid")),
        ("the last reading of berlin's device 7", lambda: store.load_last("sensors.berlin.7.temperature")),
    ]
    for question, answer in questions:
        found, spent_s = timed(answer)
        total_s += spent_s
        shown = f"{found:,}" if isinstance(found, int) else f"number {found.seq:,} {found.payload.decode()}"
        console.print(f"  {question}: {shown} [dim]({show_time(spent_s)})[/]", markup=True)
    results.add("ask", f"{len(questions) + 1} questions answered from the index", total_s)


def delete(store: FileStore, results: Results) -> None:
    console.rule("Delete")
    before = store.fast_state()

    def purge() -> int:
        store.remove(before.last_seq // 2)
        purged = store.purge(f"sensors.lima.{BROKEN_DEVICE}.>")
        store.commit()
        return purged + 1

    gone, spent_s = timed(purge)
    after = store.fast_state()
    assert (after.msgs, after.last_seq) == (before.msgs - gone, before.last_seq)
    console.print(f"  {after.msgs:,} remain, still numbered up to {after.last_seq:,}; {after.num_deleted:,} gaps")
    results.add("delete", f"{gone:,} messages deleted: one by number, a device by subject", spent_s)


def erase(store: FileStore, directory: Path, results: Results) -> None:
    console.rule("Erase one message for good")
    seq = store.append("orders.eu.paid", b'{"order": 0, "refund_to": "%b"}' % SECRET)
    store.commit()
    before = files_with(directory, SECRET)
    _, spent_s = timed(lambda: store.erase(seq))
    after = files_with(directory, SECRET)
    console.print(f"  the secret was in {', '.join(before)}; now it is in {', '.join(after) or 'no file'}")
    assert before and not after
    try:
        store.load(seq)
    except MessageNotFound as error:
        console.print(f"  {error}")
    results.add("erase", f"message {seq:,} erased: its bytes are in {len(after)} files", spent_s)


def files_with(directory: Path, text: bytes) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if text in path.read_bytes())


def write_until_killed(directory: Path) -> None:
    """The child: store numbered messages, and acknowledge on stdout what is durable."""
    store = FileStore(directory, autocommit=False)
    while True:
        ops, buffer = array("I"), bytearray()
        for seq in range(store.catalog.last_seq + 1, store.catalog.last_seq + 201):
            append_op(ops, buffer, b"orders.eu.created", b'{"order": %d}' % seq)
        store.append_batch(bytes(buffer), ops)
        os.write(1, b"%d\n" % store.commit())


def crash(directory: Path, options: FileOptions, results: Results) -> None:
    console.rule("kill -9 in the middle of writing")
    with FileStore(directory, options=options) as store:
        first_seq = store.fast_state().last_seq + 1
    command = [sys.executable, __file__, "--crash-writer", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        acks = [child.stdout.readline() for _ in range(ACKS_BEFORE_KILL)]
        time.sleep(random.uniform(0.05, 0.1))  # so that nobody knows what it is doing then
        child.kill()
        acks += child.stdout.readlines()  # what it said before it knew
    acked_seq = int(acks[-1])
    store, spent_s = timed(lambda: FileStore(directory, options=options))
    with store:
        last_seq, torn_size = store.fast_state().last_seq, store.torn_size
        acked = range(first_seq, acked_seq + 1)
        lost = [seq for seq in acked if seq > last_seq or store.load(seq).payload != b'{"order": %d}' % seq]
    console.print(f"  process {child.pid}, killed by signal {-child.returncode}, had acknowledged up to {acked_seq:,}")
    console.print(f"  the disk has up to {last_seq:,}; {torn_size} bytes of an unfinished write were cut off")
    results.add("crash", f"{len(lost)} of {len(acked):,} acknowledged messages lost; open again", spent_s)
    assert acked and not lost


def damage(directory: Path, options: FileOptions, seq: int, results: Results) -> None:
    console.rule("Damage one byte of a sealed block")
    with FileStore(directory, options=options) as store:
        state = store.fast_state()
        victim = store.load_next(seq, "orders.>")
        assert victim is not None
    (name,) = files_with(directory, victim.payload)
    assert name == "000001.blk", "a tenth of the way into the stream is the first block"
    path = directory / name
    data = bytearray(path.read_bytes())
    place = data.find(victim.payload) + len(victim.payload) // 2
    data[place] ^= 0x20
    path.write_bytes(data)
    console.print(f"  {name}, offset {place}: one bit flipped, in the payload of message {victim.seq:,}")
    report, spent_s = timed(lambda: check_store(str(directory)))
    for problem in report.problems:
        console.print(f"  check: {Path(problem.file).name}: {problem.text}", markup=False)
    assert list(report.lost.ranges()) == [(victim.seq, victim.seq)]
    assert report.messages == state.msgs - 1
    with FileStore(directory, options=options) as store:
        deleted = store.state().deleted
        deleted.difference_update(store.state().lost)
        near = [seq for seq in range(victim.seq - 100, victim.seq + 101) if seq not in deleted]
        assert [seq for seq in near if not is_readable(store, seq)] == [victim.seq]
    result = f"1 message lost, number {victim.seq:,}, and reported; {report.messages:,} sound"
    results.add("damage", result, spent_s)


def is_readable(store: FileStore, seq: int) -> bool:
    try:
        return store.load(seq).seq == seq
    except MessageNotFound as error:
        console.print(f"  load: {error}", markup=False)
        return False


if __name__ == "__main__":
    main()

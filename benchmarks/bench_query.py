"""What does a question to a large stream cost, beside the same question to SQLite?

The peer holds the same messages in a table with the sequence as its key and an index on (subject, seq) and on time.
Both have their files in the page cache. n: messages, s: subjects, m: subjects that match, b: blocks, k: messages of a
block. A cold index is one that has to be read from its sidecar first.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._load import PAYLOAD_SIZE, SEED, Read, random_subjects, socket_reads, subject
from benchmarks._report import ROUNDS, Cost, calls, cpu_ns, heading, interleaved, scratch, speed_ratio, table
from jetlake.clock import SECOND_NS
from jetlake.ops import OP_WORDS
from jetlake.store import FileOptions, FileStore

SUBJECT_COUNT = 1000
BLOCK_SIZE = 8 * 1024 * 1024
RARE = "orders.rare"
CASE_S_MAX = 0.2
STEP_NS = SECOND_NS  # between two batches


class Question(NamedTuple):
    """A question, its arguments, how each side answers it, and what that ought to cost."""

    label: str
    arguments: list[Any]
    ours: Callable[[Any], object]
    sql: str
    complexity: str


class Clock:
    """Moves on by a step each time a batch is stored."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def make_reads(count: int) -> list[Read]:
    """`count` messages, one of them on a subject of its own."""
    names = list(random_subjects(count, SUBJECT_COUNT))
    names[count * 2 // 3] = RARE.encode()
    return socket_reads(names)


def fill(directory: Path, reads: list[Read], block_size: int) -> FileStore:
    clock = Clock()
    options = FileOptions(sync="never", block_size_max=block_size)
    store = FileStore(directory, options=options, clock=clock, autocommit=False)
    for read in reads:
        clock.now_ns += STEP_NS
        store.append_batch(read.data, read.ops)
        store.commit()
    return store


def rows_of(reads: list[Read]) -> Iterator[tuple[int, str, int, bytes]]:
    """The same messages for the peer."""
    seq = 0
    for number, read in enumerate(reads, 1):
        for at in range(0, len(read.ops), OP_WORDS):
            seq += 1
            subject_at, subject_size, payload_at, payload_size = (read.ops[at + i] for i in (0, 1, 6, 7))
            name = read.data[subject_at : subject_at + subject_size].decode()
            yield seq, name, number * STEP_NS, read.data[payload_at : payload_at + payload_size]


def fill_peer(path: Path, reads: list[Read]) -> sqlite3.Connection:
    peer = sqlite3.connect(path)
    peer.execute("pragma synchronous = off")
    peer.execute("create table msgs (seq integer primary key, subject text, time_ns integer, payload blob)")
    peer.executemany("insert into msgs values (?, ?, ?, ?)", rows_of(reads))
    peer.execute("create index by_subject on msgs (subject, seq)")
    peer.execute("create index by_time on msgs (time_ns, seq)")
    peer.commit()
    return peer


def questions(store: FileStore, count: int, calls_max: int) -> list[Question]:
    """Wildcards are ranges to the peer: region 3 is everything from "orders.3." to before "orders.3/"."""
    rng = random.Random(SEED)
    seqs = [rng.randrange(1, count + 1) for _ in range(calls_max)]
    names = [subject(rng.randrange(SUBJECT_COUNT)).decode() for _ in range(calls_max)]
    halves = list(zip(names, seqs, strict=True))
    middles = [(seq,) for seq in seqs]
    region = "subject > 'orders.3.' and subject < 'orders.3/'"
    times = [(rng.randrange(store.clock()),) for _ in range(calls_max)]
    return [
        Question(
            "load, any sequence",
            middles,
            lambda a: store.load(a[0]) if store.catalog.is_live(a[0]) else None,
            "select * from msgs where seq = ?",
            "log b + 1 read",
        ),
        Question(
            "num_pending, subject, all",
            [(name,) for name in names],
            lambda a: store.num_pending(1, a[0]),
            "select count(*) from msgs where subject = ?",
            "1",
        ),
        Question(
            "num_pending, subject, from the middle",
            halves,
            lambda a: store.num_pending(a[1], a[0]),
            "select count(*) from msgs where subject = ? and seq >= ?",
            "b + k",
        ),
        Question(
            "num_pending, orders.3.*, all",
            [()] * calls_max,
            lambda a: store.num_pending(1, "orders.3.*"),
            f"select count(*) from msgs where {region}",
            "log s + m",
        ),
        Question(
            "num_pending, orders.3.*, from the middle",
            middles,
            lambda a: store.num_pending(a[0], "orders.3.*"),
            f"select count(*) from msgs where {region} and seq >= ?",
            "b (log s + m) + k",
        ),
        Question(
            "num_pending, orders.*.7, from the middle",
            middles,
            lambda a: store.num_pending(a[0], "orders.*.7"),
            "select count(*) from msgs where subject glob 'orders.*.7' and seq >= ?",
            "b s + k",
        ),
        Question(
            "num_pending, last per subject",
            middles,
            lambda a: store.num_pending(a[0], ">", last_per_subject=True),
            "select count(*) from (select max(seq) as last from msgs group by subject) where last >= ?",
            "s",
        ),
        Question(
            "load_next, dense (orders.3.*)",
            middles,
            lambda a: store.load_next(a[0], "orders.3.*"),
            f"select * from msgs where seq >= ? and {region} order by seq limit 1",
            "log b + n/matches",
        ),
        Question(
            "load_next, one subject of 1,000",
            halves,
            lambda a: store.load_next(a[1], a[0]),
            "select * from msgs where subject = ? and seq >= ? order by seq limit 1",
            "log b + n/matches",
        ),
        Question(
            "load_next, one message in all",
            [(RARE,)] * calls_max,
            lambda a: store.load_next(1, a[0]),
            "select * from msgs where subject = ? order by seq limit 1",
            "b + k",
        ),
        Question(
            "load_last, subject",
            [(name,) for name in names],
            lambda a: store.load_last(a[0]),
            "select * from msgs where subject = ? order by seq desc limit 1",
            "1 + 1 read",
        ),
        Question(
            "seq_from_time",
            times,
            lambda a: store.seq_from_time(a[0]),
            "select seq from msgs where time_ns >= ? order by time_ns, seq limit 1",
            "b + log k reads",
        ),
    ]


def check(question: Question, peer: sqlite3.Connection) -> None:
    """Do both sides say the same? Comparing speeds means nothing otherwise."""
    for argument in question.arguments[:3]:
        ours, rows = question.ours(argument), peer.execute(question.sql, argument).fetchall()
        theirs = rows[0][0] if rows else None
        found = ours if isinstance(ours, int) or ours is None else ours[0]
        assert found == theirs, f"{question.label} {argument}: {ours} here, {theirs} there"


def forget_indexes(store: FileStore) -> None:
    """Let go of all indexes of sealed blocks."""
    for block in store.catalog.blocks[:-1]:
        store.catalog.forget(block)
        block.index = None


def ask(store: FileStore, peer: sqlite3.Connection, asked: list[Question], rounds: int) -> list[list[str]]:
    """A row for each question."""
    rows = []
    for question in asked:
        check(question, peer)

        def theirs(question: Question = question) -> Cost:
            return calls(lambda a: peer.execute(question.sql, a).fetchall(), question.arguments, CASE_S_MAX)

        def ours(question: Question = question) -> Cost:
            for block in store.catalog.blocks:
                store.catalog.index(block)
            return calls(question.ours, question.arguments, CASE_S_MAX)

        def cold(question: Question = question) -> Cost:
            forget_indexes(store)
            return calls(question.ours, question.arguments[:1])

        costs = interleaved({"cold": cold, "ours": ours, "theirs": theirs}, rounds)
        figures = [f"{cpu_ns(costs[name]) / 1e3:,.1f}" for name in ("ours", "cold", "theirs")]
        ratio = f"{speed_ratio(costs['ours'], costs['theirs']):,.1f}"
        rows.append([question.label, *figures, ratio, question.complexity])
    return rows


def main(smoke: bool = False) -> None:
    count, calls_max, block_size = (3_000, 40, 64 * 1024) if smoke else (1_000_000, 2_000, BLOCK_SIZE)
    rounds = 1 if smoke else ROUNDS
    heading(
        __doc__,
        f"{count:,} messages of {PAYLOAD_SIZE} B over {SUBJECT_COUNT:,} subjects in blocks of "
        f"{block_size >> 10:,} KiB; CPU µs a call, seed {SEED}, median of {rounds}",
    )
    columns = ["question", "µs", "first call, cold", "SQLite µs", "ratio", "complexity"]
    with scratch() as directory:
        reads = make_reads(count)
        store = fill(directory / "store", reads, block_size)
        peer = fill_peer(directory / "peer.sqlite", reads)
        asked = questions(store, count, calls_max)
        table(columns, ask(store, peer, asked, rounds), left=(0, 5))

        gone = random.Random(SEED).sample(range(2, count), count // 10)
        gone = [seq for seq in gone if seq != count * 2 // 3 + 1]
        removing = interleaved({"ours": lambda: calls(store.remove, gone)}, rounds=1)["ours"]
        store.commit()
        peer_gone = [(seq,) for seq in gone]
        deleting = [calls(lambda argument: peer.execute("delete from msgs where seq = ?", argument), peer_gone)]
        peer.commit()
        print(f"  after removing {len(gone):,} of them at random:\n")
        remove_row = ["remove", f"{cpu_ns(removing) / 1e3:,.1f}", "", f"{cpu_ns(deleting) / 1e3:,.1f}"]
        remove_row += [f"{speed_ratio(removing, deleting):,.1f}", "log b + 1 read"]
        table(columns, [remove_row, *ask(store, peer, asked, rounds)], left=(0, 5))
        peer.close()
        store.delete()

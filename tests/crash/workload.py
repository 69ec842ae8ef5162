"""A scripted life of a store, in steps, with a model of what each step means. The crash tests cut it short anywhere."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from jetlake.ops import append_op
from jetlake.store import (
    NEVER_NS,
    Cipher,
    Compression,
    FileOptions,
    FileStore,
    KeySource,
    StoredMsg,
    StreamLimits,
)
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from tests.store.model import Model

SECOND = 1_000_000_000
KEYS = (KeySource.key(bytes(range(32))),)
HEADERS = b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"


def options(compression: Compression, cipher: Cipher) -> FileOptions:
    """Blocks so small that the script fills a dozen."""
    return FileOptions(block_size_max=350, compression=compression, cipher=cipher, keys=KEYS if cipher else ())


ENVELOPES = {
    f"{compression.name}-{cipher.name}".lower(): options(compression, cipher)
    for compression in Compression
    for cipher in Cipher
}


class ThriftyStore(FileStore):
    """Small blocks are worth rewriting, too."""

    rewrite_size_min = 100


@dataclass
class Life:
    """A store on a file system that may fail, and what it ought to hold before and after the step under way."""

    files: MemFiles
    options: FileOptions
    script: Script
    clock: FakeClock = field(default_factory=FakeClock)
    limits: StreamLimits = field(default_factory=StreamLimits)
    before: Model = field(default_factory=lambda: Model(30, 4))
    after: Model = field(default_factory=lambda: Model(30, 4))
    passing: dict[int, StoredMsg] = field(default_factory=dict)  # of the step's batch, also what a limit takes at once

    def open(self) -> FileStore:
        self.store = ThriftyStore("s", self.limits, self.options, files=self.files, clock=self.clock)
        return self.store

    def run(self) -> None:
        """The whole script; raises what the file system raises."""
        self.open()
        for step in self.script():
            self.after, self.passing = copy.deepcopy(self.before), {}
            step(self)
            self.before = self.after

    # The steps: each changes the model first, then the store.

    def append(self, subject: str, payload: bytes, ttl: int = 0) -> None:
        self.clock.advance(ns=10)
        expires = 0 if not ttl else NEVER_NS if ttl == NEVER_NS else self.clock() + ttl
        self.after.store(self.after.last + 1, subject, payload, HEADERS, self.clock(), expires)
        self.store.append(subject, payload, HEADERS, ttl_ns=ttl)

    def batch(self, count: int) -> None:
        self.clock.advance(ns=10)
        ops, data = array("I"), bytearray()
        for number in range(count):
            subject, payload, seq = f"batch.{number % 3}", b"p" * number, self.after.last + 1
            append_op(ops, data, subject.encode(), payload)
            self.after.store(seq, subject, payload, b"", self.clock())
            self.passing[seq] = StoredMsg(seq, subject, b"", payload, self.clock())
        self.store.append_batch(data, ops)

    def update(self, limits: StreamLimits) -> None:
        self.limits = limits
        self.after.update(limits)
        self.store.update(limits)

    def age(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.after.expire(self.clock())
        self.store.expire()

    def stop(self) -> None:
        self.store.stop()
        self.open()

    def remove(self, *seqs: int) -> None:
        for seq in seqs:
            self.after.drop(seq)
            self.store.remove(seq)

    def erase_soon(self, seq: int) -> None:
        assert self.store.erase_soon(seq)
        while self.store.is_erasing:
            self.store.commit()

    def rewrite(self, meanwhile: Callable[[Life, int], object]) -> None:
        """A commit rewrites a block of which one message is left, `meanwhile` is told which."""
        store = self.store
        store.autocommit = False
        block = store.catalog.blocks[-2]
        seqs = [seq for seq in range(block.first_seq, block.last_seq + 1) if block.is_live(seq)]
        self.remove(*seqs[1:])
        commit = store.prepare_commit()
        assert commit is not None and commit.rewrite is not None and commit.rewrite.block is block
        meanwhile(self, seqs[0])
        commit.run()
        store.complete_commit(commit)
        store.commit()
        store.autocommit = True


Script = Callable[[], Iterator[Callable[[Life], object]]]


def steps() -> Iterator[Callable[[Life], object]]:
    """The script of all that a store does."""
    for number in range(8):
        yield lambda life, number=number: life.append(f"a.{number % 3}", b"payload %d" % number)
    yield lambda life: (life.after.drop(3), life.store.remove(3))
    yield lambda life: (life.after.drop(5), life.store.erase(5))
    yield lambda life: life.batch(9)
    yield lambda life: (life.after.skip(4), life.store.skip(4))
    yield lambda life: life.append("t.1", b"short", 2 * SECOND)
    yield lambda life: life.append("t.2", b"forever", NEVER_NS)
    yield lambda life: (life.after.purge("a.1", 0, 0), life.store.purge("a.1"))
    yield Life.stop
    yield lambda life: life.batch(6)
    yield lambda life: (life.after.drop(9), life.store.erase(9))
    yield lambda life: (life.after.drop(7), life.erase_soon(7))
    for seq in range(10, 16):
        yield lambda life, seq=seq: (life.after.drop(seq), life.store.remove(seq))
    yield lambda life: life.store.compact_files()
    yield lambda life: life.age(3)
    yield lambda life: life.update(StreamLimits(max_msgs_per_subject=3))
    yield lambda life: life.batch(12)
    yield lambda life: (life.after.truncate(35), life.store.truncate(35))
    yield lambda life: life.batch(40)  # blocks between others are filled and emptied before they are written
    yield lambda life: (life.after.truncate(36), life.store.truncate(36))
    yield lambda life: life.batch(4)
    yield lambda life: life.update(StreamLimits(max_msgs=6))
    yield lambda life: life.batch(5)
    yield lambda life: life.batch(40)  # the same with the first blocks
    yield lambda life: (life.after.compact(82), life.store.compact(82))
    yield Life.stop
    yield lambda life: (life.after.purge(">", 0, 0), life.store.purge())
    yield lambda life: life.append("z", b"last")
    yield Life.stop


def rewrites() -> Iterator[Callable[[Life], object]]:
    """A shorter script: things happen while a commit rewrites a block."""
    meanwhiles: list[Callable[[Life, int], object]] = [
        lambda life, left: life.append("while", b"a block is rewritten"),
        lambda life, left: (
            life.remove(left - 1, left),
            life.batch(12),
        ),  # a block is sealed, with the tombstones in it
        lambda life, left: life.remove(left),  # which leaves the block empty
        lambda life, left: (life.after.purge(">", 0, 0), life.store.purge()),
    ]
    for meanwhile in meanwhiles:
        for _ in range(3):
            yield lambda life: life.batch(10)
        yield lambda life, meanwhile=meanwhile: life.rewrite(meanwhile)
        yield lambda life: life.append("after", b"it")
    yield Life.stop


SCRIPTS: dict[str, Script] = {"everything": steps, "rewrites": rewrites}

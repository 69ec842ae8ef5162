"""The messages that benchmarks store, in the shape in which a server would get them: one socket read at a time.

Everything follows from a seed. A payload is a random piece of a random megabyte, so nothing compresses or repeats.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator
from itertools import cycle
from typing import NamedTuple

from jetlake.ops import OP_WORDS
from jetlake.store import FileStore, MemStore

SEED = 7
PAYLOAD_SIZE = 128
READ_SIZE = 256 * 1024
_POOL_SIZE = 1024 * 1024


class Read(NamedTuple):
    """What one read of a socket brings: text of the protocol, and the operations that a parser finds in it."""

    data: bytes
    ops: array[int]

    @property
    def count(self) -> int:
        return len(self.ops) // OP_WORDS


def subject(number: int) -> bytes:
    """The subject of a customer: a tenth of them is in each region."""
    return b"orders.%d.%d" % (number % 10, number)


def random_subjects(count: int, subject_count: int, seed: int = SEED) -> Iterator[bytes]:
    """`count` subjects, each drawn from the same few."""
    names = [subject(number) for number in range(subject_count)]
    rng = random.Random(seed)
    return (rng.choice(names) for _ in range(count))


def socket_reads(subjects: Iterable[bytes], payload_size: int = PAYLOAD_SIZE, seed: int = SEED) -> list[Read]:
    """A publish on each subject, cut into reads of about READ_SIZE."""
    rng = random.Random(seed)
    pool = rng.randbytes(_POOL_SIZE + payload_size)
    reads, data, ops = [], bytearray(), array("I")
    for name in subjects:
        at = int(rng.random() * _POOL_SIZE)
        data += b"PUB %b %d\r\n" % (name, payload_size)
        payload_start = len(data)
        data += pool[at : at + payload_size]
        data += b"\r\n"
        subject_start = payload_start - len(name) - len(b" %d\r\n" % payload_size)
        ops.extend((subject_start, len(name), 0, 0, 0, 0, payload_start, payload_size, 0, 0, 0, 0))
        if len(data) >= READ_SIZE:
            reads.append(Read(bytes(data), ops))
            data, ops = bytearray(), array("I")
    if ops:
        reads.append(Read(bytes(data), ops))
    return reads


def few_reads(subject_count: int = 1000, read_count: int = 50, payload_size: int = PAYLOAD_SIZE) -> list[Read]:
    """Some reads over a number of subjects, to be stored again and again."""
    count = read_count * READ_SIZE // (payload_size + 27)
    return socket_reads(random_subjects(count, subject_count), payload_size)


def store_reads(store: FileStore | MemStore, reads: list[Read], message_count: int) -> int:
    """Store whole reads, over and over, and commit after each, until there are so many messages; how many."""
    stored = 0
    for read in cycle(reads):
        ops = read.ops[:]  # as a parser leaves them: no subject's slot is known
        store.append_batch(read.data, ops)
        store.commit()
        stored += read.count
        if stored >= message_count:
            break
    return stored

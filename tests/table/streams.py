"""Streams on disk for the tests of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from jetlake.jetstream.streams.config import StreamConfig
from jetlake.jetstream.streams.meta import MSGS_NAME, StreamMeta, account_directory, stream_directory, write_meta
from jetlake.store import FileOptions, FileStore
from jetlake.store.disk.files import OS_FILES
from jetlake.testing.clock import FakeClock

REGIONS = ("eu", "us", "asia")
START = "2026-03-01T00:00:00Z"
START_NS = 1_772_323_200_000_000_000
HEADERS = b"NATS/1.0\r\nTrace: a\r\nTrace: b\r\nKind: order\r\n\r\n"
SMALL_BLOCKS = FileOptions(block_size_max=4_000, sync="never")


def order(number: int) -> bytes:
    """The payload of the message with this sequence."""
    return json.dumps({"id": number, "amount": number / 4, "region": REGIONS[number % 3]}).encode()


def order_messages(count: int) -> list[tuple[str, bytes, bytes]]:
    """Subject, payload and headers of the same orders, to be published."""
    numbers = range(1, count + 1)
    return [(f"orders.{REGIONS[n % 3]}.{n % 10}", order(n), HEADERS if n % 10 == 0 else b"") for n in numbers]


def orders(directory: Path, count: int = 300, options: FileOptions = SMALL_BLOCKS, first: int = 1) -> FileStore:
    """A store of orders, one a second, on orders.<region>.<number modulo 10>; every tenth has headers."""
    clock = FakeClock(START_NS)
    store = FileStore(directory, options=options, clock=clock, autocommit=False)
    add_orders(store, range(first, first + count), clock)
    return store


def add_orders(store: FileStore, numbers: Iterable[int], clock: FakeClock | None = None) -> None:
    """More of them, committed together."""
    for number in numbers:
        subject = f"orders.{REGIONS[number % 3]}.{number % 10}"
        store.append(subject, order(number), HEADERS if number % 10 == 0 else b"")
        if clock is not None:
            clock.advance(1)
    store.commit()


def stream_in(root: Path, name: str, account: str = "$G") -> Path:
    """The directory of a new stream's blocks in a store directory."""
    directory = stream_directory(account_directory(f"{root}/jetstream", account), name)
    OS_FILES.make_dirs(directory)
    write_meta(OS_FILES, directory, StreamMeta(created_ns=START_NS, config=StreamConfig(name=name)))
    return Path(directory) / MSGS_NAME

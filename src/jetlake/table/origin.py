"""Where a read takes its messages from: what a directory (`path_origin.py`) and a live server (`url_origin.py`) share.

An origin lives where reads are planned and remembers what it has seen of its streams. What it plans is carried in tasks
to whoever reads, threads or Spark's executors. A task holds everything that reading it needs but secrets: those stay in
files that the options name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from jetlake.store.nats.stream_dir import is_nats_store
from jetlake.table.blocks import Losses, Selection
from jetlake.table.options import Options
from jetlake.table.schema import RowBuilder


class Task:
    """What is read at one go: messages of one stream between two sequences, and not older than a time."""

    def __init__(
        self, stream: str, first_seq: int, last_seq: int, pieces: Sequence[Any] = (), time_ns_min: int = -(2**63)
    ) -> None:
        """`pieces` are whatever the origin plans."""
        self.stream, self.first_seq, self.last_seq, self.pieces = stream, first_seq, last_seq, list(pieces)
        self.time_ns_min = time_ns_min


class Bounds(NamedTuple):
    """The sequences that a stream has: the first live one, and the last that was used."""

    first_seq: int
    last_seq: int


class Origin(ABC):
    """Streams to read from."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @abstractmethod
    def names(self) -> list[str]:
        """The names of the streams that the options mean now, without a look at them."""

    @abstractmethod
    def streams(self) -> list[str]:
        """The names of the streams that the options meant at the last look."""

    @abstractmethod
    def refresh(self) -> None:
        """Look at the streams as they are now; everything below answers from that look."""

    @abstractmethod
    def sample(self, count: int) -> list[bytes]:
        """Some payloads of the messages that are wanted."""

    @abstractmethod
    def plan(self) -> list[Task]:
        """Everything wanted, shared out to tasks."""

    @abstractmethod
    def plan_range(self, stream: str, first_seq: int, last_seq: int, time_ns_min: int) -> list[Task]:
        """A range of sequences, without what is older than a time, shared out to tasks: in the same way every time."""

    @abstractmethod
    def read(self, task: Task, builder: RowBuilder) -> Iterator[pa.RecordBatch]:
        """The messages of a task, in order."""

    @abstractmethod
    def bounds(self, stream: str) -> Bounds:
        """Which sequences a stream has."""

    @abstractmethod
    def seq_at(self, stream: str, time_ns: int) -> int:
        """A sequence before which nothing was stored at or after a time; the next one to be used at most."""

    @abstractmethod
    def identity(self, stream: str, seq: int) -> str:
        """What tells the stream that has this sequence from another of the same name; "" when nothing does."""

    @abstractmethod
    def limit(self, stream: str, start_seq: int, rows_max: int | None, size_max: int | None) -> int:
        """The last sequence of a micro-batch that begins at one."""

    @abstractmethod
    def count(self, stream: str, first_seq: int, last_seq: int) -> int | None:
        """How many live messages lie between two sequences; None when that cannot be known."""

    @abstractmethod
    def size(self, stream: str, first_seq: int, last_seq: int) -> int:
        """About how many bytes the messages between two sequences take."""

    @abstractmethod
    def report_lost(self, stream: str, first_seq: int, last_seq: int) -> int:
        """Tell what damage took of a range, or fail, as the options say; how many messages."""

    def close(self) -> None:  # noqa: B027  not all have something to give back
        """Give back what is held."""

    def selection(self, task: Task) -> Selection:
        """Which messages of a task are wanted."""
        wanted = self.options.selection
        time_ns_min = max(wanted.time_ns_min, task.time_ns_min)
        return wanted._replace(first_seq=task.first_seq, last_seq=task.last_seq, time_ns_min=time_ns_min)

    def losses(self, stream: str) -> Losses:
        """What the options say about messages that cannot be read."""
        options = self.options
        return Losses(stream, fail_on_gap=options.on_gap == "fail", fail_on_damage=options.on_damage == "fail")


def open_origin(options: Options) -> Origin:
    """The directory or the server that the options name."""
    if options.url:
        from jetlake.table.url_origin import UrlOrigin

        return UrlOrigin(options)
    if is_nats_store(options.path):
        from jetlake.table.nats_dir_origin import NatsDirOrigin

        return NatsDirOrigin(options)
    from jetlake.table.path_origin import PathOrigin

    return PathOrigin(options)

"""The contract that MemStore and FileStore keep, and the values that pass through it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from jetlake.errors import BadRequest
from jetlake.store.format import Buffer
from jetlake.store.index.sequence_set import SequenceSet


class Discard(StrEnum):
    """What gives way when a limit is reached: the oldest messages, or the new one."""

    OLD = "old"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """What a stream may hold. -1 (0 for times) means no limit."""

    max_msgs: int = -1
    max_bytes: int = -1
    max_age_ns: int = 0
    max_msgs_per_subject: int = -1
    discard: Discard = Discard.OLD
    discard_new_per_subject: bool = False
    subject_delete_marker_ttl_ns: int = 0
    is_bounded: bool = field(init=False, repr=False)  # whether a new message may make old ones go, or be refused itself

    def __post_init__(self) -> None:
        is_bounded = self.max_msgs > 0 or self.max_bytes > 0 or self.discard_new_per_subject
        object.__setattr__(self, "is_bounded", is_bounded)
        if self.max_age_ns < 0 or self.subject_delete_marker_ttl_ns < 0:
            raise BadRequest("a time limit is negative")
        if self.discard_new_per_subject and (self.discard is not Discard.NEW or self.max_msgs_per_subject <= 0):
            raise BadRequest("discard_new_per_subject needs discard=new and max_msgs_per_subject")


class StoredMsg(NamedTuple):
    """A message as it is stored."""

    seq: int
    subject: str
    headers: bytes
    payload: bytes
    time_ns: int
    expires_ns: int = 0  # 0: no TTL of its own; format.NEVER_NS: kept whatever its age


@dataclass(slots=True)
class StreamState:
    """A whole stream in numbers. An unused stream has first_seq and last_seq 0; an emptied one first = last + 1."""

    msgs: int
    bytes: int
    first_seq: int
    first_time_ns: int
    last_seq: int
    last_time_ns: int
    num_subjects: int
    num_deleted: int
    deleted: SequenceSet = field(default_factory=SequenceSet)  # interior gaps; only from `state()`
    lost: SequenceSet = field(default_factory=SequenceSet)  # those of them, and later ones, that damage took


class SimpleState(NamedTuple):
    """Some messages in numbers; all 0 when there are none."""

    msgs: int
    first_seq: int
    last_seq: int


class Pending(NamedTuple):
    """How many messages wait, counted when `valid_through_seq` was the last of the stream."""

    msgs: int
    valid_through_seq: int


class StreamStore(Protocol):
    """An ordered, subject-indexed message log. Filters are subjects with wildcards; sequences start at 1.

    Every change is visible to reads at once. It is as durable as the store is configured when `commit` returns; a
    store with `autocommit` commits at the end of each call.
    """

    def append(
        self,
        subject: str,
        payload: Buffer,
        headers: Buffer = b"",
        *,
        ttl_ns: int = 0,
        msg_id: bool = False,
        is_rollup: bool = False,
    ) -> int: ...
    def append_at(
        self,
        seq: int,
        time_ns: int,
        subject: str,
        payload: Buffer,
        headers: Buffer = b"",
        *,
        expires_ns: int = 0,
        msg_id: bool = False,
    ) -> None: ...
    def append_batch(
        self, data: Buffer, ops: array[int], first: int = 0, stop: int | None = None, time_ns: int | None = None
    ) -> tuple[int, int]: ...
    def append_batch_at(
        self,
        data: Buffer,
        ops: array[int],
        seqs: array[int],
        times: array[int],
        expires: array[int] = ...,
        *,
        stop: int | None = None,
    ) -> None: ...
    def skip(self, count: int = 1, time_ns: int | None = None) -> int: ...
    def check_new(self, subject: bytes, headers: Buffer, payload: Buffer, *, is_rollup: bool = False) -> None: ...

    def load(self, seq: int) -> StoredMsg: ...
    def load_next(self, start: int, filters: str | Sequence[str] = ">") -> StoredMsg | None: ...
    def load_prev(self, start: int, filters: str | Sequence[str] = ">") -> StoredMsg | None: ...
    def load_last(self, filters: str | Sequence[str] = ">") -> StoredMsg | None: ...
    def messages(self, start: int = 1, filters: str | Sequence[str] = ">") -> Iterator[StoredMsg]: ...
    def subject_of(self, seq: int) -> str: ...
    def seq_from_time(self, time_ns: int) -> int: ...

    def state(self) -> StreamState: ...
    def fast_state(self) -> StreamState: ...
    def filtered_state(self, start: int, filters: str | Sequence[str] = ">") -> SimpleState: ...
    def subjects_state(self, filters: str | Sequence[str] = ">") -> dict[str, SimpleState]: ...
    def subjects_totals(self, filters: str | Sequence[str] = ">") -> dict[str, int]: ...
    def all_last_seqs(self) -> list[int]: ...
    def multi_last_seqs(
        self, filters: Sequence[str], max_seq: int | None = None, count_max: int | None = None
    ) -> list[int]: ...
    def num_pending(
        self, start: int, filters: str | Sequence[str] = ">", *, last_per_subject: bool = False
    ) -> Pending: ...

    def remove(self, seq: int) -> bool: ...
    def remove_many(self, seqs: Iterable[int]) -> int: ...
    def erase(self, seq: int) -> bool: ...
    def purge(self, filters: str = ">", *, seq: int = 0, keep: int = 0) -> int: ...
    def compact(self, seq: int) -> int: ...
    def truncate(self, seq: int) -> None: ...
    def update(self, limits: StreamLimits, now_ns: int | None = None) -> None: ...
    def expire(self, now_ns: int | None = None, *, count_max: int | None = None) -> int: ...
    def next_expiry_ns(self) -> int | None: ...

    def commit(self) -> int: ...
    def utilisation(self) -> tuple[int, int]: ...
    def stop(self) -> None: ...
    def delete(self) -> None: ...

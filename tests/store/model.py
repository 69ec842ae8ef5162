"""The plainest store that can be written down: a dict of messages. What the real ones must agree with."""

from __future__ import annotations

from dataclasses import dataclass, field

from jetlake.store import NEVER_NS, Discard, SimpleState, StoredMsg, StreamLimits
from jetlake.subjects import matches


@dataclass
class Model:
    """Every question is answered by looking at every message."""

    size_fixed: int
    size_headers: int
    limits: StreamLimits = field(default_factory=StreamLimits)
    msgs: dict[int, StoredMsg] = field(default_factory=dict)
    first: int = 1
    last: int = 0
    last_time_ns: int = 0

    def size(self, message: StoredMsg) -> int:
        size = self.size_fixed + len(message.subject.encode()) + len(message.payload)
        return size + self.size_headers + len(message.headers) if message.headers else size

    def total(self) -> int:
        return sum(map(self.size, self.msgs.values()))

    def refuses(self, subject: str, payload: bytes, headers: bytes) -> bool:
        limits = self.limits
        if limits.discard is not Discard.NEW:
            return False
        same = [message for message in self.msgs.values() if message.subject == subject]
        replaced = 0
        replaces = 0 < limits.max_msgs_per_subject <= len(same)
        if replaces:
            if limits.discard_new_per_subject:
                return True
            replaced = self.size(same[0])
        if 0 < limits.max_msgs <= len(self.msgs) and not replaces:
            return True
        new = self.size(StoredMsg(0, subject, headers, payload, 0))
        return 0 < limits.max_bytes < self.total() + new and replaced < new

    def store(self, seq: int, subject: str, payload: bytes, headers: bytes, time_ns: int, expires_ns: int = 0) -> None:
        if not self.msgs:
            self.first = seq
        self.msgs[seq] = StoredMsg(seq, subject, headers, payload, time_ns, expires_ns)
        self.last, self.last_time_ns = seq, time_ns
        limit = self.limits.max_msgs_per_subject
        same = [other for other in sorted(self.msgs) if self.msgs[other].subject == subject]
        if limit > 0:
            for other in same[:-limit]:
                self.drop(other)
        self.enforce()

    def enforce(self) -> None:
        if self.limits.discard is Discard.NEW:
            return
        while 0 < self.limits.max_msgs < len(self.msgs):
            self.drop(min(self.msgs))
        while 0 < self.limits.max_bytes < self.total():
            self.drop(min(self.msgs))

    def update(self, limits: StreamLimits) -> None:
        self.limits = limits
        if limits.max_msgs_per_subject > 0:
            for subject in {message.subject for message in self.msgs.values()}:
                same = [seq for seq in sorted(self.msgs) if self.msgs[seq].subject == subject]
                for seq in same[: -limits.max_msgs_per_subject]:
                    self.drop(seq)
        self.enforce()

    def drop(self, seq: int) -> bool:
        if self.msgs.pop(seq, None) is None:
            return False
        self.first = min(self.msgs, default=self.last + 1)
        return True

    def skip(self, count: int) -> None:
        self.last += count
        if not self.msgs:
            self.first = self.last + 1

    def compact(self, seq: int) -> int:
        gone = [other for other in self.msgs if other < seq]
        for other in gone:
            del self.msgs[other]
        if seq > self.last:
            self.last = seq - 1
        self.first = min(self.msgs, default=self.last + 1)
        return len(gone)

    def purge(self, filter: str, seq: int, keep: int) -> int:
        if filter == ">" and not keep:
            return self.compact(seq or self.last + 1)
        found = [other for other in sorted(self.msgs) if matches(filter, self.msgs[other].subject)]
        if seq:
            found = [other for other in found if other < seq]
        elif keep:
            found = found[:-keep]
        for other in found:
            self.drop(other)
        return len(found)

    def truncate(self, seq: int) -> None:
        for other in [other for other in self.msgs if other > seq]:
            del self.msgs[other]
        self.last = seq
        self.last_time_ns = max((message.time_ns for message in self.msgs.values()), default=0)
        self.first = min(self.msgs, default=self.last + 1)

    def expire(self, now_ns: int) -> int:
        age = self.limits.max_age_ns
        gone = [
            message.seq
            for message in self.msgs.values()
            if (message.expires_ns and message.expires_ns != NEVER_NS and message.expires_ns <= now_ns)
            or (age and message.time_ns + age <= now_ns and message.expires_ns != NEVER_NS)
        ]
        for seq in gone:
            self.drop(seq)
        return len(gone)

    def match(self, filters: list[str], start: int = 0) -> list[int]:
        return [
            seq
            for seq in sorted(self.msgs)
            if seq >= start and any(matches(filter, self.msgs[seq].subject) for filter in filters)
        ]

    def last_by_subject(self, filters: list[str], max_seq: int | None = None) -> list[int]:
        last = {self.msgs[seq].subject: seq for seq in self.match(filters) if max_seq is None or seq <= max_seq}
        return sorted(last.values())

    def subjects(self, filters: list[str]) -> dict[str, SimpleState]:
        found: dict[str, list[int]] = {}
        for seq in self.match(filters):
            found.setdefault(self.msgs[seq].subject, []).append(seq)
        return {subject: SimpleState(len(seqs), seqs[0], seqs[-1]) for subject, seqs in found.items()}

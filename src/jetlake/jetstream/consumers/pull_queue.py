"""The requests that wait at a pull consumer: who is next, who waited long enough, who went away.

First in, first out: the request at the head gets a message and moves to the tail, until it has all it asked for. With
the policy `prioritized` the head is the one with the lowest priority number, and it moves behind its equals. Requests
that wait one behind the other and go to one inbox are served as one: their client cannot tell which of them got what.

`next_deadline_ns` is never later than the first expiry or heartbeat of any request. It is found anew when it has
passed, so that a queue that is merely long costs nothing when a message arrives.

Always true: `no_wait_count` requests do not wait for messages that are not there yet, and `batch_sum` is how many
messages all requests together wait for.
"""

from __future__ import annotations

from bisect import insort_right
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto

from jetlake.jetstream.consumers.pull_request import PullRequest, Status

NEVER_NS = 2**63 - 1


class Verdict(Enum):
    """What a policy says of a request that is next."""

    SERVE = auto()
    PASS_OVER = auto()
    WRONG_PIN = auto()


class PullQueue:
    """Waiting requests."""

    def __init__(self, count_max: int, *, is_prioritized: bool = False) -> None:
        self.count_max, self._is_prioritized = count_max, is_prioritized
        self._requests: deque[PullRequest] = deque()
        self.no_wait_count = self.batch_sum = 0
        self.next_deadline_ns = NEVER_NS

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[PullRequest]:
        return iter(self._requests)

    @property
    def is_full(self) -> bool:
        return len(self._requests) >= self.count_max

    def add(self, request: PullRequest) -> bool:
        """Let a request wait; False when too many do."""
        if self.is_full:
            return False
        self._insert(request)
        self.no_wait_count += request.no_wait
        self.batch_sum += request.batch
        self._expect(request)
        return True

    def next(
        self, now_ns: int, admits: Callable[[PullRequest], Verdict], has_interest: Callable[[bytes], bool]
    ) -> tuple[PullRequest | None, list[Status]]:
        """The request to serve now, which is at the head then; and what others on the way to it get to hear."""
        statuses: list[Status] = []
        passed_over = 0
        while self._requests and passed_over < len(self._requests):
            request = self._requests[0]
            if 0 < request.expires_ns <= now_ns:
                statuses.append(request.status(408, "Request Timeout", shows_pending=True))
                self._remove_head()
                continue
            verdict = admits(request)
            if verdict is Verdict.PASS_OVER:
                self._requests.rotate(-1)
                passed_over += 1
            elif verdict is Verdict.WRONG_PIN:
                statuses.append(request.status(423, "Nats-Wrong-Pin-Id", shows_pending=True))
                self._remove_head()
            elif has_interest(request.reply):
                return request, statuses
            else:
                self._remove_head()
        return None, statuses

    def together(self, now_ns: int, count_max: int) -> tuple[int, int]:
        """How many requests are served as one with the head, and how many messages they want, up to about count_max."""
        head, together, wanted = self._requests[0], 0, 0
        for request in self._requests:
            if request is not head and (request.reply != head.reply or not request.is_plain):
                break
            if 0 < request.expires_ns <= now_ns or wanted >= count_max:
                break
            together += 1
            wanted += request.wanted
            if not head.is_plain:
                break
        return together, wanted

    def served(self, count: int, size: int, now_ns: int) -> list[Status]:
        """The request at the head got messages, and those that are served with it what goes beyond its wishes."""
        request = self._requests[0]
        while count > request.wanted:
            count -= request.wanted
            self._remove_head()
            request = self._requests[0]
        request.batch -= count
        request.delivered += count
        self.batch_sum -= count
        if request.bytes_left:
            request.bytes_left -= size
            if request.bytes_left <= 0:  # nothing fits any more, however many it asked for
                self.batch_sum -= request.batch
                request.bytes_left = request.batch = 0
        if request.batch <= 0:
            self._remove_head()
            if request.bytes_left:
                return [request.status(409, "Batch Completed", shows_pending=True)]
            return []
        if request.heartbeat_ns:
            request.heartbeat_at_ns = now_ns + request.heartbeat_ns
        if len(self._requests) > 1:
            self._requests.popleft()
            self._insert(request)
        return []

    def refuse_head(self) -> list[Status]:
        """The next message does not fit into what the request at the head allows."""
        request = self._requests[0]
        self._remove_head()
        return [request.status(409, "Message Size Exceeds MaxBytes", shows_pending=True)]

    def end_of_stream(self) -> list[Status]:
        """There is nothing to deliver: requests that do not wait for it end, unless they wait for a first message."""
        if not self.no_wait_count:
            return []
        ended = [request.status(404, "No Messages") for request in self._requests if _is_over(request)]
        self._keep(lambda request: not _is_over(request))
        return ended

    def tick(self, now_ns: int) -> tuple[list[Status], list[bytes]]:
        """End requests that waited long enough; what they get to hear, and who is due for a heartbeat.

        Requests that do not wait end as well, even where messages are there and may not be delivered: they do not
        outlast the others.
        """
        statuses: list[Status] = []
        beats: list[bytes] = []
        kept: deque[PullRequest] = deque()
        if now_ns < self.next_deadline_ns:
            return statuses, beats
        for request in self._requests:
            if 0 < request.expires_ns <= now_ns:
                statuses.append(request.status(408, "Request Timeout", shows_pending=True))
            elif _is_over(request):
                statuses.append(request.status(404, "No Messages"))
            else:
                kept.append(request)
                if 0 < request.heartbeat_at_ns <= now_ns:
                    beats.append(request.reply)
                    request.heartbeat_at_ns = now_ns + request.heartbeat_ns
        self._replace(kept)
        return statuses, beats

    def drop_unheard(self, has_interest: Callable[[bytes], bool]) -> None:
        """Forget requests that nobody waits for."""
        self._keep(lambda request: has_interest(request.reply))

    def close(self, code: int, text: str, *, shows_pending: bool = False) -> list[Status]:
        """End every request."""
        statuses = [request.status(code, text, shows_pending=shows_pending) for request in self._requests]
        self._requests.clear()
        self._replace(self._requests)
        return statuses

    def _insert(self, request: PullRequest) -> None:
        if self._is_prioritized:
            insort_right(self._requests, request, key=_priority)
        else:
            self._requests.append(request)

    def _remove_head(self) -> None:
        request = self._requests.popleft()
        self.no_wait_count -= request.no_wait
        self.batch_sum -= request.batch

    def _keep(self, is_kept: Callable[[PullRequest], bool]) -> None:
        self._replace(deque(request for request in self._requests if is_kept(request)))

    def _replace(self, requests: deque[PullRequest]) -> None:
        self._requests = requests
        self.no_wait_count = sum(request.no_wait for request in requests)
        self.batch_sum = sum(request.batch for request in requests)
        self.next_deadline_ns = NEVER_NS
        for request in requests:
            self._expect(request)

    def _expect(self, request: PullRequest) -> None:
        for time_ns in (request.expires_ns, request.heartbeat_at_ns):
            if time_ns:
                self.next_deadline_ns = min(self.next_deadline_ns, time_ns)


def _is_over(request: PullRequest) -> bool:
    """Whether a request ends when there is nothing to deliver."""
    return request.no_wait and (not request.expires_ns or request.delivered > 0)


def _priority(request: PullRequest) -> int:
    # One that came without JSON names no priority: it comes last.
    return request.priority if request.is_json else 1 << 31

"""Which of several waiting requests may be served, where a consumer has priority groups.

overflow        a request may set a bar: it is served only while so many messages are pending, or so many unacknowledged
pinned_client   one client is served, the first that asked; it is known by an id that goes with each of its messages,
                and loses its place when it does not ask for a while, or when it is unpinned
prioritized     the order of the queue says it all
"""

from __future__ import annotations

from collections.abc import Callable

from jetlake.jetstream.consumers.config import ConsumerConfig, PriorityPolicy
from jetlake.jetstream.consumers.pull_queue import NEVER_NS, Verdict
from jetlake.jetstream.consumers.pull_request import BadPullRequest, NextRequest, PullRequest


class PriorityGroups:
    """The policy of one consumer, and who is pinned."""

    def __init__(self, config: ConsumerConfig, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self.pin_id, self.pinned_ns, self.pin_deadline_ns = "", 0, NEVER_NS
        self.pinned_group = ""
        self.configure(config)

    def configure(self, config: ConsumerConfig) -> None:
        self.policy, self.groups, self._timeout_ns = (
            config.priority_policy,
            config.priority_groups,
            config.priority_timeout,
        )

    @property
    def is_pinning(self) -> bool:
        return self.policy is PriorityPolicy.PINNED_CLIENT

    def check(self, body: NextRequest, now_ns: int) -> bool:
        """Whether a request may wait; False when its pin is an old one. Raises BadPullRequest."""
        if (body.min_pending or body.min_ack_pending) and self.policy is not PriorityPolicy.OVERFLOW:
            raise BadPullRequest("Not a Overflow Priority consumer")
        if body.id and not self.is_pinning:
            raise BadPullRequest("Not a Pinned Client Priority consumer")
        if not 0 <= body.priority <= 9:
            raise BadPullRequest("Priority must be between 0 and 9")
        if self.policy is PriorityPolicy.NONE:
            return True
        if not body.group:
            raise BadPullRequest("Priority Group missing")
        if body.group not in self.groups:
            raise BadPullRequest("Invalid Priority Group")
        if not self.pin_id or not body.id:
            return True
        if body.id == self.pin_id:
            self.pin_deadline_ns = now_ns + self._timeout_ns
        return body.id == self.pin_id

    def admits(self, request: PullRequest, num_pending: int, num_ack_pending: int) -> Verdict:
        """Whether a request is to be served now."""
        if self.policy is PriorityPolicy.OVERFLOW:
            return Verdict.SERVE if _overflows(request, num_pending, num_ack_pending) else Verdict.PASS_OVER
        if self.is_pinning and request.id != self.pin_id:
            if request.id:
                return Verdict.WRONG_PIN
            return Verdict.PASS_OVER if self.pin_id else Verdict.SERVE
        return Verdict.SERVE

    def pin(self, request: PullRequest, now_ns: int) -> bool:
        """Pin the client of a request that is about to be served; False when nobody new is pinned."""
        if not self.is_pinning or self.pin_id or not request.group:
            return False
        self.pin_id = request.id = self._new_id()
        self.pinned_ns, self.pin_deadline_ns = now_ns, now_ns + self._timeout_ns
        self.pinned_group = request.group
        return True

    def unpin(self, request: PullRequest | None = None) -> None:
        """Nobody is pinned; a request that was, and got nothing, may be pinned another time."""
        self.pin_id, self.pinned_ns, self.pin_deadline_ns = "", 0, NEVER_NS
        if request is not None:
            request.id = ""


def _overflows(request: PullRequest, num_pending: int, num_ack_pending: int) -> bool:
    if request.min_pending <= 0 and request.min_ack_pending <= 0:
        return True
    return 0 < request.min_pending <= num_pending or 0 < request.min_ack_pending <= num_ack_pending

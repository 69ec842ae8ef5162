"""When a consumer that nobody uses goes: one that is not durable, or that was told so.

A push consumer is used while somebody listens to it. A pull consumer is used by requests, deliveries and acks; and
while requests wait, or messages may still be worked on. It gets a little longer than configured, each another while, so
that many do not go at once.
"""

from __future__ import annotations

from jetlake.clock import SECOND_NS
from jetlake.jetstream.consumers.config import ConsumerConfig
from jetlake.jetstream.consumers.pull_queue import NEVER_NS
from jetlake.jetstream.consumers.rules import INACTIVE_DEFAULT_NS

_JITTER_MIN_NS, _JITTER_NS = SECOND_NS // 10, 9 * SECOND_NS // 10


class Activity:
    """Since when nobody used a consumer, and what follows."""

    def __init__(self, config: ConsumerConfig, now_ns: int, chance: float) -> None:
        self.active_ns = now_ns  # when somebody wanted something from it
        self.delete_at_ns = NEVER_NS
        self.configure(config, chance)

    def configure(self, config: ConsumerConfig, chance: float) -> None:
        """Take the threshold of a configuration; `chance` (0 to 1) says how much longer it is."""
        self._is_push = config.is_push
        is_default = not config.is_durable and config.inactive_threshold == INACTIVE_DEFAULT_NS
        jitter_ns = _JITTER_MIN_NS + int(chance * _JITTER_NS) if is_default or not config.is_push else 0
        self._threshold_ns = config.inactive_threshold + jitter_ns if config.inactive_threshold else 0

    def restart(self, now_ns: int) -> None:
        """Count from now."""
        self.active_ns, self.delete_at_ns = now_ns, NEVER_NS

    def touch(self, now_ns: int) -> None:
        """Somebody uses the consumer."""
        self.active_ns = now_ns
        if self._is_push and self.delete_at_ns != NEVER_NS:
            self.delete_at_ns = now_ns + self._threshold_ns

    def expect(self, now_ns: int, *, is_heard: bool) -> None:
        """Begin to count, or stop, by whether somebody listens."""
        if not self._threshold_ns or is_heard:
            self.delete_at_ns = NEVER_NS
        elif self.delete_at_ns == NEVER_NS:
            self.delete_at_ns = now_ns + self._threshold_ns

    def is_over(self, now_ns: int, *, is_used: bool, busy_until_ns: int) -> bool:
        """Whether its time has come; else it looks again later. `busy_until_ns`: when the last ack is due."""
        if self.delete_at_ns > now_ns:
            return False
        if self._is_push:
            return not is_used
        since_ns = now_ns if is_used else max(self.active_ns, busy_until_ns)
        self.delete_at_ns = since_ns + self._threshold_ns
        return self.delete_at_ns <= now_ns

"""How much a push consumer may have on its way to a client, and how fast.

Flow control: bytes that were delivered and not yet confirmed are outstanding. Past half of the window the client is
asked to confirm; past the window, nothing is delivered. Its answer takes off what was outstanding when it was asked,
and doubles the window, up to a limit.

The rate limit is a bucket of bytes that fills steadily; a delivery that takes more than is in it must wait.
"""

from __future__ import annotations

from jetlake.clock import SECOND_NS

WINDOW_SIZE_MAX = 32 * 1024 * 1024
WINDOW_SIZE_MIN = WINDOW_SIZE_MAX // 16


class FlowControl:
    """What is outstanding at a client."""

    def __init__(self) -> None:
        self.window_size = WINDOW_SIZE_MIN
        self.outstanding_size = 0
        self.asked = b""  # where the client is to answer; empty when it was not asked
        self._asked_size = 0

    @property
    def is_stalled(self) -> bool:
        return self.outstanding_size > self.window_size

    @property
    def room(self) -> int:
        """How many bytes may be delivered before it is looked at again: to the middle of the window, or to its end."""
        mark = self.window_size if self.asked else self.window_size // 2
        return max(mark - self.outstanding_size, 0) + 1

    def sent(self, size: int) -> bool:
        """Bytes were delivered; whether the client is to be asked now."""
        self.outstanding_size += size
        if not self.asked:
            return self.outstanding_size > self.window_size // 2
        if self.outstanding_size - self._asked_size >= self.window_size:
            self._asked_size += size
        return False

    def ask(self, reply: bytes) -> None:
        """The client is asked to confirm what is outstanding."""
        self.asked, self._asked_size = reply, self.outstanding_size

    def answer(self, subject: bytes) -> bool:
        """The client answered; False when not to the last question."""
        if not self.asked or subject != self.asked:
            return False
        self.window_size = min(self.window_size * 2, WINDOW_SIZE_MAX)
        self.outstanding_size = max(self.outstanding_size - self._asked_size, 0)
        self.asked, self._asked_size = b"", 0
        return True

    def reset(self) -> None:
        """Whoever was asked is gone."""
        self.outstanding_size, self.asked, self._asked_size = 0, b"", 0


class RateLimit:
    """A bucket of bytes that fills at a rate up to a burst."""

    def __init__(self, bits_per_second: int, burst_size: int, now_ns: int) -> None:
        self._rate, self._burst_size = max(bits_per_second // 8, 1), burst_size
        self._level, self._level_ns = float(burst_size), now_ns

    def wait_ns(self, now_ns: int) -> int:
        """How long nothing may be sent."""
        self._fill(now_ns)
        return 0 if self._level >= 0 else int(-self._level * SECOND_NS / self._rate) + 1

    def room(self, now_ns: int) -> int:
        """How many bytes may be sent now, one message more than that included."""
        self._fill(now_ns)
        return max(int(self._level), 0) + 1

    def sent(self, size: int) -> None:
        """Bytes were sent; the bucket may owe some then."""
        self._level -= size

    def _fill(self, now_ns: int) -> None:
        elapsed_ns = max(now_ns - self._level_ns, 0)
        self._level = min(self._level + elapsed_ns * self._rate / SECOND_NS, float(self._burst_size))
        self._level_ns = now_ns

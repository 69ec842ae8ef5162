"""Watch: says when a mirror or source does not keep up with its origin, and when it does again.

It looks at its feed every two seconds. A copy is stalled when its origin, which says something every second, was not
heard for five, or when there is an error. What two looks in a row agree on is told once, by a line in the log and an
advisory: `$JS.EVENT.ADVISORY.STREAM.COPY_STALLED.<stream>`, or `….COPY_RESUMED.<stream>`. So a hiccup is not told, and
a stall is told in less than ten seconds.
"""

from __future__ import annotations

from typing import Any, Protocol

from jetlake.broker.account import Account
from jetlake.clock import SECOND_NS
from jetlake.jetstream.advisories import send_advisory
from jetlake.jetstream.host import Host, Timer

SILENT_NS = 5 * SECOND_NS  # of an origin that says something every second
LOOK_NS = 2 * SECOND_NS


class Watched(Protocol):
    """A feed, as far as it is watched."""

    lag: int
    error: dict[str, Any] | None

    @property
    def silent_ns(self) -> int: ...


class Watch:
    """Looks at one feed."""

    def __init__(self, host: Host, account: Account, stream: str, origin: str, feed: Watched) -> None:
        self._host, self._account, self._feed = host, account, feed
        self._stream, self._origin = stream, origin
        self._is_told = self._was_stalled = False
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Look now and then."""
        self._timer = self._host.call_at(self._host.clock() + LOOK_NS, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        is_stalled = self._feed.silent_ns > SILENT_NS or self._feed.error is not None
        if is_stalled is self._was_stalled and is_stalled is not self._is_told:
            self._is_told = is_stalled
            self._tell()
        self._was_stalled = is_stalled
        self.begin()

    def _tell(self) -> None:
        feed, error = self._feed, self._feed.error or {}
        facts = f"account={self._account.name} stream={self._stream} origin={self._origin} lag={feed.lag}"
        if self._is_told:
            problem = f" error={error['description']}" if "description" in error else ""
            self._host.log("warning", f"copy stalled {facts} silent_s={feed.silent_ns // SECOND_NS}{problem}")
        else:
            self._host.log("info", f"copy resumed {facts}")
        name = "stalled" if self._is_told else "resumed"
        fields: dict[str, Any] = {"stream": self._stream, "origin": self._origin, "lag": feed.lag}
        fields |= {"silent": feed.silent_ns} | ({"error": error} if error else {})
        subject = f"STREAM.COPY_{name.upper()}.{self._stream}"
        send_advisory(self._account, self._host, subject, f"stream_copy_{name}", fields)

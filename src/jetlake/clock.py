"""Time in one place: nanoseconds since the Unix epoch, as an int.

A clock is any callable that returns such a number, so that tests pass in one that they move by hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]

SECOND_NS = 1_000_000_000

system_clock: Clock = time.time_ns


def go_duration(duration_ns: int) -> str:
    """A duration as Go prints it: 1m30s, 1.5ms, 0s."""
    if duration_ns < 0:
        return "-" + go_duration(-duration_ns)
    if duration_ns < SECOND_NS:
        for unit_ns, unit in ((1_000_000, "ms"), (1_000, "µs"), (1, "ns")):
            if duration_ns >= unit_ns:
                return _decimal(duration_ns, unit_ns) + unit
        return "0s"
    minutes, rest_ns = divmod(duration_ns, 60 * SECOND_NS)
    hours, minutes = divmod(minutes, 60)
    text = _decimal(rest_ns, SECOND_NS) + "s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)

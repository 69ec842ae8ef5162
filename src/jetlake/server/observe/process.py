"""This process in numbers: memory, cores, and how busy it is."""

from __future__ import annotations

import os
import resource
import time

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_WINDOW_S = 1.0  # a rate over less than this would say little


def resident_size() -> int:
    """The bytes of memory that the process takes; where the system does not say, the most that it took."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_SIZE
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def core_count() -> int:
    """The cores that the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CpuMeter:
    """The share of a core that the process takes, in percent, since it was last asked for."""

    def __init__(self) -> None:
        self._at_s, self._used_s = time.monotonic(), time.process_time()
        self._percent = 0.0

    def percent(self) -> float:
        now_s, used_s = time.monotonic(), time.process_time()
        if now_s - self._at_s >= _WINDOW_S:
            self._percent = round(100 * (used_s - self._used_s) / (now_s - self._at_s), 1)
            self._at_s, self._used_s = now_s, used_s
        return self._percent


def uptime(duration_ns: int) -> str:
    """A duration as nats-server shows it: 1d2h3m4s."""
    seconds = max(duration_ns, 0) // 1_000_000_000
    minutes, hours, days, years = seconds // 60, seconds // 3600, seconds // 86_400, seconds // (86_400 * 365)
    if years:
        return f"{years}y{days % 365}d{hours % 24}h{minutes % 60}m{seconds % 60}s"
    if days:
        return f"{days}d{hours % 24}h{minutes % 60}m{seconds % 60}s"
    if hours:
        return f"{hours}h{minutes % 60}m{seconds % 60}s"
    return f"{minutes}m{seconds % 60}s" if minutes else f"{seconds}s"

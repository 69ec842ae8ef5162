"""The server's log, in nats-server's style: `[pid] date time [INF] text`.

Lines go to stderr, or to a file that is opened again on SIGUSR1 and, when a size limit is set, moved aside when full.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TextIO

from jetlake.config import ServerOptions

_MARKS = {"info": "INF", "warning": "WRN", "error": "ERR", "fatal": "FTL", "debug": "DBG", "trace": "TRC"}


class Log:
    """Writes lines, as detailed as the options ask for."""

    def __init__(self, options: ServerOptions) -> None:
        """Raises OSError when the log file cannot be opened."""
        self._file: TextIO | None = None
        self.use_options(options)

    @property
    def has_file(self) -> bool:
        return self._file is not None

    def use_options(self, options: ServerOptions) -> None:
        """Take other options, and open the file again. Raises OSError, and then nothing has changed."""
        name = options.log_file
        file = open(name, "a", encoding="utf-8", buffering=1) if name else None  # noqa: SIM115
        if self._file is not None:
            self._file.close()
        self._file, self._options = file, options

    def reopen(self) -> None:
        """Open the log file again: it may have been moved. Raises OSError."""
        self.use_options(self._options)

    def __call__(self, level: str, text: str) -> None:
        if (level == "debug" and not self._options.debug) or (level == "trace" and not self._options.trace):
            return
        line = f"[{os.getpid()}] {self._time()}[{_MARKS[level]}] {text}\n"
        try:
            (self._file or sys.stderr).write(line)
            if self._file is None:
                sys.stderr.flush()
        except OSError:
            return  # a full disk under the log stops nobody
        self._rotate()

    def _time(self) -> str:
        if not self._options.logtime:
            return ""
        now_ns = time.time_ns()
        parts = time.gmtime(now_ns // 10**9) if self._options.logtime_utc else time.localtime(now_ns // 10**9)
        return f"{time.strftime('%Y/%m/%d %H:%M:%S', parts)}.{now_ns // 1000 % 10**6:06d} "

    def _rotate(self) -> None:
        limit, name = self._options.log_size_limit, self._options.log_file
        if self._file is None or not limit or not name or self._file.tell() < limit:
            return
        try:
            os.replace(name, f"{name}.{time.strftime('%Y.%m.%d.%H.%M.%S')}.{time.time_ns() % 10**9:09d}")
            self._drop_old(Path(name))
            self.reopen()
        except OSError:
            return  # it grows, then: better than no log

    def _drop_old(self, path: Path) -> None:
        if self._options.log_max_num > 0:
            kept = sorted(path.parent.glob(f"{path.name}.*"))
            for old in kept[: max(len(kept) - self._options.log_max_num + 1, 0)]:
                old.unlink(missing_ok=True)

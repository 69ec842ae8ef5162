"""The server's log, in nats-server's style: `[pid] date time [INF] text`.

Lines go to stderr, or to a file that is opened again on SIGUSR1 and, when a size limit is set, moved aside when full;
or to syslog, which adds the time itself.

Always true: an entry is one line of printable UTF-8. Names, subjects and the like come from clients and may hold
anything; what would end a line, move a terminal's cursor or is not text is shown as an escape: `\\n`, `\\x1b`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from jetlake.config import ServerOptions

if TYPE_CHECKING:
    from jetlake.server.syslog import Syslog

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MARKS = {"info": "INF", "warning": "WRN", "error": "ERR", "fatal": "FTL", "debug": "DBG", "trace": "TRC"}


def printable(text: str) -> str:
    """A text as one line may hold it."""
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(char) & 0xFF:02x}"
    return char.encode("unicode_escape").decode()


def _open_syslog(options: ServerOptions) -> Syslog | None:
    """Where lines go that go to no file. Raises OSError."""
    if not (options.syslog or options.remote_syslog):
        return None
    from jetlake.server.syslog import Syslog  # few servers write there

    try:
        return Syslog(options.remote_syslog)
    except OSError as error:
        raise OSError(f'error connecting to syslog: "{error.strerror or error}"') from error


class Log:
    """Writes lines, as detailed as the options ask for."""

    def __init__(self, options: ServerOptions) -> None:
        """Raises OSError when the log file cannot be opened."""
        self._file: TextIO | None = None
        self._syslog: Syslog | None = None
        self.use_options(options)

    @property
    def has_file(self) -> bool:
        return self._file is not None

    def use_options(self, options: ServerOptions) -> None:
        """Take other options, and open the file again. Raises OSError, and then nothing has changed."""
        name = options.log_file
        file = open(name, "a", encoding="utf-8", buffering=1) if name else None  # noqa: SIM115
        syslog = _open_syslog(options) if file is None else None
        for old in (self._file, self._syslog):
            if old is not None:
                old.close()
        self._file, self._syslog, self._options = file, syslog, options

    def reopen(self) -> None:
        """Open the log file again: it may have been moved. Raises OSError."""
        self.use_options(self._options)

    def __call__(self, level: str, text: str) -> None:
        if (level == "debug" and not self._options.debug) or (level == "trace" and not self._options.trace):
            return
        if self._syslog is not None:
            self._syslog.write(level, printable(text))
            return
        line = f"[{os.getpid()}] {self._time()}[{_MARKS[level]}] {printable(text)}\n"
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
            self._drop_old(name)
            self.reopen()
        except OSError:
            return  # it grows, then: better than no log

    def _drop_old(self, path: str) -> None:
        if self._options.log_max_num > 0:
            directory, name = os.path.split(path)
            kept = sorted(other for other in os.listdir(directory or ".") if other.startswith(f"{name}."))
            for old in kept[: max(len(kept) - self._options.log_max_num + 1, 0)]:
                with suppress(FileNotFoundError):
                    os.remove(os.path.join(directory, old))

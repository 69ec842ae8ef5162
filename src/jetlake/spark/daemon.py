"""Spark's daemon, which forks the Python processes for tasks, without a traceback for each query that ends early.

A query with a limit stops reading before its tasks are done. Each task then fails to write to a pipe that nobody reads,
which is how it should end; Spark's own daemon prints a page about it. Spark starts this module in its place
(`spark.python.daemon.module`). It imports no more than Spark's does: nothing may start a thread before the fork.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run tasks; the exit code of the process, 0 for one that can be used again."""
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        return 1


def main() -> None:
    """Fork processes until Spark ends."""
    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()

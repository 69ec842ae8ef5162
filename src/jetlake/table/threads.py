"""Tasks read by several threads, and their batches handed over in the order of the tasks.

The kernels let go of Python's lock while they decode, so threads use all cores. What is read ahead is bounded: a thread
waits when its task has BATCHES_AHEAD batches that nobody took, and no more tasks are begun than there are threads. So
memory does not grow with a stream.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Generic, TypeVar

BATCHES_AHEAD = 8
T = TypeVar("T")
B = TypeVar("B")
Read = Callable[[T], Iterator[B]]


def read_all(tasks: Sequence[T], read: Read[T, B]) -> list[B]:
    """The batches of all tasks, in order."""
    if len(tasks) < 2:
        return [batch for task in tasks for batch in read(task)]
    with ThreadPoolExecutor(_thread_count(tasks)) as pool:
        found = list(pool.map(lambda task: list(read(task)), tasks))
    return [batch for batches in found for batch in batches]


def read_ahead(tasks: Sequence[T], read: Read[T, B]) -> Iterator[B]:
    """The batches of all tasks, in order, with a bounded number of them in memory."""
    waiting, begun = iter(tasks), deque[_Queue[B]]()

    def begin(count: int) -> None:
        for task in islice(waiting, count):
            begun.append(_Queue(read, task))

    try:
        begin(_thread_count(tasks))
        while begun:
            yield from begun[0].take()
            begun.popleft()
            begin(1)
    finally:
        for queue in begun:
            queue.stop()


def _thread_count(tasks: Sequence[T]) -> int:
    return max(min(len(tasks), os.cpu_count() or 1), 1)


class _Queue(Generic[B]):
    """The batches of one task on their way from the thread that reads it."""

    def __init__(self, read: Read[T, B], task: T) -> None:
        self._batches, self._changed = deque[B](), threading.Condition()
        self._is_done = self._is_stopped = False
        self._error: BaseException | None = None
        # A daemon: a program that leaves a reader behind half read must still be able to end.
        self._thread = threading.Thread(target=self._fill, args=(read, task), name="jetlake-scan", daemon=True)
        self._thread.start()

    def _fill(self, read: Read[T, B], task: T) -> None:
        try:
            for batch in read(task):
                with self._changed:
                    self._changed.wait_for(lambda: len(self._batches) < BATCHES_AHEAD or self._is_stopped)
                    if self._is_stopped:
                        return
                    self._batches.append(batch)
                    self._changed.notify()
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._is_done = True
                self._changed.notify()

    def take(self) -> Iterator[B]:
        """The batches; what went wrong in the thread is raised here, after those before it."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._batches or self._is_done)
                if not self._batches:
                    break
                batch = self._batches.popleft()
                self._changed.notify()
            yield batch
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Nobody wants any more; the thread ends with the batch that it is reading."""
        with self._changed:
            self._is_stopped = True
            self._batches.clear()
            self._changed.notify()
        if sys.is_finalizing() or self._thread is threading.current_thread():
            return  # no other thread runs then; and the garbage collector may end a reader on any thread
        self._thread.join()

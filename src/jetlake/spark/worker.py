"""The Python process in which Spark runs tasks, one after the other."""

from __future__ import annotations

import gc

from pyspark import TaskContext


def settle() -> None:
    """Let the garbage collector pass over what is loaded by now.

    Spark has it look at everything after each task, which takes 60 ms for the modules alone: as long as it takes to
    read 200,000 messages.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.freeze()

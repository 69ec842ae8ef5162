"""The Python processes in which Spark runs tasks, plans reads and commits writes, one after the other."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from jetlake.errors import JetLakeError

_settled_module_count = 0


def settle() -> None:
    """In such a process: let the garbage collector pass over what is loaded by now. Best called when everything is.

    Spark has it look at everything after each work, which takes 60 ms for the modules alone: as long as it takes to
    read 200,000 messages. What there is gets frozen only when modules were loaded since it was last, so what other
    work leaves behind in cycles is still collected. (To ask the collector whether anything is frozen takes it 10 ms.)
    """
    global _settled_module_count
    if "SPARK_REUSE_WORKER" in os.environ and len(sys.modules) != _settled_module_count:
        _settled_module_count = len(sys.modules)
        gc.freeze()


@contextmanager
def one_line_errors() -> Iterator[None]:
    """An error of ours says what is wrong: Spark shows it without the traceback of the process that met it.

    The setting is of that process alone, which ends with the error.
    """
    try:
        yield
    except JetLakeError:
        if "SPARK_REUSE_WORKER" in os.environ:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise

"""Small programs that stand in front of Java and Python, for Spark to start in their place.

They lie in a directory of this process alone, which is removed when the process ends.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

_JAVA = """#!/bin/bash
args=()
for arg in "$@"; do
    [ "$arg" = "--add-modules=jdk.incubator.vector" ] || args+=("$arg")
done
exec "{program}" "${{args[@]}}"
"""
_PYTHON = """#!/bin/bash
kept=
while IFS= read -r -d : place; do
    case "$place" in */pyspark.zip | */py4j-*-src.zip) ;; *) kept="$kept:$place" ;; esac
done <<< "$PYTHONPATH:"
[ "$1 $2" = "-m pyspark.daemon" ] && set -- -m jetlake.spark.daemon "${{@:3}}"
PYTHONPATH="${{kept#:}}" exec "{program}" "$@"
"""


@cache
def java_shim(program: Path) -> Path:
    """A JAVA_HOME around a Java, without the module that Spark's launcher always asks for: some lack it, all warn."""
    return _shim("java", _JAVA, program).parents[1]


@cache
def python_shim() -> Path:
    """This Python, without the sources of pyspark in front of the pyspark that is installed.

    Spark has every Python process import them from a zip file, where Python compiles them anew: more than a second of
    work, and a query has several such processes. The daemon is ours, also for the processes that plan: Spark's setting
    for it (`spark.python.daemon.module`) does not reach those.
    """
    return _shim("python", _PYTHON, Path(sys.executable))


def _shim(name: str, text: str, program: Path) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="jetlake-shim-"))
    atexit.register(_remove, directory, os.getpid())
    shim = directory / "bin" / name
    shim.parent.mkdir()
    shim.write_text(text.format(program=program))
    shim.chmod(0o755)
    return shim


def _remove(directory: Path, pid: int) -> None:
    if os.getpid() == pid:  # a fork of this process ends earlier
        shutil.rmtree(directory, ignore_errors=True)

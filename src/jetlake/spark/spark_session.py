"""A Spark session that is set up for streams: on this machine by default, or on a cluster."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from jetlake.spark.java import java_program
from jetlake.spark.shims import java_shim, python_shim

# Arrow's own checks of every access cost a fifth of a scan, and Spark has checked before.
_JAVA_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
TUNED = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.buffer.size": str(256 * 1024),  # between Python and Java; with 64 KB a scan of 1 KiB rows takes a tenth more
    # A row's columns are copied by one method instead of two, which the JVM compiles better: a tenth less of its work.
    "spark.sql.codegen.methodSplitThreshold": "4096",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
}
_LOG_OPTIONS = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
QUIET = {"spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} {_LOG_OPTIONS} -Djetlake.log.level=off"}
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    "spark.python.daemon.module": "jetlake.spark.daemon",
    "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} {_LOG_OPTIONS}",
}


def session(
    app: str = "jetlake", *, master: str = "", remote: str = "", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with the settings that reading streams wants.

    By default Spark runs in this process' own JVM, on all cores. `master` names a cluster, `remote` a Spark Connect
    server (sc://host:port), which has its settings already. `conf` goes on top.
    """
    if remote:
        return SparkSession.builder.remote(remote).config(map=dict(conf or {})).appName(app).getOrCreate()
    is_local = not master or master.startswith("local")
    settings: dict[str, Any] = {**TUNED, **(LOCAL if is_local else {}), **(conf or {})}
    builder = SparkSession.builder.master(master or "local[*]").config(map=settings)
    # Spark itself would take whatever is python3 on the path.
    python = os.environ.get("PYSPARK_PYTHON") or (str(python_shim()) if is_local else sys.executable)
    programs = {"PYSPARK_PYTHON": python, "JAVA_HOME": str(java_shim(java_program()))}
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # it warns about host names otherwise
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    with _environment(programs):
        return builder.appName(app).getOrCreate()


@contextmanager
def _environment(programs: Mapping[str, str]) -> Iterator[None]:
    """Tell Spark, while it starts, which programs to run. Not other processes, which may outlive this one."""
    before = {name: os.environ.get(name) for name in programs}
    os.environ.update(programs)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text

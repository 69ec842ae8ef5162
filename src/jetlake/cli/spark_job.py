"""What the commands that run on Spark share: their options, the session, and how results and errors are shown.

Spark is imported when a command runs, not before: it takes seconds, and it may not be installed.
"""

from __future__ import annotations

import json
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


@contextmanager
def spark_session(master: str = "", remote: str = "") -> Iterator[SparkSession]:
    """A session that ends with the command; its errors end the command with a line of their own."""
    try:
        from jetlake.spark.spark_session import session
    except ImportError as error:
        fail(f"{error.name} is not installed: pip install 'jetlake[spark]'")
    from pyspark.errors import PySparkException

    from jetlake.errors import JetLakeError

    spark = None
    try:
        with Console(stderr=True).status("Starting Spark"):
            spark = session(master=master, remote=remote, conf=_progress_conf())
        yield spark
    except JetLakeError as error:
        fail(error)
    except PySparkException as error:
        fail(_last_line(str(error)))
    finally:
        if spark is not None:
            spark.stop()


def _progress_conf() -> dict[str, str]:
    """Spark's own progress bars, where somebody can see them."""
    return {"spark.ui.showConsoleProgress": "true"} if sys.stderr.isatty() else {}


def _last_line(text: str) -> str:
    """What went wrong, out of Spark's message with the traceback of a worker in it."""
    lines = [line for line in text.splitlines() if line and not line.startswith((" ", "\t", "SQLSTATE"))]
    ours = [line for line in lines if line.startswith("jetlake.")]
    return ours[-1].partition(": ")[2] if ours else (lines[0] if lines else text)


def show(frame: DataFrame, *, as_json: bool, title: str = "") -> None:
    """Print the rows of a frame, as a table or as a JSON list."""
    rows = frame.limit(ROWS_MAX + 1).collect()
    if as_json:
        typer.echo(json.dumps([row.asDict(recursive=True) for row in rows[:ROWS_MAX]], default=_plain))
        return
    table = Table(title=title or None)
    for name, kind in frame.dtypes:
        table.add_column(name, justify="right" if kind in ("bigint", "int", "double", "float") else "left")
    for row in rows[:ROWS_MAX]:
        table.add_row(*(_cell(value) for value in row))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    if len(rows) > ROWS_MAX:
        typer.echo(f"only the first {ROWS_MAX} rows are shown", err=True)


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

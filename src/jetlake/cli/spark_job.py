"""What the commands that run on Spark share: their options, the session, and how results and errors are shown.

Spark is imported when a command runs, not before: it takes seconds, and it may not be installed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from jetlake.cli.rows import ROWS_MAX, Answer, show_answer
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
    from jetlake.spark.spark_session import QUIET

    return QUIET | ({"spark.ui.showConsoleProgress": "true"} if sys.stderr.isatty() else {})


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
    numbers = {name for name, kind in frame.dtypes if kind in ("bigint", "int", "double", "float")}
    found = frame.toLocalIterator() if as_json else frame.limit(ROWS_MAX + 1).collect()
    rows = (tuple(row.asDict(recursive=True).values()) if as_json else tuple(row) for row in found)
    show_answer(Answer(frame.columns, numbers, rows), as_json=as_json, title=title)


def job_options(
    source: str,
    stream: str,
    account: str,
    more: list[str] | None,
    tokens: str = "",
    *,
    everything: bool = False,
    remote: str = "",
) -> dict[str, str]:
    """The options of the data source that a command line means, for a read.

    What is wrong with them ends the command here, before Spark is started, unless only a remote Spark may see the
    streams. `everything` is for commands that need no `--stream`.
    """
    from jetlake.errors import JetLakeError

    try:
        from jetlake.table.options import parse_options
        from jetlake.table.origin import open_origin
        from jetlake.table.place import source_options
    except ModuleNotFoundError as error:
        fail(f"{error.name} is not installed: pip install 'jetlake[spark]'")
    try:
        options = source_options(source, stream, account, tuple(more or ()))
        options |= {"subject_tokens": tokens} if tokens else {}
        parsed = parse_options(({"stream": "*"} if everything else {}) | options)
        if not remote:
            with closing(open_origin(parsed)) as origin:
                origin.names()
    except (JetLakeError, OSError) as error:
        fail(error)
    return options


def target_options(target: str, stream: str, account: str, more: list[str] | None) -> dict[str, str]:
    """The same for a write, whose stream need not be there yet."""
    from jetlake.errors import JetLakeError

    try:
        from jetlake.table.options import parse_options
        from jetlake.table.place import source_options
    except ModuleNotFoundError as error:
        fail(f"{error.name} is not installed: pip install 'jetlake[spark]'")
    try:
        options = source_options(target, stream, account, tuple(more or ()))
        parse_options(options)
    except JetLakeError as error:
        fail(error)
    return options

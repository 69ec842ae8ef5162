"""`jetlake sql SOURCE QUERY`: SQL over streams; every stream is a table.

DuckDB answers where it is installed, in a second; Spark does on a cluster, or when it is asked to.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from time import sleep
from typing import Annotated

import typer

from jetlake.cli import spark_job as job
from jetlake.cli.rows import Answer, show_answer
from jetlake.cli.spark_job import job_options, show, spark_session
from jetlake.cli.terminal import AsJson, fail
from jetlake.errors import JetLakeError

_ENGINES = ("duckdb", "spark")


def sql(
    source: job.Source,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="SQL, with the streams' names as tables.")],
    stream: job.Stream = "",
    account: job.Account = "",
    tokens: job.Tokens = "",
    option: job.More = None,
    engine: Annotated[str, typer.Option(help="duckdb or spark; DuckDB when it is installed.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Run it again as messages arrive, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(help="With --watch: how many seconds apart to look.", min=0.05)] = 1.0,
    master: job.Master = "",
    remote: job.Remote = "",
    as_json: AsJson = False,
) -> None:
    """Answer a query: jetlake sql /data "select subject, count(*) from ORDERS group by 1" """
    engine = _engine(engine, master or remote)
    options = job_options(source, stream, account, option, tokens, everything=True, remote=remote)
    try:
        if engine == "duckdb":
            _repeat(lambda: _by_duckdb(options, query, as_json), options, query, watch, interval)
            return
        with spark_session(master, remote) as spark:
            from jetlake.spark.jobs.sql import sql as run

            _repeat(lambda: show(run(spark, options, query), as_json=as_json), options, query, watch, interval)
    except KeyboardInterrupt:
        if not watch:
            raise


def _engine(wanted: str, cluster: str) -> str:
    if wanted and wanted not in _ENGINES:
        fail(f"--engine is {wanted!r}, not {' or '.join(_ENGINES)}")
    if wanted == "duckdb" and cluster:
        fail("--master and --remote are for --engine spark")
    if wanted == "duckdb" and find_spec("duckdb") is None:
        fail("duckdb is not installed: pip install 'jetlake[duckdb]'")
    has_duckdb = find_spec("duckdb") is not None and find_spec("pyarrow") is not None
    return wanted or ("duckdb" if has_duckdb and not cluster else "spark")


def _by_duckdb(options: dict[str, str], query: str, as_json: bool) -> None:
    import pyarrow as pa

    from jetlake.table.query import answer

    def is_number(kind: pa.DataType) -> bool:
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))

    try:
        with answer(options, query) as reader:
            numbers = {field.name for field in reader.schema if is_number(field.type)}
            columns = ([column.to_pylist(maps_as_pydicts="strict") for column in batch.columns] for batch in reader)
            rows = (row for batch in columns for row in zip(*batch, strict=True))
            show_answer(Answer(reader.schema.names, numbers, rows), as_json=as_json)
    except (JetLakeError, OSError) as error:
        fail(error)


def _repeat(run: Callable[[], None], options: dict[str, str], query: str, is_watching: bool, interval_s: float) -> None:
    """Run once, and then again whenever the streams that the query names have changed."""
    if not is_watching:
        run()
        return
    from jetlake.table.query import Changes, named_streams

    try:
        with closing(Changes(options, named_streams(options, query))) as changes:
            run()
            while True:
                sleep(interval_s)
                if changes.look():
                    run()
    except (JetLakeError, OSError) as error:
        fail(error)

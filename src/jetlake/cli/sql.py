"""`jetlake sql SOURCE QUERY`: SQL over streams; every stream is a table."""

from __future__ import annotations

from typing import Annotated

import typer

from jetlake.cli import spark_job as job
from jetlake.cli.spark_job import job_options, show, spark_session
from jetlake.cli.terminal import AsJson


def sql(
    source: job.Source,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="SQL, with the streams' names as tables.")],
    stream: job.Stream = "",
    account: job.Account = "",
    tokens: job.Tokens = "",
    option: job.More = None,
    master: job.Master = "",
    remote: job.Remote = "",
    as_json: AsJson = False,
) -> None:
    """Answer a query: jetlake sql /data "select subject, count(*) from ORDERS group by 1" """
    with spark_session(master, remote) as spark:
        from jetlake.spark.jobs.sql import sql as run

        show(run(spark, job_options(source, stream, account, option, tokens), query), as_json=as_json)

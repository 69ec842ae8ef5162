"""`jetlake import FILES TARGET`: Parquet, JSON lines or CSV into a stream."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from jetlake.cli import spark_job as job
from jetlake.cli.spark_job import job_options, spark_session
from jetlake.cli.terminal import AsJson


def import_files(
    files: Annotated[str, typer.Argument(metavar="FILES", help="A file, a directory or a pattern.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A store directory, or nats://host:port.")],
    stream: job.Stream = "",
    account: job.Account = "",
    subject: Annotated[str, typer.Option(help="Subjects from columns: orders.{region}.{id}")] = "",
    format: Annotated[str, typer.Option(help="parquet, jsonl or csv; the files' ending when not given.")] = "",
    option: job.More = None,
    master: job.Master = "",
    remote: job.Remote = "",
    as_json: AsJson = False,
) -> None:
    """Append the rows of files to a stream; one that is not there is made."""
    with spark_session(master, remote) as spark:
        from jetlake.spark.jobs.import_ import import_files as run

        count = run(spark, files, job_options(target, stream, account, option), format=format, subject=subject)
        typer.echo(msgspec.json.encode({"messages": count}) if as_json else f"{count:,} messages imported")

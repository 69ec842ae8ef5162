"""`jetlake export SOURCE TARGET`: streams to Parquet, CSV, JSON or Delta files, from where the last export ended."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from jetlake.cli import spark_job as job
from jetlake.cli.spark_job import job_options, spark_session
from jetlake.cli.terminal import AsJson


def export(
    source: job.Source,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A directory for the files.")],
    stream: job.Stream = "",
    account: job.Account = "",
    tokens: job.Tokens = "",
    format: Annotated[str, typer.Option(help="parquet, csv, json or delta.")] = "parquet",
    partition_by: Annotated[
        str, typer.Option(help="Columns that make directories: tokens of the subject, and date.")
    ] = "date",
    option: job.More = None,
    master: job.Master = "",
    remote: job.Remote = "",
    as_json: AsJson = False,
) -> None:
    """Write messages to files; a second export to the same place adds only what is new."""
    options = job_options(source, stream, account, option, tokens, remote=remote)
    with spark_session(master, remote) as spark:
        from jetlake.spark.jobs.export import export as run

        columns = [name.strip() for name in partition_by.split(",") if name.strip()]
        done = run(spark, options, target, format=format, partition_by=columns)
        if as_json:
            typer.echo(msgspec.json.encode(done._asdict()))
            return
        ends = ", ".join(f"{name} up to {place['seq']:,}" for name, place in done.offsets.items())
        typer.echo(f"{done.messages:,} messages exported to {target} ({ends or 'nothing new'})")

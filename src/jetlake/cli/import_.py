"""`jetlake import FILES TARGET`: Parquet, JSON lines or CSV into a stream, or a nats-server's store directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from jetlake.cli import spark_job as job
from jetlake.cli.import_nats import import_nats_server
from jetlake.cli.spark_job import spark_session, target_options
from jetlake.cli.terminal import AsJson, fail

NATS_SERVER = "nats-server"


def import_files(
    files: Annotated[
        str,
        typer.Argument(metavar="FILES", help="A file, a directory or a pattern; or a store directory."),
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A store directory, or nats://host:port.")],
    stream: job.Stream = "",
    account: job.Account = "",
    subject: Annotated[str, typer.Option(help="Subjects from columns: orders.{region}.{id}")] = "",
    format: Annotated[str, typer.Option(help="parquet, jsonl or csv; the files' ending when not given.")] = "",
    from_: Annotated[
        str, typer.Option("--from", metavar=NATS_SERVER, help="FILES is the store directory of a stopped nats-server.")
    ] = "",
    key_file: Annotated[
        list[Path] | None,
        typer.Option(help="With --from: the nats-server's key, in its first line. May be repeated."),
    ] = None,
    option: job.More = None,
    master: job.Master = "",
    remote: job.Remote = "",
    as_json: AsJson = False,
) -> None:
    """Append the rows of files to a stream; one that is not there is made.

    With --from nats-server all streams of a store directory, or those of --stream, are made here as they are there:
    sequences, times, configuration, consumers. Neither server may be running. Exit code: 0 all is well, 1 files were
    damaged (what is lost is listed), 2 something was not imported.
    """
    if from_ and from_ != NATS_SERVER:
        fail(f"--from is {NATS_SERVER}, not {from_}")
    if from_:
        import_nats_server(files, target, stream, account, key_file or [], as_json=as_json)
    options = target_options(target, stream, account, option)
    with spark_session(master, remote) as spark:
        from jetlake.spark.jobs.import_ import import_files as run

        count = run(spark, files, options, format=format, subject=subject)
        typer.echo(msgspec.json.encode({"messages": count}) if as_json else f"{count:,} messages imported")

"""`jetlake replay SOURCE TARGET`: a stream, or a part of it, into another subject space."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from jetlake.cli import spark_job as job
from jetlake.cli.spark_job import job_options, spark_session, target_options
from jetlake.cli.terminal import AsJson


def replay(
    source: job.Source,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A store directory, or nats://host:port.")],
    stream: job.Stream = "",
    into: Annotated[str, typer.Option("--into", help="The stream to write to.")] = "",
    to: Annotated[str, typer.Option("--to", help="The new subject; {subject} is the old one.")] = "replay.{subject}",
    account: job.Account = "",
    where: job.Where = "",
    rate: Annotated[float, typer.Option(help="Messages a second, into a live server; 0 for no limit.")] = 0,
    option: job.More = None,
    target_option: Annotated[
        list[str] | None, typer.Option("--target-option", metavar="NAME=VALUE", help="An option for the target.")
    ] = None,
    master: job.Master = "",
    remote: job.Remote = "",
    as_json: AsJson = False,
) -> None:
    """Publish the messages of a stream again, in order, under other subjects."""
    reading = job_options(source, stream, account, option, remote=remote)
    writing = target_options(target, into, "", target_option)
    with spark_session(master, remote) as spark:
        from jetlake.spark.jobs.replay import replay as run

        count = run(spark, reading, writing, where=where, to=to, rate=rate)
        typer.echo(msgspec.json.encode({"messages": count}) if as_json else f"{count:,} messages replayed")

"""`jetlake stats SOURCE`: what is in a stream, by subject and by time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from jetlake.cli import spark_job as job
from jetlake.cli.spark_job import job_options, show, spark_session
from jetlake.cli.terminal import AsJson

if TYPE_CHECKING:
    from pyspark.sql import Row


def stats(
    source: job.Source,
    stream: job.Stream = "",
    account: job.Account = "",
    where: job.Where = "",
    tokens: job.Tokens = "",
    depth: Annotated[int, typer.Option(help="Without --tokens: how many tokens of the subject make a group.")] = 1,
    bucket: Annotated[str, typer.Option(help="The length of a bar of the plot: 10s, 15m, 1h, 1d.")] = "1h",
    option: job.More = None,
    master: job.Master = "",
    remote: job.Remote = "",
    as_json: AsJson = False,
) -> None:
    """Count messages and bytes by subject and by time, and plot them."""
    options = job_options(source, stream, account, option, tokens, remote=remote)
    with spark_session(master, remote) as spark:
        from jetlake.spark.jobs.plot import bars
        from jetlake.spark.jobs.stats import stats as count

        found = count(spark, options, where=where, depth=depth, bucket=bucket)
        times = found.times.collect()
        if as_json:
            groups = [row.asDict() for row in found.groups.collect()]
            typer.echo(json.dumps({"groups": groups, "times": [row.asDict() for row in times]}, default=str))
            return
        show(found.groups, as_json=False)
        for line in bars([(label, row.messages) for label, row in zip(_labels(times), times, strict=True)]):
            typer.echo(line)


def _labels(times: list[Row]) -> list[str]:
    """What stands in front of the bars: as much of stream and time as tells them apart."""
    has_seconds, has_streams = any(row.time.second for row in times), len({row.stream for row in times}) > 1
    form = "%Y-%m-%d %H:%M:%S" if has_seconds else "%Y-%m-%d %H:%M"
    return [f"{row.stream} {row.time:{form}}" if has_streams else f"{row.time:{form}}" for row in times]

"""`jetlake stats SOURCE`: what is in a stream, by subject and by time."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from jetlake.cli.spark_job import (
    Account,
    Master,
    More,
    Remote,
    Source,
    Stream,
    Tokens,
    Where,
    job_options,
    show,
    spark_session,
)
from jetlake.cli.terminal import AsJson


def stats(
    source: Source,
    stream: Stream = "",
    account: Account = "",
    where: Where = "",
    tokens: Tokens = "",
    depth: Annotated[int, typer.Option(help="Without --tokens: how many tokens of the subject make a group.")] = 1,
    bucket: Annotated[str, typer.Option(help="The length of a bar of the plot: 10s, 15m, 1h, 1d.")] = "1h",
    option: More = None,
    master: Master = "",
    remote: Remote = "",
    as_json: AsJson = False,
) -> None:
    """Count messages and bytes by subject and by time, and plot them."""
    with spark_session(master, remote) as spark:
        from jetlake.spark.jobs.plot import bars
        from jetlake.spark.jobs.stats import stats as count

        found = count(
            spark, job_options(source, stream, account, option, tokens), where=where, depth=depth, bucket=bucket
        )
        times = found.times.collect()
        if as_json:
            groups = [row.asDict() for row in found.groups.collect()]
            typer.echo(json.dumps({"groups": groups, "times": [row.asDict() for row in times]}, default=str))
            return
        show(found.groups, as_json=False)
        for line in bars([(f"{row.time:%Y-%m-%d %H:%M}", row.messages) for row in times]):
            typer.echo(line)

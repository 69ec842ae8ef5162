"""`jetlake compact`: give back the room of deleted messages, in a directory or through a running server."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.console import Console

from jetlake.cli import spark_job as job
from jetlake.cli.terminal import AsJson, fail
from jetlake.errors import JetLakeError


def compact(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A store directory, or one stream's.")] = "",
    url: Annotated[str, typer.Option(help="A running JetLake server instead, nats://host:port.")] = "",
    stream: job.Stream = "*",
    account: job.Account = "",
    dead: Annotated[float, typer.Option(min=0, max=1, help="Blocks of which more than this part is dead.")] = 0.1,
    key_file: Annotated[str, typer.Option(help="The key of an encrypted store, with a directory.")] = "",
    option: job.More = None,
    as_json: AsJson = False,
) -> None:
    """Write blocks anew without the messages that were deleted. A directory's server must be stopped.

    Through a server, -o user=..., password=..., credsFile=... and so on say who asks.
    """
    if bool(directory) == bool(url):
        fail("give either a directory or --url nats://host:port")
    try:
        from jetlake.spark.jobs.compact import compact as run
        from jetlake.table.place import source_options

        options = source_options(directory, stream, account, tuple(option or ())) | {"keyFile": key_file}
        options |= {"url": url} if url else {}
        with Console(stderr=True).status("Compacting"):
            done = run(dead_part_max=dead, **options)
    except ImportError as error:
        fail(f"{error.name} is not installed: pip install 'jetlake[spark]'")
    except (JetLakeError, OSError) as error:
        fail(error)
    if as_json:
        typer.echo(msgspec.json.encode([result._asdict() for result in done]))
        return
    for result in done:
        typer.echo(
            f"{result.stream}: {result.blocks} blocks written anew, {result.size_before:,} bytes before, "
            f"{result.size_after:,} after"
        )

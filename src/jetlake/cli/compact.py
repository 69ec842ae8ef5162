"""`jetlake compact DIR`: give back the room of deleted messages, with the server stopped."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.console import Console

from jetlake.cli.terminal import AsJson, fail
from jetlake.errors import JetLakeError


def compact(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A store directory, or one stream's.")],
    stream: Annotated[str, typer.Option("--stream", "-s", help="Streams: names or patterns with commas.")] = "*",
    account: Annotated[str, typer.Option(help="The account; $G when not given.")] = "",
    dead: Annotated[float, typer.Option(min=0, max=1, help="Blocks of which more than this part is dead.")] = 0.1,
    key_file: Annotated[str, typer.Option(help="The key of an encrypted store.")] = "",
    as_json: AsJson = False,
) -> None:
    """Write blocks anew without the messages that were deleted."""
    try:
        from jetlake.spark.jobs.compact import compact as run

        with Console(stderr=True).status("Compacting"):
            done = run(directory, stream, dead, account=account, keyFile=key_file)
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

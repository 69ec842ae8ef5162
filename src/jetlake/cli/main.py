"""The `jetlake` command: one typer app, to which each command's module adds itself.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

from typing import Annotated

import typer

from jetlake import __version__

app = typer.Typer(name="jetlake", no_args_is_help=True, add_completion=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jetlake {__version__}")
        raise typer.Exit


@app.callback()
def jetlake(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A JetStream server in Python whose streams are Spark tables."""


def main() -> None:
    """Run the command line: the entry point of the installed script."""
    app()

"""The commands of `jetlake`: one typer app; each command is a function in a module of its own.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

from typing import Annotated

import typer

from jetlake import __version__
from jetlake.cli.backup import backup, restore
from jetlake.cli.compact import compact
from jetlake.cli.dump import dump
from jetlake.cli.export import export
from jetlake.cli.import_ import import_files
from jetlake.cli.mirror import mirror
from jetlake.cli.replay import replay
from jetlake.cli.serve import serve
from jetlake.cli.sql import sql
from jetlake.cli.stats import stats
from jetlake.cli.verify import verify

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


for command in (verify, dump, backup, restore, mirror, compact, stats, sql, export, replay):
    app.command()(command)
app.command("import")(import_files)
app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(serve)

"""`jetlake serve`: run the server, with nats-server's own flags."""

from __future__ import annotations

import os

import typer


def serve(context: typer.Context) -> None:
    """Run the server. Takes nats-server's flags: -p PORT, -js, -sd DIR, -c FILE ... (see `jetlake serve --help`)."""
    from jetlake.server.main import main  # not needed by other commands

    raise typer.Exit(main(context.args, dict(os.environ)))

"""What the commands share: exit codes, keys from options, and a progress bar that only people see."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import Progress

from jetlake.store import KeySource

EXIT_OK, EXIT_DAMAGE, EXIT_CANNOT = 0, 1, 2
_QUIET_S = 2.0

KeyFiles = Annotated[
    list[Path] | None,
    typer.Option("--key-file", metavar="FILE", help="A key: 32 raw bytes, or as hex or base64. May be repeated."),
]
PassphraseFiles = Annotated[
    list[Path] | None,
    typer.Option("--passphrase-file", metavar="FILE", help="A passphrase in its first line. May be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def load_keys(key_files: list[Path] | None, passphrase_files: list[Path] | None) -> list[KeySource]:
    """The keys that options name; OSError or BadRequest when they cannot be had."""
    keys = [KeySource.key_file(path) for path in key_files or ()]
    for path in passphrase_files or ():
        lines = path.read_bytes().splitlines()
        keys.append(KeySource.passphrase(lines[0] if lines else b""))
    return keys


def fail(error: Exception | str) -> NoReturn:
    """End with a message: what was asked cannot be done."""
    typer.echo(f"jetlake: {describe(error)}", err=True)
    raise typer.Exit(EXIT_CANNOT)


def describe(error: Exception | str) -> str:
    """An error in the words of our own: which file, what is wrong."""
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)


@contextmanager
def progress(text: str, total: int, *, is_printing: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, if that is a terminal, once two seconds were not enough; call it with each step's size.

    A command that is printing its results to the same terminal meanwhile needs no bar.
    """
    console = Console(stderr=True)
    is_wanted = console.is_terminal and not (is_printing and sys.stdout.isatty())
    bar = Progress(console=console, transient=True)
    task = bar.add_task(text, total=total)
    started_s, is_shown = time.monotonic(), False

    def advance(size: int) -> None:
        nonlocal is_shown
        bar.advance(task, size)
        if is_wanted and not is_shown and time.monotonic() - started_s > _QUIET_S:
            is_shown = True
            bar.start()

    try:
        yield advance
    finally:
        if is_shown:
            bar.stop()

"""`jetlake backup` and `jetlake restore`: copies of streams, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from jetlake.cli.terminal import (
    EXIT_CANNOT,
    EXIT_DAMAGE,
    EXIT_OK,
    AsJson,
    KeyFiles,
    PassphraseFiles,
    describe,
    fail,
    load_keys,
)
from jetlake.errors import JetLakeError
from jetlake.jetstream.snapshots import backup as copies
from jetlake.jetstream.snapshots.backup import Copied

Streams = Annotated[str, typer.Option("--stream", help="Names or patterns, separated by commas; all when not given.")]
AccountName = Annotated[str, typer.Option("--account", help="Streams of this account only.")]


def backup(
    source: Annotated[str, typer.Argument(metavar="DIR", help="A store directory; its server may be running.")],
    target: Annotated[str, typer.Argument(metavar="BACKUP", help="The directory of the backup; made if need be.")],
    stream: Streams = "",
    account: AccountName = "",
    key_file: KeyFiles = None,
    passphrase_file: PassphraseFiles = None,
    as_json: AsJson = False,
) -> None:
    """Copy streams with their consumers, while they are used; the next time, what changed since.

    The backup is a store directory itself: Spark reads it as it lies. Every copy is read back and compared. Exit code:
    0 all is well, 1 a stream is damaged (and so is its copy), 2 something could not be copied.
    """
    try:
        keys = load_keys(key_file, passphrase_file)
        _tell(
            copies.backup(source.rstrip("/"), target.rstrip("/"), streams=stream, account=account, keys=keys), as_json
        )
    except (JetLakeError, OSError) as error:
        fail(describe(error))


def restore(
    source: Annotated[str, typer.Argument(metavar="BACKUP", help="A backup, or any store directory.")],
    target: Annotated[str, typer.Argument(metavar="DIR", help="A store directory whose server is stopped.")],
    stream: Streams = "",
    account: AccountName = "",
    key_file: KeyFiles = None,
    passphrase_file: PassphraseFiles = None,
    as_json: AsJson = False,
) -> None:
    """Copy streams of a backup back. A stream that is there already is left alone; nothing is half restored.

    Exit code: 0 all is well, 1 a stream is damaged, 2 something could not be restored.
    """
    try:
        keys = load_keys(key_file, passphrase_file)
        _tell(
            copies.restore(source.rstrip("/"), target.rstrip("/"), streams=stream, account=account, keys=keys), as_json
        )
    except (JetLakeError, OSError) as error:
        fail(describe(error))


def _tell(results: Iterator[Copied], as_json: bool) -> None:
    done = []
    for result in results:
        done.append(result)
        if not as_json:
            _print(result)
    if as_json:
        typer.echo(msgspec.json.encode([result._asdict() for result in done]))
    if any(result.error for result in done):
        raise typer.Exit(EXIT_CANNOT)
    raise typer.Exit(EXIT_DAMAGE if any(result.lost for result in done) else EXIT_OK)


def _print(result: Copied) -> None:
    name = f"{result.account} {result.stream}"
    if result.error:
        typer.echo(f"{name}: failed: {result.error}", err=True)
        return
    typer.echo(
        f"{name}: {result.msgs:,} messages, sequences {result.first_seq} to {result.last_seq}, "
        f"{result.files} files of {result.bytes:,} bytes copied"
    )
    for first, last in result.lost:
        typer.echo(f"{name}: damaged: lost {first} to {last}", err=True)
    for problem in result.problems:
        typer.echo(f"{name}: {problem}", err=True)

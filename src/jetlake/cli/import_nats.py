"""`jetlake import --from nats-server DIR TARGET`: the streams of a nats-server's store directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import typer

from jetlake.cli.terminal import EXIT_CANNOT, EXIT_DAMAGE, EXIT_OK, fail, progress
from jetlake.errors import JetLakeError
from jetlake.jetstream.snapshots.nats_store import Imported, import_store
from jetlake.store.disk.files import OS_FILES
from jetlake.store.nats.stream_dir import list_streams


def import_nats_server(
    source: str, target: str, streams: str, account: str, key_files: list[Path], *, as_json: bool
) -> None:
    """Import, and say what became of each stream. Exit code: 1 something was damaged, 2 something was not imported."""
    results = []
    try:
        secrets = [secret for path in key_files for secret in path.read_bytes().splitlines()[:1]]
        with progress("Importing", sum(_block_sizes(source))) as advance:
            for result in import_store(
                source,
                target,
                secrets=secrets,
                streams=streams,
                account=account,
                progress=lambda stream, size: advance(size),
            ):
                results.append(result)
                if not as_json:
                    _print(result)
    except (JetLakeError, OSError) as error:
        fail(error)
    if as_json:
        typer.echo(msgspec.json.encode([result._asdict() for result in results]))
    if any(result.error for result in results):
        raise typer.Exit(EXIT_CANNOT)
    raise typer.Exit(EXIT_DAMAGE if any(result.lost for result in results) else EXIT_OK)


def _block_sizes(source: str) -> Iterator[int]:
    for stream in list_streams(source):
        msgs = f"{stream.path}/msgs"
        yield from (OS_FILES.size(f"{msgs}/{name}") for name in OS_FILES.list(msgs) if name.endswith(".blk"))


def _print(result: Imported) -> None:
    if result.error:
        typer.echo(f"{result.account} {result.stream}: not imported: {result.error}", err=True)
        return
    typer.echo(
        f"{result.account} {result.stream}: {result.msgs:,} messages, {result.bytes:,} bytes, "
        f"sequences {result.first_seq} to {result.last_seq}, {result.consumers} consumers"
    )
    for first, last in result.lost:
        typer.echo(f"{result.account} {result.stream}: lost {first} to {last}", err=True)
    for problem in result.problems:
        typer.echo(f"{result.account} {result.stream}: {problem}", err=True)

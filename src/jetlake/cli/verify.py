"""`jetlake verify DIR`: check the streams below a directory, changing nothing.

One block after the other on one core, or many at a time on Spark. It ends with 0 when all is well, with 1 when
something is damaged, and with 2 when something could not be checked.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from jetlake.cli import spark_job as job
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
    progress,
)
from jetlake.errors import BadRequest, StoreError
from jetlake.store.disk.files import OS_FILES
from jetlake.store.format import parse_block_name
from jetlake.store.redo.at_rest import check_at_rest
from jetlake.store.verify.check import Report, check_store, find_streams


def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A stream's directory, or one above several.")],
    as_json: AsJson = False,
    key_file: KeyFiles = None,
    passphrase_file: PassphraseFiles = None,
    spark: Annotated[bool, typer.Option("--spark", help="Check many blocks at a time, on Spark.")] = False,
    master: job.Master = "",
    remote: job.Remote = "",
) -> None:
    """Check every record, index and checkpoint of the streams in a directory; nothing is changed.

    With --spark, --master or --remote many blocks are checked at a time. One by one, more of what they say of each
    other is compared. Exit code: 0 all is well, 1 something is damaged, 2 something could not be checked.
    """
    if spark or master or remote:
        results = _check_on_spark(directory, key_file, passphrase_file, master, remote)
    else:
        results = _check(directory, key_file, passphrase_file)
    if not results:
        fail(f"{directory}: no stream is stored here")
    if as_json:
        typer.echo(msgspec.json.encode(_document(results)))
    else:
        _print(results)
    raise typer.Exit(_exit_code(results))


def _check(
    directory: Path, key_files: list[Path] | None, passphrase_files: list[Path] | None
) -> dict[str, Report | str]:
    try:
        keys = load_keys(key_files, passphrase_files)
        streams = list(find_streams(str(directory)))
    except (OSError, BadRequest) as error:
        fail(error)
    results: dict[str, Report | str] = {}
    with progress("Verifying", sum(map(_size, streams))) as advance:
        for stream in streams:
            try:
                check_at_rest(OS_FILES, stream)
                results[stream] = check_store(stream, keys=keys, progress=advance)
            except (OSError, StoreError) as error:
                results[stream] = describe(error)
    return results


def _check_on_spark(
    directory: Path, key_files: list[Path] | None, passphrase_files: list[Path] | None, master: str, remote: str
) -> dict[str, Report | str]:
    keys, passphrases = (",".join(map(str, paths or ())) for paths in (key_files, passphrase_files))
    with job.spark_session(master, remote) as spark:
        from jetlake.spark.jobs.verify import verify as verify_blocks

        reports = verify_blocks(spark, str(directory), keyFile=keys, passphraseFile=passphrases)
        return {report.directory: report for report in reports}


def _size(stream: str) -> int:
    names = OS_FILES.list(stream)
    return sum(OS_FILES.size(f"{stream}/{name}") for name in names if parse_block_name(name) is not None)


def _exit_code(results: dict[str, Report | str]) -> int:
    if any(isinstance(result, str) for result in results.values()):
        return EXIT_CANNOT
    is_ok = all(result.ok for result in results.values() if not isinstance(result, str))
    return EXIT_OK if is_ok else EXIT_DAMAGE


def _print(results: dict[str, Report | str]) -> None:
    for stream, result in results.items():
        if isinstance(result, str):
            typer.echo(f"{stream}: cannot be checked")
            typer.echo(f"jetlake: {result}", err=True)
            continue
        typer.echo(
            f"{stream}: {'ok' if result.ok else 'DAMAGED'}: {result.messages} messages of {result.bytes} bytes, "
            f"{result.records} records in {result.blocks} blocks of {result.file_size} bytes"
        )
        for problem in result.problems:
            typer.echo(f"  {problem.severity}: {problem.kind}: {problem}")


def _document(results: dict[str, Report | str]) -> dict[str, Any]:
    streams = [
        {"directory": stream, "ok": False, "error": result} if isinstance(result, str) else _stream_document(result)
        for stream, result in results.items()
    ]
    return {"ok": _exit_code(results) == EXIT_OK, "streams": streams}


def _stream_document(report: Report) -> dict[str, Any]:
    found = {field.name: getattr(report, field.name) for field in fields(report)}
    return {"directory": report.directory, "ok": report.ok} | found | {"lost": list(report.lost.ranges())}

"""`jetlake verify-spark DIR`: every checksum, on all cores or on a cluster.

It ends as `jetlake verify` does: with 0 when all is well, with 1 when something is damaged.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from jetlake.cli import spark_job as job
from jetlake.cli.spark_job import spark_session
from jetlake.cli.terminal import EXIT_DAMAGE, EXIT_OK, AsJson, fail
from jetlake.cli.verify import stream_document
from jetlake.store.check import show_ranges


def verify_spark(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A stream's directory, or one above several.")],
    key_file: Annotated[str, typer.Option(help="The key of an encrypted store.")] = "",
    passphrase_file: Annotated[str, typer.Option(help="Its passphrase, in the first line of a file.")] = "",
    master: job.Master = "",
    remote: job.Remote = "",
    as_json: AsJson = False,
) -> None:
    """Check every record and index of the streams in a directory, many blocks at a time; nothing is changed."""
    with spark_session(master, remote) as spark:
        from jetlake.spark.jobs.verify import verify

        reports = verify(spark, directory, keyFile=key_file, passphraseFile=passphrase_file)
        if not reports:
            fail(f"{directory}: no stream is stored here")
        if as_json:
            typer.echo(msgspec.json.encode([stream_document(report) for report in reports]))
        for report in reports if not as_json else ():
            typer.echo(
                f"{report.directory}: {'ok' if report.ok else 'DAMAGED'}: {report.messages:,} messages, "
                f"{report.records:,} records in {report.blocks} blocks of {report.file_size:,} bytes"
            )
            for text in [*report.damage, *([f"lost: {show_ranges(report.lost)}"] if report.lost else [])]:
                typer.echo(f"  damage: {text}")
            for text in report.notes:
                typer.echo(f"  note: {text}")
        is_ok = all(report.ok for report in reports)
    raise typer.Exit(EXIT_OK if is_ok else EXIT_DAMAGE)

"""One stream, or a part of it, into another: under other subjects, and at a chosen rate."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jetlake.spark.frames import read
from jetlake.table.errors import BadOption


def replay(
    spark: SparkSession,
    source: dict[str, str],
    target: dict[str, str],
    *,
    where: str = "",
    to: str = "replay.{subject}",
    rate: float = 0,
) -> int:
    """Write the messages of one stream to another, in order; how many.

    `to` is the new subject, with {subject} in place of the old one; `rate` is in messages a second, 0 for no limit.
    """
    if "{subject}" not in to:
        raise BadOption(f"{to!r} has no {{subject}}: all messages would get the same subject")
    frame = read(spark, where, **source)
    has_text = dict(frame.dtypes)["payload"] in ("binary", "string") if "payload" in frame.columns else False
    if not has_text:
        raise BadOption("a replay reads payloads as they are: not with payload=json")
    subject = F.replace(F.lit(to), F.lit("{subject}"), F.col("subject"))
    rows = frame.select(subject.alias("subject"), "payload", "headers").coalesce(1)  # one task, so that the order stays
    options = dict(target)
    if rate:
        if "url" not in options:
            raise BadOption("a rate is for a live server: a directory has no time to keep")
        options["rate"] = str(rate)
    count = frame.count()
    rows.write.format("jetstream").mode("append").options(**options).save()
    return count

"""Files to a stream: Parquet, JSON lines or CSV.

A row becomes a message. Its subject is the column `subject`, or made from a template: orders.{region}.{id}. Its payload
is the column `payload`, or, where there is none, the whole row as JSON. With a payload, columns `headers`, `time` and
`time_ns` are used if they are there, `seq` or else the time says in which order rows are written, and a column that
nothing is made of is refused.

What `export.py` wrote comes back as it was: `_malformed` has the payloads that are no text, and what the files have
beside that (size, date, tokens) the subject and the payload tell anyway. In CSV and JSON times are text, `headers` is
an object of arrays, which CSV has as text, and `_malformed` is base64.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from jetlake.table.errors import BadOption
from jetlake.table.schema import MALFORMED

FORMATS = {"parquet": "parquet", "jsonl": "json", "json": "json", "csv": "csv"}
_CSV = {"header": "true", "escape": '"', "multiLine": "true", "mode": "FAILFAST", "enforceSchema": "false"}
_BAD_LINE = "_jetlake_bad_line"
# Directories like region=007 stay text, and headers may differ in nothing but case.
_LOADING = {"spark.sql.sources.partitionColumnTypeInference.enabled": "false", "spark.sql.caseSensitive": "true"}
_FIELD = re.compile(r"\{(\w+)\}")
_ORDER = {"seq": "bigint", "time_ns": "bigint", "time": "timestamp"}
_USED = {"subject", "payload", "headers", MALFORMED, *_ORDER}
_OF_EXPORT = {"stream", "seq", "subject", "size"}


def import_files(
    spark: SparkSession, files: str, options: dict[str, str], *, format: str = "", subject: str = ""
) -> int:
    """Append the rows of files to a stream; how many."""
    kind = format or files.rstrip("/").rpartition(".")[2]
    if kind not in FORMATS:
        raise BadOption(f"format {kind!r} is not {', '.join(FORMATS)}")
    reader = spark.read.format(FORMATS[kind]).options(**(_CSV if kind == "csv" else {}))
    with _settings(spark, _LOADING):
        loaded = _load_json(reader, files) if FORMATS[kind] == "json" else reader.load(files)
    frame = messages(loaded, subject, is_live="url" in options)
    count = frame.count()
    frame.write.format("jetstream").mode("append").options(**options).save()
    return count


@contextmanager
def _settings(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Settings of a session, for a while."""
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def _load_json(reader: DataFrameReader, files: str) -> DataFrame:
    """The rows of JSON lines; BadOption for a line that is none."""
    reader = reader.option("columnNameOfCorruptRecord", _BAD_LINE)
    frame = reader.load(files)
    if _BAD_LINE in frame.columns:
        lines = reader.schema(f"{_BAD_LINE} STRING, _ STRING").load(files).where(F.col(_BAD_LINE).isNotNull())
        bad = lines.select("_metadata.file_path", _BAD_LINE, "_").first()
        assert bad is not None
        raise BadOption(f"{bad[0]}: this line is not a JSON object: {bad[1][:200]}")
    if not {"payload", "headers"} <= set(frame.columns):
        return frame
    # As text: read as an object each row would have the headers of all.
    fields = [StructField("headers", StringType()) if field.name == "headers" else field for field in frame.schema]
    return reader.schema(StructType(fields)).load(files)


def messages(frame: DataFrame, subject: str = "", *, is_live: bool = False) -> DataFrame:
    """The rows of a frame as messages."""
    fields, kinds = set(frame.columns), dict(frame.dtypes)
    chosen: list[Column] = [_subject(fields, subject).alias("subject")]
    is_export = fields >= _OF_EXPORT
    if "payload" in fields or is_export:
        for name in fields & set(_ORDER):
            frame = frame.withColumn(name, F.col(name).cast(_ORDER[name])) if kinds[name] == "string" else frame
        frame = _ordered(frame, is_live=is_live)
    if "payload" not in fields:
        chosen.append(F.to_json(F.struct(*[F.col(f"`{name}`") for name in frame.columns])).alias("payload"))
        return frame.select(*chosen)
    lost = sorted(fields - _USED - set(_FIELD.findall(subject)))
    if lost and not is_export:
        raise BadOption(f"column {', '.join(lost)} would be lost: the message is the column payload")
    chosen.append(_payload(kinds).alias("payload"))
    if "headers" in fields:
        chosen.append(_headers(kinds["headers"]).alias("headers"))
    times = [name for name in ("time_ns", "time") if name in fields and not is_live]
    return frame.select(*chosen, *times[:1])


def _ordered(frame: DataFrame, *, is_live: bool) -> DataFrame:
    """Rows in the order of their sequences, or else times; for a server in one task, for tasks publish at once."""
    order = [name for name in _ORDER if name in frame.columns]
    if not order:
        return frame
    return frame.repartition(1).sortWithinPartitions(*order) if is_live else frame.orderBy(*order)


def _payload(kinds: dict[str, str]) -> Column:
    if MALFORMED not in kinds:
        return F.col("payload")
    is_text = kinds[MALFORMED] == "string"
    malformed = F.unbase64(F.nullif(F.col(MALFORMED), F.lit(""))) if is_text else F.col(MALFORMED)
    return F.coalesce(malformed, F.col("payload").cast("binary"))


def _headers(kind: str) -> Column:
    if kind != "string":
        return F.col("headers")
    text = F.nullif(F.col("headers"), F.lit(""))
    found = F.from_json(text, "map<string, array<string>>")
    problem = F.concat(F.lit('headers are an object of arrays, like {"Kind": ["order"]}, not '), text)
    return F.when(text.isNotNull() & found.isNull(), F.raise_error(problem)).otherwise(found)


def _subject(fields: set[str], template: str) -> Column:
    if not template:
        if "subject" not in fields:
            raise BadOption("the files have no column subject: give a template like orders.{region}.{id}")
        return F.col("subject")
    missing = [name for name in _FIELD.findall(template) if name not in fields]
    if missing:
        raise BadOption(f"the files have no column {', '.join(missing)} for the subject {template}")
    parts = _FIELD.split(template)
    texts = [F.lit(part) if place % 2 == 0 else F.col(f"`{part}`").cast("string") for place, part in enumerate(parts)]
    return F.concat(*texts)

"""Streams by name in Spark's SQL: `select … from jetlake.ORDERS`.

Each stream gets a data source of its own, which knows where the stream is, and a table in Spark's catalog that uses it.
Spark resolves such a table anew in every query, so a query sees the stream as it is then; a view of a DataFrame would
stay as it was first planned.

Options of `register` rule out blocks, for a name of its own: `register(spark, "/data", "ORDERS", database="recent",
start_time=…)`. A query cannot: Spark plans all uses of a table in a query once, so a condition that it pushes down, or
an option in SQL (`with (startSeq = 5)`), would hold for the others too. To tell them apart takes a JVM class. The first
is therefore not taken, and the second is refused.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, MutableMapping
from contextlib import closing
from typing import Any

from pyspark.sql import SparkSession

from jetlake.spark.compat import register_source
from jetlake.spark.frames import texts
from jetlake.spark.source import JetStreamSource
from jetlake.table.errors import BadOption
from jetlake.table.options import parse_options
from jetlake.table.origin import open_origin
from jetlake.table.place import is_url

_PREFIX = "jetlake_"  # of the names of our data sources
_made: set[str] = set()  # tables of ours: no other may be dropped
_NOT_IN_NAMES = re.compile(r"\W")
# What a catalog puts among the options of a table.
_OF_CATALOGS = {"owner", "provider", "comment", "location", "path", "external", "is_managed_location", "collation"}


def register(
    spark: SparkSession, place: str | os.PathLike[str], stream: str = "*", *, database: str = "jetlake", **options: Any
) -> dict[str, str]:
    """Give every stream of a directory or server a name in SQL; the names by stream.

    A sign that Spark allows in no name becomes `_`: the stream EVENTS-1 is jetlake.EVENTS_1. Call it again for streams
    that came later. Options are those of `read`, for all the streams.
    """
    where = os.fspath(place)
    given = texts({("url" if is_url(where) else "path"): where, **options})
    with closing(open_origin(parse_options({**given, "stream": stream}))) as origin:
        names = _table_names(origin.names(), database)
    _make_database(spark, database)
    for name, table in names.items():
        _make_table(spark, table, bound_source({**given, "stream": name}))
    return names


def bound_source(options: Mapping[str, str]) -> type[JetStreamSource]:
    """A data source that reads one stream, in one way."""
    source = JetStreamSource(dict(options))
    source.schema()  # says what is wrong; fields that are inferred are an option from then on
    known = dict(source.options)
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]

    class BoundSource(JetStreamSource):
        def __init__(self, options: MutableMapping[str, str]) -> None:
            given = sorted(name for name in dict(options) if name.lower() not in _OF_CATALOGS)
            if given:
                raise BadOption(
                    f"option {', '.join(given)}: a name in SQL takes no options, for Spark would apply them to all "
                    "its uses in a query; give them to register, with another database"
                )
            super().__init__(dict(known))

        @classmethod
        def name(cls) -> str:
            return f"{_PREFIX}{digest}"

    return BoundSource


def _table_names(streams: list[str], database: str) -> dict[str, str]:
    names = {stream: f"{database}.{_NOT_IN_NAMES.sub('_', stream)}" for stream in streams}
    streams_by_name: dict[str, str] = {}
    for stream, name in names.items():
        other = streams_by_name.setdefault(name.lower(), stream)
        if other != stream:
            raise BadOption(
                f"streams {other} and {stream} would both be {name}: register them in databases of their own"
            )
    return names


def _make_database(spark: SparkSession, database: str) -> None:
    """Spark makes directories for a database and its tables, which stay empty: not where the program runs."""
    if spark.catalog.databaseExists(database):
        return
    place = ""
    if isinstance(spark, SparkSession) and str(spark.sparkContext.master).startswith("local"):
        directory = tempfile.mkdtemp(prefix="jetlake-names-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        place = f" LOCATION '{directory}'"
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}{place}")


def _make_table(spark: SparkSession, table: str, source: type[JetStreamSource]) -> None:
    if spark.catalog.tableExists(table):
        if table.lower() not in _made:
            raise BadOption(f"there is a table {table} already, which this program has not made: drop it first")
        spark.sql(f"DROP TABLE {table}")
    spark.sql(f"CREATE TABLE {table} USING {register_source(spark, source)}")
    _made.add(table.lower())

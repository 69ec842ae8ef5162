"""The data source `jetstream`: `spark.read`, `readStream`, `write` and `writeStream` of that format.

Spark imports this module in every process that plans or runs, so it imports little itself.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from jetlake.spark.worker import one_line_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from jetlake.table.options import Options


class JetStreamSource(DataSource):
    """Streams as tables."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return "jetstream"

    @one_line_errors()
    def schema(self) -> StructType:
        """The columns that the options ask for. Fields that are inferred are an option from then on."""
        from jetlake.spark.types import to_spark
        from jetlake.table.origin import open_origin
        from jetlake.table.payload import SAMPLE_COUNT, infer_ddl
        from jetlake.table.schema import source_schema

        options = self._parsed()
        if options.payload == "json" and not options.payload_schema:
            with closing(open_origin(options)) as origin:
                self.options["payloadSchema"] = infer_ddl(origin.sample(SAMPLE_COUNT))
        return to_spark(source_schema(self._parsed()))

    @one_line_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return JetStreamReader(self._parsed(), schema)

    @one_line_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read."""
        from jetlake.spark.compat import check_read_limits
        from jetlake.spark.stream_reader import JetStreamStreamReader

        options = self._parsed()
        check_read_limits(
            maxRowsPerTrigger=options.max_rows_per_trigger, maxBytesPerTrigger=options.max_bytes_per_trigger
        )
        return JetStreamStreamReader(options, schema)

    @one_line_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from jetlake.spark.writers import batch_writer

        return batch_writer(self._parsed(), schema, overwrite)

    @one_line_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write."""
        from jetlake.spark.writers import stream_writer

        return stream_writer(self._parsed(), schema, overwrite)

    def _parsed(self) -> Options:
        from jetlake.spark.worker import settle
        from jetlake.table.options import parse_options

        settle()
        return parse_options(self.options)


class JetStreamReader(DataSourceReader):
    """A batch read: which messages it yields is fixed when it is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        from jetlake.spark.types import to_arrow
        from jetlake.table.schema import RowBuilder

        RowBuilder(to_arrow(schema), options)  # says what is wrong with it before anything is read
        self._options, self._schema = options, schema

    @one_line_errors()
    def partitions(self) -> list[InputPartition]:
        """What each task reads."""
        from jetlake.table.origin import open_origin

        with closing(open_origin(self._options)) as origin:
            return [InputPartition(task) for task in origin.plan()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's messages."""
        return read_partition(self._options, self._schema, partition)


def read_partition(options: Options, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The messages of a partition; Spark makes up an empty one where there is nothing to read."""
    from jetlake.spark.types import to_arrow
    from jetlake.spark.worker import settle
    from jetlake.table.origin import Task, open_origin
    from jetlake.table.schema import RowBuilder

    task = partition.value if partition is not None else None
    if isinstance(task, Task):
        origin = open_origin(options)
        try:
            with one_line_errors():
                yield from origin.read(task, RowBuilder(to_arrow(schema), options))
        finally:
            origin.close()
            settle()

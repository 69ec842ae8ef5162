"""Which writer serves a write: to a directory or to a live server, batch or streaming."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from jetlake.table.errors import BadOption
from jetlake.table.options import Options


def batch_writer(options: Options, schema: StructType, overwrite: bool) -> DataSourceWriter:
    """The writer of `df.write`."""
    if options.url:
        from jetlake.spark.server_writer import ServerBatchWriter

        if overwrite:
            raise BadOption("a stream of a live server is appended to: use mode('append')")
        return ServerBatchWriter(options, schema)
    from jetlake.spark.store_writer import StoreBatchWriter

    return StoreBatchWriter(options, schema, overwrite)


def stream_writer(options: Options, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """The writer of `df.writeStream`."""
    if overwrite:
        raise BadOption("messages are appended: output mode complete would write all of them again with each batch")
    if options.url:
        from jetlake.spark.server_writer import ServerStreamWriter

        return ServerStreamWriter(options, schema)
    from jetlake.spark.store_writer import StoreStreamWriter

    return StoreStreamWriter(options, schema)

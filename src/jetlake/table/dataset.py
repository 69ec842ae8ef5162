"""A stream as a pyarrow dataset: engines that know datasets hand over the columns and the filter that they need.

DuckDB does so. The filter rules out blocks as far as it can, and is then applied in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from jetlake.table.predicates import of_arrow

if TYPE_CHECKING:
    from jetlake.table.scan import Scan


class StreamDataset(ds.Dataset):  # type: ignore[misc]
    """What DuckDB asks of a dataset: a schema and scanners. Each scanner sees the stream as it is then."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._scan.schema

    def scanner(self, columns: list[str] | None = None, filter: Any = None, **more: Any) -> StreamScanner:
        """A scan of some columns and of the rows that a filter keeps."""
        return StreamScanner(self._scan, self._scan.schema.names if columns is None else columns, filter)


class StreamScanner:
    """A scan that was asked for. Arrow's own scanner reads ahead in threads that outlive a reader who stops early."""

    def __init__(self, scan: Scan, columns: list[str], filter: Any) -> None:
        self._scan, self._columns, self._filter = scan, columns, filter
        self.projected_schema = pa.schema([scan.schema.field(name) for name in columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, in record batches."""
        names = self._scan.schema.names
        text = "" if self._filter is None else str(self._filter)
        needed = [name for name in names if name in self._columns or name in text] or names[:1]
        batches = self._scan.batches(needed, of_arrow(self._filter, names), self._keep)
        return pa.RecordBatchReader.from_batches(self.projected_schema, batches)

    def to_table(self) -> pa.Table:
        """The rows, in memory."""
        return self.to_reader().read_all()

    def _keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._filter is not None:
            kept = pa.Table.from_batches([batch]).filter(self._filter).combine_chunks().to_batches()
            batch = kept[0] if kept else batch.slice(0, 0)
        return batch.select(self._columns)

"""A stream as a lazy Polars frame: Polars says which columns, which rows and how many of them it needs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from jetlake.table.predicates import of_polars

if TYPE_CHECKING:
    from jetlake.table.scan import Scan


def lazy_frame(scan: Scan) -> pl.LazyFrame:
    """A frame that reads when it is collected."""
    empty = _frame(scan.schema.empty_table())

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, rows_max: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        names = [name for name in scan.schema.names if columns is None or name in columns]
        needed = names if predicate is None else sorted({*names, *predicate.meta.root_names()})

        def kept(batch: pa.RecordBatch) -> pl.DataFrame:
            frame = _frame(batch)
            return (frame if predicate is None else frame.filter(predicate)).select(names)

        frames = scan.batches(needed, _condition(predicate), kept)
        try:
            for frame in frames:
                if rows_max is not None:
                    frame = frame.head(rows_max)
                    rows_max -= len(frame)
                yield frame
                if rows_max == 0:
                    return
        finally:
            frames.close()  # type: ignore[attr-defined]

    return register_io_source(read, schema=empty.schema)


def _frame(batch: Any) -> pl.DataFrame:
    frame = pl.from_arrow(batch)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _condition(predicate: pl.Expr | None) -> str:
    """What rules out blocks; the predicate itself is applied to every batch."""
    if predicate is None:
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JSON is called unstable, and what it does not say only rules out less
        try:
            return of_polars(predicate.meta.serialize(format="json"))
        except Exception:  # an expression with a Python function in it has no such form
            return ""

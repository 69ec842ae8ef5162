"""Record batches that are to be written: what a row may be."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from jetlake.spark.batches import RowMaker, header_block  # noqa: E402
from jetlake.table.errors import BadOption  # noqa: E402


def test_a_time_that_nanoseconds_cannot_say_is_refused() -> None:
    times = pa.array([253_402_214_400_000_000], pa.timestamp("us"))
    batch = pa.RecordBatch.from_pydict({"subject": ["a"], "payload": [b""], "time": times})
    with pytest.raises(BadOption, match="times from 1677 to 2262"):
        RowMaker().rows(batch)


def test_a_header_without_a_value_is_left_out() -> None:
    assert header_block([("K", ["v", None]), ("L", None)]) == b"NATS/1.0\r\nK: v\r\n\r\n"


def test_subjects_must_match_one_of_the_filters() -> None:
    batch = pa.RecordBatch.from_pydict({"subject": ["a.b", "b"], "payload": [b"", b""]})
    assert RowMaker("", ("a.*", "b")).rows(batch).row_count == 2
    with pytest.raises(BadOption, match=r"subject 'b' is none of the stream's, a\.\*"):
        RowMaker("", ("a.*",)).rows(batch)

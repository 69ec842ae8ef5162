"""Offsets of streaming reads: where they begin, how far a batch goes, and what a checkpoint must agree with.

The reader is driven here as Spark drives it, without a JVM; `test_streaming.py` does it with one.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructField, StructType

from jetlake.spark.compat import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from jetlake.spark.stream_reader import JetStreamStreamReader, Offset
from jetlake.store import FileOptions, FileStore
from jetlake.table.errors import BadOption, MessagesGone, NoStream, OffsetMismatch
from jetlake.table.options import parse_options
from tests.table.streams import stream_in

SCHEMA = StructType([StructField("seq", LongType(), False)])
ALL = ReadAllAvailable()


def make(directory: Path, count: int = 20) -> FileStore:
    store = FileStore(directory, options=FileOptions(block_size_max=300, sync="never"))
    fill(store, count)
    return store


def fill(store: FileStore, count: int) -> None:
    for number in range(count):
        store.append(f"s.{number % 2}", b"payload %d" % number)


def reader(path: Path, **options: Any) -> JetStreamStreamReader:
    return JetStreamStreamReader(parse_options({"path": str(path), **options}), SCHEMA)


def logged(offset: Offset) -> Offset:
    """An offset as it comes back from a checkpoint."""
    back: Offset = json.loads(json.dumps(offset))
    return back


def seqs(source: JetStreamStreamReader, start: Offset, end: Offset) -> list[int]:
    tasks = source.partitions(logged(start), logged(end))
    return [seq for task in tasks for batch in source.read(task) for seq in batch.column("seq").to_pylist()]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    with make(tmp_path / "S") as store:
        yield store


def batches(source: JetStreamStreamReader, limit: ReadLimit = ALL) -> Iterator[list[int]]:
    start = source.initialOffset()
    while (end := source.latestOffset(logged(start), limit)) != start:
        yield seqs(source, start, end)
        start = end


def test_a_query_reads_everything_and_then_what_is_new(tmp_path: Path, store: FileStore) -> None:
    source = reader(tmp_path / "S")
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    assert seqs(source, start, end) == list(range(1, 21))
    assert end["S"]["seq"] == 20 and end["S"]["msgs"] == 20 and end["S"]["missed"] == 0
    assert source.latestOffset(logged(end), ALL) == end
    fill(store, 5)
    later = source.latestOffset(logged(end), ALL)
    assert seqs(source, end, later) == [21, 22, 23, 24, 25]
    assert source.reportLatestOffset() == {"S": {"seq": 25, "id": "", "msgs": None, "missed": 0}}


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, 1),
        ({"start": "latest"}, 21),
        ({"startSeq": 8}, 8),
        ({"startSeq": 23}, 23),
        ({"startTime": "2001-01-01"}, 1),
    ],
)
def test_a_query_begins_where_it_is_told(tmp_path: Path, store: FileStore, options: dict[str, Any], first: int) -> None:
    source = reader(tmp_path / "S", **options)
    start = source.initialOffset()
    fill(store, 5)
    assert seqs(source, start, source.latestOffset(start, ALL)) == list(range(first, 26))


@pytest.mark.parametrize(("count", "start_seq"), [(20, 25), (0, 5)])
def test_a_start_that_is_not_reached_yet_is_waited_for(tmp_path: Path, count: int, start_seq: int) -> None:
    with make(tmp_path / "S", count) as store:
        start = reader(tmp_path / "S", startSeq=start_seq).initialOffset()
        assert start["S"]["seq"] == count and start["S"]["startSeq"] == start_seq
        fill(store, 3)
        again = reader(tmp_path / "S")
        assert again.latestOffset(logged(start), ALL) == start
        fill(store, 10)
        assert seqs(again, start, again.latestOffset(logged(start), ALL)) == list(range(start_seq, count + 14))


def test_a_start_time_holds_for_every_batch_and_in_any_order(tmp_path: Path) -> None:
    with FileStore(tmp_path / "S", options=FileOptions(block_size_max=300)) as store:
        for seq, second in enumerate((1, 5, 2, 6, 3, 7), 1):
            store.append_at(seq, second * 10**9, "s", b"")
        start = reader(tmp_path / "S", startTime="1970-01-01T00:00:05Z").initialOffset()
        source = reader(tmp_path / "S")
        end = source.latestOffset(logged(start), ALL)
        assert seqs(source, start, end) == [2, 4, 6]
        for seq, second in enumerate((4, 5), 7):
            store.append_at(seq, second * 10**9, "s", b"")
        later = source.latestOffset(logged(end), ALL)
        assert seqs(source, end, later) == [8] and later["S"]["startTime"] == "1970-01-01T00:00:05Z"


def test_a_start_time_in_the_future_is_waited_for(tmp_path: Path, store: FileStore) -> None:
    for time in ("2200-01-01", "9999-12-31"):
        start = reader(tmp_path / "S", startTime=time).initialOffset()
        fill(store, 2)
        source = reader(tmp_path / "S")
        assert seqs(source, start, source.latestOffset(logged(start), ALL)) == []


def test_a_first_batch_that_is_run_again_begins_where_it_began(tmp_path: Path, store: FileStore) -> None:
    source = reader(tmp_path / "S", start="latest")
    start = source.initialOffset()
    fill(store, 5)
    end = source.latestOffset(logged(start), ALL)
    fill(store, 5)
    again = reader(tmp_path / "S", start="latest")
    assert seqs(again, again.initialOffset(), end) == [21, 22, 23, 24, 25]


def test_offsets_of_older_checkpoints_are_gone_on_from(tmp_path: Path, store: FileStore) -> None:
    old = reader(tmp_path / "S").latestOffset(reader(tmp_path / "S").initialOffset(), ReadMaxRows(8))
    del old["S"]["startSeq"]
    source = reader(tmp_path / "S", startSeq=15)
    end = source.latestOffset(logged(old), ALL)
    assert seqs(source, old, end) == list(range(9, 21)) and "startSeq" not in end["S"]
    assert seqs(source, {"S": {**old["S"], "seq": 0}}, old) == list(range(1, 9))


def test_limits_cut_a_stream_into_batches(tmp_path: Path, store: FileStore) -> None:
    assert [len(batch) for batch in batches(reader(tmp_path / "S"), ReadMaxRows(7))] == [7, 7, 6]
    by_size = list(batches(reader(tmp_path / "S"), ReadMaxBytes(100)))
    assert list(chain(*by_size)) == list(range(1, 21)) and max(map(len, by_size)) <= 3
    source = reader(tmp_path / "S", maxRowsPerTrigger=7)
    assert source.getDefaultReadLimit() == ReadMaxRows(7)
    assert reader(tmp_path / "S", maxBytesPerTrigger=9).getDefaultReadLimit() == ReadMaxBytes(9)
    assert reader(tmp_path / "S").getDefaultReadLimit() == ALL


def test_limits_are_shared_by_several_streams(tmp_path: Path) -> None:
    for name, count in (("A", 20), ("B", 3), ("C", 20)):
        make(stream_in(tmp_path, name), count).stop()
    found = list(batches(reader(tmp_path, stream="*"), ReadMaxRows(12)))
    assert [len(batch) for batch in found] == [12, 12, 12, 7]
    with FileStore(stream_in(tmp_path, "D")) as store:
        store.append("s.0", b"payload 0")
        size = store.catalog.active.body_size
    for fitting in (1, 2, 3, 8):
        found = list(batches(reader(tmp_path, stream="[ABC]"), ReadMaxBytes(fitting * size + size // 2)))
        assert max(map(len, found)) == fitting and sum(map(len, found)) == 43
    assert {len(batch) for batch in batches(reader(tmp_path, stream="[ABC]"), ReadMaxBytes(1))} == {1}


def test_a_stream_that_comes_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    make(stream_in(tmp_path, "A")).stop()
    source = reader(tmp_path, stream="*", start="latest")
    start = source.initialOffset()
    with make(stream_in(tmp_path, "B")) as store:
        store.compact(11)
    end = source.latestOffset(logged(start), ALL)
    assert seqs(source, start, end) == list(range(11, 21)) and end["B"]["startSeq"] == 11


def test_available_now_ends_where_it_began(tmp_path: Path, store: FileStore) -> None:
    source = reader(tmp_path / "S")
    source.prepareForTriggerAvailableNow()
    fill(store, 5)
    assert list(chain(*batches(source))) == list(range(1, 21))


def test_tasks_follow_messages_however_far_apart_they_are(tmp_path: Path) -> None:
    with FileStore(tmp_path / "S") as store:
        fill(store, 3)
        store.skip(30_000_000)
        fill(store, 2)
        source = reader(tmp_path / "S", partitionRows=4)
        start = source.initialOffset()
        end = source.latestOffset(start, ALL)
        tasks = [(task.value.first_seq, task.value.last_seq) for task in source.partitions(start, end)]  # type: ignore[attr-defined]
        assert tasks == [(1, 30_000_004), (30_000_005, 30_000_005)]
        assert seqs(source, start, end) == [1, 2, 3, 30_000_004, 30_000_005]


def test_a_range_is_cut_into_tasks_in_the_same_way_again(tmp_path: Path, store: FileStore) -> None:
    source = reader(tmp_path / "S", partitionRows=6)
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    before = [(task.value.first_seq, task.value.last_seq) for task in source.partitions(start, end)]  # type: ignore[attr-defined]
    store.compact_files()
    again = reader(tmp_path / "S", partitionRows=6)
    assert before == [(1, 6), (7, 12), (13, 18), (19, 20)]
    assert before == [(task.value.first_seq, task.value.last_seq) for task in again.partitions(start, end)]  # type: ignore[attr-defined]
    assert seqs(again, start, end) == list(range(1, 21))


def test_a_batch_that_would_not_be_the_same_again_fails(tmp_path: Path, store: FileStore) -> None:
    source = reader(tmp_path / "S")
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    store.remove(5)
    assert seqs(source, start, end) == list(range(1, 21)), "planned before"
    with pytest.raises(OffsetMismatch, match="held 20 messages when it was planned, and now 19"):
        seqs(reader(tmp_path / "S"), start, end)
    assert len(seqs(reader(tmp_path / "S", onGap="report"), start, end)) == 19


def test_messages_that_retention_took_fail_or_are_reported(
    tmp_path: Path, store: FileStore, caplog: pytest.LogCaptureFixture
) -> None:
    start = reader(tmp_path / "S", start="earliest").initialOffset()
    store.compact(11)
    with pytest.raises(MessagesGone, match=r"10 messages were removed .* sequences 1-10"):
        reader(tmp_path / "S").latestOffset(start, ALL)
    source = reader(tmp_path / "S", onGap="report")
    with caplog.at_level(logging.WARNING):
        end = source.latestOffset(start, ALL)
    assert end["S"]["missed"] == 10 and seqs(source, start, end) == list(range(11, 21))
    assert "stream=S seqs=1-10" in caplog.text


def test_a_checkpoint_of_another_stream_is_refused(tmp_path: Path, store: FileStore) -> None:
    source = reader(tmp_path / "S")
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    make(tmp_path / "short" / "S", 5).stop()
    make(tmp_path / "long" / "S", 30).stop()
    for name, problem in (("short", "it ends at 5"), ("long", "belongs to another stream")):
        other = reader(tmp_path / name / "S")
        with pytest.raises(OffsetMismatch, match=problem):
            other.latestOffset(logged(end), ALL)
    with pytest.raises(NoStream, match="stream S is no longer there"):
        reader(Path(shutil.copytree(tmp_path / "S", tmp_path / "T"))).latestOffset(logged(end), ALL)


def test_a_stream_that_was_truncated_is_refused(tmp_path: Path, store: FileStore) -> None:
    source = reader(tmp_path / "S")
    end = source.latestOffset(source.initialOffset(), ALL)
    store.truncate(10)
    fill(store, 30)
    with pytest.raises(OffsetMismatch, match="belongs to another stream"):
        reader(tmp_path / "S").latestOffset(logged(end), ALL)


def test_rewritten_blocks_are_the_same_stream(tmp_path: Path, store: FileStore) -> None:
    source = reader(tmp_path / "S")
    end = source.latestOffset(source.initialOffset(), ALL)
    store.remove(20)
    fill(store, 20)
    store.compact_files()
    assert reader(tmp_path / "S").latestOffset(logged(end), ALL)["S"]["seq"] == 40


def test_a_stream_deleted_while_reading_is_told(tmp_path: Path) -> None:
    store = make(tmp_path / "S")
    source = reader(tmp_path / "S")
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    tasks = source.partitions(start, end)
    store.delete()
    with pytest.raises(MessagesGone, match="sequences 1"):
        list(source.read(tasks[0]))
    with pytest.raises(NoStream, match="no such directory"):
        source.latestOffset(end, ALL)


def test_an_end_is_for_batches(tmp_path: Path) -> None:
    for option in ("endSeq", "endTime"):
        with pytest.raises(BadOption, match="for batch reads"):
            reader(tmp_path / "S", **{option: "2026"} if option == "endSeq" else {option: "2026-01-01"})

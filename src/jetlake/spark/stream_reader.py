"""Streaming reads: micro-batches that are ranges of sequences.

An offset is what has been read, for each stream, in JSON that a person can read:

    {"ORDERS": {"seq": 1200, "id": "5be1...", "msgs": 200, "missed": 0, "startSeq": 1}}

`seq` is the last sequence of the batches so far, `id` tells the stream from another of the same name
(`Origin.identity`), `msgs` is how many messages the range of the batch that ends here holds, and `missed` how many were
known to be removed or damaged when their batch was planned, since the query began. A batch that is run again after a
failure has the same offsets, so it reads the same range; that it also reads the same messages is checked by their
number.

`startSeq` is the first sequence that the query wants, which the stream may not have reached yet, and `startTime`, if it
was given, the time before which it wants none. They are those of the query's first run; offsets that were written
before there were such fields have none.

The messages of a range are always shared out to tasks in the same way, so that what a task writes is the same the
second time too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import NotRequired, TypedDict

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from jetlake.spark.compat import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from jetlake.spark.source import read_partition
from jetlake.spark.types import to_arrow
from jetlake.spark.worker import one_line_errors
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.table.errors import BadOption, NoStream, OffsetMismatch
from jetlake.table.options import Options, time_ns_of
from jetlake.table.origin import Origin, open_origin
from jetlake.table.schema import RowBuilder

_log = logging.getLogger("jetlake.spark")


class Place(TypedDict):
    """How far a stream has been read."""

    seq: int
    id: str
    msgs: int | None
    missed: int
    startSeq: NotRequired[int]
    startTime: NotRequired[str]


Offset = dict[str, Place]


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read."""

    def __init__(self, options: Options, schema: StructType) -> None:
        RowBuilder(to_arrow(schema), options)  # says what is wrong with it before anything is read
        if options.end_seq is not None or options.end_time:
            raise BadOption("endSeq and endTime are for batch reads; a streaming read goes on")
        # Where to begin is part of the first offset, and holds for the whole query.
        self._start_seq, self._start_time = options.start_seq, options.start_time
        self._options = replace(options, start_seq=None, start_time="")
        self._schema = schema
        self._origin: Origin | None = None
        self._target: dict[str, int] | None = None  # AvailableNow: read no further
        self._first: Offset | None = None
        self._reached: Offset | None = None  # for a Spark that does not tell where a batch begins

    @one_line_errors()
    def initialOffset(self) -> Offset:
        """Where a new query begins."""
        if self._first is not None:
            return self._first
        origin = self._refreshed()
        return {stream: self._first_place(origin, stream) for stream in origin.streams()}

    def _first_place(self, origin: Origin, stream: str, *, is_new: bool = False) -> Place:
        """Where to begin; all of a stream that came after the query began is later than its latest."""
        first_seq, last_seq = origin.bounds(stream)
        if self._start_seq is not None:
            start_seq = max(self._start_seq, first_seq)
        elif self._start_time:
            start_seq = origin.seq_at(stream, time_ns_of(self._start_time))
        else:
            start_seq = last_seq + 1 if self._options.start == "latest" and not is_new else first_seq
        seq = min(start_seq - 1, last_seq)
        place = Place(seq=seq, id=origin.identity(stream, seq), msgs=0, missed=0, startSeq=start_seq)
        if self._start_time:
            place["startTime"] = self._start_time
        return place

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say about the size of a micro-batch."""
        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, and then end."""
        origin = self._refreshed()
        self._target = {stream: origin.bounds(stream).last_seq for stream in origin.streams()}

    @one_line_errors()
    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """The end of the next micro-batch; the same offset when there is nothing new.

        Before Spark 4.2 there are no arguments: a batch begins where the one before ended. After a restart Spark has
        the last batch planned again before it comes here.
        """
        if start is None:
            start = self._reached
        if start is None:
            start = self._first = self.initialOffset()  # Spark will ask for it after this
        self._reached = self._latest(start, limit or ReadAllAvailable())
        return self._reached

    def _latest(self, start: Offset, limit: ReadLimit) -> Offset:
        origin = self._refreshed()
        streams = origin.streams()
        for stream in start:
            if stream not in streams:
                raise NoStream(f"stream {stream} is no longer there, and the checkpoint of this query reads from it")
        places = {stream: start.get(stream) or self._first_place(origin, stream, is_new=True) for stream in streams}
        end = self._advance_all(origin, places, *self._limits(limit))
        return {stream: end[stream] for stream in streams}

    def _advance_all(self, origin: Origin, places: Offset, rows: int | None, size: int | None) -> Offset:
        """Share a limit out evenly; what streams with little to read leave over goes to those with more.

        The first message of a batch is read however large it is: there is no going on without it.
        """
        end, is_empty = dict(places), True
        by_backlog = sorted(places, key=lambda stream: origin.bounds(stream).last_seq - places[stream]["seq"])
        for number, stream in enumerate(by_backlog):
            left, place = len(places) - number, places[stream]
            reached = self._advance(origin, stream, place, rows and -(-rows // left), size and -(-size // left))
            if reached is place:
                continue
            first_seq, last_seq = _first_seq(place, reached), reached["seq"]
            if size is not None:
                used = origin.size(stream, first_seq, last_seq)
                if used > size and not is_empty:
                    continue
                size = max(size - used, 0)
            if rows is not None:
                count = reached["msgs"]
                rows = max(rows - (last_seq - first_seq + 1 if count is None else count), 0)
            end[stream], is_empty = reached, False
        return end

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        rows = size = None
        if not isinstance(limit, ReadAllAvailable):
            rows, size = self._options.max_rows_per_trigger, self._options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return rows, size

    def _advance(self, origin: Origin, stream: str, place: Place, rows: int | None, size: int | None) -> Place:
        """How far a stream can be read from a place on."""
        first_seq, last_seq = origin.bounds(stream)
        _check_identity(origin, stream, place)
        if self._target is not None:
            last_seq = min(last_seq, self._target.get(stream, 0))
        missed, start_seq = place["missed"], _first_seq(place, place)
        if start_seq > last_seq or rows == 0:
            return place
        if first_seq > start_seq:
            gone = SequenceSet([(start_seq, min(first_seq - 1, last_seq))])
            origin.losses(stream).gone(gone)
            missed += gone.count
        end_seq = min(origin.limit(stream, start_seq, rows, size), last_seq)
        missed += origin.report_lost(stream, start_seq, end_seq)
        count = origin.count(stream, start_seq, end_seq)
        return {**place, "seq": end_seq, "id": origin.identity(stream, end_seq), "msgs": count, "missed": missed}

    def reportLatestOffset(self) -> Offset | None:
        """How far the streams go, for the query's progress."""
        if self._origin is None:
            return None
        return {
            stream: Place(seq=self._origin.bounds(stream).last_seq, id="", msgs=None, missed=0)
            for stream in self._origin.streams()
        }

    @one_line_errors()
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """What each task reads of a micro-batch."""
        origin = self._origin if self._origin is not None else self._refreshed()
        self._reached = end
        tasks: list[InputPartition] = []
        for stream, place in end.items():
            first_seq = _first_seq(start.get(stream), place)
            if place["seq"] < first_seq:
                continue
            _check_identity(origin, stream, place)
            self._check_same(origin, stream, first_seq, place)
            time_ns_min = time_ns_of(place.get("startTime", ""))
            tasks += map(InputPartition, origin.plan_range(stream, first_seq, place["seq"], time_ns_min))
        return tasks

    def _check_same(self, origin: Origin, stream: str, first_seq: int, place: Place) -> None:
        """A batch that is run again must hold the messages that it held."""
        count = origin.count(stream, first_seq, place["seq"])
        if count is None or place["msgs"] is None or count == place["msgs"]:
            return
        text = (
            f"stream {stream}: the batch of sequences {first_seq} to {place['seq']} held {place['msgs']} messages when "
            f"it was planned, and now {count}"
        )
        if self._options.on_gap == "fail":
            raise OffsetMismatch(f"{text}; option onGap=report goes on with those")
        _log.warning("%s", text)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's messages."""
        return read_partition(self._options, self._schema, partition)

    def commit(self, end: Offset) -> None:
        """Nothing is kept for a batch that is done."""

    def stop(self) -> None:
        """The query ended."""
        if self._origin is not None:
            self._origin.close()

    def _refreshed(self) -> Origin:
        if self._origin is None:
            self._origin = open_origin(self._options)
        self._origin.refresh()
        return self._origin


def _first_seq(start: Place | None, end: Place) -> int:
    """The first sequence of the batch between two places.

    Before anything was read, that is where the query begins. The end knows: when a first batch is run again, Spark asks
    for its start anew, and the stream has gone on.
    """
    if start is not None and ("startSeq" not in end or start["seq"] >= start.get("startSeq", 0)):
        return start["seq"] + 1
    return end.get("startSeq", 1)


def _check_identity(origin: Origin, stream: str, place: Place) -> None:
    """A checkpoint must belong to the stream that is there."""
    last_seq = origin.bounds(stream).last_seq
    if place["seq"] > last_seq:
        raise OffsetMismatch(
            f"the checkpoint has read stream {stream} up to sequence {place['seq']}, and it ends at {last_seq}: it is "
            "another stream or was made anew; begin with a new checkpoint"
        )
    found = origin.identity(stream, place["seq"])
    if place["id"] and found and found != place["id"]:
        raise OffsetMismatch(
            f"the checkpoint belongs to another stream than the {stream} that is there now ({place['id']} at sequence "
            f"{place['seq']}, found {found}); begin with a new checkpoint"
        )

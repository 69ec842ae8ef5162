"""Streaming reads: micro-batches that are ranges of sequences.

An offset is what has been read, for each stream, in JSON that a person can read:

    {"ORDERS": {"seq": 1200, "id": "5be1...", "msgs": 200, "missed": 0}}

`seq` is the last sequence of the batches so far, `id` tells the stream from another of the same name
(`Origin.identity`), `msgs` is how many messages the batch that ends here holds, and `missed` how many were removed or
damaged before they could be read, since the query began. A batch that is run again after a failure has the same
offsets, so it reads the same range; that it also reads the same messages is checked by their number.

A range is always cut into tasks in the same way, so that what a task writes is the same the second time too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TypedDict

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from jetlake.spark.errors import BadOption, NoStream, OffsetMismatch
from jetlake.spark.options import Options, parse_time_ns
from jetlake.spark.origin import Origin, open_origin
from jetlake.spark.schema import RowBuilder
from jetlake.spark.source import read_partition
from jetlake.store.sequence_set import SequenceSet

_log = logging.getLogger("jetlake.spark")


class Place(TypedDict):
    """How far a stream has been read."""

    seq: int
    id: str
    msgs: int | None
    missed: int


Offset = dict[str, Place]


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read."""

    def __init__(self, options: Options, schema: StructType) -> None:
        RowBuilder(schema, options)  # says what is wrong with it before anything is read
        if options.end_seq is not None or options.end_time:
            raise BadOption("endSeq and endTime are for batch reads; a streaming read goes on")
        # A range's first messages are not filtered by time: where to begin is part of the first offset.
        self._start_seq, self._start_time = options.start_seq, options.start_time
        self._options = replace(options, start_seq=None, start_time="")
        self._schema = schema
        self._origin: Origin | None = None
        self._target: dict[str, int] | None = None  # AvailableNow: read no further

    def initialOffset(self) -> Offset:
        """Where a new query begins."""
        origin = self._refreshed()
        return {stream: self._first_place(origin, stream) for stream in origin.streams()}

    def _first_place(self, origin: Origin, stream: str) -> Place:
        first_seq, last_seq = origin.bounds(stream)
        if self._start_seq is not None:
            seq = max(self._start_seq, first_seq) - 1
        elif self._start_time:
            seq = origin.seq_at(stream, parse_time_ns(self._start_time)) - 1
        else:
            seq = last_seq if self._options.start == "latest" else first_seq - 1
        seq = min(seq, last_seq)
        return Place(seq=seq, id=origin.identity(stream, seq), msgs=0, missed=0)

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

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch; the same offset when there is nothing new."""
        origin = self._refreshed()
        streams = origin.streams()
        for stream in start:
            if stream not in streams:
                raise NoStream(f"stream {stream} is no longer there, and the checkpoint of this query reads from it")
        places: Offset = {}
        for stream in streams:
            first_seq = origin.bounds(stream).first_seq
            places[stream] = start.get(stream) or Place(seq=first_seq - 1, id="", msgs=0, missed=0)
        end = self._advance_all(origin, places, *self._limits(limit))
        return {stream: end[stream] for stream in streams}

    def _advance_all(self, origin: Origin, places: Offset, rows: int | None, size: int | None) -> Offset:
        """Share a limit out evenly; what streams with little to read leave over goes to those with more."""
        end: Offset = {}
        by_backlog = sorted(places, key=lambda stream: origin.bounds(stream).last_seq - places[stream]["seq"])
        for number, stream in enumerate(by_backlog):
            left, place = len(places) - number, places[stream]
            end[stream] = self._advance(origin, stream, place, rows and -(-rows // left), size and -(-size // left))
            if rows is not None and end[stream] != place:
                rows = max(rows - (end[stream]["msgs"] or 0), 0)
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
        if place["seq"] >= last_seq or rows == 0:
            return place
        missed, start_seq = place["missed"], place["seq"] + 1
        if first_seq > start_seq:
            gone = SequenceSet([(start_seq, min(first_seq - 1, last_seq))])
            origin.losses(stream).gone(gone)
            missed += gone.count
        end_seq = min(origin.limit(stream, start_seq, rows, size), last_seq)
        missed += origin.report_lost(stream, start_seq, end_seq)
        count = origin.count(stream, start_seq, end_seq)
        return Place(seq=end_seq, id=origin.identity(stream, end_seq), msgs=count, missed=missed)

    def reportLatestOffset(self) -> Offset | None:
        """How far the streams go, for the query's progress."""
        if self._origin is None:
            return None
        return {
            stream: Place(seq=self._origin.bounds(stream).last_seq, id="", msgs=None, missed=0)
            for stream in self._origin.streams()
        }

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """What each task reads of a micro-batch."""
        origin = self._origin if self._origin is not None else self._refreshed()
        tasks: list[InputPartition] = []
        for stream, place in end.items():
            first_seq = start[stream]["seq"] + 1 if stream in start else 1
            if place["seq"] < first_seq:
                continue
            _check_identity(origin, stream, place)
            self._check_same(origin, stream, first_seq, place)
            for seq in range(first_seq, place["seq"] + 1, self._options.partition_rows):
                last_seq = min(seq + self._options.partition_rows - 1, place["seq"])
                tasks.append(origin.plan_range(stream, seq, last_seq))
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

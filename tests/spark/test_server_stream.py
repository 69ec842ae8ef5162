"""Streaming reads from a live server, without a JVM: the same on ours and on nats-server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from jetlake.spark.stream_reader import JetStreamStreamReader
from jetlake.table.options import parse_options
from tests.table.servers import LiveServer

SCHEMA = StructType().add("seq", LongType(), False).add("subject", StringType(), False)
SCHEMA = SCHEMA.add("payload", BinaryType(), False)


@pytest.fixture(scope="module", params=["jetlake", "nats-server"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(str(request.param), tmp_path_factory.mktemp("live")) as server:
        yield server


def test_a_streaming_read_goes_on_where_it_was(server: LiveServer) -> None:
    server.make_stream("FLOW", ["flow.>"])
    server.publish([("flow.a", b"%d" % number, b"") for number in range(30)])
    options = {"url": server.url, "stream": "FLOW", "maxRowsPerTrigger": "25"}
    reader = JetStreamStreamReader(parse_options(options), SCHEMA)
    start = reader.initialOffset()
    ends = [start]
    while (end := reader.latestOffset(ends[-1], reader.getDefaultReadLimit())) != ends[-1]:
        ends.append(end)
    assert [end["FLOW"]["seq"] for end in ends] == [0, 25, 30]
    tasks = [task for first, last in pairwise(ends) for task in reader.partitions(first, last)]
    found = [seq for task in tasks for batch in reader.read(task) for seq in batch.column("seq").to_pylist()]
    assert found == list(range(1, 31))
    reader.stop()
    with server.connect() as link:
        link.api("STREAM.DELETE.FLOW")
    server.make_stream("FLOW", ["flow.>"])
    server.publish([("flow.a", b"", b"")] * 40)
    with pytest.raises(Exception, match="belongs to another stream"):
        JetStreamStreamReader(parse_options(options), SCHEMA).latestOffset(ends[-1], reader.getDefaultReadLimit())


def test_a_start_that_is_not_reached_yet_is_waited_for(server: LiveServer) -> None:
    server.make_stream("AHEAD", ["ahead.>"])
    server.publish([("ahead.a", b"", b"")] * 10)
    found = []
    for options in ({"startSeq": "15"}, {"startTime": "2200-01-01"}):
        reader = JetStreamStreamReader(parse_options({"url": server.url, "stream": "AHEAD", **options}), SCHEMA)
        start = reader.initialOffset()
        server.publish([("ahead.a", b"", b"")] * 8)
        tasks = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
        found.append([seq for task in tasks for batch in reader.read(task) for seq in batch.column("seq").to_pylist()])
        reader.stop()
    assert found == [[15, 16, 17, 18], []]


def test_limits_are_shared_by_several_streams(server: LiveServer) -> None:
    for name in ("MANY-1", "MANY-2"):
        server.make_stream(name, [f"{name}.>"])
        server.publish([(f"{name}.a", b"x" * 100, b"")] * 30)
    average = 100 + len("MANY-1.a") + 30
    for limit in ({"maxRowsPerTrigger": "20"}, {"maxBytesPerTrigger": str(20 * average)}):
        reader = JetStreamStreamReader(parse_options({"url": server.url, "stream": "MANY-*", **limit}), SCHEMA)
        ends = [reader.initialOffset()]
        while (end := reader.latestOffset(ends[-1], reader.getDefaultReadLimit())) != ends[-1]:
            ends.append(end)
        reader.stop()
        counts = [sum(place["seq"] for place in end.values()) for end in ends]
        assert counts[-1] == 60 and max(b - a for a, b in pairwise(counts)) <= 20

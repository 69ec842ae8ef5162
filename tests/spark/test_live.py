"""Spark and a live server together: the same stream by url and by path, results written back, stores handed over."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from jetlake.spark import read, read_stream
from tests.spark.versions import at_most, forget_last_commit
from tests.table.servers import LiveServer
from tests.table.streams import order, order_messages

COUNT = 400


@pytest.fixture(scope="module", params=["jetlake", "nats-server"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(str(request.param), tmp_path_factory.mktemp("live")) as server:
        server.make_stream("ORDERS")
        server.publish(order_messages(COUNT))
        yield server


def test_a_stream_is_the_same_table_by_url_and_by_path(spark: Any, server: LiveServer) -> None:
    by_url = read(spark, url=server.url, stream="ORDERS", partitionRows=150).orderBy("seq").collect()
    assert [row.seq for row in by_url] == list(range(1, COUNT + 1))
    assert by_url[9].headers == {"Trace": ["a", "b"], "Kind": ["order"]} and bytes(by_url[9].payload) == order(10)
    if server.kind == "jetlake":
        assert read(spark, path=server.store, stream="ORDERS").orderBy("seq").collect() == by_url


def test_conditions_and_json_work_over_the_network(spark: Any, server: LiveServer) -> None:
    frame = read(
        spark,
        where="region = 'eu' AND seq <= 100",
        url=server.url,
        stream="ORDERS",
        subject_tokens="orders.{region}.{shard}",
        payload="json",
        payloadPrefix="p_",
    )
    assert frame.selectExpr("count(*)", "max(p_id)").collect() == [(33, 99)]
    assert server.consumers() == []


def test_a_streaming_query_writes_its_results_back_once(spark: Any, server: LiveServer, tmp_path: Path) -> None:
    into = {"url": server.url, "stream": "SUMS", "subjects": "sums.>"}

    def run() -> None:
        stream = read_stream(spark, url=server.url, stream="ORDERS", payload="string", **at_most(150))
        rows = stream.selectExpr("concat('sums.', seq % 5) AS subject", "payload", "headers")
        writer = rows.writeStream.format("jetstream").options(**into).option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination(120)

    run()
    forget_last_commit(tmp_path / "c")
    run()
    back = read(spark, url=server.url, stream="SUMS", payload="string").collect()
    assert sorted(row.payload for row in back) == sorted(order(n).decode() for n in range(1, COUNT + 1))
    assert sum("Kind" in row.headers for row in back) == COUNT // 10
    assert server.consumers() == server.consumers("SUMS") == []


def test_a_wrong_password_is_told(spark: Any, tmp_path: Path) -> None:
    config = 'authorization { user: "ann", password: "right" }'
    with LiveServer("nats-server", tmp_path, config) as server:
        options = {"url": server.url, "stream": "S", "user": "ann", "password": "wrong"}
        with pytest.raises(Exception, match="refused the login: Authorization Violation"):
            read(spark, **options).count()
        frame = spark.createDataFrame([("a", "x")], "subject string, payload string")
        with pytest.raises(Exception, match="refused the login: Authorization Violation"):
            frame.write.format("jetstream").mode("append").options(**options).save()


def test_a_store_that_spark_wrote_is_served(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(1000).selectExpr("concat('made.', id % 4) AS subject", "string(id) AS payload")
    rows.write.format("jetstream").mode("append").option("stream", "MADE").save(str(tmp_path / "store"))
    with LiveServer("jetlake", tmp_path) as server:
        assert server.count("MADE") == 1000
        server.publish([("made.4", b"1000", b"")])
        with pytest.raises(Exception, match="a server is running on"):
            rows.write.format("jetstream").mode("append").option("stream", "MADE").save(str(tmp_path / "store"))
        server.kill(signal.SIGTERM)
    rows.write.format("jetstream").mode("append").option("stream", "MADE").save(str(tmp_path / "store"))
    found = read(spark, path=tmp_path / "store", stream="MADE", payload="string").orderBy("seq").collect()
    assert [int(row.payload) for row in found] == [*range(1001), *range(1000)]

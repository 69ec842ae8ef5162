"""Streams by name in SQL: always fresh, each use its own, and pruned by options in the query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from jetlake.spark import register
from jetlake.table.errors import BadOption, NoStream
from tests.table.streams import add_orders, orders, stream_in


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("names")
    orders(stream_in(root, "ORDERS"), 300).stop()
    orders(stream_in(root, "EVENTS-1"), 20).stop()
    return root


@pytest.fixture
def spark_clean(spark: Any) -> Iterator[Any]:
    yield spark
    spark.sql("DROP DATABASE IF EXISTS jetlake CASCADE")


def answer(spark: Any, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(query).collect()]


def test_streams_have_names(spark_clean: Any, root: Path) -> None:
    spark = spark_clean
    names = register(spark, root, subject_tokens="orders.{region}.{shard}")
    assert names == {"EVENTS-1": "jetlake.EVENTS_1", "ORDERS": "jetlake.ORDERS"}
    joined = "select count(*) from jetlake.ORDERS join jetlake.events_1 using (seq) where orders.region = 'eu'"
    assert answer(spark, joined) == [(6,)]
    assert not list(Path.cwd().glob("spark-warehouse/jetlake*"))


def test_a_filtered_and_a_plain_use_do_not_disturb_each_other(spark_clean: Any, root: Path) -> None:
    spark = spark_clean
    register(spark, root, "ORDERS")
    both = "select count(*), (select count(*) from jetlake.ORDERS where seq > 290) from jetlake.ORDERS where seq < 10"
    assert answer(spark, both) == [(9, 10)]
    assert answer(spark, "select count(*) from jetlake.ORDERS") == [(300,)]


def test_options_make_a_name_of_their_own(spark_clean: Any, root: Path) -> None:
    spark = spark_clean
    register(spark, root, "ORDERS")
    assert register(spark, root, "ORDERS", database="recent", start_seq=291) == {"ORDERS": "recent.ORDERS"}
    both = "select count(*), (select count(*) from jetlake.ORDERS) from recent.ORDERS"
    assert answer(spark, both) == [(10, 300)]
    spark.sql("DROP DATABASE recent CASCADE")


def test_a_query_sees_new_messages(spark_clean: Any, tmp_path: Path) -> None:
    spark = spark_clean
    with orders(stream_in(tmp_path, "LIVE"), 5) as store:
        register(spark, tmp_path, payload="json", payloadPrefix="p_")
        spark.sql("CREATE OR REPLACE TEMPORARY VIEW big AS SELECT * FROM jetlake.LIVE WHERE p_amount > 1")
        assert answer(spark, "select count(*), max(p_id) from jetlake.LIVE") == [(5, 5)]
        add_orders(store, range(6, 9))
        assert answer(spark, "select count(*), max(p_id) from jetlake.LIVE") == [(8, 8)]
        assert answer(spark, "select count(*) from big") == [(4,)]
        assert spark.readStream.table("jetlake.LIVE").isStreaming
        register(spark, tmp_path, payload="string")
        assert answer(spark, "select max(length(payload)) > 10 from jetlake.LIVE") == [(True,)]
    spark.sql("DROP VIEW big")


def test_mistakes_are_said(spark_clean: Any, root: Path, tmp_path: Path) -> None:
    spark = spark_clean
    with pytest.raises(NoStream, match="no stream NONE"):
        register(spark, root, "NONE")
    with pytest.raises(BadOption, match="there is no option startSequence"):
        register(spark, root, startSequence=5)
    register(spark, root, "ORDERS")
    with pytest.raises(Exception, match="option startseq: a name in SQL takes no options"):
        answer(spark, "select count(*) from jetlake.ORDERS with (startSeq = 5)")
    spark.sql("CREATE TABLE jetlake.TAKEN (a INT) USING parquet")
    orders(stream_in(tmp_path, "TAKEN"), 2).stop()
    with pytest.raises(BadOption, match=r"there is a table jetlake\.TAKEN already, which this program has not made"):
        register(spark, tmp_path)
    orders(stream_in(tmp_path, "A-B"), 2).stop()
    orders(stream_in(tmp_path, "A_B"), 2).stop()
    with pytest.raises(BadOption, match=r"streams A-B and A_B would both be jetlake\.A_B"):
        register(spark, tmp_path)

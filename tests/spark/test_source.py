"""Batch reads through Spark: every column, every option, and what is said when something is wrong.

All of it holds in both ways to read: `format("jetstream")` and `jetlake.spark.read`.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from jetlake.spark import read
from jetlake.spark.compat import PLANS_ONCE
from jetlake.spark.source import JetStreamSource
from jetlake.store import FileOptions, FileStore
from tests.crash.workload import ENVELOPES
from tests.table.streams import HEADERS, START_NS, add_orders, order, orders, stream_in

COUNT = 300
Load = Callable[..., Any]  # load(spark, path=..., schema=..., other options)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("spark") / "ORDERS"
    with orders(directory, COUNT):
        yield directory


def load_format(spark: Any, path: Path, schema: str = "", **options: Any) -> Any:
    reader = spark.read.format("jetstream").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(path))


@pytest.fixture(params=["format", "read"])
def load(request: pytest.FixtureRequest) -> Load:
    return load_format if request.param == "format" else read


def seqs(frame: Any) -> list[int]:
    return sorted(row.seq for row in frame.select("seq").collect())


def failure(frame: Any) -> str:
    """What a query that must fail says."""
    with pytest.raises(Exception) as caught:
        (frame() if callable(frame) else frame).collect()
    return str(caught.value)


def test_every_message_is_a_row_with_all_that_was_stored(load: Load, spark: Any, path: Path) -> None:
    rows = {row.seq: row for row in load(spark, path=path).collect()}
    assert sorted(rows) == list(range(1, COUNT + 1))
    row = rows[10]
    assert (row.stream, row.subject, bytes(row.payload)) == ("ORDERS", "orders.us.0", order(10))
    assert row.headers == {"Trace": ["a", "b"], "Kind": ["order"]} and rows[11].headers == {}
    assert row.time_ns == START_NS + 9 * 10**9 and row.size == len(order(10))
    assert row.time.isoformat() == "2026-03-01T00:00:09"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startSeq": 10, "endSeq": 12}, [10, 11, 12]),
        ({"subject": "orders.eu.0,orders.*.1", "endSeq": 31}, [1, 11, 21, 30, 31]),
        ({"startTime": "2026-03-01T00:00:10Z", "endTime": "2026-03-01T00:00:13Z"}, [11, 12, 13]),
        ({"startSeq": COUNT + 1}, []),
        ({"subject": "nothing.>"}, []),
    ],
)
def test_options_select_exactly(
    load: Load, spark: Any, path: Path, options: dict[str, Any], expected: list[int]
) -> None:
    assert seqs(load(spark, path=path, **options)) == expected


def test_only_some_columns_are_read(load: Load, spark: Any, path: Path) -> None:
    assert load(spark, path=path, columns="subject,seq").columns == ["subject", "seq"]
    assert load(spark, path=path, schema="seq LONG, headers MAP<STRING, ARRAY<STRING>>").where(
        "seq = 10"
    ).collect() == [(10, {"Trace": ["a", "b"], "Kind": ["order"]})]
    assert load(spark, path=path, columns="stream").distinct().collect() == [("ORDERS",)]


def test_tokens_are_columns(load: Load, spark: Any, path: Path) -> None:
    frame = load(spark, path=path, subject_tokens="orders.{region}.{shard}")
    counts = {row.region: row["count"] for row in frame.groupBy("region").count().collect()}
    assert counts == {"eu": 100, "us": 100, "asia": 100}


def test_json_is_typed(load: Load, spark: Any, path: Path) -> None:
    frame = load(spark, path=path, payload="json", payloadSchema="id BIGINT, amount DOUBLE, region STRING")
    assert frame.selectExpr("sum(amount)", "max(id)", "count(_malformed)").collect() == [(11287.5, 300, 0)]
    inferred = load(spark, path=path, payload="json", malformed="fail")
    assert dict(inferred.dtypes)["amount"] == "double" and "_malformed" not in inferred.columns
    assert load(spark, path=path, schema="seq LONG, amount DOUBLE", payload="json").where("seq = 4").collect() == [
        (4, 1.0)
    ]


def test_text_is_text_and_malformed_payloads_are_kept_apart(load: Load, spark: Any, tmp_path: Path) -> None:
    with FileStore(tmp_path / "MIXED") as store:
        for payload in (b'{"id": 1}', b"\xff\xfe", b"not json"):
            store.append("a", payload)
    text = (
        load(spark, path=tmp_path / "MIXED", payload="string").orderBy("seq").select("payload", "_malformed").collect()
    )
    assert [(row[0], row[1] and bytes(row[1])) for row in text] == [
        ('{"id": 1}', None),
        (None, b"\xff\xfe"),
        ("not json", None),
    ]
    parsed = load(spark, path=tmp_path / "MIXED", payload="json", payloadSchema="id INT").orderBy("seq")
    found = [(row.id, row._malformed and bytes(row._malformed)) for row in parsed.collect()]
    assert found == [(1, None), (None, b"\xff\xfe"), (None, b"not json")]
    strict = load(spark, path=tmp_path / "MIXED", payload="json", payloadSchema="id INT", malformed="fail")
    assert "the payload of sequence 2 is not JSON that fits the columns (2 such payloads" in failure(strict)


def test_a_stream_is_read_while_it_is_written_to(load: Load, spark: Any, tmp_path: Path) -> None:
    with orders(tmp_path / "LIVE", 50) as store:
        frame = load(spark, path=tmp_path / "LIVE")
        assert frame.count() == 50
        add_orders(store, range(51, 81))
        store.remove(3)
        store.commit()
        is_planned = PLANS_ONCE or load is read
        assert frame.count() == (50 if is_planned else 79), "the set of messages is fixed when the read is planned"
        assert seqs(load(spark, path=tmp_path / "LIVE")) == [seq for seq in range(1, 81) if seq != 3]


def test_several_streams_of_a_store_are_one_table(load: Load, spark: Any, tmp_path: Path) -> None:
    for name, account in (("A", "$G"), ("B-1", "$G"), ("B-2", "$G"), ("A", "tenant")):
        orders(stream_in(tmp_path, name, account), 5 if account == "tenant" else 20).stop()

    def counts(**options: str) -> dict[str, int]:
        rows = load(spark, path=tmp_path, **options).groupBy("stream").count().collect()
        return {row.stream: row["count"] for row in rows}

    assert counts(stream="A") == {"A": 20}
    assert counts(stream="A, B-*") == {"A": 20, "B-1": 20, "B-2": 20}
    assert counts(stream="A", account="tenant") == {"A": 5}


def test_an_encrypted_and_compressed_stream_is_read_with_its_key(load: Load, spark: Any, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    orders(tmp_path / "SECRET", 50, ENVELOPES["zstd-aes_256_gcm"]).stop()
    assert load(spark, path=tmp_path / "SECRET", keyFile=str(key)).count() == 50
    assert "is encrypted, and no key was given" in failure(lambda: load(spark, path=tmp_path / "SECRET"))


def test_partitions_follow_the_size_that_is_asked_for(load: Load, spark: Any, path: Path) -> None:
    assert load(spark, path=path).rdd.getNumPartitions() == 1
    small = load(spark, path=path, partitionSize=2_000)
    assert small.rdd.getNumPartitions() > 10 and seqs(small) == list(range(1, COUNT + 1))


def test_spark_reads_one_block_of_many(load: Load, spark: Any, path: Path) -> None:
    """Blocks that a selection rules out may be unreadable: nobody looks at them."""
    for options in ({"startSeq": 100, "endSeq": 101}, {"startTime": "2026-03-01T00:04:50Z"}):
        assert load(spark, path=path, partitionSize=1, **options).rdd.getNumPartitions() < 40


@pytest.mark.damages
def test_damage_fails_or_is_reported_and_costs_no_other_message(load: Load, spark: Any, tmp_path: Path) -> None:
    with orders(tmp_path / "D", 100) as store:
        block = store.catalog.blocks[1]
        offset, hit = store.catalog.index(block).offsets[2], block.first_seq + 2
    with (tmp_path / "D" / "000002.blk").open("r+b") as file:
        file.seek(256 + offset + 30)
        file.write(b"\xff\xff")
    said = failure(lambda: load(spark, path=tmp_path / "D"))
    assert f"stream D: 1 messages are damaged, sequences {hit}" in said and "onDamage=report" in said
    assert seqs(load(spark, path=tmp_path / "D", onDamage="report")) == [seq for seq in range(1, 101) if seq != hit]


def test_messages_removed_before_they_were_read_fail_or_are_left_out(load: Load, spark: Any, tmp_path: Path) -> None:
    with orders(tmp_path / "G", 100) as store:
        strict, lax = load(spark, path=tmp_path / "G"), load(spark, path=tmp_path / "G", onGap="report")
        assert strict.count() == lax.count() == 100
        last_of_first = store.catalog.blocks[0].last_seq
        store.compact(last_of_first + 1)
        store.commit()
        if PLANS_ONCE or load is read:
            assert f"sequences 1-{last_of_first}" in failure(strict)
        assert seqs(lax) == list(range(last_of_first + 1, 101))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"startSequence": 3}, "there is no option startSequence"),
        ({"columns": "seq,nothing"}, "there is no column nothing"),
        ({"onGap": "no"}, "option onGap is 'no'"),
    ],
)
def test_a_wrong_option_is_said_at_once(
    load: Load, spark: Any, path: Path, options: dict[str, Any], problem: str
) -> None:
    said = failure(lambda: load(spark, path=path, **options))
    assert problem.lower() in said.lower()  # Spark hands options on in small letters


def test_a_schema_that_does_not_fit_is_refused(load: Load, spark: Any, path: Path) -> None:
    assert "column seq is bigint, not string" in failure(lambda: load(spark, path=path, schema="seq STRING"))
    assert "there is no column other" in failure(lambda: load(spark, path=path, schema="other STRING"))
    assert "bigint" in failure(lambda: load(spark, path=path, schema="bigint"))


def test_what_is_not_there_is_named(load: Load, spark: Any, tmp_path: Path) -> None:
    orders(stream_in(tmp_path, "A"), 1).stop()
    assert re.search("no stream B; there is A", failure(lambda: load(spark, path=tmp_path, stream="B")))
    assert "option stream is missing" in failure(lambda: load(spark, path=tmp_path))
    assert "account x has no streams" in failure(lambda: load(spark, path=tmp_path, stream="A", account="x"))
    assert "there is no such directory" in failure(lambda: load(spark, path=tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    assert "neither a store directory nor a stream's" in failure(lambda: load(spark, path=tmp_path / "empty"))


def test_headers_are_as_they_were(load: Load, spark: Any, tmp_path: Path) -> None:
    with FileStore(tmp_path / "H", options=FileOptions()) as store:
        store.append("a", b"", HEADERS)
        store.append("b", b"", b"NATS/1.0\r\nNats-Msg-Id: \xff\r\n\r\n")
    rows = load(spark, path=tmp_path / "H").orderBy("seq").select("headers", "payload", "size").collect()
    assert rows[0].headers["Trace"] == ["a", "b"] and (bytes(rows[0].payload), rows[0].size) == (b"", 0)
    assert rows[1].headers == {"Nats-Msg-Id": ["?"]}


def test_what_was_inferred_is_kept_for_the_tasks(tmp_path: Path) -> None:
    payloads = [b'{"id": 1, "n": "x"}'] * 1_000 + [b'{"id": "bad"}', b"no", b'{"id": 4, "n": 5}']
    with FileStore(tmp_path / "S") as store:
        for payload in payloads:
            store.append("a", payload)
    source = JetStreamSource({"path": str(tmp_path / "S"), "payload": "json", "columns": "seq,id"})
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert rows[999:] == [{"seq": 1000, "id": 1}] + [{"seq": seq, "id": None} for seq in range(1001, 1004)]

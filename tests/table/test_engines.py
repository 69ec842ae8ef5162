"""DuckDB and Polars over a stream: right answers, only the columns and blocks that a query needs, always fresh."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import jetlake
from jetlake.table.scan import Scan
from tests.table.streams import add_orders, orders
from tests.table.test_scan import COUNT, TOKENS, pieces_read  # noqa: F401  a fixture

CONDITIONS = [
    "seq > 290",
    "seq = 5 or seq = 7",
    "region = 'eu' and seq < 50",
    "subject in ('orders.eu.3', 'orders.us.1')",
    "subject like 'orders.asia.%'",
    "time >= timestamptz '2026-03-01 00:04:00+00'",
    "region is null",
    "size + 1 > 0 and seq between 10 and 20",
    "not (seq > 5)",
    "region <> 'eu' and subject >= 'orders.u'",
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("engines") / "ORDERS"
    orders(directory, COUNT).stop()
    return directory


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str]]:
    """The columns and conditions that engines asked for."""
    found: list[tuple[list[str], str]] = []
    batches = Scan.batches

    def listen(scan: Scan, columns: Any, pushed: str = "", keep: Any = None) -> Any:
        found.append((list(columns), pushed))
        return batches(scan, columns, pushed, keep)

    monkeypatch.setattr(Scan, "batches", listen)
    return found


@pytest.mark.parametrize("condition", CONDITIONS)
def test_duckdb_answers_as_it_does_over_a_table(path: Path, condition: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    scan = jetlake.scan(path, subject_tokens=TOKENS)
    with duckdb.connect() as connection:
        connection.register("plain", scan.to_arrow())
        connection.register("pushed", scan.dataset())
        query = "select count(*), sum(seq), min(subject) from {} where " + condition
        assert connection.sql(query.format("pushed")).fetchall() == connection.sql(query.format("plain")).fetchall()


def test_duckdb_reads_only_what_it_needs(path: Path, asked: Any, pieces_read: list[Any]) -> None:  # noqa: F811
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        relation = jetlake.scan(path).duckdb(connection)
        assert relation.filter("seq > 290").aggregate("count(subject)").fetchall() == [(10,)]
    assert asked == [(["seq", "subject"], "seq > 290")]
    assert len(pieces_read) <= 2


def test_duckdb_sees_new_messages(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with orders(tmp_path / "S", 20) as store, duckdb.connect() as connection:
        relation = jetlake.scan(tmp_path / "S").duckdb(connection)
        assert relation.aggregate("count(*)").fetchall() == [(20,)]
        add_orders(store, range(21, 31))
        assert relation.aggregate("count(*)").fetchall() == [(30,)]


def test_polars_answers_as_it_does_over_a_frame(path: Path) -> None:
    pl = pytest.importorskip("polars")
    scan = jetlake.scan(path, subject_tokens=TOKENS)
    lazy, frame = scan.lazy(), scan.to_polars().lazy()
    seq, subject = pl.col("seq"), pl.col("subject")
    for query in (
        lambda f: f.filter(seq > 290).select("subject"),
        lambda f: f.filter((seq < 50) & (pl.col("region") == "eu")).select(pl.len(), pl.col("size").sum()),
        lambda f: f.filter(subject.str.starts_with("orders.us.")).group_by("shard").len().sort("shard"),
        lambda f: f.filter(seq.is_in([3, 5]) | (seq == 7)).select("seq", "payload"),
        lambda f: f.filter(pl.col("time") >= pl.lit("2026-03-01 00:04:00").str.to_datetime(time_zone="UTC")),
        lambda f: f.head(7),
        lambda f: f.filter(seq > 5).head(3).select("seq"),
        lambda f: f.select(seq.max()),
    ):
        assert query(lazy).collect().equals(query(frame).collect())


def test_polars_reads_only_what_it_needs(path: Path, asked: Any, pieces_read: list[Any]) -> None:  # noqa: F811
    pl = pytest.importorskip("polars")
    lazy = jetlake.scan(path).lazy()
    assert lazy.filter(pl.col("seq") > 290).select(pl.col("size").sum()).collect().item() > 0
    assert asked == [(["seq", "size"], "seq > 290")]
    assert len(pieces_read) <= 2


def test_a_limit_ends_the_read(path: Path, pieces_read: list[Any]) -> None:  # noqa: F811
    pytest.importorskip("polars")
    before = threading.active_count()
    lazy = jetlake.scan(path, partition_size=4000).lazy()
    assert lazy.head(2).collect().height == 2
    assert len(pieces_read) <= 2 + 2 * (os.cpu_count() or 1)
    assert threading.active_count() <= before + 1

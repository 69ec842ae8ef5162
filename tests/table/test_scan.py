"""Streams as tables without Spark: every way to read gives the same rows, always fresh, and prunes where it can."""

from __future__ import annotations

import importlib
import pickle
import sys
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

import jetlake
from jetlake.store import FileStore
from jetlake.store.view import StreamView
from jetlake.table.blocks import PieceReader
from jetlake.table.errors import BadOption, MissingPackage, NoStream
from tests.table.servers import LiveServer
from tests.table.streams import HEADERS, START_NS, add_orders, order, order_messages, orders, stream_in

COUNT = 300
TOKENS = "orders.{region}.{shard}"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("scan") / "ORDERS"
    orders(directory, COUNT).stop()
    return directory


@pytest.fixture
def pieces_read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The pieces of blocks that were opened."""
    found: list[Any] = []
    read = PieceReader.read

    def count(reader: PieceReader, piece: Any) -> Any:
        found.append(piece)
        return read(reader, piece)

    monkeypatch.setattr(PieceReader, "read", count)
    return found


def seqs(table: Any) -> list[int]:
    found: list[int] = table.column("seq").to_pylist()
    return found


def test_a_table_has_every_message_in_order(path: Path) -> None:
    table = jetlake.scan(path).to_arrow()
    assert table.num_rows == COUNT and seqs(table) == list(range(1, COUNT + 1))
    row = table.slice(9, 1).to_pylist()[0]
    assert row["stream"] == "ORDERS" and row["subject"] == "orders.us.0" and row["payload"] == order(10)
    assert dict(row["headers"]) == {"Trace": ["a", "b"], "Kind": ["order"]} and row["size"] == len(order(10))
    assert row["time_ns"] == START_NS + 9 * 10**9 and HEADERS


def test_all_ways_to_read_give_the_same(path: Path) -> None:
    scan = jetlake.scan(path, subject_tokens=TOKENS, columns=["seq", "subject", "region", "size"])
    table = scan.to_arrow()
    assert scan.reader().read_all() == table == pa.table(scan)
    assert scan.dataset().scanner().to_table() == table
    assert table.schema == scan.schema and scan.schema.names == ["seq", "subject", "region", "size"]


def test_a_table_keeps_its_rows_when_more_is_read(path: Path) -> None:
    scan = jetlake.scan(path)
    table, batches = scan.to_arrow(), list(scan.reader())
    for _ in range(3):
        jetlake.scan(path, subject="orders.eu.*").to_arrow()
    assert pa.Table.from_batches(batches) == table
    assert table.column("payload").to_pylist() == [order(number) for number in range(1, COUNT + 1)]


def test_a_scan_is_fresh_with_every_read(tmp_path: Path) -> None:
    with orders(tmp_path / "S", 20) as store:
        scan = jetlake.scan(tmp_path / "S", columns="seq")
        begun = scan.reader()
        assert scan.to_arrow().num_rows == 20
        add_orders(store, range(21, 31))
        assert scan.to_arrow().num_rows == 30
        assert begun.read_all().num_rows == 20, "what it yields was fixed when it began"


def test_a_second_read_looks_only_at_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, scanned = orders(tmp_path / "ORDERS", 100), list[str]()
    scan = jetlake.scan(tmp_path / "ORDERS", columns="seq")
    assert scan.to_arrow().num_rows == 100
    scan_block = StreamView._scan
    monkeypatch.setattr(StreamView, "_scan", lambda *given: scanned.append(given[-1]) or scan_block(*given))
    add_orders(store, [101])
    assert scan.to_arrow().num_rows == 101 and not scanned
    assert jetlake.scan(tmp_path / "ORDERS").to_arrow().num_rows == 101 and scanned
    store.stop()


def test_a_stream_that_was_made_anew_is_read_anew(tmp_path: Path) -> None:
    orders(tmp_path / "ORDERS", 100).stop()
    scan = jetlake.scan(tmp_path / "ORDERS")
    assert scan.to_arrow().num_rows == 100
    rmtree(tmp_path / "ORDERS")
    with pytest.raises(NoStream):
        scan.to_arrow()
    orders(tmp_path / "ORDERS", 90, first=501).stop()
    assert scan.to_arrow().column("payload").to_pylist() == [order(number) for number in range(501, 591)]


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("seq > 290", lambda n: n > 290),
        ("seq between 5 and 9 or seq = 77", lambda n: 5 <= n <= 9 or n == 77),
        ("region = 'eu' and seq <= 30", lambda n: n % 3 == 0 and n <= 30),
        ("region in ('us', 'asia') AND NOT seq < 200", lambda n: n % 3 and n >= 200),
        ("subject LIKE 'orders.us.%' and shard <> '1'", lambda n: n % 3 == 1 and n % 10 != 1),
        ("time >= '2026-03-01 00:04:00'", lambda n: n > 240),
        ("time < TIMESTAMP '2026-03-01T00:01:00Z' AND size > 0", lambda n: n <= 60),
    ],
)
def test_a_condition_keeps_its_rows(path: Path, where: str, wanted: Any) -> None:
    scan = jetlake.scan(path, where=where, subject_tokens=TOKENS, columns="seq")
    assert seqs(scan.to_arrow()) == [n for n in range(1, COUNT + 1) if wanted(n)]
    assert scan.schema.names == ["seq"]


def test_a_condition_rules_out_blocks(path: Path, pieces_read: list[Any]) -> None:
    jetlake.scan(path).to_arrow()
    everything = len(pieces_read)
    pieces_read.clear()
    assert jetlake.scan(path, where="seq > 290").to_arrow().num_rows == 10
    assert everything > 5 and 0 < len(pieces_read) <= 2


def test_a_scan_can_be_handed_to_another_process(path: Path) -> None:
    scan = jetlake.scan(path, where="seq <= 5", columns="seq,subject")
    scan.to_arrow()
    assert pickle.loads(pickle.dumps(scan)).to_arrow() == scan.to_arrow()


def test_options_are_those_of_spark(path: Path, tmp_path: Path) -> None:
    orders(stream_in(tmp_path, "A"), 5).stop()
    orders(stream_in(tmp_path, "B"), 5).stop()
    assert jetlake.scan(tmp_path, "A,B").to_arrow().column("stream").to_pylist() == ["A"] * 5 + ["B"] * 5
    assert seqs(jetlake.scan(path, start_seq=3, endSeq=4).to_arrow()) == [3, 4]
    assert jetlake.scan(path, start_time=datetime(2026, 3, 1, 0, 4, tzinfo=UTC)).to_arrow().num_rows == 60
    fields = jetlake.scan(path, payload="json", payloadPrefix="p_", columns="seq,p_amount", where="p_id = 8").to_arrow()
    assert fields.to_pylist() == [{"seq": 8, "p_amount": 2.0}]
    both = jetlake.scan(path, payload="json", payloadPrefix="p_", columns="payload,p_id", where="seq = 2").to_arrow()
    assert both.to_pylist() == [{"payload": order(2), "p_id": 2}]


def test_mistakes_are_said_before_anything_is_read(path: Path, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="there is no option startSequence"):
        jetlake.scan(path, startSequence=4)
    with pytest.raises(BadOption, match="there is no column nothing"):
        jetlake.scan(path, columns="nothing")
    with pytest.raises(BadOption, match="there is no column nothing; there are stream, seq"):
        jetlake.scan(path, where="nothing = 3")
    with pytest.raises(NoStream, match="there is no such directory"):
        jetlake.scan(tmp_path / "none")


def test_pandas_and_polars_get_frames(path: Path) -> None:
    pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    scan = jetlake.scan(path)
    assert list(scan.to_pandas()["seq"]) == list(range(1, COUNT + 1))
    frame = scan.to_polars()
    assert isinstance(frame, polars.DataFrame) and frame.height == COUNT and frame["payload"][0] == order(1)


def test_without_a_package_the_error_says_what_to_install(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("polars", "duckdb"):
        monkeypatch.setitem(sys.modules, name, None)
    scan = jetlake.scan(path)
    with pytest.raises(MissingPackage, match=r"polars is not installed: pip install 'jetlake\[polars\]'"):
        scan.to_polars()
    with pytest.raises(ImportError, match=r"pip install 'jetlake\[duckdb\]'"):
        scan.duckdb()


def test_without_arrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'jetlake\[arrow\]'"):
        _ = jetlake.scan
    with pytest.raises(AttributeError, match="no attribute other"):
        _ = jetlake.other  # type: ignore[attr-defined]


def test_a_stream_is_read_from_a_server(tmp_path: Path) -> None:
    for kind in ("jetlake", "nats-server"):
        with LiveServer(kind, tmp_path / kind) as server:
            server.make_stream("ORDERS")
            server.publish(order_messages(COUNT))
            scan = jetlake.scan(server.url, "ORDERS", where="seq > 280", partition_rows=7, columns="seq,payload")
            assert scan.to_arrow().to_pydict() == {
                "seq": list(range(281, 301)),
                "payload": [order(number) for number in range(281, 301)],
            }
            assert server.consumers() == []
            with pytest.raises(NoStream, match="there is no stream NONE"):
                jetlake.scan(server.url, "NONE")


def test_damage_fails_a_read_of_many_tasks(tmp_path: Path) -> None:
    orders(tmp_path / "S", 300).stop()
    block = sorted((tmp_path / "S").glob("*.blk"))[3]
    data = bytearray(block.read_bytes())
    data[2000] ^= 0xFF
    block.write_bytes(data)
    with pytest.raises(Exception, match="damaged"):
        jetlake.scan(tmp_path / "S", partition_size=4000).to_arrow()
    with pytest.raises(Exception, match="damaged"):
        jetlake.scan(tmp_path / "S", partition_size=4000).reader().read_all()
    assert 290 < jetlake.scan(tmp_path / "S", on_damage="report").to_arrow().num_rows < 300


def test_an_empty_stream_is_an_empty_table(tmp_path: Path) -> None:
    FileStore(tmp_path / "S").stop()
    scan = jetlake.scan(tmp_path / "S")
    assert scan.to_arrow().num_rows == 0 and scan.to_arrow().schema == scan.schema
    assert scan.reader().read_all().num_rows == 0

"""`jetlake sql` with DuckDB: answers in a second, as a table or JSON, and again as messages arrive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from typer.testing import CliRunner

from jetlake.cli import sql as command
from jetlake.cli.app import app
from tests.crash.workload import ENVELOPES
from tests.table.servers import LiveServer
from tests.table.streams import add_orders, order_messages, orders, stream_in

TOKENS = "orders.{region}.{shard}"


def run(*arguments: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["sql", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def root(tmp_path: Path) -> Path:
    orders(stream_in(tmp_path, "ORDERS"), 300).stop()
    orders(stream_in(tmp_path, "EVENTS-1"), 20).stop()
    return tmp_path


def test_a_query_is_answered_without_spark(root: Path) -> None:
    query = "select region, count(*) n, sum(seq) s from orders group by 1 order by 1"
    found = json.loads(run(root, query, "--tokens", TOKENS, "--json"))
    assert found[1] == {"region": "eu", "n": 100, "s": sum(range(3, 301, 3))}
    assert "100" in run(root, query, "--tokens", TOKENS, "--engine", "duckdb")


def test_names_may_be_quoted_as_in_spark(root: Path) -> None:
    assert json.loads(run(root, "select count(*) n from ORDERS join `EVENTS-1` using (seq)", "--json")) == [{"n": 20}]
    text = run(root, """select '`it''s`' x from "EVENTS-1" limit 1""", "--json")
    assert json.loads(text) == [{"x": "`it's`"}]


def test_every_type_is_printed_as_json(root: Path) -> None:
    columns = "seq, time, headers, payload, 'NaN'::double x, [1.5, 'inf'::double] y"
    (row,) = json.loads(run(root, f"select {columns} from ORDERS where seq = 10", "--json"), parse_constant=pytest.fail)
    assert row["time"] == "2026-03-01 00:00:09" and row["headers"] == {"Trace": ["a", "b"], "Kind": ["order"]}
    assert json.loads(row["payload"])["id"] == 10 and row["x"] is None and row["y"] == [1.5, None]
    assert run(root, "select * from ORDERS where seq < 0", "--json") == "[]\n"


def test_a_table_has_the_first_rows(root: Path) -> None:
    shown = run(root, "select a.seq from ORDERS a, ORDERS b")
    assert "only the first 1000 rows are shown" in shown and len(shown.splitlines()) < 1010


def test_a_stream_that_cannot_be_read_is_in_nobodys_way(root: Path) -> None:
    orders(stream_in(root, "SECRET"), 20, ENVELOPES["zstd-aes_256_gcm"]).stop()
    assert json.loads(run(root, "select count(*) n from ORDERS", "--json")) == [{"n": 300}]
    assert "is encrypted, and no key was given" in run(root, "select count(*) n from SECRET", code=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["select nope from ORDERS"], 'Referenced column "nope" not found'),
        (["select * from nope"], "nope does not exist"),
        (["selec 1"], "syntax error"),
        (["select 1", "-o", "startSequence=5"], "there is no option startSequence"),
        (["select 1", "--stream", "NONE"], "no stream NONE; there is EVENTS-1, ORDERS"),
        (["select 1", "--engine", "sqlite"], "--engine is 'sqlite', not duckdb or spark"),
        (["select 1", "--engine", "duckdb", "--master", "local"], "--master and --remote are for --engine spark"),
        (["select 1", "--engine", "spark", "--stream", "NONE"], "no stream NONE"),
    ],
)
def test_errors_are_one_line(root: Path, arguments: list[str], said: str) -> None:
    output = run(root, *arguments, code=2)
    assert said in output and output.startswith("jetlake: ") and len(output.splitlines()) == 1


def test_variables_of_python_are_no_tables(root: Path) -> None:
    assert "does not exist" in run(root, "select * from arguments", code=2)


def test_watching_answers_again_when_messages_arrive(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, looks = orders(root / "LIVE", 5), []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            add_orders(store, [6])
        if len(looks) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "sleep", sleep)
    output = run(root / "LIVE", "select count(*) n from LIVE", "--watch", "--interval", "0.25", "--json")
    store.stop()
    assert [json.loads(line) for line in output.splitlines()] == [[{"n": 5}], [{"n": 6}]]
    assert looks == [0.25] * 4


def test_a_server_can_be_asked_and_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LiveServer("jetlake", tmp_path) as server:
        server.make_stream("ORDERS")
        server.publish(order_messages(30))
        looks = []

        def sleep(seconds: float) -> None:
            looks.append(seconds)
            if len(looks) == 2:
                raise KeyboardInterrupt
            server.publish(order_messages(1))

        monkeypatch.setattr(command, "sleep", sleep)
        output = run(server.url, "select max(seq) n from ORDERS", "--watch", "--json")
        assert [json.loads(line) for line in output.splitlines()] == [[{"n": 30}], [{"n": 31}]]

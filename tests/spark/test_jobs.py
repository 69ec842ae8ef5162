"""Bulk jobs and their commands: what they do to streams, and what they print."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import typer
from typer.testing import CliRunner

from jetlake.cli import compact, export, import_, replay, spark_job, sql, stats, verify_spark
from jetlake.cli.terminal import fail
from jetlake.errors import JetLakeError
from jetlake.spark.errors import BadOption, SparkError
from jetlake.spark.jobs.compact import compact as run_compact
from jetlake.spark.jobs.import_ import messages
from jetlake.spark.jobs.plot import bars
from jetlake.spark.jobs.source import source_options
from jetlake.store import FileStore
from tests.spark.servers import LiveServer
from tests.spark.streams import add_orders, orders, stream_in

TOKENS = "orders.{region}.{shard}"
Run = Callable[..., Any]


@pytest.fixture
def run(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in the tests' own session; what it prints."""

    @contextmanager
    def shared(master: str = "", remote: str = "") -> Iterator[Any]:
        try:
            yield spark
        except JetLakeError as error:
            fail(error)

    app = typer.Typer()
    for module in (stats, export, import_, sql, replay, verify_spark):
        monkeypatch.setattr(module, "spark_session", shared)
    for name, command in {
        "stats": stats.stats,
        "export": export.export,
        "import": import_.import_files,
        "sql": sql.sql,
        "replay": replay.replay,
        "compact": compact.compact,
        "verify-spark": verify_spark.verify_spark,
    }.items():
        app.command(name)(command)

    def invoke(*arguments: Any, code: int = 0) -> str:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == code, (result.output, result.exception)
        return result.output

    return invoke


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store directory with the stream ORDERS of 300 messages."""
    orders(stream_in(tmp_path / "data", "ORDERS"), 300).stop()
    return tmp_path / "data"


def test_sql_answers_from_streams(run: Run, root: Path) -> None:
    orders(stream_in(root, "EVENTS-1"), 20).stop()
    query = "select region, count(*) n from ORDERS group by 1 order by 1"
    found = json.loads(run("sql", root, query, "--tokens", TOKENS, "--json"))
    assert found == [{"region": "asia", "n": 100}, {"region": "eu", "n": 100}, {"region": "us", "n": 100}]
    joined = "select count(*) both from ORDERS join `EVENTS-1` using (seq)"
    assert "20" in run("sql", root, joined)


def test_stats_count_by_subject_and_time(run: Run, root: Path) -> None:
    found = json.loads(run("stats", root, "-s", "ORDERS", "--tokens", "orders.{region}.*", "--bucket", "1m", "--json"))
    assert {group["region"]: group["messages"] for group in found["groups"]} == {"eu": 100, "us": 100, "asia": 100}
    assert [bar["messages"] for bar in found["times"]] == [60, 60, 60, 60, 60]
    text = run("stats", root, "-s", "ORDERS", "--where", "seq <= 90", "--bucket", "1m")
    assert "orders" in text and "2026-03-01 00:00 ████" in text and text.rstrip().endswith("30")
    orders(stream_in(root, "EVENTS"), 20).stop()
    text = run("stats", root, "-s", "ORDERS,EVENTS", "--where", "seq <= 20", "--bucket", "10s")
    assert "EVENTS 2026-03-01 00:00:10 ████" in text and "ORDERS 2026-03-01 00:00:10 ████" in text


def test_bars_are_as_long_as_their_numbers() -> None:
    assert bars([("a", 8), ("bb", 4), ("c", 0)], 4) == ["a  ████ 8", "bb ██   4", "c       0"]
    assert bars([]) == []


def test_export_is_partitioned_and_goes_on_where_it_ended(run: Run, spark: Any, root: Path, tmp_path: Path) -> None:
    arguments = ("export", root, tmp_path / "out", "-s", "ORDERS", "--tokens", TOKENS, "--partition-by", "region,date")
    assert json.loads(run(*arguments, "--json"))["messages"] == 300
    assert (tmp_path / "out" / "region=eu" / "date=2026-03-01").is_dir()
    with FileStore(next((root / "jetstream").glob("*/streams/ORDERS/msgs")), autocommit=False) as store:
        add_orders(store, range(301, 321))
    assert "20 messages exported" in run(*arguments) and "ORDERS up to 320" in run(*arguments)
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row.seq for row in frame.select("seq").collect()) == list(range(1, 321))


def test_export_to_csv_has_text_only(run: Run, spark: Any, root: Path, tmp_path: Path) -> None:
    run("export", root, tmp_path / "csv", "-s", "ORDERS", "--format", "csv", "-o", "maxRowsPerTrigger=200")
    rows = spark.read.option("header", True).csv(str(tmp_path / "csv")).where("seq = 10").collect()
    assert json.loads(rows[0].headers) == {"Trace": ["a", "b"], "Kind": ["order"]}
    assert "is not parquet or csv" in run("export", root, tmp_path / "x", "-s", "ORDERS", "--format", "xml", code=2)
    assert "no column region" in run("export", root, tmp_path / "x", "-s", "ORDERS", "--partition-by", "region", code=2)


def test_delta_that_is_not_there_is_told(run: Run, root: Path, tmp_path: Path) -> None:
    said = run("export", root, tmp_path / "delta", "-s", "ORDERS", "--format", "delta", code=2)
    assert "Spark has no Delta here" in said and "io.delta:delta-spark" in said


def test_import_makes_messages_of_rows(run: Run, spark: Any, tmp_path: Path) -> None:
    spark.range(50).selectExpr("id", "concat('r', id % 2) region").write.parquet(str(tmp_path / "in.parquet"))
    subject = ("--subject", "got.{region}.{id}")
    assert "50 messages imported" in run("import", tmp_path / "in.parquet", tmp_path / "d", "-s", "GOT", *subject)
    found = json.loads(run("sql", tmp_path / "d", "select subject, payload from GOT where seq = 8", "--json"))
    assert found[0]["subject"].startswith("got.r") and set(json.loads(found[0]["payload"])) == {"id", "region"}
    (tmp_path / "in.jsonl").write_text('{"subject": "a", "payload": "x"}\n{"subject": "b", "payload": "y"}\n')
    assert json.loads(run("import", tmp_path / "in.jsonl", tmp_path / "d", "-s", "TWO", "--json")) == {"messages": 2}
    (tmp_path / "in.csv").write_text("id,name\n1,x\n")
    assert "1 messages" in run("import", tmp_path / "in.csv", tmp_path / "d", "-s", "CSV", "--subject", "csv.{id}")
    assert "no column subject" in run("import", tmp_path / "in.csv", tmp_path / "d", "-s", "NO", code=2)
    assert "no column other" in run("import", tmp_path / "in.csv", tmp_path / "d", "--subject", "{other}", code=2)
    assert "format 'txt' is not" in run("import", tmp_path / "in.txt", tmp_path / "d", code=2)


def test_an_export_can_be_imported_again(run: Run, spark: Any, root: Path, tmp_path: Path) -> None:
    run("export", root, tmp_path / "out", "-s", "ORDERS")
    run("import", tmp_path / "out", tmp_path / "again", "-s", "ORDERS", "--format", "parquet")
    keep = "subject, payload, time_ns, headers['Kind'] kind"
    query = f"select {keep} from ORDERS order by time_ns"
    assert run("sql", root, query, "--json") == run("sql", tmp_path / "again", query, "--json")


def test_messages_for_a_live_server_have_no_time(spark: Any) -> None:
    frame = spark.createDataFrame([("a", "x", 5)], "subject string, payload string, time_ns long")
    assert messages(frame).columns == ["subject", "payload", "time_ns"]
    assert messages(frame, is_live=True).columns == ["subject", "payload"]


def test_replay_keeps_order_under_new_subjects(run: Run, root: Path, tmp_path: Path) -> None:
    arguments = ("replay", root, tmp_path / "to", "-s", "ORDERS", "--into", "AGAIN", "--where", "seq BETWEEN 11 AND 30")
    assert "20 messages replayed" in run(*arguments, "--to", "test.{subject}.x")
    query = "select subject, payload from AGAIN order by seq"
    found = json.loads(run("sql", tmp_path / "to", query, "--json"))
    assert [json.loads(row["payload"])["id"] for row in found] == list(range(11, 31))
    assert found[0]["subject"] == "test.orders.asia.1.x"
    assert "has no {subject}" in run(*arguments, "--to", "test", code=2)
    assert "a rate is for a live server" in run(*arguments, "--rate", "5", code=2)


def test_replay_into_a_server_keeps_a_rate(run: Run, root: Path, tmp_path: Path) -> None:
    import time

    with LiveServer("nats-server", tmp_path / "server") as server:
        server.make_stream("R", ["replay.>"])
        started = time.monotonic()
        run("replay", root, server.url, "-s", "ORDERS", "--into", "R", "--where", "seq <= 30", "--rate", "20")
        assert time.monotonic() - started > 29 / 20
        assert server.count("R") == 30


def test_compact_gives_room_back_and_refuses_a_running_server(run: Run, root: Path) -> None:
    msgs = next((root / "jetstream").glob("*/streams/ORDERS/msgs"))
    with FileStore(msgs) as store:
        for seq in range(1, 200, 2):
            store.remove(seq)
        with pytest.raises(SparkError, match="a server is using it"):
            run_compact(str(root))
    (result,) = json.loads(run("compact", root, "--json"))
    assert result["blocks"] > 0 and result["size_after"] < result["size_before"]
    assert "ORDERS: 0 blocks written anew" in run("compact", root, "--dead", "0.9")
    assert "no such directory" in run("compact", root / "none", code=2)


@pytest.mark.damages
def test_verify_checks_every_block(run: Run, root: Path) -> None:
    (report,) = json.loads(run("verify-spark", root, "--json"))
    assert report["ok"] and report["messages"] == report["records"] == 300 and report["blocks"] > 5
    assert "ok: 300 messages" in run("verify-spark", root)
    block = sorted((root / "jetstream").glob("*/streams/ORDERS/msgs/*.blk"))[1]
    with block.open("r+b") as file:
        file.seek(300)
        file.write(b"\xff\xff\xff")
    text = run("verify-spark", root, code=1)
    assert "DAMAGED" in text and "checksum" in text and "000002.blk" in text
    (root / "empty").mkdir()
    assert "no stream is stored here" in run("verify-spark", root / "empty", code=2)


def test_places_are_told_apart() -> None:
    assert source_options("nats://h", "S") == {"url": "nats://h", "stream": "S"}
    assert source_options("/data", "S", "a", ("onGap=report",)) == {
        "path": "/data",
        "stream": "S",
        "account": "a",
        "onGap": "report",
    }
    with pytest.raises(BadOption, match="'x' is not an option like"):
        source_options("/data", more=("x",))


class Fake:
    """A session that only ends."""

    stopped = 0

    def stop(self) -> None:
        self.stopped += 1


def test_a_command_runs_where_it_is_told_and_ends_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, asked = Fake(), []
    monkeypatch.setattr("jetlake.spark.spark_session.session", lambda **given: asked.append(given) or fake)
    with spark_job.spark_session("spark://host:7077") as spark:
        assert spark is fake
    with spark_job.spark_session(remote="sc://host:15002"):
        pass
    assert [(given["master"], given["remote"]) for given in asked] == [
        ("spark://host:7077", ""),
        ("", "sc://host:15002"),
    ]
    with pytest.raises(typer.Exit) as ended, spark_job.spark_session():
        raise BadOption("no")
    assert ended.value.exit_code == 2 and fake.stopped == 3


def test_spark_shows_its_progress_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spark_job._progress_conf() == {}
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert spark_job._progress_conf() == {"spark.ui.showConsoleProgress": "true"}


def test_an_error_of_a_worker_is_told_in_its_own_words() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  File x\n    y\n"
        "jetlake.spark.errors.NoStream: /data: there is no such directory\n SQLSTATE: 38000"
    )
    assert spark_job._last_line(text) == "/data: there is no such directory"
    assert spark_job._last_line("[X] wrong\n  at y") == "[X] wrong"

"""Bulk jobs and their commands: what they do to streams, and what they print."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import typer
from typer.testing import CliRunner

from jetlake.cli import compact, export, import_, replay, spark_job, sql, stats, verify
from jetlake.config.options import JetStreamOptions, ServerOptions
from jetlake.spark.errors import SparkError
from jetlake.spark.jobs.compact import compact as run_compact
from jetlake.spark.jobs.export import Exported, _finish
from jetlake.spark.jobs.import_ import messages
from jetlake.spark.jobs.plot import bars
from jetlake.store import Cipher, FileOptions, FileStore, KeySource
from jetlake.table.errors import BadOption
from jetlake.table.place import source_options
from jetlake.testing.clock import FakeClock
from tests.crash.workload import ENVELOPES
from tests.jetstream.harness import FakeHost, InProcess
from tests.spark.versions import at_most
from tests.table.servers import LiveServer
from tests.table.streams import START_NS, add_orders, orders, stream_in

TOKENS = "orders.{region}.{shard}"
NASTY = [b"  x ", b'say "hi"', b"a, b", b"two\nlines", b"two\r\nlines", b"", b"007", b"\xff\x00", b"\\", b'{"a": 1}']
TWO_HEADERS = b"NATS/1.0\r\nKind: a\r\nkind: b, c\r\nkind: d\r\n\r\n"
LIMIT = [word for name, rows in at_most(200).items() for word in ("-o", f"{name}={rows}")]
Run = Callable[..., Any]


@pytest.fixture
def run(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in the tests' own session; what it prints."""

    monkeypatch.setattr("jetlake.spark.spark_session.session", lambda **given: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    app = typer.Typer()
    for name, command in {
        "stats": stats.stats,
        "export": export.export,
        "import": import_.import_files,
        "sql": sql.sql,
        "replay": replay.replay,
        "compact": compact.compact,
        "verify": verify.verify,
    }.items():
        app.command(name)(command)

    def invoke(*arguments: Any, code: int = 0) -> str:
        engine = ["--engine", "spark"] if arguments[0] == "sql" else []
        result = CliRunner().invoke(app, [*map(str, arguments), *engine])
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


def test_sql_is_not_kept_from_a_stream_by_another_that_cannot_be_read(run: Run, root: Path) -> None:
    orders(stream_in(root, "SECRET"), 20, ENVELOPES["zstd-aes_256_gcm"]).stop()
    assert json.loads(run("sql", root, "select count(*) n from ORDERS", "--json")) == [{"n": 300}]
    assert "is encrypted, and no key was given" in run("sql", root, "select count(*) n from SECRET", code=2)


def test_sql_prints_every_row_as_json_that_is_json(run: Run, root: Path) -> None:
    query = "select id, if(id = 7, double('NaN'), 1.5) x, array(double('-Infinity')) y from range(1200) order by id"
    found = json.loads(run("sql", root, query, "--json"), parse_constant=pytest.fail)
    assert [row["id"] for row in found] == list(range(1200))
    assert (found[7]["x"], found[8]["x"], found[8]["y"]) == (None, 1.5, [None])
    assert run("sql", root, "select * from ORDERS where seq < 0", "--json") == "[]\n"


def test_errors_are_one_line(run: Run, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for arguments, said in [
        (("sql", root, "select * from nope"), "`nope` cannot be found"),
        (("sql", root, "select count(*) from ORDERS", "-o", "keyFile=/none"), "/none: the key file cannot be read"),
        (("stats", root, "-s", "ORDERS", "--where", "nope > 3"), "`nope` cannot be resolved"),
        (("stats", root, "-s", "ORDERS", "-o", "columns=seq"), "not with the option columns"),
        (("stats", root, "-s", "ORDERS", "--bucket", "1w"), "'1w' is not a length of time like 10s"),
        (("stats", root, "-s", "ORDERS", "--bucket", ""), "'' is not a length of time"),
    ]:
        text = run(*arguments, code=2)
        assert said in text and text.count("\n") == 1, text
    assert capfd.readouterr().err == ""


def test_stats_count_by_subject_and_time(run: Run, root: Path) -> None:
    found = json.loads(run("stats", root, "-s", "ORDERS", "--tokens", "orders.{region}.*", "--bucket", "1m", "--json"))
    assert {group["region"]: group["messages"] for group in found["groups"]} == {"eu": 100, "us": 100, "asia": 100}
    assert [bar["messages"] for bar in found["times"]] == [60, 60, 60, 60, 60]
    text = run("stats", root, "-s", "ORDERS", "--where", "seq <= 90", "--bucket", "1m")
    assert "orders" in text and "2026-03-01 00:00 ████" in text and text.rstrip().endswith("30")
    orders(stream_in(root, "EVENTS"), 20).stop()
    text = run("stats", root, "-s", "ORDERS,EVENTS", "--where", "seq <= 20", "--bucket", "10s")
    assert "EVENTS 2026-03-01 00:00:10 ████" in text and "ORDERS 2026-03-01 00:00:10 ████" in text
    found = json.loads(run("stats", root, "-s", "ORDERS", "--where", "length(PAYLOAD) > 3 AND seq < 5", "--json"))
    assert found["groups"][0]["messages"] == 4
    options = ("-o", "payload=json", "-o", "payloadPrefix=p_")
    found = json.loads(run("stats", root, "-s", "ORDERS", *options, "--where", "p_amount <= 2", "--json"))
    assert found["groups"][0]["messages"] == 8


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


class Query:
    """A query that makes 60 batches of two messages while it is waited for, three times, and remembers 100."""

    made = 0

    def awaitTermination(self, timeout: float) -> bool:
        self.made += 60
        return self.made == 180

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        source = [{"endOffset": '{"S": {"seq": 9}}'}]
        return [{"batchId": number, "numInputRows": 2, "sources": source} for number in range(self.made)][-100:]

    @property
    def lastProgress(self) -> dict[str, Any]:
        return self.recentProgress[-1]


def test_an_export_counts_more_batches_than_a_query_remembers() -> None:
    assert _finish(Query()) == Exported(360, 180, {"S": {"seq": 9}})  # type: ignore[arg-type]


def test_export_to_csv_has_text_only(run: Run, spark: Any, root: Path, tmp_path: Path) -> None:
    run("export", root, tmp_path / "csv", "-s", "ORDERS", "--format", "csv", *LIMIT)
    reader = spark.read.option("header", True).option("escape", '"')
    rows = reader.csv(str(tmp_path / "csv")).where("seq = 10").collect()
    assert json.loads(rows[0].headers) == {"Trace": ["a", "b"], "Kind": ["order"]}
    assert rows[0].time == "2026-03-01T00:00:09.000000Z"
    for format in ("csv", "json"):
        arguments = ("export", root, tmp_path / "x", "-s", "ORDERS", "--format", format, "-o", "payload=binary")
        assert f"{format} holds text" in run(*arguments, code=2)
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


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_exports_come_back_as_the_stream_was(run: Run, tmp_path: Path, format: str) -> None:
    clock, out, again = FakeClock(START_NS + 1), tmp_path / "out", tmp_path / "again"
    for numbers in (range(5), range(5, 6), range(6, 10)):  # three exports, of several days
        with FileStore(stream_in(tmp_path / "data", "S"), clock=clock) as store:
            for number in numbers:
                store.append(f"s.00{number}", NASTY[number], TWO_HEADERS if number % 3 else b"")
                clock.advance(20_000)
        run("export", tmp_path / "data", out, "-s", "S", "--format", format, "--tokens", "s.{n}")
    assert "10 messages" in run("import", out, again, "-s", "S", "--format", format)
    query = "select seq, subject, payload, time_ns, headers from S order by seq"
    assert json.loads(run("sql", again, query, "--json")) == json.loads(run("sql", tmp_path / "data", query, "--json"))


def test_an_exported_csv_is_what_others_call_csv(run: Run, tmp_path: Path) -> None:
    with FileStore(stream_in(tmp_path / "data", "S"), clock=FakeClock(START_NS)) as store:
        for payload in NASTY:
            store.append("s", payload)
    run("export", tmp_path / "data", tmp_path / "out", "-s", "S", "--format", "csv", "--partition-by", "")
    (path,) = (tmp_path / "out").glob("*.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["payload"].encode() for row in rows] == [b"" if b"\xff" in payload else payload for payload in NASTY]


def test_text_is_imported_as_it_stands(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('subject,payload\n007,"a, ""b"""\n08,"x\ny"\n1.5, 010\n')
    run("import", tmp_path / "in.csv", tmp_path / "d", "-s", "S")
    found = json.loads(run("sql", tmp_path / "d", "select subject, payload from S order by seq", "--json"))
    assert [tuple(row.values()) for row in found] == [("007", 'a, "b"'), ("08", "x\ny"), ("1.5", " 010")]
    (tmp_path / "dir" / "region=007").mkdir(parents=True)
    (tmp_path / "dir" / "region=007" / "a.jsonl").write_text('{"payload": "x"}\n')
    run("import", tmp_path / "dir", tmp_path / "d", "-s", "T", "--format", "jsonl", "--subject", "t.{region}")
    assert json.loads(run("sql", tmp_path / "d", "select subject from T", "--json")) == [{"subject": "t.007"}]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.jsonl",
            '{"subject": "a", "payload": "x"}\nnot json\n',
            "a.jsonl: this line is not a JSON object: not json",
        ),
        ("a.jsonl", "not json\n", "a.jsonl: this line is not a JSON object: not json"),
        ("a.jsonl", '{"subject": "a", "payload": "x", "b": 1, "c": 2}\n', "column b, c would be lost"),
        (
            "a.jsonl",
            '{"subject": "a", "payload": "x", "headers": {"A": 1}}\n',
            'like {"Kind": ["order"]}, not {"A": 1}',
        ),
        ("a.csv", "subject,payload\na,b\na,b,c\n", "Malformed CSV record: a,b,c"),
        ("a.csv", "subject,payload,time\na,b,noon\n", "noon"),
    ],
)
def test_files_that_are_not_messages_are_refused(run: Run, tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    told = run("import", tmp_path / name, tmp_path / "d", "-s", "S", code=2)
    assert said in told and told.count("\n") == 1


def test_messages_for_a_live_server_have_no_time(spark: Any) -> None:
    frame = spark.createDataFrame([("a", "x", 5)], "subject string, payload string, time_ns long")
    assert messages(frame).columns == ["subject", "payload", "time_ns"]
    assert messages(frame, is_live=True).columns == ["subject", "payload"]


def test_rows_with_sequences_are_written_in_their_order(spark: Any) -> None:
    rows = spark.range(100).repartition(4).selectExpr("'a' subject", "string(id) payload", "string(id) seq")
    for is_live in (False, True):
        frame = messages(rows, is_live=is_live)
        assert [int(row.payload) for row in frame.collect()] == list(range(100))
    assert frame.rdd.getNumPartitions() == 1


def test_replay_keeps_order_under_new_subjects(run: Run, root: Path, tmp_path: Path) -> None:
    arguments = ("replay", root, tmp_path / "to", "-s", "ORDERS", "--into", "AGAIN", "--where", "seq BETWEEN 11 AND 30")
    assert "20 messages replayed" in run(*arguments, "--to", "test.{subject}.x")
    query = "select subject, payload from AGAIN order by seq"
    found = json.loads(run("sql", tmp_path / "to", query, "--json"))
    assert [json.loads(row["payload"])["id"] for row in found] == list(range(11, 31))
    assert found[0]["subject"] == "test.orders.asia.1.x"
    run("replay", root, tmp_path / "to", "-s", "ORDERS", "--into", "TWICE", "--to", "$K.{subject}.{subject}")
    found = json.loads(run("sql", tmp_path / "to", "select subject from TWICE where seq = 11", "--json"))
    assert found == [{"subject": "$K.orders.asia.1.orders.asia.1"}]
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
        again = ("-s", "R", "--into", "AGAIN", "--to", "again.{subject}", "--target-option", "subjects=again.>")
        assert "30 messages replayed" in run("replay", server.url, server.url, *again)
        assert server.count("AGAIN") == 30


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
    with FileStore(str(next((root / "jetstream").glob("*/streams/ORDERS/msgs")))) as store:
        store.remove(7)
    found = json.loads(run("verify", root, "--spark", "--json"))
    (report,) = found["streams"]
    assert found["ok"] and report["messages"] == 299 and report["records"] == 302 and report["blocks"] > 5
    assert found == json.loads(run("verify", root, "--json"))
    assert "ok: 299 messages" in run("verify", root, "--master", "local[2]")
    block = sorted((root / "jetstream").glob("*/streams/ORDERS/msgs/*.blk"))[1]
    with block.open("r+b") as file:
        file.seek(300)
        file.write(b"\xff\xff\xff")
    text = run("verify", root, "--spark", code=1)
    assert "DAMAGED" in text and "checksum" in text and "000002.blk" in text and "are lost" in text
    assert set(run("verify", root, code=1).splitlines()) <= set(text.splitlines())
    (root / "empty").mkdir()
    assert "no stream is stored here" in run("verify", root / "empty", "--spark", code=2)


@pytest.mark.damages
def test_verify_notices_a_block_of_another_stream(run: Run, root: Path, tmp_path: Path) -> None:
    orders(tmp_path / "OTHER").stop()
    (msgs,) = (root / "jetstream").glob("*/streams/ORDERS/msgs")
    for name in ("000002.blk", "000002.idx"):
        shutil.copy(tmp_path / "OTHER" / name, msgs / name)
    text = run("verify", root, "--spark", code=1)
    assert "000002.blk" in text and "is a block of another stream" in text and "are lost" in text
    assert set(run("verify", root, code=1).splitlines()) == set(text.splitlines())


def test_verify_takes_a_passphrase(run: Run, tmp_path: Path) -> None:
    options = FileOptions(sync="never", cipher=Cipher.CHACHA20_POLY1305, keys=[KeySource.passphrase(b"secret")])
    orders(tmp_path / "S", 20, options).stop()
    (tmp_path / "pass").write_text("secret\n")
    assert "ok: 20 messages" in run("verify", tmp_path / "S", "--spark", "--passphrase-file", tmp_path / "pass")


@pytest.fixture
def sealed(root: Path) -> Path:
    """The store directory, encrypted by a server that was started on it with a passphrase."""
    jetstream = JetStreamOptions(enabled=True, key="open sesame", max_memory=1 << 30, max_store=1 << 30)
    host = FakeHost(options=ServerOptions(server_name="test", jetstream=jetstream))
    InProcess(str(root), host).stop()
    (root / "pass").write_text("open sesame\n")
    return root


def test_the_directory_of_an_encrypted_server_is_read_with_its_passphrase(run: Run, sealed: Path) -> None:
    key = f"passphraseFile={sealed / 'pass'}"
    query = "select count(*) n from ORDERS"
    assert json.loads(run("sql", sealed, query, "-o", key, "--json")) == [{"n": 300}]
    assert "is encrypted, and no key was given" in run("sql", sealed, query, code=2)
    for more in ((), ("--spark",)):
        assert "ok: 300 messages" in run("verify", sealed, "--passphrase-file", sealed / "pass", *more)
    assert "is encrypted, and no key was given" in run("verify", sealed, code=2)


def test_compaction_leaves_an_encrypted_stream_encrypted(run: Run, sealed: Path) -> None:
    (msgs,) = (sealed / "jetstream").glob("*/streams/ORDERS/msgs")
    keys = [KeySource.passphrase("open sesame")]
    with FileStore(str(msgs), options=FileOptions(cipher=Cipher.CHACHA20_POLY1305, keys=keys)) as store:
        for seq in range(1, 200, 2):
            store.remove(seq)
    (result,) = json.loads(run("compact", sealed, "-o", f"passphraseFile={sealed / 'pass'}", "--json"))
    assert result["blocks"] > 0
    assert b"orders." not in b"".join(path.read_bytes() for path in msgs.iterdir())
    assert "ok: 200 messages" in run("verify", sealed, "--passphrase-file", sealed / "pass")


def test_nothing_is_imported_into_the_directory_of_an_encrypted_server(run: Run, sealed: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n')
    text = run("import", tmp_path / "rows.jsonl", sealed, "--stream", "NEW", "--subject", "new.{a}", code=2)
    assert "is encrypted: write through its server" in text


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
    assert "spark.ui.showConsoleProgress" not in spark_job._conf()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert spark_job._conf()["spark.ui.showConsoleProgress"] == "true"


def test_an_error_of_a_worker_is_told_in_its_own_words() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  File x\n    y\n"
        "jetlake.table.errors.NoStream: /data: there is no such directory\n SQLSTATE: 38000"
    )
    assert spark_job._last_line(text) == "/data: there is no such directory"
    assert spark_job._last_line("[X] wrong\n  at y") == "[X] wrong"
    text = (
        "An error occurred while calling o1.save.\n: a.SparkException: [A] Cannot read a.csv.  SQLSTATE: 1\n"
        "\tat x\nCaused by: a.b.Between: less\n\tat y\nCaused by: a.b$C: [B] Bad record: a,b\n\tat z"
    )
    assert spark_job._last_line(text) == "[A] Cannot read a.csv: [B] Bad record: a,b"

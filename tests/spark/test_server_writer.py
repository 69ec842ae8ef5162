"""Writes to a live server: every row once, whatever dies, and however late it is tried again."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType  # noqa: E402

from jetlake.spark import server_writer  # noqa: E402
from jetlake.spark.server_ledger import ServerLedger  # noqa: E402
from jetlake.spark.server_writer import Published, ServerWriter  # noqa: E402
from jetlake.table.errors import BadOption, NoStream, ServerError  # noqa: E402
from jetlake.table.options import parse_options  # noqa: E402
from jetlake.table.schema import RowBuilder  # noqa: E402
from jetlake.table.url_origin import UrlOrigin  # noqa: E402
from jetlake.wire.headers import iter_headers  # noqa: E402
from tests.table.servers import LiveServer  # noqa: E402

KINDS = ("jetlake", "nats-server")
SCHEMA = StructType().add("subject", "string").add("payload", "string")
READ = pa.schema([pa.field("seq", pa.int64(), nullable=False), pa.field("payload", pa.binary(), nullable=False)])
WINDOW_NS = 200_000_000


class Task:
    """What a task knows of itself."""

    def __init__(self, partition: int = 0, attempt: int = 0) -> None:
        self._partition, self._attempt = partition, attempt

    def partitionId(self) -> int:
        return self._partition

    def attemptNumber(self) -> int:
        return self._attempt


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(str(request.param), tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture
def stream(server: LiveServer, request: pytest.FixtureRequest) -> str:
    """A stream of the test's own, which forgets message ids at once."""
    name = f"S{abs(hash(request.node.name)) % 10**9}"
    server.make_stream(name, [f"{name}.>"], duplicate_window=WINDOW_NS)
    return name


def writer(server: LiveServer, stream: str, **options: Any) -> ServerWriter:
    return ServerWriter(parse_options({"url": server.url, "stream": stream, **options}), SCHEMA)


def rows(stream: str, first: int, count: int) -> Iterator[Any]:
    for start in range(first, first + count, 50):
        numbers = range(start, min(start + 50, first + count))
        yield pa.RecordBatch.from_pydict(
            {"subject": [f"{stream}.a"] * len(numbers), "payload": [str(number) for number in numbers]}
        )


def run_task(
    target: ServerWriter, stream: str, monkeypatch: pytest.MonkeyPatch, batch: int = 0, task: int = 0, attempt: int = 0
) -> Published:
    """A task that writes the hundred rows from 1000 * batch + 100 * task on."""
    monkeypatch.setattr(server_writer.TaskContext, "get", lambda: Task(task, attempt))
    return target.publish(rows(stream, 1000 * batch + 100 * task, 100), "query", batch)


def payloads(server: LiveServer, stream: str) -> list[int]:
    source = UrlOrigin(parse_options({"url": server.url, "stream": stream}))
    builder = RowBuilder(READ, source.options)
    batches = [batch for task in source.plan() for batch in source.read(task, builder)]
    source.close()
    return sorted(int(payload) for batch in batches for payload in batch.column("payload").to_pylist())


def expected(*batches: int, tasks: int = 3) -> list[int]:
    return [1000 * batch + number for batch in batches for number in range(100 * tasks)]


def test_batches_are_written_once_however_often_they_are_run(
    server: LiveServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in (0, 0, 1, 1, 0):
        target = writer(server, stream)
        target.finish([run_task(target, stream, monkeypatch, batch, task) for task in range(3)])
    assert payloads(server, stream) == expected(0, 1)


@pytest.mark.parametrize("done_tasks", [0, 1, 2, 3])
def test_a_run_that_died_is_completed_long_after_the_server_forgot_its_ids(
    server: LiveServer, stream: str, done_tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies after some tasks, one of them in the middle; another run of the query repeats the batch."""
    first = writer(server, stream)
    for task in range(done_tasks):
        run_task(first, stream, monkeypatch, 0, task)
    monkeypatch.setattr(server_writer.TaskContext, "get", lambda: Task(done_tasks % 3, done_tasks // 3))
    first.publish(rows(stream, 100 * (done_tasks % 3), 37), "query", 0)
    threading.Event().wait(3 * WINDOW_NS / 1e9)
    again = writer(server, stream)
    again.finish([run_task(again, stream, monkeypatch, 0, task) for task in range(3)])
    assert payloads(server, stream) == expected(0)


def test_a_work_queue_is_written_to_once(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored is looked up without a consumer, which a work queue would refuse."""
    server.make_stream("QUEUE", ["QUEUE.>"], retention="workqueue", duplicate_window=WINDOW_NS)
    first = writer(server, "QUEUE")
    for task in range(2):
        run_task(first, "QUEUE", monkeypatch, 0, task)
    threading.Event().wait(3 * WINDOW_NS / 1e9)
    second = writer(server, "QUEUE")
    second.finish([run_task(second, "QUEUE", monkeypatch, 0, task) for task in range(3)])
    assert payloads(server, "QUEUE") == expected(0)


def test_a_task_that_is_tried_again_in_the_same_run_skips_what_is_stored(
    server: LiveServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = writer(server, stream)
    run_task(target, stream, monkeypatch)
    threading.Event().wait(3 * WINDOW_NS / 1e9)
    again = run_task(target, stream, monkeypatch, attempt=1)
    assert (again.count, again.skipped) == (0, 100)
    assert payloads(server, stream) == expected(0, tasks=1)


def test_a_commit_that_was_not_recorded_is_repeated_without_a_row(
    server: LiveServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = writer(server, stream)
    results = [run_task(target, stream, monkeypatch, 0, task) for task in range(3)]
    target.finish(list(results))
    threading.Event().wait(3 * WINDOW_NS / 1e9)
    again = writer(server, stream)
    assert [run_task(again, stream, monkeypatch, 0, task).count for task in range(3)] == [0, 0, 0]
    again.finish(list(results))
    with server.connect() as link:
        entry = ServerLedger(link, stream).get("query").entry
    assert entry is not None and (entry.batch, entry.state) == (0, "done")
    assert payloads(server, stream) == expected(0)


def test_a_query_that_does_not_repeat_itself_is_told(
    server: LiveServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(writer(server, stream), stream, monkeypatch)
    monkeypatch.setattr(server_writer.TaskContext, "get", Task)
    with pytest.raises(ServerError, match="row 0 of query:0:0 was stored with another content"):
        writer(server, stream).publish(rows(stream, 5000, 100), "query", 0)


def test_a_small_window_and_large_rows_go_through(
    server: LiveServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = writer(server, stream, window="3")
    assert run_task(target, stream, monkeypatch).count == 100
    batch = pa.RecordBatch.from_pydict({"subject": [f"{stream}.b"] * 40, "payload": ["9" * 500_000] * 40})
    target.publish(iter([batch]), "large", 0)
    assert server.count(stream) == 140


def test_refusals_are_told(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_writer.TaskContext, "get", Task)
    server.make_stream("FULL", ["full.>"], max_msgs=5, discard="new")
    with pytest.raises(ServerError, match="a message was refused: maximum messages exceeded"):
        writer(server, "FULL").publish(rows("full", 0, 10), "query", 0)
    with pytest.raises(ServerError, match="no stream takes messages of these subjects"):
        writer(server, "FULL").publish(rows("nobody", 0, 10), "other", 0)
    server.make_stream("TAKEN", ["taken.>"])
    with pytest.raises(ServerError, match="expected stream does not match"):
        writer(server, "FULL").publish(rows("taken", 0, 10), "third", 0)


def test_a_row_that_the_server_cannot_take_is_told_at_once(
    server: LiveServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_writer.TaskContext, "get", Task)
    batch = pa.RecordBatch.from_pydict({"subject": [f"{stream}.a"] * 2, "payload": ["x", "x" * 1024 * 1024]})
    with pytest.raises(ServerError, match=rf"row 1, subject {stream}.a: \d+ bytes .* takes at most 1048576"):
        writer(server, stream).publish(iter([batch]), "query", 0)


def test_what_headers_once_told_a_server_is_not_said_again(
    server: LiveServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ["Msg-Id", "Stream-Source", "Expected-Stream", "Expected-Last-Subject-Sequence", "Batch-Id"]
    headers = [("A", "1"), *((f"Nats-{name}", "said") for name in said), ("Nats-Other", "2")]
    schema = pa.schema(
        [("subject", pa.string()), ("payload", pa.string()), ("headers", pa.map_(pa.string(), pa.string()))]
    )
    batch = pa.RecordBatch.from_pydict({"subject": [f"{stream}.a"], "payload": ["x"], "headers": [headers]}, schema)
    monkeypatch.setattr(server_writer.TaskContext, "get", Task)
    writer(server, stream).publish(iter([batch]), "query", 0)
    with server.connect() as link:
        stored = base64.b64decode(link.api(f"STREAM.MSG.GET.{stream}", {"seq": 1})["message"]["hdrs"])
    names = [name for name, _ in iter_headers(stored)]
    assert names == [b"Nats-Msg-Id", b"Nats-Expected-Stream", b"A", b"Nats-Other"] and b"said" not in stored


def test_the_target_must_be_there_or_be_described(server: LiveServer) -> None:
    with pytest.raises(NoStream, match="there is no stream ABSENT; option subjects makes one"):
        writer(server, "ABSENT")
    writer(server, "MADE", subjects="made.>,made")
    assert server.count("MADE") == 0
    with pytest.raises(BadOption, match="not the name of one stream"):
        writer(server, "A*")
    with pytest.raises(BadOption, match="not the name of a stream"):
        writer(server, "A\r\nPING")
    timed = StructType([*SCHEMA.fields]).add("time_ns", "long")
    with pytest.raises(BadOption, match="sets the time itself"):
        ServerWriter(parse_options({"url": server.url, "stream": "MADE"}), timed)
    with pytest.raises(BadOption, match="cannot be written on a line"):
        writer(server, "MADE", jobId="a\r\nNats-Rollup: all")


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_dies_and_comes_back_has_every_row_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LiveServer(kind, tmp_path) as server:
        server.make_stream("S", ["S.>"])
        target = writer(server, "S", retries="8", timeoutS="3", window="64")

        def interrupted() -> Iterator[Any]:
            for number, batch in enumerate(rows("S", 0, 1000)):
                if number == 7:
                    server.kill()
                    threading.Timer(0.5, server.start).start()
                yield batch

        monkeypatch.setattr(server_writer.TaskContext, "get", Task)
        target.publish(interrupted(), "query", 0)
        assert payloads(server, "S") == list(range(1000))


def test_a_server_that_stays_away_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LiveServer("nats-server", tmp_path) as server:
        server.make_stream("S", ["S.>"])
        target = writer(server, "S", retries="1", timeoutS="1", window="64")

        def interrupted() -> Iterator[Any]:
            for number, batch in enumerate(rows("S", 0, 1000)):
                if number == 7:
                    server.kill()
                yield batch

        monkeypatch.setattr(server_writer.TaskContext, "get", Task)
        with pytest.raises(ServerError, match=r"writing stopped after \d+ rows, and 2 attempts to go on failed"):
            target.publish(interrupted(), "query", 0)


def test_a_slow_task_goes_on(server: LiveServer, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow() -> Iterator[Any]:
        for number, batch in enumerate(rows(stream, 0, 200)):
            if number == 2:
                threading.Event().wait(2 * WINDOW_NS / 1e9)
            yield batch

    monkeypatch.setattr(server_writer.TaskContext, "get", Task)
    assert writer(server, stream, window="10").publish(slow(), "query", 0).count == 200
    assert payloads(server, stream) == list(range(200))


def test_two_attempts_at_once_write_every_row_once_and_the_first_gives_up(
    server: LiveServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt hangs, longer than ids are remembered, and wakes up when the second is half through."""
    monkeypatch.setattr(server_writer.TaskContext, "get", lambda: Task(attempt=0))
    target = writer(server, stream, window="10")
    half_done, gave_up = threading.Event(), threading.Event()
    errors: list[Exception] = []

    def hanging() -> Iterator[Any]:
        for number, batch in enumerate(rows(stream, 0, 400)):
            if number == 3:
                half_done.wait(60)
            yield batch

    def first() -> None:
        try:
            target.publish(hanging(), "query", 0)
        except ServerError as error:
            errors.append(error)
        gave_up.set()

    def second() -> Iterator[Any]:
        for number, batch in enumerate(rows(stream, 0, 400)):
            if number == 5:
                threading.Event().wait(2 * WINDOW_NS / 1e9)
                half_done.set()
                gave_up.wait(60)
                threading.Event().wait(2 * WINDOW_NS / 1e9)
            yield batch

    thread = threading.Thread(target=first)
    thread.start()
    while server.count(stream) < 100:
        threading.Event().wait(0.01)
    monkeypatch.setattr(server_writer.TaskContext, "get", lambda: Task(attempt=1))
    target.publish(second(), "query", 0)
    thread.join()
    assert "another attempt at this task has taken its place" in str(errors[0])
    assert payloads(server, stream) == list(range(400))

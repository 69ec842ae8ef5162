"""Exactly once for real: the driver is killed in each phase of a batch, and a worker in the middle of its rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from jetlake.spark.options import parse_options
from jetlake.spark.schema import RowBuilder
from jetlake.spark.url_origin import UrlOrigin
from jetlake.store import FileOptions, FileStore
from tests.spark.servers import LiveServer

COUNT = 2000
SCRIPT = Path(__file__).with_name("kill_query.py")
WAIT_S_MAX = 240.0

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kill") / "SOURCE"
    with FileStore(directory, options=FileOptions(sync="never"), autocommit=False) as store:
        for number in range(COUNT):
            store.append(f"copy.{number % 7}", str(number).encode())
    return directory


def run(source: Path, work: Path, *arguments: object, until: Callable[[], bool] | None = None) -> int:
    """Run the query to its end, or kill it and all its processes as soon as something is true."""
    command = [sys.executable, str(SCRIPT), *map(str, (source, work, *arguments))]
    environment = {key: value for key, value in os.environ.items() if key != "JETLAKE_VERIFY"}
    with (work / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
    deadline = time.monotonic() + WAIT_S_MAX
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if until is not None and until():
                break
            time.sleep(0.005)
        else:
            assert process.poll() is not None, "the query does not end"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def kills(work: Path, target: Path) -> list[Callable[[], bool]]:
    """Moments to kill the driver at, each in another batch."""
    checkpoint = work / "checkpoint"
    return [
        (checkpoint / "offsets" / "0").exists,  # planned, not yet read
        lambda: any(target.parent.glob("OUT.*.tmp/batch-1/task-*/*.blk")),  # tasks have written
        lambda: b'"begun"' in _ledger(target) or (checkpoint / "offsets" / "3").exists(),  # being appended
        lambda: b'"batch":3' in _ledger(target) and b'"done"' in _ledger(target),  # written, not yet committed
    ]


def _ledger(target: Path) -> bytes:
    try:
        return (target / "spark.json").read_bytes()
    except FileNotFoundError:
        return b""


def test_a_driver_killed_in_every_phase_writes_a_directory_once(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "OUT"
    killed = [run(source, tmp_path, target, until=moment) for moment in kills(tmp_path, target)]
    assert killed.count(-signal.SIGKILL) >= 3, killed
    assert run(source, tmp_path, target) == 0
    with FileStore(target) as store:
        assert [int(message.payload) for message in store.messages()] == list(range(COUNT))


@pytest.mark.parametrize("kind", ["jetlake", "nats-server"])
def test_a_driver_and_a_worker_killed_while_publishing_write_to_a_server_once(
    kind: str, source: Path, tmp_path: Path
) -> None:
    with LiveServer(kind, tmp_path / "server") as server:
        server.make_stream("COPY", ["copy.>"], duplicate_window=1_000_000_000)  # forgotten long before the next run
        arguments = (source, tmp_path, server.url, tmp_path / "flag")
        assert run(*arguments, until=lambda: server.count("COPY") > 100) == -signal.SIGKILL
        assert 100 < server.count("COPY") < COUNT
        assert run(*arguments) == 0
        assert (tmp_path / "flag").exists()
        origin = UrlOrigin(parse_options({"url": server.url, "stream": "COPY"}))
        builder = RowBuilder(StructType().add("payload", "binary", False), origin.options)
        rows = [row for task in origin.plan() for batch in origin.read(task, builder) for row in batch.column(0)]
        assert sorted(int(row.as_py()) for row in rows) == list(range(COUNT))
        assert server.consumers("COPY") == []
        origin.close()

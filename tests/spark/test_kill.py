"""Exactly once for real: the driver is killed in each phase of a batch, and workers in the middle of their rows.

Six queries run in one driver. In the first batch of each a worker is killed while it writes; in the second one each
query stands still in a phase of its own, and when all of them do, the driver is killed with all its processes. Then
they run again, under another driver. What they wrote must be what they read.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from jetlake.store import FileOptions, FileStore
from jetlake.table.options import parse_options
from jetlake.table.schema import RowBuilder
from jetlake.table.url_origin import UrlOrigin
from tests.spark.kill_query import ARROW_ROWS, copy, mark_of
from tests.spark.versions import needs_limits
from tests.table.servers import LiveServer

COUNT = 750  # three batches
SCRIPT = Path(__file__).with_name("kill_query.py")
WAIT_S_MAX = 200.0
PHASES = ("planned", "staged", "appending", "written")
SERVERS = ("jetlake", "nats-server")

pytestmark = pytest.mark.timeout(600)


class Killed:
    """Queries that are killed and run again."""

    def __init__(self, work: Path) -> None:
        self.work, self.source = work, str(work / "SOURCE")
        self.servers = {kind: LiveServer(kind, work / kind) for kind in SERVERS}
        for server in self.servers.values():  # ids are forgotten long before the second run
            server.make_stream("COPY", ["copy.>"], duplicate_window=1_000_000_000)
        with FileStore(self.source, options=FileOptions(sync="never"), autocommit=False) as store:
            for number in range(COUNT):
                store.append(f"copy.{number % 7}", str(number).encode())
        self.targets = {phase: str(work / phase) for phase in PHASES}
        self.targets |= {kind: server.url for kind, server in self.servers.items()}
        self.counts: dict[str, int] = {}

    def mark(self, name: str) -> Path:
        return mark_of(self.work, self.targets[name])

    def run_and_kill(self) -> None:
        targets = [f"{name if name in PHASES else 'publishing'}={target}" for name, target in self.targets.items()]
        command = [sys.executable, str(SCRIPT), self.source, str(self.work), *targets]
        environment = {key: value for key, value in os.environ.items() if key != "JETLAKE_VERIFY"}
        with (self.work / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
        deadline = time.monotonic() + WAIT_S_MAX
        try:
            while len(list(self.work.glob("*.reached"))) < len(targets):
                assert process.poll() is None and time.monotonic() < deadline, (self.work / "log").read_text()[-3000:]
                time.sleep(0.05)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.counts = {kind: server.count("COPY") for kind, server in self.servers.items()}

    def run_again(self, spark: Any) -> None:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS))
        for name, target in self.targets.items():
            query = copy(spark, self.source, self.mark(name), target)
            assert query.awaitTermination(int(WAIT_S_MAX)), "the query does not end"
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.fixture(scope="module")
def killed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    killed = Killed(tmp_path_factory.mktemp("kill"))
    try:
        killed.run_and_kill()
        killed.run_again(spark)
        yield killed
    finally:
        for server in killed.servers.values():
            server.kill()


@needs_limits
@pytest.mark.parametrize("phase", PHASES)
def test_a_driver_killed_in_any_phase_writes_a_directory_once(killed: Killed, phase: str) -> None:
    assert Path(f"{killed.mark(phase)}.died").exists()
    with FileStore(killed.work / phase) as store:
        assert [int(message.payload) for message in store.messages()] == list(range(COUNT))
    assert [path.name for path in killed.work.glob(f"{phase}.*.tmp")] == []


@needs_limits
@pytest.mark.parametrize("kind", SERVERS)
def test_a_driver_and_a_worker_killed_while_publishing_write_to_a_server_once(killed: Killed, kind: str) -> None:
    server = killed.servers[kind]
    assert 250 < killed.counts[kind] < 500, "the second batch was cut short"
    assert Path(f"{killed.mark(kind)}.died").exists()
    origin = UrlOrigin(parse_options({"url": server.url, "stream": "COPY"}))
    builder = RowBuilder(pa.schema([pa.field("payload", pa.binary(), nullable=False)]), origin.options)
    rows = [row for task in origin.plan() for batch in origin.read(task, builder) for row in batch.column(0)]
    assert sorted(int(row.as_py()) for row in rows) == list(range(COUNT))
    assert server.consumers("COPY") == []
    origin.close()

"""Spark Connect: reads and writes through a Connect server, which finds the data source by itself; and declarative
pipelines, which run on one, and whose example runs as it is.

They are in one file because they take turns: both servers want the same port.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from jetlake.store import FileOptions, FileStore
from tests.table.streams import orders

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative_pipeline"
NEEDED = ("grpc", "grpc_status", "google", "pandas", "yaml", "zstandard")
MISSING = [name for name in NEEDED if find_spec(name) is None]

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"Spark Connect is not complete: {', '.join(MISSING)} missing"),
    pytest.mark.timeout(600),
]

CLIENT = """
import sys
from jetlake.spark import read, session
from jetlake.spark.jobs.verify import verify
path, target = sys.argv[1:]
spark = session(remote="local[2]")
print(type(spark).__module__)
print("found by itself", spark.read.format("jetstream").load(path).count())
print("narrowed", read(spark, "seq <= 5 AND subject LIKE 'orders.eu.%'", path=path).count())
rows = read(spark, path=path).select("subject", "payload")
rows.write.format("jetstream").mode("append").save(target)
print("written", read(spark, path=target).count())
print("verified", verify(spark, path)[0].records)
"""


def test_a_connect_server_reads_and_writes_streams(tmp_path: Path) -> None:
    orders(tmp_path / "ORDERS", 50).stop()
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("JETLAKE_VERIFY", None)
    command = [sys.executable, "-c", CLIENT, str(tmp_path / "ORDERS"), str(tmp_path / "COPY")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    expected = ["pyspark.sql.connect.session", "found by itself 50", "narrowed 1", "written 50", "verified 50"]
    assert done.stdout.splitlines() == expected


def test_the_example_follows_a_stream_and_writes_another(tmp_path: Path) -> None:
    with FileStore(tmp_path / "ORDERS", options=FileOptions(sync="never"), autocommit=False) as store:
        for number in range(1000):
            store.append(f"orders.{('eu', 'us')[number % 2]}.{number}", b'{"id": %d, "amount": %d}' % (number, number))
    project = shutil.copytree(EXAMPLE, tmp_path / "project")
    spec = project / "spark-pipeline.yaml"
    spec.write_text(spec.read_text().replace("/tmp/jetlake-declarative-pipeline", str(tmp_path / "storage")))
    command = shutil.which("spark-pipelines", path=str(Path(sys.executable).parent))
    assert command is not None
    environment = os.environ | {
        "JETLAKE_PATH": str(tmp_path / "ORDERS"),
        "JETLAKE_TARGET": str(tmp_path / "LARGE"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment.pop("JETLAKE_VERIFY", None)
    done = subprocess.run(
        [command, "run", "--spec", str(spec)], cwd=project, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    with FileStore(tmp_path / "LARGE") as store:
        found = [(message.subject, message.payload) for message in store.messages()]
    assert len(found) == 99 and found[0] == ("large.us", b'{"id":901,"amount":901.0}')

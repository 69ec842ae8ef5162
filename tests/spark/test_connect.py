"""Spark Connect: the same reads and writes through a Connect server, which finds the data source by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.streams import orders
from tests.spark.test_declarative import pytestmark as needs_connect

pytestmark = needs_connect

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

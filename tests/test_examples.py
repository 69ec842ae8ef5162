"""The examples run as they are, twice in a row, and what they print is what they claim to show.

Those with Spark run in this process, so that one session serves them all. `tests/spark/test_connect.py` runs the
declarative pipeline.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
RunHere = Callable[..., str]


def run_example(name: str, *arguments: str) -> str:
    """What an example prints."""
    # JETLAKE_VERIFY would object to the damage that the tour does on purpose.
    environment = {key: value for key, value in os.environ.items() if key != "JETLAKE_VERIFY"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env=environment | {"COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunHere:
    """Run an example in this process; what it prints."""
    pytest.importorskip("pyspark")

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_store_tour_shows_what_a_store_does_and_survives() -> None:
    printed = run_example("store_tour.py", "--messages", "3000")
    assert "3,000 messages stored in 2 commits, each one synced to disk" in printed
    assert "6 questions answered" in printed
    assert "now it is in no file" in printed
    assert "killed by signal 9" in printed
    assert re.search(r"1 message lost, number [\d,]+, and reported", printed)
    assert "no message found: sequence" in printed
    acked = re.search(r"0 of ([\d,]+) acknowledged messages lost", printed)
    assert acked and int(acked[1].replace(",", "")) > 0


def test_store_tour_runs_again_where_it_ran_before(tmp_path: Path) -> None:
    for _ in range(2):
        assert "jetlake verify" in run_example("store_tour.py", "--messages", "2000", "--directory", str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_published_messages_are_queried(run_here: RunHere) -> None:
    printed = run_here("publish_and_query.py")
    assert "|    eu|    34| 1700.0|\n|  apac|    33| 1666.5|\n|    us|    33| 1633.5|" in printed
    assert "|100|  orders.eu.99|  16|" in printed and "orders.us.97" in printed and "orders.eu.96" not in printed


def test_averages_are_written_back_once(run_here: RunHere) -> None:
    printed = run_here("stream_aggregation.py")
    assert "after 150 readings, 4 messages in MINUTES\nafter 300 readings, 8 messages in MINUTES\n" in printed
    assert '|minutes.attic |{"at":"2026-03-01T12:03:00.000Z","celsius":3.0,"readings":30}|' in printed


def test_an_export_goes_on_where_it_ended(run_here: RunHere) -> None:
    printed = run_here("export_to_parquet.py")
    assert "60 messages exported, up to sequence 60\n40 messages exported, up to sequence 100\n" in printed
    assert "|login|   50|" in printed and "|order|   50|" in printed


def test_a_bucket_is_a_table(run_here: RunHere) -> None:
    printed = run_here("kv_table.py")
    assert "|  3|  fan.power|    5|      PUT|" in printed and "|  5|  fan.power|     |      DEL|" in printed
    now = printed.rpartition("|        key|value|")[2]
    assert "|lamp.colour|green|" in now and "| lamp.power|   60|" in now and "fan" not in now


def test_a_range_is_replayed_in_order(run_here: RunHere) -> None:
    expected = [f"rehearsal.orders.eu.{number} order {number}" for number in range(10, 20, 2)]
    assert run_here("replay_range.py").splitlines() == ["5 messages replayed", *expected]


def test_the_pipeline_runs_and_runs_again_on_what_it_left(run_here: RunHere, tmp_path: Path) -> None:
    for orders in ("2,000", "4,000"):
        printed = run_here("pipeline.py", "--messages", "4000", "--directory", str(tmp_path))
        assert "4,000 messages acknowledged by the server" in printed
        assert f"{orders} orders read" in printed
        assert re.search(r"1 micro-batches, \d+ alerts in the stream ALERTS", printed)
        assert re.search(r"2,000 messages in \d+ files", printed), "the second export has only what is new"
        assert "What this run did" in printed


def test_cluster_loses_nothing_with_its_leader() -> None:
    from jetlake.cluster.engine import WHY_NOT

    if WHY_NOT:
        pytest.skip(f"the consensus engine is not built: {WHY_NOT}")
    printed = run_example("cluster.py", "--seconds", "1")
    assert "n1, n2, n3 are one JetStream" in printed
    assert re.search(r"acknowledged [\d,]+, of these lost or moved: 0\n", printed)

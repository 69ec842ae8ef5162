"""The examples run as they are, twice in a row, and what they print is what they claim to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


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


def test_store_tour_shows_what_a_store_does_and_survives() -> None:
    printed = run_example("store_tour.py", "--messages", "3000")
    assert "3,000 messages stored in 2 commits, each one synced to disk" in printed
    assert "6 questions answered" in printed
    assert "now it is in no file" in printed
    assert "killed by signal 9" in printed
    assert re.search(r"1 message lost, number [\d,]+, and reported", printed)
    assert "checksum does not match" in printed
    acked = re.search(r"0 of ([\d,]+) acknowledged messages lost", printed)
    assert acked and int(acked[1].replace(",", "")) > 0


def test_store_tour_runs_again_where_it_ran_before(tmp_path: Path) -> None:
    for _ in range(2):
        assert "jetlake verify" in run_example("store_tour.py", "--messages", "2000", "--directory", str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2

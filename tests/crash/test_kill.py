"""A process that stores messages is killed, again and again. What it said was stored is there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jetlake.store import Compression, FileOptions, FileStore
from jetlake.store.verify.check import check_store

ROUNDS = int(os.environ.get("JETLAKE_KILL_ROUNDS", "4"))

WRITER = """
import sys
from jetlake.store import Compression, FileOptions, FileStore

store = FileStore(
    sys.argv[1],
    options=FileOptions(block_size_max=20_000, compression=Compression[sys.argv[2]]),
    autocommit=False,
)
while True:
    for _ in range(50):
        seq = store.append(f"s.{store.catalog.last_seq % 7}", b"payload %d" % (store.catalog.last_seq + 1))
        if seq % 5 == 0:
            store.remove(seq - 2)
    print(store.commit(), flush=True)
"""


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD], ids=["plain", "zstd"])
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(compression: Compression, tmp_path: Path) -> None:
    directory, acknowledged = tmp_path / "s", 0
    for number in range(ROUNDS):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(directory), compression.name], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(random.Random(number).randrange(1, 12)):
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split("\n")
        acknowledged = int(rest[-2]) if len(rest) > 1 else acknowledged
        writer.wait()
        assert_all_there(directory, acknowledged)


def assert_all_there(directory: Path, acknowledged: int) -> None:
    """Every acknowledged message that was not removed is there, once, and no sequence is missing."""
    with FileStore(directory, options=FileOptions(block_size_max=20_000)) as store:
        assert store.damage == []
        state = store.state()
        assert state.last_seq >= acknowledged
        removed = {seq - 2 for seq in range(5, acknowledged + 1, 5)}
        for message in store.messages():
            assert message.payload == b"payload %d" % message.seq
            assert message.seq not in removed
        held = {message.seq for message in store.messages()}
        # What was written but not yet acknowledged may have removed one more.
        removed |= {seq - 2 for seq in range(5, state.last_seq + 1, 5)}
        assert set(range(1, acknowledged + 1)) - removed <= held
    assert check_store(str(directory)).ok

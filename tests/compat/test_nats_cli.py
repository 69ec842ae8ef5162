"""The `nats` CLI backs up from one server and restores into the other.

It is not fetched: `JETLAKE_NATS_CLI` names it, or it is on the path. Without it these tests are skipped and say so;
`test_snapshots.py` speaks the same protocol without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import Pair
from tests.compat.peer import Peer
from tests.compat.servers import Server
from tests.compat.test_snapshots import add_consumers, fill, look

CLI = os.environ.get("JETLAKE_NATS_CLI") or shutil.which("nats")
RUN_S_MAX = 60

pytestmark = pytest.mark.skipif(CLI is None, reason="the nats CLI is neither on the path nor named by JETLAKE_NATS_CLI")


def nats(server: Server, *arguments: str) -> None:
    assert CLI is not None
    command = [CLI, "--server", server.url, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("ours", [True, False])
def test_backup_of_one_server_restores_into_the_other(pair: Pair, name: str, tmp_path: Path, ours: bool) -> None:
    source, target = (pair.ours, pair.real) if ours else (pair.real, pair.ours)
    with Peer(source) as peer:
        fill(peer, name, 200)
        add_consumers(peer, name)
        before: Any = look(peer, name)
    nats(source, "stream", "backup", name, str(tmp_path / "backup"), "--consumers", "--no-progress")
    nats(target, "stream", "restore", str(tmp_path / "backup"), "--no-progress")
    with Peer(target) as peer:
        after = look(peer, name)
    assert after[0] == before[0] and after[2] == before[2]

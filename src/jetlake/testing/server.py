"""A JetLake server for tests and experiments: in a process of its own, on a free port, gone at the end.

with run_server("data") as url:
    nc = await nats.connect(url)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S_MAX = 20.0
STOP_S_MAX = 20.0


class ServerFailed(RuntimeError):
    """The server did not come up; what it said is the message."""


@contextmanager
def run_server(store_dir: str | os.PathLike[str], *flags: str) -> Iterator[str]:
    """Run a server with JetStream on a store directory; its url. Flags are those of `jetlake serve`."""
    with tempfile.TemporaryDirectory(prefix="jetlake-") as directory:
        log = Path(directory, "log")
        arguments = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", os.fspath(store_dir)]
        command = [sys.executable, "-m", "jetlake.cli.main", "serve", *arguments, "--ports_file_dir", directory, *flags]
        with log.open("wb") as stderr:
            process = subprocess.Popen(command, stderr=stderr)
        try:
            yield _url(process, Path(directory, f"nats-server_{process.pid}.ports"), log)
        finally:
            process.terminate()
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _url(process: subprocess.Popen[bytes], ports_file: Path, log: Path) -> str:
    """Wait until the server says where it listens."""
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return str(json.loads(ports_file.read_text())["nats"][0])
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.02)
    raise ServerFailed(log.read_text(errors="replace").strip() or "the server did not start in time")

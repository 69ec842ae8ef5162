"""Signals that are sent with `jetlake serve --signal`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetlake.errors import JetLakeError
from jetlake.server import signals
from jetlake.server.main import main
from tests.server.test_main import Process


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    (tmp_path / "server.conf").write_text("max_payload: 1000\n")
    process = Process("-c", str(tmp_path / "server.conf"), "-P", str(tmp_path / "pid"))
    process.read_until("Server is ready")
    yield process
    process.kill()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What would have been sent."""
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: calls.append((pid, number)))
    return calls


def test_a_running_server_is_told_by_its_pid_file(server: Process, tmp_path: Path) -> None:
    assert main(["--signal", f"reload={tmp_path / 'pid'}"], {}) == 0
    server.read_until("Reloaded server configuration")
    assert main(["-sl", f"reopen={(tmp_path / 'pid').read_text()}"], {}) == 0
    server.read_until("File log re-open ignored")
    assert main([f"--signal=term={tmp_path / 'pid'}"], {}) == 0
    assert server.wait() == 0


def test_stop_does_not_wait(server: Process, tmp_path: Path) -> None:
    assert main(["--signal", f"stop={tmp_path / 'pid'}"], {}) == 0
    assert server.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("ldm", signal.SIGUSR2),
        ("stop", signal.SIGKILL),
        ("quit", signal.SIGINT),
        ("term", signal.SIGTERM),
        ("reopen", signal.SIGUSR1),
        ("reload", signal.SIGHUP),
    ],
)
def test_words_are_signals(sent: list[tuple[int, int]], command: str, number: int) -> None:
    signals.send(f"{command}=123")
    assert sent == [(123, number)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("foo=1", "unknown signal 'foo': expected one of ldm, stop"),
        ("=1", "unknown signal ''"),
        ("reload", "to which server"),
        ("reload=", "to which server"),
        ("reload=/nowhere", "invalid pid: /nowhere"),
        ("reload=0", "invalid pid: 0"),
        ("reload=-1", "invalid pid: -1"),
        ("reload=12*", "invalid pid"),
        ("reload=\u0661\u0662", "invalid pid"),
    ],
)
def test_what_makes_no_sense_is_sent_to_nobody(sent: list[tuple[int, int]], text: str, complaint: str) -> None:
    with pytest.raises(JetLakeError, match=complaint.replace("*", r"\*")):
        signals.send(text)
    assert sent == []


def test_a_process_that_is_gone_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert main(["--signal", f"reload={gone.pid}"], {}) == 1
    assert f"there is no process {gone.pid}" in capsys.readouterr().err

"""The command line and signals, in processes of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetlake.server.main import main

COMMAND = [sys.executable, "-m", "jetlake.cli.main", "serve"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)


class Process:
    """A running server, and its log so far."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, "-a", "127.0.0.1", "-p", "-1", *arguments], stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []

    def read_until(self, text: str) -> str:
        """The first line to come with this text."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"no {text!r} in:\n{''.join(self.lines)}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(30)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start() -> Iterator[type[Process]]:
    processes: list[Process] = []

    class Started(Process):
        def __init__(self, *arguments: str) -> None:
            super().__init__(*arguments)
            processes.append(self)

    yield Started
    for process in processes:
        process.kill()


def test_help_names_every_group_of_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], {}) == 0
    text = capsys.readouterr().out
    for word in ("Usage: jetlake serve", "--port", "--store_dir", "--tlscert", "--auth", "Signals:"):
        assert word in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-v"], {}) == 0
    assert capsys.readouterr().out == "nats-server: v2.15.1\n"


def test_a_configuration_is_tested_without_being_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "good.conf"
    path.write_text("port: 1\njetstream: enabled\n")
    assert main(["-c", str(path), "-t"], {}) == 0
    assert f"configuration file {path} is valid (sha256:" in capsys.readouterr().err


def test_the_test_of_a_configuration_shows_its_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "good.conf"
    path.write_text("ping_interval: 5\n")
    assert main(["-c", str(path), "-t"], {}) == 0
    assert 'good.conf:1:1: should be a duration: "5s"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prot: 1", "did you mean 'port'?"),
        ('tls { cert_file: "/nowhere.crt", key_file: "/nowhere.key" }', "/nowhere.crt"),
        ("authorization { users: [{user: a, permissions: {publish: 'a..b'}}] }", "a..b"),
    ],
)
@pytest.mark.parametrize("flags", [["-t"], []])
def test_a_wrong_configuration_is_fatal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, complaint: str, flags: list[str]
) -> None:
    path = tmp_path / "bad.conf"
    path.write_text(text)
    assert main(["-c", str(path), *flags], {}) == 1
    error = capsys.readouterr().err
    assert "[FTL]" in error and complaint in error


def test_a_flag_that_nobody_knows_is_fatal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--prot", "1"], {}) == 1
    assert "[FTL] unknown flag --prot" in capsys.readouterr().err


def test_a_port_in_use_is_fatal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run("-a", "127.0.0.1", "-p", str(taken.getsockname()[1]))
    assert ended.returncode == 1 and "[FTL] Error listening on port" in ended.stderr
    assert "address already in use" in ended.stderr and "Traceback" not in ended.stderr


def test_a_log_file_that_cannot_be_opened_is_fatal(tmp_path: Path) -> None:
    ended = run("-p", "-1", "-l", str(tmp_path / "nowhere" / "log"))
    assert ended.returncode == 1 and "[FTL]" in ended.stderr and "nowhere" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_the_server_cleanly(start: type[Process], tmp_path: Path, number: signal.Signals) -> None:
    server = start("-js", "-sd", str(tmp_path / "store"), "-P", str(tmp_path / "pid"))
    server.read_until("Server is ready")
    assert int((tmp_path / "pid").read_text()) > 0
    server.send(number)
    server.read_until("Server Exiting..")
    assert server.wait() == 0 and not (tmp_path / "pid").exists()


def test_a_signal_during_the_start_ends_it_too(start: type[Process]) -> None:
    server = start()
    server.read_until("Starting jetlake")
    server.send(signal.SIGTERM)
    assert server.wait() == 0


def test_hangup_reads_the_configuration_again(start: type[Process], tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("max_payload: 1000\n")
    server = start("-c", str(path), "-D")
    server.read_until("Server is ready")
    path.write_text("max_payload: 2000\ndebug: false\n")
    server.send(signal.SIGHUP)
    assert 'Trapped "hangup" signal' in server.read_until("Trapped")
    server.read_until("Reloaded: max_payload = 2000")
    server.read_until("Reloaded server configuration")
    assert not any("Reloaded: debug" in line for line in server.lines), "flags override the file"
    path.write_text("nonsense")
    server.send(signal.SIGHUP)
    server.read_until("[ERR] Failed to reload server configuration")
    server.send(signal.SIGTERM)
    assert server.wait() == 0


def test_the_log_file_is_opened_again(start: type[Process], tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = start("-l", str(log))
    _until(lambda: log.exists() and "Server is ready" in log.read_text())
    log.rename(tmp_path / "old")
    server.send(signal.SIGUSR1)
    _until(lambda: log.exists() and "File log re-opened" in log.read_text())


def test_lame_duck_mode_ends_the_server(start: type[Process]) -> None:
    server = start()
    server.read_until("Server is ready")
    server.send(signal.SIGUSR2)
    server.read_until("Entering lame duck mode")
    server.read_until("Server Exiting..")
    assert server.wait() == 0


def test_serving_needs_no_framework_for_commands() -> None:
    code = """
import sys
from jetlake.cli.main import main
sys.argv[1:] = ["serve", "-v"]
try:
    main()
except SystemExit:
    pass
print([name for name in ("typer", "rich", "starlette", "prometheus_client", "pyarrow") if name in sys.modules])
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), timeout=60
    )
    assert ended.stdout.splitlines()[-1] == "[]", ended.stderr


def _until(is_true: object, timeout_s: float = 20.0) -> None:
    assert callable(is_true)
    stop_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < stop_s
        time.sleep(0.01)


def test_a_start_waits_for_no_import_that_few_servers_need() -> None:
    names = {"cryptography", "cramjam", "pathlib", "shutil", "tempfile", "jetlake.config.grammar", "typer"}
    asked = f"import sys, jetlake.server.main, jetlake.jetstream.service; print(*{names} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60)
    assert found.stdout.split() == []

"""Start nats-server or JetLake alike: the same flags, the same configuration, the same signals."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

NATS_SERVER, JETLAKE = "nats-server", "jetlake"
KINDS = (NATS_SERVER, JETLAKE)
START_S_MAX, STOP_S_MAX = 30.0, 30.0
LOOPBACK = "127.0.0.1"
_STALL = re.compile(r"Event loop held ([\d.]+) ms \(cpu ([\d.]+) ms")


def command(kind: str) -> list[str]:
    """How this kind of server is started; a missing one is a failure, since a skip would hide half of the tests."""
    name = {NATS_SERVER: "nats-server", JETLAKE: "jetlake"}[kind]
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert path is not None, f"{name} is neither beside {sys.executable} nor on the path"
    return [path] if kind == NATS_SERVER else [path, "serve"]


@dataclass
class Server:
    """A server process with a directory of its own, where its store, log and ports file lie."""

    kind: str
    directory: Path
    flags: Sequence[str] = ("-js",)
    config: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    port: int = 0
    http_port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def store(self) -> Path:
        return self.directory / "store"

    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.kill()

    def start(self) -> Self:
        """Run until the ports file is written, which nats-server does when it listens."""
        self.spawn()
        try:
            self._await_ports()
        except BaseException:
            self.kill()
            raise
        return self

    def spawn(self) -> subprocess.Popen[bytes]:
        """Run, and wait for nothing."""
        assert self.process is None, "a server is started once, and then again after it has stopped"
        self.directory.mkdir(parents=True, exist_ok=True)
        for old in self.directory.glob("*.ports"):
            old.unlink()
        # A restarted server keeps its port, so that clients find it again.
        arguments = [*command(self.kind), "-a", LOOPBACK, "-p", str(self.port or -1), "-m", str(self.http_port or -1)]
        arguments += ["-sd", str(self.store), "--ports_file_dir", str(self.directory), *self.flags]
        if self.config:
            arguments += ["-c", str(self.write_config(self.config))]
        environment = {**os.environ, "JETLAKE_VERIFY": "1", "JETLAKE_WATCHDOG_MS": "20", **self.environment}
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, cwd=self.directory
            )
        return self.process

    def write_config(self, text: str) -> Path:
        path = self.directory / "server.conf"
        path.write_text(text)
        return path

    def reload(self, text: str) -> None:
        """Change the configuration file and tell the server, which says in its log when it is done."""
        self._reload(text, "Reloaded server configuration")

    def refuse_reload(self, text: str) -> None:
        """The same with a configuration that the server does not take."""
        self._reload(text, "Failed to reload server configuration")

    def _reload(self, text: str, outcome: str) -> None:
        self.write_config(text)
        before = self.log().count(outcome)
        self.signal(signal.SIGHUP)
        wait_until(lambda: self.log().count(outcome) > before, "the reload")

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout_s: float = STOP_S_MAX) -> int:
        """The exit code, once the server has ended by itself."""
        assert self.process is not None
        code = self.process.wait(timeout_s)
        self.process = None
        return code

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def stalls(self, cpu_ms: float = 20.0, held_ms: float = math.inf) -> list[str]:
        """Lines of the watchdog about what held JetLake's event loop longer than that; none for nats-server.

        Processor time hardly depends on what else the machine does. The time that the loop was held does: a sync takes
        as long as the disk is busy, and threads that commit may wait for a core while they hold the interpreter.
        """
        return stall_lines(self.log(), cpu_ms, held_ms)

    def get(self, path: str) -> Any:
        """A JSON answer of the monitoring port."""
        with urlopen(f"http://{LOOPBACK}:{self.http_port}{path}", timeout=10) as answer:
            return json.loads(answer.read())

    def _await_ports(self) -> None:
        assert self.process is not None
        stop = time.monotonic() + START_S_MAX
        while time.monotonic() < stop:
            for path in self.directory.glob("nats-server_*.ports"):
                if (text := path.read_text()).endswith("}"):
                    ports = json.loads(text)
                    self.port, self.http_port = _port(ports["nats"]), _port(ports["monitoring"])
                    return
            assert self.process.poll() is None, f"{self.kind} did not start:\n{self.log()[-2000:]}"
            time.sleep(0.005)
        raise AssertionError(f"{self.kind} wrote no ports file in {START_S_MAX} s:\n{self.log()[-2000:]}")


def stall_lines(log: str, cpu_ms: float = 40.0, held_ms: float = 200.0) -> list[str]:
    """The lines of a log that tell of such stalls: by default twice what is allowed, as a busy machine may be slow."""
    found = [(_STALL.search(line), line) for line in log.splitlines()]
    return [line for times, line in found if times and (float(times[1]) > held_ms or float(times[2]) > cpu_ms)]


def _port(urls: list[str]) -> int:
    return int(urls[0].rstrip("/").rpartition(":")[2])


def wait_until(is_true: Any, what: str, timeout_s: float = 10.0) -> None:
    """Poll until it is true; after that long it is a failure."""
    stop = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < stop, f"waited {timeout_s} s for {what}"
        time.sleep(0.01)

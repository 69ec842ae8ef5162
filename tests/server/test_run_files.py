from __future__ import annotations

import json
import os
from pathlib import Path

from msgspec.structs import replace

from jetlake.config import ServerOptions
from jetlake.server.run_files import RunFiles

PORTS = {"nats": ["nats://127.0.0.1:4222"], "monitoring": ["http://127.0.0.1:8222"]}


def test_the_ports_file_has_the_name_that_suites_look_for(tmp_path: Path) -> None:
    RunFiles().write_ports(replace(ServerOptions(), ports_file_dir=str(tmp_path)), PORTS)
    (file,) = tmp_path.iterdir()
    assert file.name == f"nats-server_{os.getpid()}.ports"
    assert file.read_text() == json.dumps(PORTS, separators=(",", ":"))


def test_the_pid_file_holds_the_pid(tmp_path: Path) -> None:
    RunFiles().write_pid(replace(ServerOptions(), pid_file=str(tmp_path / "pid")))
    assert (tmp_path / "pid").read_text() == str(os.getpid())


def test_files_are_removed_at_the_end(tmp_path: Path) -> None:
    files = RunFiles()
    options = replace(ServerOptions(), pid_file=str(tmp_path / "pid"), ports_file_dir=str(tmp_path))
    files.write_pid(options)
    files.write_ports(options, PORTS)
    files.remove()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_unless_asked_for(tmp_path: Path) -> None:
    files = RunFiles()
    files.write_pid(ServerOptions())
    files.write_ports(ServerOptions(), PORTS)
    files.remove()


def test_another_directory_takes_the_ports_file_along(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    files = RunFiles()
    files.write_ports(replace(ServerOptions(), ports_file_dir=str(one)), PORTS)
    files.write_ports(replace(ServerOptions(), ports_file_dir=str(two)), PORTS)
    assert not list(one.iterdir()) and len(list(two.iterdir())) == 1

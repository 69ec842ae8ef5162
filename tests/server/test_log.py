from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from jetlake.config import ServerOptions
from jetlake.server.log import Log


def to_file(path: Path, **options: object) -> Log:
    return Log(replace(ServerOptions(), log_file=str(path), **options))


def test_lines_look_as_nats_servers_do(tmp_path: Path) -> None:
    to_file(tmp_path / "log")("info", "Server is ready")
    line = (tmp_path / "log").read_text()
    assert re.fullmatch(r"\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[INF\] Server is ready\n", line)


def test_time_can_be_left_out(tmp_path: Path) -> None:
    to_file(tmp_path / "log", logtime=False)("warning", "hm")
    assert re.fullmatch(r"\[\d+\] \[WRN\] hm\n", (tmp_path / "log").read_text())


def test_details_are_written_only_when_asked_for(tmp_path: Path) -> None:
    quiet, loud = to_file(tmp_path / "quiet"), to_file(tmp_path / "loud", debug=True, trace=True)
    for log in (quiet, loud):
        log("debug", "one")
        log("trace", "two")
    assert (tmp_path / "quiet").read_text() == ""
    assert [line.split(" ")[3] for line in (tmp_path / "loud").read_text().splitlines()] == ["[DBG]", "[TRC]"]


def test_without_a_file_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    Log(ServerOptions())("error", "on stderr")
    assert "[ERR] on stderr" in capsys.readouterr().err


def test_a_file_that_was_moved_is_opened_again(tmp_path: Path) -> None:
    log = to_file(tmp_path / "log")
    log("info", "one")
    (tmp_path / "log").rename(tmp_path / "old")
    log("info", "two")
    log.reopen()
    log("info", "three")
    assert (tmp_path / "old").read_text().count("\n") == 2
    assert (tmp_path / "log").read_text().endswith("three\n")


def test_a_full_file_is_moved_aside_and_old_ones_are_dropped(tmp_path: Path) -> None:
    log = to_file(tmp_path / "log", log_size_limit=500, log_max_num=3)
    for number in range(100):
        log("info", f"line {number:03d} {'x' * 20}")
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3 and all(file.stat().st_size < 600 for file in files)
    assert any("line 099" in file.read_text() for file in files)


def test_options_that_cannot_be_used_change_nothing(tmp_path: Path) -> None:
    log = to_file(tmp_path / "log")
    with pytest.raises(OSError):
        log.use_options(replace(ServerOptions(), log_file=str(tmp_path / "no such directory" / "log")))
    log("info", "still here")
    assert "still here" in (tmp_path / "log").read_text()


def test_what_clients_say_cannot_end_a_line_nor_move_a_cursor(tmp_path: Path) -> None:
    log = to_file(tmp_path / "log", logtime=False)
    log("error", 'User "x\r\n[1] [INF] Server is ready\x1b[2J\u2028\u202e\x85"')
    log("info", "bytes \udcff, half a pair \ud800, é 😀")
    one, two = (tmp_path / "log").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    assert one.endswith('User "x\\r\\n[1] [INF] Server is ready\\x1b[2J\\u2028\\u202e\\x85"')
    assert two.endswith("bytes \\xff, half a pair \\ud800, é 😀")

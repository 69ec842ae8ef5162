"""`jetlake backup` and `jetlake restore`: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jetlake.cli.app import app
from jetlake.store import FileStore


@pytest.fixture
def store(tmp_path: Path) -> Path:
    stream = tmp_path / "store" / "jetstream" / "%24G" / "streams" / "S"
    (stream / "msgs").mkdir(parents=True)
    (stream / "meta.json").write_text("{}")
    with FileStore(stream / "msgs") as store:
        for number in range(5):
            store.append("s", b"message %d" % number)
    return tmp_path / "store"


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result.output


def test_backup_and_restore_tell_what_they_copied(store: Path, tmp_path: Path) -> None:
    shown = run("backup", str(store), str(tmp_path / "b"))
    assert "$G S: 5 messages, sequences 1 to 5" in shown
    assert "$G S: 5 messages" in run("restore", str(tmp_path / "b"), str(tmp_path / "c"))
    assert "already" in run("restore", str(tmp_path / "b"), str(tmp_path / "c"), code=2)


def test_json_is_one_document(store: Path, tmp_path: Path) -> None:
    shown = json.loads(run("backup", str(store), str(tmp_path / "b"), "--stream", "S", "--json"))
    assert [(each["stream"], each["msgs"]) for each in shown] == [("S", 5)]


def test_damage_ends_with_1_and_names_what_is_lost(store: Path, tmp_path: Path) -> None:
    (block,) = store.rglob("*.blk")
    block.write_bytes(block.read_bytes().replace(b"message 2", b"messagE 2"))
    for index in store.rglob("*.idx"):
        index.unlink()
    assert "$G S: damaged: lost 3 to 3" in run("backup", str(store), str(tmp_path / "b"), code=1)


def test_directory_without_streams_is_refused(tmp_path: Path) -> None:
    assert "no stream" in run("backup", str(tmp_path), str(tmp_path / "b"), code=2)

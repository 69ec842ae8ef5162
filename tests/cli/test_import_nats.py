"""`jetlake import --from nats-server`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jetlake.cli.app import app
from tests.compat.peer import Peer
from tests.store.nats.real_store import KEY, RealStore, write_store


def fill(peer: Peer) -> None:
    for name in ("A", "B"):
        peer.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
        peer.request(name, b"first")
        peer.request(name, b"second")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RealStore:
    return write_store(tmp_path_factory.mktemp("source"), fill, cipher="chacha")


@pytest.fixture
def key(tmp_path: Path) -> str:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    return str(path)


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["import", "--from", "nats-server", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_streams_are_imported_and_told(store: RealStore, tmp_path: Path, key: str) -> None:
    shown = run(store.path, str(tmp_path / "out"), "--key-file", key)
    assert "$G A: 2 messages, 73 bytes, sequences 1 to 2, 0 consumers" in shown
    assert "$G B: 2 messages" in shown


def test_json_is_one_document(store: RealStore, tmp_path: Path, key: str) -> None:
    shown = json.loads(run(store.path, str(tmp_path / "out"), "--stream", "B", "--key-file", key, "--json"))
    assert [each["stream"] for each in shown] == ["B"] and shown[0]["msgs"] == 2


def test_damage_ends_with_1_and_names_what_is_lost(tmp_path: Path) -> None:
    plain = write_store(tmp_path / "source", fill)
    block = Path(plain.path) / "jetstream/$G/streams/A/msgs/1.blk"
    block.write_bytes(block.read_bytes().replace(b"first", b"f1rst"))
    shown = run(plain.path, str(tmp_path / "out"), "--stream", "A", code=1)
    assert "$G A: lost 1 to 1" in shown


def test_without_the_key_it_ends_with_2(store: RealStore, tmp_path: Path) -> None:
    assert "not imported" in run(store.path, str(tmp_path / "out"), code=2)


def test_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    assert "no stream of a nats-server" in run(str(tmp_path), str(tmp_path / "out"), code=2)
    result = CliRunner().invoke(app, ["import", "--from", "kafka", str(tmp_path), str(tmp_path / "out")])
    assert result.exit_code == 2 and "--from is nats-server" in result.output

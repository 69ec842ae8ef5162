"""`jetlake verify`: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from jetlake.cli import terminal
from jetlake.cli.app import app
from jetlake.store import Cipher, FileOptions, FileStore, KeySource


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["verify", *map(str, arguments)])


def make(directory: Path, count: int = 30, **options: object) -> Path:
    """A stream of several blocks."""
    with FileStore(directory, options=FileOptions(block_size_max=600, **options)) as store:  # type: ignore[arg-type]
        for number in range(count):
            store.append(f"orders.{number % 3}", b"payload %d" % number)
    return directory


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    return make(tmp_path / "ORDERS")


def test_a_sound_stream_takes_one_line(stream: Path) -> None:
    result = run(stream)
    assert result.exit_code == 0 and result.stderr == ""
    assert result.stdout.startswith(f"{stream}: ok: 30 messages of ")
    assert len(result.stdout.splitlines()) == 1


def test_damage_is_named_on_a_line_of_its_own_and_ends_with_1(stream: Path) -> None:
    flip(stream / "000001.blk", 300)
    result = run(stream)
    assert result.exit_code == 1
    first, *problems = result.stdout.splitlines()
    assert first.startswith(f"{stream}: DAMAGED: 29 messages")
    assert any(line.startswith(f"  damage: checksum: {stream}/000001.blk: at offset ") for line in problems)
    assert "  damage: lost: " in result.stdout


def test_a_note_is_printed_and_ends_with_0(stream: Path) -> None:
    (stream / "000001.idx").unlink()
    result = run(stream)
    assert result.exit_code == 0
    assert f"  note: sidecar: {stream}/000001.idx: is missing" in result.stdout


def test_json_is_one_document(stream: Path) -> None:
    flip(stream / "000001.blk", 300)
    result = run(stream, "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1 and document["ok"] is False
    found = document["streams"][0]
    assert (found["directory"], found["messages"], found["ok"]) == (str(stream), 29, False)
    assert len(found["lost"]) == 1
    assert {"file", "offset", "kind", "text", "severity"} == found["problems"][0].keys()


def test_every_stream_below_a_directory_is_checked(tmp_path: Path) -> None:
    for name in ("a/x", "a/y", "b"):
        make(tmp_path / name, 3)
    document = json.loads(run(tmp_path, "--json").stdout)
    assert [Path(it["directory"]).name for it in document["streams"]] == ["x", "y", "b"]
    assert document["ok"] is True


def test_a_directory_that_is_not_there_ends_with_2(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"jetlake: {tmp_path}/nowhere: No such file or directory\n"


def test_a_directory_without_a_stream_ends_with_2(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no stream is stored here" in result.stderr


def test_a_stream_without_its_key_ends_with_2_and_the_others_are_checked(stream: Path, tmp_path: Path) -> None:
    make(tmp_path / "SECRET", cipher=Cipher.AES_256_GCM, keys=[KeySource.key(bytes(32))])
    result = run(tmp_path)
    assert result.exit_code == 2
    assert f"{stream}: ok" in result.stdout and f"{tmp_path}/SECRET: cannot be checked" in result.stdout
    assert "is encrypted, and no key was given" in result.stderr
    document = json.loads(run(tmp_path, "--json").stdout)
    assert document["ok"] is False and "encrypted" in document["streams"][1]["error"]


def test_a_key_file_opens_an_encrypted_stream(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("ab" * 32)
    make(tmp_path / "SECRET", cipher=Cipher.AES_256_GCM, keys=[KeySource.key_file(key_file)])
    assert run(tmp_path / "SECRET", "--key-file", key_file).exit_code == 0
    key_file.write_text("cd" * 32)
    result = run(tmp_path / "SECRET", "--key-file", key_file)
    assert result.exit_code == 2 and "encrypted with another key" in result.stderr


def test_a_passphrase_file_opens_an_encrypted_stream(tmp_path: Path) -> None:
    passphrase_file = tmp_path / "passphrase"
    passphrase_file.write_text("open sesame\n")
    make(tmp_path / "SECRET", 3, cipher=Cipher.CHACHA20_POLY1305, keys=[KeySource.passphrase("open sesame")])
    assert run(tmp_path / "SECRET", "--passphrase-file", passphrase_file).exit_code == 0


@pytest.mark.parametrize("option", ["--key-file", "--passphrase-file"])
@pytest.mark.parametrize("content", [None, ""])
def test_a_key_that_cannot_be_had_ends_with_2(stream: Path, tmp_path: Path, option: str, content: str | None) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content)
    result = run(stream, option, tmp_path / "key")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("jetlake: ")


def test_verifying_changes_nothing(stream: Path) -> None:
    before = {path.name: path.read_bytes() for path in stream.iterdir()}
    run(stream)
    assert {path.name: path.read_bytes() for path in stream.iterdir()} == before


def test_a_pipe_sees_no_progress_bar(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_QUIET_S", -1.0)
    assert run(stream).stderr == ""


def test_a_terminal_sees_a_progress_bar_once_it_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # which is how rich is told of a terminal
    with terminal.progress("Waiting", 10) as advance:
        advance(5)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(terminal, "_QUIET_S", -1.0)
    with terminal.progress("Waiting", 10) as advance:
        advance(5)
    assert "Waiting" in capsys.readouterr().err

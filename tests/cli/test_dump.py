"""`jetlake dump`: every kind of file, record by record."""

from __future__ import annotations

import base64
import json
from array import array
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jetlake.cli.app import app
from jetlake.ops import append_op
from jetlake.store import NEVER_NS, Cipher, Compression, FileOptions, FileStore, KeySource
from jetlake.store.format import TOMBSTONE, decode_header
from jetlake.store.records.record import Record, encode
from jetlake.testing.clock import FakeClock

HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["dump", *map(str, arguments)])


def document(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json").stdout)
    return found


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """Two blocks: seven messages, one more, and every other kind of record."""
    directory = tmp_path / "ORDERS"
    with FileStore(directory, options=FileOptions(block_size_max=300), clock=FakeClock(10**18)) as store:
        for number in range(7):
            store.append(f"orders.{number % 2}", b"payload %d" % number)
        store.append("orders.last", b"", HEADERS, ttl_ns=NEVER_NS, msg_id=True)
        assert len(store.catalog.blocks) == 2
        store.remove(3)
        store.skip(4)
        store.erase(5)
        store.compact(2)
    return directory


def test_a_block_is_shown_with_its_header_and_every_record(stream: Path) -> None:
    result = run(stream / "000002.blk")
    assert result.exit_code == 0 and result.stderr == ""
    assert "block_id: 2\n" in result.stdout and "compression: none\n" in result.stdout
    assert "message 8 2001-09-09T01:46:40.000000000Z orders.last headers 18 payload 0 expires never" in result.stdout
    assert "tombstone 3 2001-09-09T01:46:40.000000000Z removed 3 of block 1 generation 0, orders.0 1 (" in result.stdout
    assert "skip 9 2001-09-09T01:46:40.000000000Z 4 sequences" in result.stdout
    erased = document(stream / "000001.blk")["records"][4]
    place = f"{erased['size']} bytes at offset {erased['offset']}"
    assert f" erase 5 of block 1 generation 0, {place}\n" in result.stdout
    assert "floor 2 " in result.stdout


def test_a_block_as_json_has_the_same(stream: Path) -> None:
    found = document(stream / "000002.blk")
    assert (found["type"], found["header"]["block_id"], found["header"]["cipher"]) == ("block", 2, "none")
    records = {record["kind"]: record for record in found["records"]}
    assert records.keys() == {"message", "tombstone", "skip", "floor"}
    assert records["message"]["subject"] == "orders.last"
    assert (records["message"]["expires_ns"], records["message"]["has_msg_id"]) == (NEVER_NS, True)
    assert records["skip"]["count"] == 4
    removal = next(it["removal"] for it in found["records"] if it["kind"] == "tombstone")
    assert (removal["kind"], removal["block_id"], removal["seqs"]) == ("removed", 1, [[3, 3]])
    assert removal["subjects"]["orders.0"][0] == 1
    assert found["problems"] == []


def test_records_follow_one_another(stream: Path) -> None:
    records = document(stream / "000001.blk")["records"]
    assert [record["seq"] for record in records] == list(range(1, 8))
    assert [record["offset"] + record["size"] for record in records[:-1]] == [it["offset"] for it in records[1:]]
    assert [record["kind"] for record in records].count("erased") == 1


def test_payloads_are_shown_on_request_only(stream: Path) -> None:
    assert "payload 0'" not in run(stream / "000001.blk").stdout
    assert "payload=b'payload 0'" in run(stream / "000001.blk", "--payload").stdout
    message = document(stream / "000002.blk", "--payload")["records"][0]
    assert base64.b64decode(message["headers"]) == HEADERS and message["payload"] == ""


def test_a_limit_bounds_the_records_shown(stream: Path) -> None:
    found = document(stream / "000001.blk", "--limit", 2)
    assert len(found["records"]) == 2 and found["record_count"] == 7
    assert len(document(stream / "000001.idx", "--limit", 3)["index"]) == 3


def test_damage_is_shown_where_it_is_and_ends_with_1(stream: Path) -> None:
    path = stream / "000001.blk"
    record = document(path)["records"][2]
    third, size = record["file_offset"], record["size"]
    flip(path, third + 10)
    result = run(path)
    assert result.exit_code == 1
    lines = [line for line in result.stdout.splitlines() if "message" in line or "!!" in line]
    assert lines[2] == f"!! damage: checksum: at {third} of the file: {size} bytes are not a sound record"
    assert " message 2 " in lines[1] and " message 4 " in lines[3]


def test_a_damaged_copy_of_the_header_is_shown(stream: Path) -> None:
    flip(stream / "000001.blk", 130)
    result = run(stream / "000001.blk")
    assert result.exit_code == 1 and "!! damage: header: at 128 of the file" in result.stdout


def test_two_damaged_copies_leave_nothing_to_show(stream: Path) -> None:
    flip(stream / "000001.blk", 20)
    flip(stream / "000001.blk", 130)
    found = document(stream / "000001.blk")
    assert found["header"] is None and found["records"] == []
    assert found["problems"][0]["kind"] == "header"


def test_an_unfinished_write_at_the_end_is_a_note(stream: Path) -> None:
    path = stream / "000002.blk"
    path.write_bytes(path.read_bytes() + b"\x00\x05ab")
    result = run(path)
    assert result.exit_code == 0 and "!! note: torn: " in result.stdout


def test_a_record_that_makes_no_sense_is_shown_all_the_same(stream: Path) -> None:
    path = stream / "000002.blk"
    header = decode_header(path.read_bytes())
    assert header is not None
    nonsense = encode(Record(TOMBSTONE, b"", b"", b"\xff", 1, 1), header.hash_seed)
    path.write_bytes(path.read_bytes() + nonsense)
    result = run(path)
    assert result.exit_code == 1
    assert "tombstone 1 1970-01-01T00:00:00.000000001Z (not readable: " in result.stdout


def test_no_byte_of_a_subject_reaches_the_terminal_as_a_control_code(tmp_path: Path) -> None:
    with FileStore(tmp_path) as store:
        store.append("a.\x1b[31m", b"")
        store.append("b.\udcff", b"")
    assert "\x1b" not in run(tmp_path / "000001.blk").stdout
    subjects = [record["subject"] for record in document(tmp_path / "000001.blk")["records"]]
    assert subjects == ["a.\x1b[31m", "b.\\xff"]


# Envelopes


@pytest.fixture
def secret(tmp_path: Path) -> tuple[Path, Path]:
    """An encrypted stream and its key file."""
    key_file = tmp_path / "key"
    key_file.write_text("ab" * 32)
    options = FileOptions(300, "always", Compression.ZSTD, Cipher.AES_256_GCM, [KeySource.key_file(key_file)])
    with FileStore(tmp_path / "SECRET", options=options) as store:
        for number in range(12):
            store.append("a", b"payload %d" % number)
    return tmp_path / "SECRET", key_file


def test_an_encrypted_block_is_shown_with_its_frames(secret: tuple[Path, Path]) -> None:
    directory, key_file = secret
    found = document(directory / "000001.blk", "--key-file", key_file, "--payload")
    assert (found["header"]["compression"], found["header"]["cipher"]) == ("zstd", "aes_256_gcm")
    assert base64.b64decode(found["records"][3]["payload"]) == b"payload 3"
    assert len(found["frames"]) == len(found["records"])
    assert "frame: 0 +" in run(directory / "000001.blk", "--key-file", key_file).stdout


def test_a_damaged_frame_is_shown_where_it_is(secret: tuple[Path, Path]) -> None:
    directory, key_file = secret
    path = directory / "000001.blk"
    second = document(path, "--key-file", key_file)["frames"][1]["file_offset"]
    flip(path, second + 40)
    result = run(path, "--key-file", key_file)
    lines = [line for line in result.stdout.splitlines() if "message" in line or "!!" in line]
    assert result.exit_code == 1
    assert lines[1].startswith(f"!! damage: frame: at {second} of the file: ")


@pytest.mark.parametrize("name", ["000001.blk", "000001.idx"])
def test_without_its_key_an_encrypted_file_ends_with_2(secret: tuple[Path, Path], name: str) -> None:
    result = run(secret[0] / name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is encrypted, and no key was given" in result.stderr


# Sidecars


def test_a_sidecar_is_shown_with_its_subjects_and_its_index(stream: Path) -> None:
    result = run(stream / "000001.idx")
    assert result.exit_code == 0
    assert "first_seq: 1\nlast_seq: 7\n" in result.stdout and "gone: 5\n" in result.stdout
    assert "subject orders.1: 3, 2 to 6\n" in result.stdout
    assert " message 4 orders.1\n" in result.stdout


def test_a_sidecar_as_json_has_the_same(stream: Path, secret: tuple[Path, Path]) -> None:
    found = document(stream / "000001.idx")
    assert (found["type"], found["head"]["last_seq"], found["gone"]) == ("sidecar", 7, [[5, 5]])
    assert {"subject": "orders.1", "count": 3, "first_seq": 2, "last_seq": 6} in found["subjects"]
    offsets = {record["seq"]: record["offset"] for record in document(stream / "000001.blk")["records"]}
    assert all(offsets[entry["seq"]] == entry["offset"] for entry in found["index"])
    sealed = document(secret[0] / "000001.idx", "--key-file", secret[1])
    assert sealed["frames"] == document(secret[0] / "000001.blk", "--key-file", secret[1])["frames"]


def test_expiring_messages_and_removals_of_a_sidecar_are_shown(tmp_path: Path) -> None:
    with FileStore(tmp_path, options=FileOptions(block_size_max=300), clock=FakeClock(0)) as store:
        for _ in range(10):
            store.append("a", b"payload", ttl_ns=NEVER_NS)
        store.remove(3)
        for _ in range(10):
            store.append("a", b"payload")
    assert "expiring 2: never\n" in run(tmp_path / "000001.idx").stdout
    assert "removal: removed 3 of block 1 generation 0, a 1 (38 bytes)\n" in run(tmp_path / "000002.idx").stdout


def test_a_damaged_sidecar_ends_with_1(stream: Path) -> None:
    flip(stream / "000001.idx", 30)
    result = run(stream / "000001.idx")
    assert result.exit_code == 1 and "!! damage: sidecar: its head is damaged" in result.stdout


def test_a_sidecar_needs_its_block(stream: Path) -> None:
    (stream / "000001.blk").unlink()
    result = run(stream / "000001.idx")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"cannot be read without {stream}/000001.blk, which is not there" in result.stderr


def test_a_sidecar_needs_the_header_of_its_block(stream: Path) -> None:
    (stream / "000001.blk").write_bytes(bytes(500))
    result = run(stream / "000001.idx")
    assert result.exit_code == 2 and "whose header is damaged" in result.stderr


# Checkpoints and other files


def test_a_checkpoint_is_shown(stream: Path) -> None:
    result = run(stream / "stream.state")
    assert result.exit_code == 0
    assert "last_seq: 12\n" in result.stdout and "gone: 3, 5, 9-12\n" in result.stdout
    assert document(stream / "stream.state")["gone"] == [[3, 3], [5, 5], [9, 12]]


def test_a_damaged_checkpoint_ends_with_1(stream: Path) -> None:
    flip(stream / "stream.state", 20)
    result = run(stream / "stream.state")
    assert result.exit_code == 1 and "!! damage: checkpoint: checkpoint hash does not match" in result.stdout


def test_a_file_that_is_not_there_ends_with_2(tmp_path: Path) -> None:
    result = run(tmp_path / "000001.blk")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"jetlake: {tmp_path}/000001.blk: No such file or directory\n"


def test_another_kind_of_file_ends_with_2(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x")
    result = run(tmp_path / "x.txt")
    assert result.exit_code == 2 and "not the name of a block, a sidecar or a checkpoint" in result.stderr


def test_a_block_that_was_set_aside_can_be_shown(stream: Path) -> None:
    (stream / "000001.blk").rename(stream / "000001.blk.damaged")
    assert document(stream / "000001.blk.damaged")["record_count"] == 7


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_members_of_an_atomic_batch_are_marked(tmp_path: Path) -> None:
    data, ops = bytearray(), array("I")
    for number in range(3):
        append_op(ops, data, b"s.%d" % number, b"")
    with FileStore(tmp_path / "S", clock=FakeClock(10**18)) as store:
        store.append("s", b"")
        store.append_together(data, ops, 10**18)
    records = document(tmp_path / "S" / "000001.blk")["records"]
    assert [record.get("batch") for record in records] == [None, "first", "middle", "last"]

"""Reading a nats-server's store directory in place: every message as its clients saw it, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jetlake.store.nats.stream_dir import list_streams
from jetlake.table.arrow import FIELDS
from jetlake.table.errors import BadOption, MessagesDamaged, NoStream
from jetlake.table.nats_dir_origin import NatsDirOrigin
from jetlake.table.options import parse_options
from jetlake.table.origin import open_origin
from jetlake.table.schema import RowBuilder
from tests.store.nats.real_store import KEY, RealStore, Seen, fill_everything, write_store

SCHEMA = pa.schema([("stream", pa.string()), *((name, FIELDS[name][1]) for name in ("seq", "subject", "time_ns"))])
SCHEMA = SCHEMA.append(pa.field("payload", pa.binary())).append(pa.field("headers", FIELDS["headers"][1]))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RealStore:
    return write_store(tmp_path_factory.mktemp("real"), lambda peer: fill_everything(peer, "s2"))


def open_dir(path: str, **options: Any) -> NatsDirOrigin:
    origin = open_origin(parse_options({"path": path, **{name: str(value) for name, value in options.items()}}))
    assert isinstance(origin, NatsDirOrigin)
    return origin


def rows(path: str, **options: Any) -> dict[int, dict[str, Any]]:
    origin = open_dir(path, **options)
    builder = RowBuilder(SCHEMA, origin.options)
    batches = [batch for task in origin.plan() for batch in origin.read(task, builder)]
    return {row["seq"]: row for batch in batches for row in batch.to_pylist()}


def seen_in(row: dict[str, Any]) -> tuple[str, int, bytes, bool]:
    return row["subject"], row["time_ns"], row["payload"], bool(row["headers"])


def of_client(seen: Seen) -> tuple[str, int, bytes, bool]:
    return seen.subject, seen.time_ns, seen.payload, bool(seen.headers)


@pytest.mark.parametrize("stream", ["PLAIN", "KV", "SMALL", "PURGED", "CUT", "EMPTY"])
def test_every_live_message_is_a_row(store: RealStore, stream: str) -> None:
    found = rows(store.path, stream=stream)
    assert {seq: seen_in(row) for seq, row in found.items()} == {
        seq: of_client(seen) for seq, seen in store.messages[stream].items()
    }
    assert {row["stream"] for row in found.values()} <= {stream}


def test_encrypted_store_is_read_with_its_key(tmp_path: Path) -> None:
    store = write_store(tmp_path, fill_everything, cipher="chacha")
    (tmp_path / "key").write_text(KEY)
    assert rows(store.path, stream="PLAIN", keyFile=tmp_path / "key").keys() == store.messages["PLAIN"].keys()


def test_sequences_times_and_subjects_choose(store: RealStore) -> None:
    truth = store.messages["PLAIN"]
    assert rows(store.path, stream="PLAIN", startSeq=50, endSeq=60).keys() == {seq for seq in truth if 50 <= seq <= 60}
    subject = {seq for seq, seen in truth.items() if seen.subject == "plain.3"}
    assert rows(store.path, stream="PLAIN", subject="plain.3").keys() == subject
    origin = open_dir(store.path, stream="PLAIN", startTime="2200-01-01")
    assert [len(list(origin.read(task, RowBuilder(SCHEMA, origin.options)))) for task in origin.plan()] == [0]


def test_several_streams_are_read_together(store: RealStore) -> None:
    origin = open_dir(store.path, stream="KV,FIRST")
    assert origin.names() == ["FIRST", "KV"]
    assert {task.stream for task in origin.plan()} == {"FIRST", "KV"}


def test_stream_s_own_directory_is_enough(store: RealStore) -> None:
    path = next(found.path for found in list_streams(store.path) if found.name == "KV")
    assert rows(path).keys() == store.messages["KV"].keys()
    with pytest.raises(BadOption, match="account"):
        rows(path, account="$G")


def test_stream_that_is_not_there_is_told(store: RealStore) -> None:
    with pytest.raises(NoStream, match="NONE"):
        rows(store.path, stream="NONE")


def test_micro_batches_cover_everything_once(store: RealStore) -> None:
    origin = open_dir(store.path, stream="SMALL", partitionRows=17)
    origin.refresh()
    bounds, builder = origin.bounds("SMALL"), RowBuilder(SCHEMA, origin.options)
    tasks = origin.plan_range("SMALL", bounds.first_seq, bounds.last_seq, -(2**63))
    seqs = [seq for task in tasks for batch in origin.read(task, builder) for seq in batch.column("seq").to_pylist()]
    assert seqs == list(store.messages["SMALL"])
    assert origin.count("SMALL", 1, bounds.last_seq) == len(seqs)
    assert origin.limit("SMALL", seqs[0], 10, None) == seqs[9]
    assert seqs[0] <= origin.limit("SMALL", seqs[0], None, 5000) < seqs[-1]
    assert 0 < origin.size("SMALL", seqs[0], seqs[5]) < origin.size("SMALL", 1, bounds.last_seq)
    assert origin.identity("SMALL", 1) == store.streams["SMALL"]["created"]


def test_damage_fails_the_read_or_is_reported(tmp_path: Path) -> None:
    store = write_store(tmp_path, fill_everything)
    block = Path(store.path) / "jetstream/$G/streams/PLAIN/msgs/1.blk"
    data = bytearray(block.read_bytes())
    data[25] ^= 1
    block.write_bytes(data)
    with pytest.raises(MessagesDamaged, match="1"):
        rows(store.path, stream="PLAIN")
    assert rows(store.path, stream="PLAIN", onDamage="report").keys() == store.messages["PLAIN"].keys() - {1}


def test_sample_has_payloads(store: RealStore) -> None:
    assert open_dir(store.path, stream="FIRST").sample(2) == [
        seen.payload for seen in list(store.messages["FIRST"].values())[:2]
    ]

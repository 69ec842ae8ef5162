"""A nats-server's store directory is read as its own clients saw it: sequences, times, headers, payloads, consumers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from jetlake.errors import CorruptBlock, WrongKey
from jetlake.ops import OP_WORDS
from jetlake.store.nats.blocks import BlockReader
from jetlake.store.nats.live import Live
from jetlake.store.nats.stream_dir import NatsStream, is_nats_store, list_streams
from tests.store.nats.real_store import KEY, RealStore, Seen, fill_everything, restarted, write_store

SECRETS = [b"another key", KEY.encode()]
CIPHERS, COMPRESSIONS = ("", "chacha", "aes"), ("none", "s2")


def open_stream(path: str, name: str, secrets: Sequence[bytes] = SECRETS) -> NatsStream:
    return next(NatsStream(found, secrets) for found in list_streams(path) if found.name == name)


def read(stream: NatsStream) -> tuple[dict[int, Seen], Live]:
    live, reader, found = stream.live(), BlockReader(SECRETS), dict[int, Seen]()
    for block in live.blocks:
        for batch in reader.live(block):
            for place in range(batch.entries):
                op = batch.ops[place * OP_WORDS : (place + 1) * OP_WORDS]
                parts = [bytes(batch.data[at : at + size]) for at, size in (op[0:2], op[4:6], op[6:8])]
                found[batch.seqs[place]] = Seen(parts[0].decode(), batch.times[place], *parts[1:])
    return found, live


def check(store: RealStore, truth: RealStore) -> None:
    assert [found.name for found in list_streams(store.path)] == sorted(truth.streams)
    for name, messages in truth.messages.items():
        found, live = read(open_stream(store.path, name))
        assert found == messages, name
        assert live.last_seq == truth.streams[name]["state"]["last_seq"], name
        assert not live.lost


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RealStore:
    return write_store(tmp_path_factory.mktemp("plain"), fill_everything)


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_after_a_clean_stop_it_is_what_clients_saw(tmp_path: Path, cipher: str, compression: str) -> None:
    store = write_store(tmp_path, lambda peer: fill_everything(peer, compression), cipher=cipher)
    check(store, store)
    for name, seen in store.consumers.items():
        stream, _, consumer = name.partition("/")
        consumers, problems = open_stream(store.path, stream).consumers()
        state = next(each.state for each in consumers if each.name == consumer)
        assert not problems
        assert seen["delivered"]["consumer_seq"] == state.delivered_consumer_seq
        assert seen["delivered"]["stream_seq"] == state.delivered_stream_seq
        assert seen["ack_floor"]["consumer_seq"] == state.ack_floor_consumer_seq
        assert seen["ack_floor"]["stream_seq"] == state.ack_floor_stream_seq
        assert seen["num_ack_pending"] == len(state.pending)
        assert seen["num_redelivered"] == len(state.redelivered)


@pytest.mark.parametrize(("cipher", "compression"), [("", "none"), ("", "s2"), ("chacha", "none"), ("aes", "s2")])
def test_after_a_kill_it_is_what_nats_server_finds_when_it_starts(
    tmp_path: Path, cipher: str, compression: str
) -> None:
    store = write_store(tmp_path, lambda peer: fill_everything(peer, compression), cipher=cipher, is_clean=False)
    kept = RealStore(str(shutil.copytree(store.path, tmp_path / "copy")))
    check(kept, restarted(tmp_path, cipher))


def test_directories_of_ours_are_not_taken_for_a_nats_servers(plain: RealStore, tmp_path: Path) -> None:
    assert is_nats_store(plain.path)
    assert is_nats_store(f"{plain.path}/jetstream/$G/streams/PLAIN")
    (tmp_path / "jetstream" / "%24G" / "streams" / "S").mkdir(parents=True)
    assert not is_nats_store(str(tmp_path))


def test_stream_s_own_directory_is_enough(plain: RealStore) -> None:
    stream = open_stream(f"{plain.path}/jetstream/$G/streams/PLAIN", "PLAIN")
    assert stream.account == "$G" and read(stream)[0] == plain.messages["PLAIN"]


def copy_of(plain: RealStore, tmp_path: Path) -> Path:
    return Path(shutil.copytree(plain.path, tmp_path / "copy"))


def test_flipped_byte_costs_its_message_where_the_index_is_fresh(plain: RealStore, tmp_path: Path) -> None:
    copy = copy_of(plain, tmp_path)
    block = copy / "jetstream/$G/streams/PLAIN/msgs/1.blk"
    data = bytearray(block.read_bytes())
    data[25] ^= 1  # of the subject of the first message
    block.write_bytes(data)
    found, live = read(open_stream(str(copy), "PLAIN"))
    assert found == {seq: seen for seq, seen in plain.messages["PLAIN"].items() if seq != 1}
    assert 1 in live.blocks[0].live


def test_damage_without_an_index_costs_the_rest_of_its_block_and_is_listed(plain: RealStore, tmp_path: Path) -> None:
    copy = copy_of(plain, tmp_path)
    msgs = copy / "jetstream/$G/streams/SMALL/msgs"
    (msgs / "index.db").unlink()
    first = sorted(msgs.glob("*.blk"), key=lambda path: int(path.stem))[0]
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    found, live = read(open_stream(str(copy), "SMALL"))
    missing = plain.messages["SMALL"].keys() - found.keys()
    assert missing and missing <= set(live.lost)
    assert all(plain.messages["SMALL"][seq] == seen for seq, seen in found.items() if seq in plain.messages["SMALL"])
    assert any(first.name in problem for problem in live.problems)


def test_torn_tail_is_no_message(plain: RealStore, tmp_path: Path) -> None:
    copy = copy_of(plain, tmp_path)
    (block,) = (copy / "jetstream/$G/streams/FIRST/msgs").glob("*.blk")
    block.write_bytes(block.read_bytes()[:-5])
    found, _ = read(open_stream(str(copy), "FIRST"))
    assert found == {seq: seen for seq, seen in plain.messages["FIRST"].items() if seq != 1004}


def test_wrong_key_is_told(tmp_path: Path) -> None:
    store = write_store(
        tmp_path, lambda peer: peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}), cipher="aes"
    )
    with pytest.raises(WrongKey, match=r"meta\.key"):
        open_stream(store.path, "S", [b"wrong"])


def test_damaged_configuration_is_told(plain: RealStore, tmp_path: Path) -> None:
    copy = copy_of(plain, tmp_path)
    meta = copy / "jetstream/$G/streams/PLAIN/meta.inf"
    meta.write_bytes(meta.read_bytes().replace(b"limits", b"limitz"))
    with pytest.raises(CorruptBlock, match="checksum"):
        open_stream(str(copy), "PLAIN")


def test_purge_cut_short_counts_once_its_new_block_is_there(plain: RealStore, tmp_path: Path) -> None:
    copy = copy_of(plain, tmp_path)
    stream = copy / "jetstream/$G/streams"
    shutil.copytree(stream / "PURGED/msgs", stream / "PURGED/__new_msgs__")
    shutil.rmtree(stream / "PURGED/msgs")
    found, live = read(open_stream(str(copy), "PURGED"))
    assert not found and live.last_seq == 30

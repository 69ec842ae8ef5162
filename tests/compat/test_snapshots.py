"""Snapshots and restores: the same on both servers, and from one to the other."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from jetlake.store.nats import s2
from jetlake.store.nats._archive_py import encode_numbers
from jetlake.store.nats.archive import MAGIC, SENTINEL, entry
from tests.compat.conftest import Pair
from tests.compat.peer import Peer, header_block
from tests.compat.servers import JETLAKE, Server
from tests.compat.snapshots import restore, take
from tests.store.nats.real_store import RealStore, fill_everything, write_store


def plain_of(data: bytes) -> bytes:
    return bytes(s2.decode(data))


def archive(*parts: bytes) -> bytes:
    return s2.IDENTIFIER + b"".join(b"".join(s2.encode_chunk(part)) for part in parts if part)


def fill(peer: Peer, name: str, count: int = 50, **config: Any) -> None:
    answer = peer.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})
    assert "error" not in answer, answer
    for number in range(count):
        headers = header_block(Nats_Msg_Id=number, A="b") if number % 3 == 0 else b""
        peer.request(f"{name}.{number % 5}", b"payload %d" % number * 20, headers)


def add_consumers(peer: Peer, name: str) -> None:
    config = {"durable_name": "dur", "ack_policy": "explicit", "ack_wait": 3600 * 10**9}
    peer.api(f"CONSUMER.DURABLE.CREATE.{name}.dur", {"stream_name": name, "config": config})
    batch = peer.requests(f"$JS.API.CONSUMER.MSG.NEXT.{name}.dur", b'{"batch":5}', b"", 5)
    for message in (batch[0], batch[1], batch[3]):
        peer.request(message.reply, b"+ACK")


def look(peer: Peer, name: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A stream as clients see it."""
    seen = RealStore("")
    seen.look(peer, [name])
    state = {part: value for part, value in seen.streams[name]["state"].items() if part != "consumer_count"}
    consumers = {
        each: {part: info[part] for part in ("num_ack_pending", "num_redelivered", "num_pending")}
        | {part: [info[part]["consumer_seq"], info[part]["stream_seq"]] for part in ("delivered", "ack_floor")}
        for each, info in seen.consumers.items()
    }
    return seen.messages[name], state, consumers


def test_snapshot_is_an_archive_with_state_consumers_and_messages(peer: Peer, name: str) -> None:
    fill(peer, name, 10)
    add_consumers(peer, name)
    peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 4})
    taken = take(peer, name)
    plain = plain_of(taken.data)
    assert plain.startswith(MAGIC) and plain.endswith(SENTINEL)
    assert plain.index(b"state.json") < plain.index(b"consumers/dur") < plain.index(f"{name}.0".encode(), 400)
    assert taken.response["state"]["messages"] == 9 and taken.response["config"]["name"] == name
    assert taken.end.status == "" and not taken.chunks[-1].reply


def test_messages_of_an_archive_have_the_same_layout_on_both_servers(pair: Pair, name: str) -> None:
    tails = []
    for server in pair:
        with Peer(server) as peer:
            fill(peer, name, 3)
            plain = plain_of(take(peer, name).data)
            tails.append([len(part) for part in plain.split(b"payload")[1:]])
    assert tails[0] == tails[1]


def test_large_snapshot_comes_in_chunks_of_the_size_asked_for(peer: Peer, name: str) -> None:
    peer.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
    for _ in range(20):
        peer.request(name, os.urandom(5000))
    taken = take(peer, name, chunk_size=4096, window_size=8192)
    assert {len(chunk.payload) for chunk in taken.chunks[:-1]} == {4096}
    assert all(
        chunk.reply.split(".")[-2:] == ["4096", str(number)] for number, chunk in enumerate(taken.chunks[:-1], 1)
    )
    assert taken.chunks[0].reply.startswith(f"$JS.SNAPSHOT.ACK.{name}.")
    assert taken.end.status == "204"


@pytest.mark.parametrize(
    ("body", "code"),
    [({}, 10003), ({"deliver_subject": ""}, 10015), ({"deliver_subject": "a.*"}, 10015)],
)
def test_bad_snapshot_requests_are_refused(peer: Peer, name: str, body: dict[str, Any], code: int) -> None:
    fill(peer, name, 1)
    assert peer.api(f"STREAM.SNAPSHOT.{name}", body)["error"]["err_code"] == code


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_snapshot_restores_with_its_consumers(peer: Peer, name: str, storage: str) -> None:
    fill(peer, name, storage=storage)
    add_consumers(peer, name)
    for seq in (1, 7, 50):
        peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq})
    before, taken = look(peer, name), take(peer, name)
    peer.api(f"STREAM.DELETE.{name}")
    answer = restore(peer, taken.response["config"], taken.data)
    assert answer["type"].endswith("stream_create_response") and answer["state"]["messages"] == 47
    after = look(peer, name)
    assert after[0] == before[0] and after[2] == before[2]
    assert after[1]["last_seq"] == before[1]["last_seq"] == 50
    assert peer.request(f"{name}.0").json["seq"] == 51


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("compression", ["none", "s2"])
def test_snapshot_of_one_server_restores_into_the_other(pair: Pair, name: str, ours: bool, compression: str) -> None:
    source, target = (pair.ours, pair.real) if ours else (pair.real, pair.ours)
    with Peer(source) as peer:
        fill(peer, name, 200, compression=compression)
        add_consumers(peer, name)
        peer.api(f"STREAM.PURGE.{name}", {"filter": f"{name}.1"})
        before, taken = look(peer, name), take(peer, name, chunk_size=1024)
    with Peer(target) as peer:
        answer = restore(peer, taken.response["config"], taken.data, taken.response["state"], chunk_size=700)
        assert "error" not in answer, answer
        after = look(peer, name)
    assert after[0] == before[0] and after[2] == before[2]
    assert {**after[1], "last_ts": ""} == {**before[1], "last_ts": ""}


def test_restored_stream_may_have_another_name_and_storage(peer: Peer, name: str) -> None:
    fill(peer, name, 5)
    taken = take(peer, name)
    config = {**taken.response["config"], "name": f"{name}_B", "subjects": [f"other.{name}"], "storage": "memory"}
    assert restore(peer, config, taken.data)["state"]["messages"] == 5


def state_entry(**fields: Any) -> bytes:
    state = {"messages": 1, "bytes": 40, "first_seq": 1, "last_seq": 2, "consumer_count": 0, **fields}
    return entry("state.json", 1, json.dumps(state).encode())


def message(seq: int, subject: str = "x", payload: bytes = b"hi", headers: bytes = b"") -> bytes:
    head = encode_numbers(len(subject), 1_700_000_000_000_000_000, seq, len(headers), len(payload))
    return head + subject.encode() + headers + payload


BROKEN: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "EOF"),
    "not S2": (b"hello world, this is not S2", "s2: corrupt input"),
    "cut S2": (archive(MAGIC + state_entry() + message(1) + SENTINEL)[:-3], "s2: corrupt input"),
    "neither archive nor tar": (archive(b"x" * 600), "archive/tar: invalid tar header"),
    "no end": (archive(MAGIC + state_entry() + message(1)), "EOF"),
    "cut message": (
        archive((MAGIC + state_entry() + message(1))[:-1]),
        "failed to read message sequence 1: archive: invalid archive stream",
    ),
    "cut state": (archive((MAGIC + state_entry())[:-1]), "error in state.json: archive: invalid archive stream"),
    "too many messages": (
        archive(MAGIC + state_entry(messages=9) + message(1) + SENTINEL),
        "invalid stream state: message count exceeds sequence range",
    ),
    "no first sequence": (
        archive(MAGIC + state_entry(first_seq=0, last_seq=0) + SENTINEL),
        "invalid stream state: inconsistent message count or sequence range",
    ),
    "order": (archive(MAGIC + state_entry() + message(2) + message(1) + SENTINEL), "message sequence 1 out of order"),
    "no sequence": (archive(MAGIC + state_entry() + message(0) + SENTINEL), "expected message sequence"),
    "no consumer": (
        archive(MAGIC + state_entry(consumer_count=1) + message(1) + SENTINEL),
        'expected consumer, found "x"',
    ),
    "consumer without state": (
        archive(MAGIC + state_entry(consumer_count=1) + entry("consumers/d", 1, b'{"config":{"name":"d"}}') + SENTINEL),
        'consumer "d" is missing state',
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_archive_is_refused_in_the_same_words(pair: Pair, name: str, case: str) -> None:
    data, text = BROKEN[case]
    for server in pair:
        with Peer(server) as peer:
            config = {"name": name, "subjects": [name], "storage": "file"}
            error = restore(peer, config, data)["error"]
            assert (error["code"], error["err_code"], error["description"]) == (500, 10062, f"restore failed: {text}")


@pytest.mark.parametrize("case", BROKEN)
def test_difference_broken_archive_leaves_nothing_behind(shared: Any, name: str, case: str) -> None:
    """nats-server keeps what it had restored by then, as a stream that is live."""
    server: Server = shared(JETLAKE)
    with Peer(server) as peer:
        restore(peer, {"name": name, "subjects": [name], "storage": "file"}, BROKEN[case][0])
        assert peer.api(f"STREAM.INFO.{name}")["error"]["err_code"] == 10059
    assert not list(server.store.glob("jetstream/*/streams/~*")) and not list(server.store.glob(f"**/{name}"))


def test_taken_name_and_taken_subjects_are_refused(peer: Peer, name: str) -> None:
    fill(peer, name, 2)
    taken = take(peer, name)
    assert restore(peer, taken.response["config"], taken.data)["error"]["err_code"] == 10130
    error = restore(peer, {**taken.response["config"], "name": f"{name}_C"}, taken.data)["error"]
    assert error["err_code"] in (10062, 10065) and "subjects overlap" in error["description"]


def test_difference_restored_stream_keeps_when_it_was_created_and_its_message_ids(shared: Any, name: str) -> None:
    """In nats-server a restored stream is a new one: who sources from it copies all of it again."""
    with Peer(shared(JETLAKE)) as peer:
        fill(peer, name, 5)
        created, taken = peer.api(f"STREAM.INFO.{name}")["created"], take(peer, name)
        peer.api(f"STREAM.DELETE.{name}")
        restore(peer, taken.response["config"], taken.data)
        assert peer.api(f"STREAM.INFO.{name}")["created"] == created
        assert peer.request(f"{name}.0", b"", header_block(Nats_Msg_Id=3)).json["duplicate"]


def test_restored_stream_is_there_after_a_kill(start: Any, name: str) -> None:
    server: Server = start("", "-js")
    with Peer(server) as peer:
        fill(peer, name, 30)
        add_consumers(peer, name)
        before, taken = look(peer, name), take(peer, name)
        peer.api(f"STREAM.DELETE.{name}")
        assert "error" not in restore(peer, taken.response["config"], taken.data)
    server.kill()
    server.start()
    with Peer(server) as peer:
        assert look(peer, name)[0] == before[0]


def test_restore_that_is_cut_off_leaves_nothing_behind(shared: Any, name: str) -> None:
    server: Server = shared(JETLAKE)
    with Peer(server) as peer:
        fill(peer, name, 100)
        taken = take(peer, name)
        peer.api(f"STREAM.DELETE.{name}")
        begun = peer.api(f"STREAM.RESTORE.{name}", {"config": taken.response["config"]})
        peer.request(begun["deliver_subject"], taken.data[:500])
        peer.publish(begun["deliver_subject"], taken.data[500:])  # without a reply: it is given up
        assert peer.request(begun["deliver_subject"], b"x").status == "503"
        assert peer.api(f"STREAM.INFO.{name}")["error"]["err_code"] == 10059


def tar_of(directory: Path) -> bytes:
    """The snapshot that nats-server before 2.15 makes of a stream's directory: a tar of its files."""
    out = io.BytesIO()
    order = ["meta.inf", "meta.sum", *sorted(f"msgs/{path.name}" for path in (directory / "msgs").glob("*.blk"))]
    order += ["msgs/index.db", *sorted(str(path.relative_to(directory)) for path in directory.glob("obs/*/*"))]
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in order:
            info = tarfile.TarInfo(name)
            data = (directory / name).read_bytes()
            info.size, info.mode, info.uname, info.mtime = len(data), 0o600, "nats", 1_700_000_000.5
            tar.addfile(info, io.BytesIO(data))
    return archive(*[out.getvalue()[at : at + 60_000] for at in range(0, len(out.getvalue()), 60_000)])


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> tuple[RealStore, Path]:
    """What nats-server before 2.15 would have sent for its streams."""
    store = write_store(tmp_path_factory.mktemp("old"), lambda peer: fill_everything(peer, "s2"))
    return store, Path(store.path) / "jetstream/$G/streams"


@pytest.mark.parametrize("stream", ["PLAIN", "SMALL", "PURGED", "WORK"])
def test_old_snapshot_restores_with_its_consumers(kind: str, start: Any, old: Any, stream: str) -> None:
    store, streams = old
    with Peer(start("", "-js")) as peer:
        config = {name: value for name, value in store.streams[stream]["config"].items() if name != "metadata"}
        answer = restore(peer, config, tar_of(streams / stream))
        assert "error" not in answer, answer
        assert answer["created"] == store.streams[stream]["created"]
        seen = RealStore("")
        seen.look(peer, [stream])
    assert seen.messages[stream] == store.messages[stream]
    assert seen.streams[stream]["state"]["last_seq"] == store.streams[stream]["state"]["last_seq"]
    for name, info in seen.consumers.items():
        for part in ("num_ack_pending", "num_redelivered", "num_pending"):
            assert info[part] == store.consumers[name][part], (name, part)


def test_difference_old_snapshot_restores_into_memory(shared: Any, old: Any) -> None:
    """nats-server restores an empty stream then, and says that all is well."""
    store, streams = old
    with Peer(shared(JETLAKE)) as peer:
        config = {**store.streams["KV"]["config"], "storage": "memory", "metadata": {}, "compression": "none"}
        assert restore(peer, config, tar_of(streams / "KV"))["state"]["messages"] == len(store.messages["KV"])
        peer.api("STREAM.DELETE.KV")


def test_old_snapshot_under_another_name_is_refused(peer: Peer, old: Any, name: str) -> None:
    store, streams = old
    config = {**store.streams["KV"]["config"], "name": name, "subjects": [name], "metadata": {}}
    error = restore(peer, config, tar_of(streams / "KV"))["error"]
    assert error["description"] == "restore failed: stream names do not match"


@pytest.mark.parametrize("member", ["../escaped", "msgs/../../escaped"])
def test_old_snapshot_that_leads_elsewhere_is_refused(peer: Peer, name: str, member: str) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo(member), io.BytesIO(b""))
    error = restore(peer, {"name": name, "subjects": [name], "storage": "file"}, archive(out.getvalue()))["error"]
    assert "unexpected content" in error["description"]

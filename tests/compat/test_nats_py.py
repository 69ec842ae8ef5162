"""The official Python client, unmodified: messaging, streams, key-value buckets and object stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import nats
import nats.js.errors
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import KeyValueConfig, ObjectStoreConfig, StorageType

from tests.compat.servers import Server


@pytest_asyncio.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    connection = await nats.connect(server.url)
    yield connection
    await connection.close()


async def test_publish_and_subscribe(client: Client, name: str) -> None:
    got: list[Msg] = []

    async def keep(message: Msg) -> None:
        got.append(message)

    subscription = await client.subscribe(f"{name}.>", cb=keep)
    for number in range(100):
        await client.publish(f"{name}.{number}", b"%d" % number, headers={"n": str(number)})
    await client.flush()
    await subscription.drain()
    assert [message.data for message in got] == [b"%d" % number for number in range(100)]
    assert got[7].headers == {"n": "7"}


async def test_request_and_reply(client: Client, name: str) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(b"re: " + message.data)

    await client.subscribe(name, "workers", cb=answer)
    answers = await asyncio.gather(*(client.request(name, b"%d" % n) for n in range(50)))
    assert [message.data for message in answers] == [b"re: %d" % n for n in range(50)]
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request(f"{name}.nobody", b"")


async def test_streams(client: Client, name: str) -> None:
    js = client.jetstream()
    await js.add_stream(name=name, subjects=[f"{name}.>"], allow_direct=True, max_msgs=100)
    acks = await asyncio.gather(*(js.publish(f"{name}.{n % 3}", b"%d" % n) for n in range(150)))
    assert sorted(ack.seq for ack in acks) == list(range(1, 151)) and acks[0].stream == name
    info = await js.stream_info(name, subjects_filter=">")
    assert (
        info.state.messages == 100
        and info.state.first_seq == 51
        and set(info.state.subjects or {}) == {f"{name}.{n}" for n in range(3)}
    )
    assert (await js.get_msg(name, 60)).data == b"59"
    assert (await js.get_last_msg(name, f"{name}.1")).data == b"148"
    assert (await js.get_msg(name, subject=f"{name}.2", direct=True)).data == b"149"
    assert await js.delete_msg(name, 60)
    with pytest.raises(nats.js.errors.NotFoundError):
        await js.get_msg(name, 60)
    await js.purge_stream(name, subject=f"{name}.1")
    assert name in [stream.config.name for stream in await js.streams_info()]
    assert await js.find_stream_name_by_subject(f"{name}.1") == name
    assert await js.delete_stream(name)


async def test_duplicates_and_expectations(client: Client, name: str) -> None:
    js = client.jetstream()
    await js.add_stream(name=name, subjects=[name])
    first = await js.publish(name, b"a", headers={"Nats-Msg-Id": "1"})
    again = await js.publish(name, b"a", headers={"Nats-Msg-Id": "1"})
    assert (first.duplicate, again.duplicate, again.seq) == (None, True, 1)
    with pytest.raises(nats.js.errors.APIError, match="wrong last sequence: 1"):
        await js.publish(name, b"b", headers={"Nats-Expected-Last-Sequence": "5"})


@pytest.mark.parametrize("storage", list(StorageType))
async def test_key_value(client: Client, name: str, storage: StorageType) -> None:
    js = client.jetstream()
    kv = await js.create_key_value(KeyValueConfig(bucket=name, history=5, storage=storage))
    assert await kv.put("a.b", b"1") == 1
    assert await kv.update("a.b", b"2", last=1) == 2
    with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
        await kv.update("a.b", b"3", last=1)
    assert await kv.create("c", b"new") == 3
    with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
        await kv.create("c", b"again")
    entry = await kv.get("a.b")
    assert (entry.value, entry.revision) == (b"2", 2)
    assert (await kv.get("a.b", revision=1)).value == b"1"
    await kv.delete("c")
    with pytest.raises(nats.js.errors.KeyNotFoundError):
        await kv.get("c")
    assert await kv.create("c", b"back") == 5
    await kv.purge("a.b")
    with pytest.raises(nats.js.errors.KeyNotFoundError):
        await kv.get("a.b")
    status = await kv.status()
    assert (status.bucket, status.history, status.values) == (name, 5, 4)
    assert await js.delete_key_value(name)


async def test_key_value_watch_and_history(client: Client, name: str) -> None:
    js = client.jetstream()
    kv = await js.create_key_value(bucket=name, history=3)
    for number in range(5):
        await kv.put("k", b"%d" % number)
    await kv.put("other", b"x")
    assert [entry.value for entry in await kv.history("k")] == [b"2", b"3", b"4"]
    assert sorted(await kv.keys()) == ["k", "other"]
    watcher = await kv.watch("k")
    assert (await watcher.updates()).value == b"4"
    assert await watcher.updates() is None
    await kv.put("k", b"5")
    assert (await watcher.updates()).value == b"5"
    await watcher.stop()


@pytest.mark.parametrize("size", [0, 10, 131_072, 500_000])
async def test_object_store(client: Client, name: str, size: int) -> None:
    js = client.jetstream()
    store = await js.create_object_store(name, ObjectStoreConfig(description="things"))
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    info = await store.put("some thing", data)
    assert info.size == size
    assert (await store.get("some thing")).data == data
    await store.put("some thing", b"replaced")
    assert (await store.get("some thing")).data == b"replaced"
    await store.delete("some thing")
    with pytest.raises(nats.js.errors.ObjectNotFoundError):
        await store.get("some thing")
    await js.delete_object_store(name)


async def test_client_reconnects_to_a_restarted_server(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("reconnect")
    with Server(kind, directory) as server:
        reconnected = asyncio.Event()

        async def note() -> None:
            reconnected.set()

        client = await nats.connect(
            server.url, reconnected_cb=note, reconnect_time_wait=0.05, max_reconnect_attempts=-1
        )
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        got = await client.subscribe("hello")
        for number in range(10):
            await js.publish("s", b"%d" % number)
        server.kill()
        await asyncio.to_thread(server.start)
        await asyncio.wait_for(reconnected.wait(), 15)
        assert (await js.publish("s", b"10")).seq == 11
        await client.publish("hello", b"again")
        assert (await got.next_msg(5)).data == b"again"
        await client.close()

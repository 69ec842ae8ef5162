"""TLS: after INFO, before INFO, with client certificates, and plain bytes where TLS is due."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.compat.conftest import Start
from tests.compat.peer import Closed, Peer
from tests.compat.servers import LOOPBACK, Server


class Certificates:
    """An authority, and what it signed: a server and a client."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        authority = ec.generate_private_key(ec.SECP256R1())
        self._write("ca", authority, _certificate("test authority", authority, "test authority", authority, is_ca=True))
        for name in ("server", "client", "other"):
            key = ec.generate_private_key(ec.SECP256R1())
            signer, issuer = (key, name) if name == "other" else (authority, "test authority")
            self._write(name, key, _certificate(name, key, issuer, signer))

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        pem = serialization.Encoding.PEM
        plain = serialization.NoEncryption()
        self.path(name, "key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        self.path(name, "crt").write_bytes(certificate.public_bytes(pem))

    def more(self, name: str, dns: str) -> str:
        """A certificate for a server of this name, as an entry of `certs`."""
        authority = serialization.load_pem_private_key(self.path("ca", "key").read_bytes(), None)
        assert isinstance(authority, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        self._write(name, key, _certificate(name, key, "test authority", authority, dns=dns))
        return f'{{cert_file: "{self.path(name, "crt")}", key_file: "{self.path(name, "key")}"}}'

    def path(self, name: str, kind: str) -> Path:
        return self.directory / f"{name}.{kind}"

    def block(self, extra: str = "") -> str:
        return f'tls {{ cert_file: "{self.path("server", "crt")}", key_file: "{self.path("server", "key")}"\n{extra} }}'

    def context(self, client: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.path("ca", "crt")))
        if client:
            context.load_cert_chain(self.path(client, "crt"), self.path(client, "key"))
        return context


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    is_ca: bool = False,
    dns: str = "localhost",
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName(dns), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def works(server: Server, context: ssl.SSLContext, *, tls_first: bool = False) -> bool:
    """True when a message goes round through TLS."""
    try:
        with Peer(server, tls=context, tls_first=tls_first) as peer:
            return peer.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n") == [b"MSG a 1 2\r\nhi\r\n"]
    except (ssl.SSLError, Closed, ConnectionError):
        return False


def test_tls_after_info(start: Start, certificates: Certificates) -> None:
    server = start(certificates.block())
    with Peer(server, None) as peer:
        assert peer.info["tls_required"] is True and "tls_verify" not in peer.info
    assert works(server, certificates.context())
    with Peer(server, tls=certificates.context()) as peer:
        peer.subscribe("a")
        peer.publish("a", b"x" * 1_000_000)
        assert peer.message().payload == b"x" * 1_000_000


def test_tls_by_flags(start: Start, certificates: Certificates) -> None:
    crt, key = (str(certificates.path("server", kind)) for kind in ("crt", "key"))
    assert works(start("", "--tls", "--tlscert", crt, "--tlskey", key), certificates.context())


def test_plain_bytes_where_tls_is_due(start: Start, certificates: Certificates) -> None:
    with Peer(start(certificates.block()), None) as peer:
        peer.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
        said = peer.rest()
        assert said == [] or said == [b"-ERR 'Secure Connection - TLS Required'\r\n"]


def test_client_certificates(start: Start, certificates: Certificates) -> None:
    server = start(certificates.block(f'ca_file: "{certificates.path("ca", "crt")}"\nverify: true'))
    with Peer(server, None) as peer:
        assert peer.info["tls_verify"] is True
    assert works(server, certificates.context("client"))
    assert not works(server, certificates.context())
    assert not works(server, certificates.context("other"))


def alert(server: Server, context: ssl.SSLContext) -> str:
    """What a refused client is told."""
    with pytest.raises(ssl.SSLError) as caught, Peer(server, None, tls=context) as peer:
        peer.rest()
    return caught.value.reason


def test_a_handshake_that_fails_ends_with_an_alert(start: Start, certificates: Certificates) -> None:
    server = start(certificates.block(f'ca_file: "{certificates.path("ca", "crt")}"\nverify: true'))
    assert alert(server, certificates.context()) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert alert(server, certificates.context("other")) == "TLSV1_ALERT_UNKNOWN_CA"
    server = start(certificates.block('min_version: "1.3"'))
    old = certificates.context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert alert(server, old) == "TLSV1_ALERT_PROTOCOL_VERSION"


@pytest.mark.parametrize("suites", ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"])
def test_cipher_suites(start: Start, certificates: Certificates, suites: str) -> None:
    server = start(certificates.block(f"cipher_suites: [{suites}]"))
    new, old, other = (certificates.context() for _ in range(3))
    old.maximum_version = other.maximum_version = ssl.TLSVersion.TLSv1_2
    other.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    assert works(server, new) and not works(server, other)
    assert works(server, old) == ("ECDHE" in suites)


def test_handshake_first(start: Start, certificates: Certificates) -> None:
    server = start(certificates.block("handshake_first: true"))
    assert works(server, certificates.context(), tls_first=True)
    with socket.create_connection((LOOPBACK, server.port), timeout=0.3) as raw, pytest.raises(TimeoutError):
        raw.recv(1)


def test_handshake_first_with_a_fallback(start: Start, certificates: Certificates) -> None:
    server = start(certificates.block("handshake_first: 100ms"))
    assert works(server, certificates.context(), tls_first=True)
    assert works(server, certificates.context())


def test_tls_is_offered_where_plain_is_allowed(start: Start, certificates: Certificates) -> None:
    server = start(certificates.block() + "\nallow_non_tls: true")
    with Peer(server) as peer:
        assert peer.info.get("tls_available") is True and peer.ask() == []
    assert works(server, certificates.context())


def test_a_handshake_that_never_comes_times_out(start: Start, certificates: Certificates) -> None:
    with Peer(start(certificates.block("timeout: 0.3")), None) as peer:
        peer.rest()
        assert peer.is_closed


def test_reload_takes_new_certificates(start: Start, certificates: Certificates, tmp_path: Path) -> None:
    server = start(certificates.block())
    other = Certificates(tmp_path)
    assert not works(server, other.context())
    server.reload(other.block())
    assert works(server, other.context()) and not works(server, certificates.context())


def test_a_certificate_says_who_the_user_is(start: Start, certificates: Certificates) -> None:
    ca = f'ca_file: "{certificates.path("ca", "crt")}", verify_and_map: true'
    users = [
        "{user: localhost, permissions: {publish: {deny: x}}}",
        '{user: "CN=client", permissions: {publish: {deny: x}}}',
        "{user: somebody}",
    ]
    denied = [b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n"]
    for user in users:
        server = start(f"{certificates.block(ca)}\nauthorization {{ users: [{user}] }}")
        with Peer(server, tls=certificates.context("client"), user="somebody") as peer:
            said = peer.ask(b"PUB x 0\r\n\r\n")
            assert said == ([b"-ERR 'Authorization Violation'\r\n"] if user is users[-1] else denied)


def test_pinned_certificates(start: Start, certificates: Certificates) -> None:
    certificate = x509.load_pem_x509_certificate(certificates.path("client", "crt").read_bytes())
    info = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = hashlib.sha256(info).hexdigest()
    ca = f'ca_file: "{certificates.path("ca", "crt")}", verify: true'
    assert works(start(certificates.block(f'{ca}, pinned_certs: ["{digest.upper()}"]')), certificates.context("client"))
    other = start(certificates.block(f'{ca}, pinned_certs: ["{"0" * 64}"]'))
    assert not works(other, certificates.context("client"))


def test_one_curve(start: Start, certificates: Certificates) -> None:
    server = start(certificates.block("curve_preferences: [CurveP384]"))
    context = certificates.context()
    context.set_ecdh_curve("prime256v1")
    assert works(server, certificates.context()) and not works(server, context)


def shown_name(server: Server, context: ssl.SSLContext, name: str) -> str:
    """Whose certificate a client gets that asks for a name."""
    context.check_hostname = False
    with socket.create_connection((LOOPBACK, server.port), timeout=10) as raw:
        raw.recv(4096)
        with context.wrap_socket(raw, server_hostname=name) as secure:
            shown = secure.getpeercert(binary_form=True)
    assert shown is not None
    (common,) = x509.load_der_x509_certificate(shown).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(common.value)


def test_of_several_certificates_the_one_for_the_name_is_shown(start: Start, certificates: Certificates) -> None:
    pairs = [certificates.more("one", "one.example"), certificates.more("two", "*.two.example")]
    server = start(f"tls {{ certs: [ {', '.join(pairs)} ] }}")
    for name, shown in (
        ("one.example", "one"),
        ("a.two.example", "two"),
        ("A.Two.example", "two"),
        ("a.b.two.example", "one"),
        ("unknown", "one"),
    ):
        assert shown_name(server, certificates.context(), name) == shown, name
    assert shown_name(server, certificates.context(), LOOPBACK) == "one"


@pytest.mark.parametrize(
    "words",
    [
        "certs: [ {cert_file: a} ]",
        "certs: [ {cert_file: nowhere.pem, key_file: nowhere.pem} ]",
        "cert_file: a, key_file: b, certs: [ {cert_file: a, key_file: b} ]",
        "cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]",
        "cipher_suites: [TLS_NONE], allow_insecure_cipher_suites: true",
        "curve_preferences: [CurveP1]",
    ],
)
def test_a_wrong_tls_block_stops_the_server(start: Start, words: str) -> None:
    with pytest.raises(AssertionError, match="did not start"):
        start(f"tls {{ {words} }}")


def test_insecure_suites_are_there_where_they_are_allowed(start: Start, certificates: Certificates) -> None:
    suites = "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256], allow_insecure_cipher_suites: true"
    server = start(certificates.block(suites))
    old, other = certificates.context(), certificates.context()
    old.maximum_version = other.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    other.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    assert works(server, old) and not works(server, other)

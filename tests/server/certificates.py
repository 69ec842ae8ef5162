"""Certificates for a test: an authority, a server and a client."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certificates:
    """Files in a directory: ca, server, client and stranger, each with .crt and .key."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        authority = ec.generate_private_key(ec.SECP256R1())
        self._write("ca", authority, _certificate("ca", authority, "ca", authority, is_ca=True))
        for name in ("server", "client", "stranger"):
            key = ec.generate_private_key(ec.SECP256R1())
            signer, issuer = (key, name) if name == "stranger" else (authority, "ca")
            self._write(name, key, _certificate(name, key, issuer, signer))

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        self.path(name, "key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        self.path(name, "crt").write_bytes(certificate.public_bytes(pem))

    def path(self, name: str, kind: str) -> Path:
        return self.directory / f"{name}.{kind}"

    def block(self, extra: str = "") -> str:
        """A tls block."""
        return (
            f'tls {{ cert_file: "{self.path("server", "crt")}", key_file: "{self.path("server", "key")}"\n{extra} }}\n'
        )

    def context(self, client: str = "") -> ssl.SSLContext:
        """What a client needs."""
        context = ssl.create_default_context(cafile=str(self.path("ca", "crt")))
        if client:
            context.load_cert_chain(self.path(client, "crt"), self.path(client, "key"))
        return context


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey, is_ca: bool = False
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
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

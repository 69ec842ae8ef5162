"""Names and keys of certificates."""

from __future__ import annotations

import datetime
import hashlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from jetlake.broker.certificates import is_pinned, key_digest, mapped_name

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(subject: str, *names: x509.GeneralName) -> bytes:
    now, name = datetime.datetime.now(datetime.UTC), x509.Name.from_rfc4514_string(subject)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


NAMED = certificate(
    "CN=bob,OU=dev,O=Acme",
    x509.DNSName("bob.acme.com"),
    x509.RFC822Name("bob@acme.com"),
    x509.UniformResourceIdentifier("spiffe://acme/bob"),
)


@pytest.mark.parametrize(
    ("users", "name"),
    [
        (["bob@acme.com", "bob.acme.com"], "bob@acme.com"),
        (["spiffe://acme/bob", "bob.acme.com"], "bob.acme.com"),
        (["spiffe://acme/bob", "CN=bob,OU=dev,O=Acme"], "spiffe://acme/bob"),
        (["CN=bob,OU=dev,O=Acme"], "CN=bob,OU=dev,O=Acme"),
        (["O=Acme, OU=dev, CN=bob"], "O=Acme, OU=dev, CN=bob"),
        (["OU=dev,CN=bob,O=Acme"], "OU=dev,CN=bob,O=Acme"),
        (["CN=bob,O=Acme", "CN=bob", "bob", "=", "CN=eve,OU=dev,O=Acme"], None),
        ([], None),
    ],
)
def test_whose_certificate_it_is(users: list[str], name: str | None) -> None:
    assert mapped_name(NAMED, users) == name


def test_a_certificate_that_says_nothing_is_nobodys() -> None:
    assert mapped_name(certificate(""), ["CN=bob", ""]) is None
    assert mapped_name(b"not a certificate", ["bob"]) is None


def test_pinned_keys() -> None:
    info = KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert key_digest(NAMED) == hashlib.sha256(info).hexdigest()
    assert is_pinned(NAMED, {key_digest(NAMED)}) and not is_pinned(NAMED, {"00"})
    assert not is_pinned(None, {key_digest(NAMED)}) and not is_pinned(b"x", {"00"})

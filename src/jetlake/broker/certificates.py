"""What the certificate of a client says of it: the names that a user may have (`verify_and_map`), and its key.

A user is named by an e-mail address, a DNS name or a URI of the certificate, literally; or by the subject, as a
distinguished name whose parts may come in any order (`O=Acme,CN=bob` is `CN=bob,O=Acme`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def mapped_name(certificate: bytes, users: Iterable[str]) -> str | None:
    """Which of these users a certificate (DER) is of."""
    try:
        found = x509.load_der_x509_certificate(certificate)
        names = _alternative_names(found)
        subject = _parts(found.subject)
    except ValueError:
        return None
    known = set(users)
    for name in names:
        if name in known:
            return name
    return next((user for user in users if "=" in user and subject and _named(user) == subject), None)


def key_digest(certificate: bytes) -> str:
    """The SHA-256 of the public key of a certificate (DER), by which it can be pinned. Raises ValueError."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def is_pinned(certificate: bytes | None, pinned: Container[str]) -> bool:
    """True when the key of a certificate is one of these."""
    try:
        return certificate is not None and key_digest(certificate) in pinned
    except ValueError:
        return False


def dns_names(path: str) -> list[str]:
    """The names of servers that a certificate (in a PEM file) is for. Raises OSError or ValueError."""
    with open(path, "rb") as file:
        certificate = x509.load_pem_x509_certificate(file.read())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [name.lower() for name in names.get_values_for_type(x509.DNSName)]


def is_for(name: str, names: Container[str]) -> bool:
    """True when a server's name is one of these, which may begin with a wildcard."""
    return name in names or f"*.{name.partition('.')[2]}" in names


def _alternative_names(certificate: x509.Certificate) -> list[str]:
    """E-mail addresses first, then DNS names, then URIs, as in nats-server."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [
        *names.get_values_for_type(x509.RFC822Name),
        *names.get_values_for_type(x509.DNSName),
        *names.get_values_for_type(x509.UniformResourceIdentifier),
    ]


def _parts(name: x509.Name) -> list[list[tuple[str, str]]]:
    """The parts of a distinguished name, in an order that does not depend on how it was written."""
    return sorted(sorted((found.oid.dotted_string, str(found.value)) for found in part) for part in name.rdns)


def _named(user: str) -> list[list[tuple[str, str]]] | None:
    try:
        return _parts(x509.Name.from_rfc4514_string(_without_blanks(user)))
    except ValueError:  # a name of another kind
        return None


def _without_blanks(text: str) -> str:
    """`CN=a, O=b` as RFC 4514 writes it."""
    return ",".join(part.strip() for part in text.split(","))

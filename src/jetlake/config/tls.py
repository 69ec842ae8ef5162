"""The `tls` block, of listeners and of connections that the server makes."""

from __future__ import annotations

import re
from typing import Any

from jetlake.config.options import TlsOptions
from jetlake.config.read import (
    MERGE,
    SECOND_NS,
    Section,
    as_list,
    boolean,
    duration_ns,
    integer,
    keys,
    names,
    positive_or,
    string,
    strings,
    timeout_s,
    warning,
)
from jetlake.config.value import Value

HANDSHAKE_FALLBACK_S = 0.05
_NOT_NEGATIVE = integer(0)


def _handshake_first(value: Value, warnings: list[str]) -> dict[str, Any]:
    if isinstance(value.data, bool):
        return {"handshake_first": value.data}
    text = string(value, warnings).lower()
    if text in ("true", "on", "false", "off"):
        return {"handshake_first": text in ("true", "on")}
    if text in ("auto", "auto_fallback"):
        return {"handshake_first": True, "handshake_first_fallback_s": HANDSHAKE_FALLBACK_S}
    fallback_s = duration_ns(value, warnings) / SECOND_NS
    if fallback_s <= 0:
        raise value.error("expected a duration above zero")
    return {"handshake_first": True, "handshake_first_fallback_s": fallback_s}


def _tls_version(value: Value, warnings: list[str]) -> str:
    version = string(value, warnings)
    if version not in ("1.2", "1.3"):
        raise value.error(f'expected "1.2" or "1.3", found {version!r}')
    return version


_TLS13_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_TLS12_SUITES = {
    f"TLS_ECDHE_{key}_WITH_{name}": f"ECDHE-{key}-{openssl_name}"
    for key in ("ECDSA", "RSA")
    for name, openssl_name in {
        "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
        "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
        "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
        "AES_128_CBC_SHA": "AES128-SHA",
        "AES_256_CBC_SHA": "AES256-SHA",
    }.items()
}


# Those that Go calls insecure and OpenSSL still has.
_INSECURE_SUITES = {
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
}
_GONE_SUITES = frozenset(
    f"TLS_{key}_WITH_{name}"
    for key, name in [
        ("RSA", "RC4_128_SHA"),
        ("RSA", "3DES_EDE_CBC_SHA"),
        ("ECDHE_ECDSA", "RC4_128_SHA"),
        ("ECDHE_RSA", "RC4_128_SHA"),
        ("ECDHE_RSA", "3DES_EDE_CBC_SHA"),
    ]
)


def _ciphers(value: Value, warnings: list[str]) -> tuple[str, ...]:
    """The names of suites, by Go's names."""
    suites = [(string(item, warnings), item) for item in as_list(value, "an array of cipher suites")]
    if not suites:
        raise value.error("expected at least one cipher suite")
    for name, item in suites:
        if name in _GONE_SUITES:
            raise item.error(f"the cipher suite {name!r} is one that OpenSSL does not have any more")
        if name not in _TLS12_SUITES and name not in _TLS13_SUITES and name not in _INSECURE_SUITES:
            raise item.error(f"unknown cipher suite {name!r}")
    return tuple(name for name, _ in suites)


def _allowed_ciphers(value: Value, suites: tuple[str, ...] | None, allow_insecure: bool) -> tuple[str, ...] | None:
    """The suites of TLS 1.2 among those named, by OpenSSL's names; as in Go, those of TLS 1.3 are always there."""
    if suites is None:
        return None
    insecure = [name for name in suites if name in _INSECURE_SUITES]
    if insecure and not allow_insecure:
        problem = "insecure cipher suites configured without 'allow_insecure_cipher_suites' option set"
        raise value.error(f"{problem}: {', '.join(insecure)}")
    known = _TLS12_SUITES | _INSECURE_SUITES
    return tuple(known[name] for name in suites if name in known)


CERT_PAIR = Section("certs", keys(cert_file=("", string), key_file=("", string)))


def _certs(value: Value, warnings: list[str]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for item in as_list(value, "an array of {cert_file, key_file}"):
        fields = CERT_PAIR.read(item, warnings)
        if len(fields) < 2:
            raise item.error("a certificate needs a 'cert_file' and a 'key_file'")
        pairs.append((fields["cert_file"], fields["key_file"]))
    return tuple(pairs)


_CURVES = {"X25519": "X25519", "CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1"}
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _verify_and_map(value: Value, warnings: list[str]) -> dict[str, Any]:
    return {"verify_and_map": True, "verify": True} if boolean(value, warnings) else {}


def _pinned_certs(value: Value, warnings: list[str]) -> frozenset[str]:
    pinned = [(string(item, warnings).lower(), item) for item in as_list(value, "an array of SHA-256 digests")]
    for digest, item in pinned:
        if not _DIGEST.fullmatch(digest):
            raise item.error("expected the SHA-256 of a public key: 64 hexadecimal digits")
    return frozenset(digest for digest, _ in pinned)


def _curve(value: Value, warnings: list[str]) -> str:
    """The curve of the key exchange: one, since OpenSSL's interface in Python takes no list."""
    curves = strings(value, warnings)
    if unknown := set(curves) - _CURVES.keys():
        raise value.error(f"unknown curve {min(unknown)!r}: expected {', '.join(_CURVES)}")
    if len(curves) != 1:
        raise value.error("one curve can be chosen: the TLS of Python takes no list of them")
    return _CURVES[curves[0]]


def _insecure(value: Value, warnings: list[str]) -> bool:
    if boolean(value, warnings):
        warnings.append(warning(value, "is for connections that the server makes; a listener has no use for it"))
    return bool(value.data)


TLS = Section(
    "tls",
    keys(
        cert_file=("", string),
        key_file=("", string),
        ca_file=("", string),
        verify=("", boolean),
        timeout_s=("timeout", positive_or(2.0, timeout_s)),
        min_version=("", _tls_version),
        ciphers=("cipher_suites", _ciphers),
        pinned_certs=("", _pinned_certs),
        connection_rate_limit=("", _NOT_NEGATIVE),
        curve=("curve_preferences", _curve),
        certs=("certs certificates", _certs),
        allow_insecure=("allow_insecure_cipher_suites", boolean),
        insecure=("", _insecure),
    )
    | {"verify_and_map": (MERGE, _verify_and_map)}
    | dict.fromkeys(("handshake_first", "first", "immediate"), (MERGE, _handshake_first)),
    refused=names(
        "verify_cert_and_check_known_urls cert_store cert_match_by cert_match "
        "ca_certs_match cert_match_skip_invalid ocsp_peer"
    ),
)


CLIENT_TLS = Section("tls", TLS.keys | keys(insecure=("", boolean)), TLS.refused)


def tls(value: Value, warnings: list[str]) -> TlsOptions:
    """TLS of a listener."""
    options = _options(TLS, value, warnings)
    for name in ("cert_file", "key_file"):
        if not getattr(options, name):
            raise value.error(f"{name!r} is missing")
    return options


def client_tls(value: Value, warnings: list[str]) -> TlsOptions:
    """TLS towards another server, which needs no certificate of our own."""
    return _options(CLIENT_TLS, value, warnings)


def _options(section: Section, value: Value, warnings: list[str]) -> TlsOptions:
    fields = section.read(value, warnings)
    fields["ciphers"] = _allowed_ciphers(value, fields.get("ciphers"), fields.pop("allow_insecure", False))
    pairs = fields.pop("certs", ())
    if pairs and "cert_file" in fields:
        raise value.error("cannot combine 'cert_file' option with 'certs' option")
    if pairs:
        (fields["cert_file"], fields["key_file"]), *more = pairs
        fields["more_certs"] = tuple(more)
    return TlsOptions(**fields)

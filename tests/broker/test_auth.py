"""Credentials: by themselves, and beside what the real nats-server lets in."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from jetlake import nkeys
from jetlake.broker import auth
from jetlake.broker.auth import (
    Authenticator,
    AuthOptions,
    BcryptMissing,
    Credentials,
    User,
    passwords_match,
)
from tests.broker.real_server import login, real_server

# Made with package nkeys 0.2.1: the pair of the seed 00 01 ... 1f, and its signature over `nonce-1`.
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
NKEY = "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK"
SIGNATURE = "Aj_HcjDZwFlZktcyYu97JAgWYctxzcaFc0SikCYG0tfchHcFVhub4zZnHvakWWBUcdmRZEtv5hiISSzXSYZ5BA"
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(reversed(range(32))))


def public(private: Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


OTHER_NKEY = nkeys.encode_public(nkeys.USER, public(OTHER))

# Made with package bcrypt 5.0.0 from `secret`.
HASH = "$2a$04$y78OBjXM6vjQ3JhS7uKIuufU6n9XWpRYaQhx0GuJkWLQAOy0bm2EW"


@pytest.mark.parametrize(
    ("sig", "accepted"),
    [
        (SIGNATURE, True),
        (SIGNATURE + "==", True),
        (SIGNATURE.replace("_", "/") + "==", True),
        (SIGNATURE[:-2] + "AA", False),
        (SIGNATURE[1:], False),
        ("é", False),
        ("A", False),
        ("", False),
    ],
)
def test_a_signature_over_the_nonce_proves_the_nkey(sig: str, accepted: bool) -> None:
    user = User(NKEY, nkey=NKEY)
    authenticator = Authenticator(AuthOptions(users=(user,)))
    assert authenticator.check(Credentials(nkey=NKEY, sig=sig), b"nonce-1") == (user if accepted else None)
    assert authenticator.check(Credentials(nkey=NKEY, sig=sig), b"nonce-2") is None
    assert authenticator.needs_nonce and authenticator.required


def test_a_bad_nkey_in_the_options_is_refused() -> None:
    with pytest.raises(nkeys.BadNkey):
        Authenticator(AuthOptions(users=(User("x", nkey="UABC"),)))


def test_without_users_everybody_is_in_the_global_account() -> None:
    authenticator = Authenticator(AuthOptions())
    found = authenticator.check(Credentials(user="me", password="x"))
    assert found is not None and found.account == auth.GLOBAL_ACCOUNT and not authenticator.required
    assert not authenticator.needs_nonce


def test_a_user_brings_their_account() -> None:
    bob = User("bob", "B", "pw")
    authenticator = Authenticator(AuthOptions(users=(User("ann", "A", "pw"), bob)))
    assert authenticator.check(Credentials(user="bob", password="pw")) is bob


def test_secrets_are_not_printed() -> None:
    shown = [User("u", password="hidden"), AuthOptions(token="hidden", password="hidden")]
    assert "hidden" not in repr([*shown, Credentials(password="hidden", auth_token="hidden", sig="hidden")])


def test_a_missing_bcrypt_is_said_when_the_users_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bcrypt", None)
    with pytest.raises(BcryptMissing, match="pip install bcrypt"):
        Authenticator(AuthOptions(users=(User("u", password=HASH),)))
    Authenticator(AuthOptions(users=(User("u", password="$2 is cheap"),)))


def test_bcrypt_compares_with_the_hash() -> None:
    bcrypt = pytest.importorskip("bcrypt", reason="package bcrypt is not installed")
    assert passwords_match(HASH, "secret")
    assert not passwords_match(HASH, HASH) and not passwords_match(HASH, "Secret") and not passwords_match(HASH, "")
    assert not passwords_match("$2a$04$short", "secret")
    long = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    assert passwords_match(long, "x" * 72) and passwords_match(long, "x" * 100)
    assert not passwords_match(long, "x" * 71)


def test_is_slow_tells_which_checks_compute_a_hash() -> None:
    pytest.importorskip("bcrypt", reason="package bcrypt is not installed")
    authenticator = Authenticator(AuthOptions(users=(User("slow", password=HASH), User("fast", password="pw"))))
    assert authenticator.is_slow(Credentials(user="slow"))
    assert not any(authenticator.is_slow(Credentials(user=name)) for name in ("fast", "nobody", ""))
    assert Authenticator(AuthOptions(token=HASH)).is_slow(Credentials(auth_token="x"))


PLAIN_USERS = (User("ann", password="pw"), User("bob", password="other"), User("empty"))
NKEY_USERS = (User(NKEY, nkey=NKEY), User("ann", password="pw"))
CONFIGURATIONS = {
    "open": AuthOptions(),
    "token": AuthOptions(token="t0ken"),
    "single": AuthOptions(username="ann", password="pw"),
    "users": AuthOptions(users=PLAIN_USERS),
    "no_auth_user": AuthOptions(users=PLAIN_USERS, no_auth_user="bob"),
    "nkeys": AuthOptions(users=NKEY_USERS),
    "nkeys_no_auth_user": AuthOptions(users=NKEY_USERS, no_auth_user="ann"),
    "no_auth_nkey": AuthOptions(users=NKEY_USERS, no_auth_user=NKEY),
    "bcrypt": AuthOptions(users=(User("ann", password=HASH),)),
    "bcrypt_token": AuthOptions(token=HASH),
    "bcrypt_single": AuthOptions(username="ann", password=HASH),
}
ATTEMPTS = [
    Credentials(),
    Credentials(user="ann", password="pw"),
    Credentials(user="ann", password="pW"),
    Credentials(user="ann", password="pw "),
    Credentials(user="ann", password="secret"),
    Credentials(user="ann", password=HASH),
    Credentials(user="ann"),
    Credentials(user="bob", password="pw"),
    Credentials(user="nobody", password="pw"),
    Credentials(user="empty"),
    Credentials(password="pw"),
    Credentials(auth_token="t0ken"),
    Credentials(auth_token="secret"),
    Credentials(auth_token="wrong"),
    Credentials(user="ann", password="pw", auth_token="wrong"),
    Credentials(user="t0ken"),
    Credentials(user="ann", password="pw", nkey=OTHER_NKEY),
    Credentials(nkey=NKEY),
    Credentials(nkey=OTHER_NKEY),
    Credentials(nkey="nonsense"),
]
SIGNERS: dict[str, Callable[[bytes], bytes]] = {NKEY: PRIVATE.sign, OTHER_NKEY: OTHER.sign}


def as_config(options: AuthOptions) -> str:
    users: list[dict[str, str]] = []
    for user in options.users:
        users.append({"nkey": user.nkey} if user.nkey else {"user": user.name, "password": user.password})
    section: dict[str, object] = {"users": users} if users else {}
    if options.token:
        section["token"] = options.token
    if options.username:
        section |= {"user": options.username, "password": options.password}
    text = f"authorization: {json.dumps(section)}" if section else ""
    return text + (f"\nno_auth_user: {options.no_auth_user}" if options.no_auth_user else "")


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_nats_server_lets_the_same_in(name: str) -> None:
    options = CONFIGURATIONS[name]
    if "bcrypt" in name:
        pytest.importorskip("bcrypt", reason="package bcrypt is not installed")
    authenticator = Authenticator(options)
    with real_server(as_config(options)) as port:
        for attempt in ATTEMPTS:
            sent = {"user": attempt.user, "pass": attempt.password, "auth_token": attempt.auth_token}
            sent |= {"nkey": attempt.nkey}
            sent = {key: value for key, value in sent.items() if value}
            assert login(port, **sent) == (authenticator.check(attempt) is not None), attempt


def test_nats_server_refuses_a_no_auth_user_whose_password_is_a_hash_and_we_do_not() -> None:
    """It compares the hash with itself as if a client had sent it. The configuration says what was meant."""
    pytest.importorskip("bcrypt", reason="package bcrypt is not installed")
    options = AuthOptions(users=(User("ann", password=HASH),), no_auth_user="ann")
    assert Authenticator(options).check(Credentials()) is options.users[0]
    with real_server(as_config(options)) as port:
        assert not login(port)
        assert login(port, user="ann", **{"pass": "secret"})


@pytest.mark.parametrize("encode", [base64.urlsafe_b64encode, base64.b64encode], ids=["url", "standard"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("signer", [NKEY, OTHER_NKEY])
def test_nats_server_takes_the_same_signatures(encode: Callable[[bytes], bytes], padded: bool, signer: str) -> None:
    options = CONFIGURATIONS["nkeys"]
    authenticator = Authenticator(options)
    answers: list[bool] = []

    def sign(nonce: bytes) -> str:
        sig = encode(SIGNERS[signer](nonce)).decode()
        sig = sig if padded else sig.rstrip("=")
        answers.append(authenticator.check(Credentials(nkey=NKEY, sig=sig), nonce) is not None)
        return sig

    with real_server(as_config(options)) as port:
        found = login(port, sign=sign, nkey=NKEY)
    assert answers == [signer == NKEY]
    # We take either alphabet with or without padding; nats-server only url without, and standard with.
    assert found is answers[0] or (padded == (encode is base64.urlsafe_b64encode) and not found)

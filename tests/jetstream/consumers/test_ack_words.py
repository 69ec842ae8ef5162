"""Ack subjects and payloads."""

from __future__ import annotations

import pytest

from jetlake.jetstream.consumers.ack_words import (
    AckKind,
    Delivery,
    account_hash,
    is_ack_subject,
    nak_delay_ns,
    parse_payload,
    parse_subject,
)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (b"$JS.ACK.S.C.1.2.3.4.5", Delivery(1, 2, 3)),
        (b"$JS.ACK._.hash.S.C.1.2.3.4.5", Delivery(1, 2, 3)),
        (b"$JS.ACK.hub.hash.S.C.1.2.3.4.5.more.tokens", Delivery(1, 2, 3)),
        (b"$JS.ACK.S.C.1.2.3.4", None),
        (b"$JS.ACK.S.C.1.2.3.4.5.6", None),
        (b"$JS.ACK.S.C.1.x.3.4.5", None),
        (b"$JS.ACK.S.C.1.-2.3.4.5", None),
        (b"$JS.ACK.S.C.1.99999999999999999999.3.4.5", None),
    ],
)
def test_which_delivery_an_ack_is_about(subject: bytes, expected: Delivery | None) -> None:
    assert parse_subject(subject) == expected


def test_an_ack_has_nine_tokens_or_eleven_and_more() -> None:
    subject = b"$JS.ACK.1.2.3.4.5.6.7.8.9.10"
    sizes = [size for size in range(1, 13) if is_ack_subject(b".".join(subject.split(b".")[:size]))]
    assert sizes == [9, 11, 12]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"", (AckKind.ACK, b"")),
        (b"+ACK", (AckKind.ACK, b"")),
        (b"+OK", (AckKind.ACK, b"")),
        (b"-NAK", (AckKind.NAK, b"")),
        (b'-NAK {"delay":5}', (AckKind.NAK, b' {"delay":5}')),
        (b"+WPI", (AckKind.PROGRESS, b"")),
        (b"+WPI now", (AckKind.UNKNOWN, b"")),
        (b"+NXT 5", (AckKind.NEXT, b" 5")),
        (b"+TERM because", (AckKind.TERM, b" because")),
        (b"yes", (AckKind.UNKNOWN, b"")),
    ],
)
def test_what_an_ack_says(payload: bytes, expected: tuple[AckKind, bytes]) -> None:
    assert parse_payload(payload) == expected


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        (b"", None),
        (b" 2s", 2_000_000_000),
        (b" 1m30s", 90_000_000_000),
        (b' {"delay": 500}', 500),
        (b" {}", 0),
        (b" soon", None),
        (b" {delay}", None),
        (b'{"delay":9223372036854775807}', 2**63 - 1),
        (b'{"delay":9223372036854775808}', None),
        (b"2562047h", 2562047 * 3600 * 10**9),
        (b"99999999999h", None),
        (b"1." * 20_000 + b"x", None),
        (b"9" * 40_000 + b"x", None),
        (b"0h" * 40_000, None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_how_long_a_refused_message_rests(argument: bytes, expected: int | None) -> None:
    assert nak_delay_ns(argument) == expected


def test_the_hash_of_an_account_is_that_of_nats_server() -> None:
    assert account_hash("$G") == "szMpdrwD"

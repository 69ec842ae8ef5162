"""The names by which a stream that copies, and what it copies, are known to servers.

`H8` below is the hash of eight letters and digits that NATS uses for accounts, too.

    id of a target      H8("<target> <account>[ <domain>]")
    consumer            JS_MIRROR_<id> or JS_SRC_<id>, made for a mirror or source on the server of its origin
    index name          <origin>[:H8(api)][:C=H8(consumer)] <filters> <destinations>: what tells two sources apart
    identity            H8(when the origin was made): another stream of the same name has another one
    Nats-Stream-Source  <first part of the index name> <sequence> <filters> <destinations> <subject> <identity>
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from jetlake.jetstream.consumers.ack_words import account_hash
from jetlake.jetstream.streams.config import StreamSource
from jetlake.subjects import decode_subject
from jetlake.wire.go_time import format_time

SOURCE_HEADER = b"Nats-Stream-Source"
IDENTITY_HEADER = b"Nats-Stream-Identity"
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_JOINED = "\f"
_FIELDS_MIN = 4


def random8() -> str:
    """Eight letters and digits that nobody else has."""
    return "".join(secrets.choice(_LETTERS) for _ in range(8))


def stable_id(target: str, account: str, domain: str) -> str:
    """The id of a stream that copies."""
    return account_hash(" ".join(filter(None, (target, account, domain))))


def identity_of(created_ns: int) -> str:
    """What tells a stream from another one of its name."""
    return account_hash(format_time(created_ns))


def index_name(source: StreamSource) -> str:
    """What tells a source from the others of its stream."""
    name = source.name
    if source.external is not None and source.external.api:
        name += f":{account_hash(source.external.api)}"
    if source.consumer is not None:
        name += f":C={account_hash(source.consumer.name)}"
    return f"{name} {_JOINED.join(filters(source) or ['>'])} {_JOINED.join(_destinations(source))}"


def filters(source: StreamSource) -> list[str]:
    """The subjects that are copied; none for all."""
    if source.subject_transforms:
        return [transform.src or ">" for transform in source.subject_transforms]
    return [source.filter_subject] if source.filter_subject else []


def _destinations(source: StreamSource) -> list[str]:
    return [transform.dest or ">" for transform in source.subject_transforms] or [">"]


class Origin(NamedTuple):
    """What a stored message says of where it was copied from."""

    index_name: str
    seq: int
    identity: str


def source_header(index: str, seq: int, subject: bytes, identity: str) -> bytes:
    """The value of the header that a copied message gets."""
    name, rest = index.split(" ", 1)
    parts = [name.encode(), b"%d" % seq, rest.encode(), subject]
    return b" ".join([*parts, identity.encode()] if identity else parts)


def read_source_header(value: bytes) -> Origin | None:
    """Where a stored message was copied from; None when the header does not say."""
    fields = decode_subject(value).split(" ")
    if len(fields) < 2 or not fields[1].isdigit():
        return None
    if len(fields) < _FIELDS_MIN:  # as older servers wrote it
        return Origin(f"{fields[0]} > >", int(fields[1]), "")
    return Origin(" ".join((fields[0], *fields[2:4])), int(fields[1]), fields[5] if len(fields) > 5 else "")

"""The options of the data source: their names, what they default to, and their values from text.

Spark hands options over as text, with names in lower case; case and underscores in a name do not count. An option that
does not exist is an error, for a typing mistake in `startSeq` would otherwise read the whole stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from jetlake.clock import SECOND_NS
from jetlake.store.blocks.envelope import KeySource
from jetlake.subjects import check_filter
from jetlake.table.blocks import Selection
from jetlake.table.errors import BadOption
from jetlake.table.plan import PARTITION_SIZE_DEFAULT

# Options that Spark itself puts among ours.
_OF_SPARK = {"checkpointlocation", "queryname", "__file_type", "header"}
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?)?\s*(Z|[+-]\d\d:?\d\d)?\Z")
_TIME_NS_MIN, _TIME_NS_MAX = -(2**63), 2**63 - 1
_NOT_IN_NAMES = re.compile(r"[\s.>/\\]")  # of a server's streams
_AT_LEAST_1 = (
    "partition_size",
    "partition_rows",
    "window",
    "block_size",
    "max_rows_per_trigger",
    "max_bytes_per_trigger",
)
_CHOICES = {
    "payload": ("binary", "string", "json"),
    "malformed": ("column", "fail"),
    "start": ("earliest", "latest"),
    "ongap": ("fail", "report"),
    "ondamage": ("fail", "report"),
}


def _option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Options:
    """Everything that can be said about a read or a write. The names here, without underscores, are the options'."""

    path: str = _option("", "a store directory (`jetlake serve -sd`), or one stream's directory")
    url: str = _option("", "a live server instead: nats://host:port, several separated by commas")
    stream: str = _option("", "the stream, or several: names or patterns, separated by commas")
    account: str = _option("", "the account, with `path`; $G when not given")

    start_seq: int | None = _option(None, "the first sequence wanted")
    end_seq: int | None = _option(None, "the last sequence wanted")
    start_time: str = _option("", "messages stored at or after this time (ISO 8601, UTC unless it says otherwise)")
    end_time: str = _option("", "messages stored before this time")
    subject: str = _option("", "subjects with wildcards, separated by commas")

    columns: str = _option("", "the columns to read, separated by commas; all of them when not given")
    subject_tokens: str = _option("", "tokens as columns: orders.{region}.{id}; {rest>} takes all that follow")
    payload: str = _option("binary", "binary, string (UTF-8 text) or json (typed columns)")
    payload_schema: str = _option("", "with payload=json: the fields, as `id BIGINT, amount DOUBLE`; else inferred")
    payload_prefix: str = _option("", "with payload=json: put in front of the fields' names")
    malformed: str = _option("column", "payloads that are not what `payload` says: into _malformed, or fail")

    start: str = _option("earliest", "where a new streaming query begins: earliest or latest")
    max_rows_per_trigger: int | None = _option(None, "at most so many messages in a micro-batch")
    max_bytes_per_trigger: int | None = _option(None, "at most about so many bytes in a micro-batch")
    on_gap: str = _option("fail", "messages removed before they were read: fail or report")
    on_damage: str = _option("fail", "messages whose bytes are damaged: fail or report")
    partition_size: int = _option(PARTITION_SIZE_DEFAULT, "about how many bytes one task reads at most, in a batch")
    partition_rows: int = _option(
        200_000, "how many messages one task reads in a micro-batch, or sequences of a server"
    )

    key_file: str = _option("", "the key of an encrypted store: a file that every executor can read")
    passphrase_file: str = _option("", "the passphrase of an encrypted store, in the first line of such a file")

    user: str = _option("", "user name for the server")
    password: str = _option("", "its password")
    token: str = _option("", "a token for the server")
    nkey_file: str = _option("", "a file with an nkey seed")
    creds_file: str = _option("", "a credentials file (JWT and nkey seed)")
    tls: bool = _option(False, "require TLS, also where the url says nats://")
    tls_first: bool = _option(False, "begin with the TLS handshake, before the server's greeting")
    tls_ca_file: str = _option("", "certificates to trust; the system's when not given")
    tls_cert_file: str = _option("", "our certificate")
    tls_key_file: str = _option("", "its key")
    tls_host: str = _option("", "the name that the server's certificate must have, if not that of the url")
    timeout_s: float = _option(10.0, "how long to wait for an answer of the server")
    retries: int = _option(3, "how often a request or connection is tried again")

    job_id: str = _option("", "batch writes: an id that makes a repeated job write nothing twice")
    rate: float = _option(0.0, "writes to a server: at most so many messages a second, per task")
    window: int = _option(65_536, "writes to a server: how many messages may wait for their ack, per task")
    subjects: str = _option("", "writes: the subjects of a stream that is made; NAME.> when not given")
    block_size: int = _option(32 * 1024 * 1024, "writes to a path: the size at which a block is sealed")

    @property
    def selection(self) -> Selection:
        """Which messages are wanted."""
        first, last = self.start_seq, self.end_seq
        return Selection(
            1 if first is None else first,
            2**63 - 1 if last is None else last,
            time_ns_of(self.start_time),
            max(time_ns_of(self.end_time) - 1, _TIME_NS_MIN) if self.end_time else _TIME_NS_MAX,
            tuple(split_list(self.subject)),
        )

    @property
    def keys(self) -> list[KeySource]:
        """The keys of an encrypted store; BadRequest or OSError when they cannot be had."""
        keys = [KeySource.key_file(path) for path in split_list(self.key_file)]
        for path in split_list(self.passphrase_file):
            keys.append(_passphrase((Path(path).read_bytes().splitlines() or [b""])[0]))
        return keys


@lru_cache(maxsize=8)
def _passphrase(secret: bytes) -> KeySource:
    """One object for each passphrase: it remembers the keys that it was stretched to, which takes long."""
    return KeySource.passphrase(secret)


def parse_options(given: Mapping[str, str]) -> Options:
    """Options from what Spark hands over; BadOption says what is wrong with them."""
    known = {item.name.replace("_", ""): item for item in fields(Options)}
    values: dict[str, Any] = {}
    for name, text in given.items():
        key = name.replace("_", "").lower()
        if key in _OF_SPARK:
            continue
        if key not in known:
            raise BadOption(f"there is no option {name}; there are {', '.join(map(option_name, known.values()))}")
        if text is not None and str(text) != "":
            values[known[key].name] = _value(option_name(known[key]), str(known[key].type), str(text).strip())
    options = Options(**values)
    _check(options)
    return options


def option_name(item: Any) -> str:
    """The name of an option as the documentation spells it: startSeq."""
    first, *rest = item.name.split("_")
    if item.name == "subject_tokens":
        return "subject_tokens"
    return str(first + "".join(part.capitalize() for part in rest))


def split_list(text: str) -> list[str]:
    """The parts of a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_time_ns(text: str) -> int:
    """A time as nanoseconds since the epoch: 2026-01-31, 2026-01-31T12:00:00.123456789Z, 2026-01-31 12:00:00+02:00."""
    found = _TIME.match(text.strip())
    if found is None:
        raise BadOption(f"{text!r} is not a time like 2026-01-31T12:00:00Z")
    day, clock, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock or '00:00'}{'+00:00' if zone in (None, 'Z') else zone}")
    except ValueError as error:
        raise BadOption(f"{text!r} is not a time: {error}") from None
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    return seconds * SECOND_NS + int((fraction or "").ljust(9, "0"))


def time_ns_of(text: str) -> int:
    """The time nearest to a given one that a message can have; the earliest when none is given."""
    return min(max(parse_time_ns(text), _TIME_NS_MIN), _TIME_NS_MAX) if text else _TIME_NS_MIN


def _value(name: str, kind: str, text: str) -> Any:
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise BadOption(f"option {name} is {text!r}, not true or false")
        return text.lower() == "true"
    if kind.startswith(("int", "float")):
        try:
            number = float(text) if kind == "float" else int(text.replace("_", ""))
        except ValueError:
            raise BadOption(f"option {name} is {text!r}, not a number") from None
        if number < 0:
            raise BadOption(f"option {name} is {text}, which is below 0")
        return number
    choices = _CHOICES.get(name.lower())
    if choices is not None and text not in choices:
        raise BadOption(f"option {name} is {text!r}, not {' or '.join(choices)}")
    return text


def _check(options: Options) -> None:
    if bool(options.path) == bool(options.url):
        raise BadOption("give either the option path (a directory) or url (a live server)")
    if options.url:
        _check_server(options)
    for subject in split_list(options.subject):
        check_filter(subject)
    for time in (options.start_time, options.end_time):
        if time:
            parse_time_ns(time)
    for item in fields(options):
        if item.name in _AT_LEAST_1 and getattr(options, item.name) == 0:
            raise BadOption(f"option {option_name(item)} must be at least 1")
    columns = [name.lower() for name in split_list(options.columns)]
    if len(set(columns)) < len(columns):
        raise BadOption(f"option columns has a column twice: {options.columns}")
    if options.payload != "json" and (options.payload_schema or options.payload_prefix):
        raise BadOption("payloadSchema and payloadPrefix need payload=json")


def _check_server(options: Options) -> None:
    if not options.stream:
        raise BadOption("option stream is missing: which stream of the server?")
    for name in split_list(options.stream):
        if found := _NOT_IN_NAMES.search(name):
            raise BadOption(f"option stream: {name!r} is not the name of a stream, it contains {found[0]!r}")
    if options.account:
        raise BadOption("option account is for path; with url, the account is that of the user who logs in")

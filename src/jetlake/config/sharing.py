"""What accounts share: the exports of one, the imports of another, and the rules between them.

An import names the account and the subject it wants, which an export of that account has to cover. Everything is
checked when the configuration is read, so that what a server links together is sound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from jetlake.config.options import AccountOptions, Export, Import, Latency
from jetlake.config.read import (
    SECOND_NS,
    Reader,
    Section,
    as_list,
    as_map,
    boolean,
    duration_ns,
    integer,
    keys,
    string,
)
from jetlake.config.subject_mapping import SubjectMapping
from jetlake.config.value import Value
from jetlake.errors import BadRequest, BadSubject
from jetlake.subjects import check_filter, check_subject, is_subset, overlaps

STREAM, SERVICE = "stream", "service"
SAMPLING_MAX = 100
_RESPONSE_TYPES = {"single": "singleton", "singleton": "singleton", "stream": "streamed", "chunked": "chunked"}
_THRESHOLD = "threshold response_threshold response_max_time response_time"


def _subject(check: Callable[[str], None]) -> Reader:
    """A reader of subjects, or of patterns of them, as the check goes."""

    def read(value: Value, warnings: list[str]) -> str:
        subject = string(value, warnings)
        try:
            check(subject)
        except BadSubject as error:
            raise value.error(str(error)) from None
        return subject

    return read


def _response_type(value: Value, warnings: list[str]) -> str:
    word = string(value, warnings).lower()
    if word not in _RESPONSE_TYPES:
        raise value.error(f"expected 'singleton', 'stream' or 'chunked', found {word!r}")
    return _RESPONSE_TYPES[word]


def _threshold_s(value: Value, warnings: list[str]) -> float:
    threshold_ns = duration_ns(value, warnings)
    if threshold_ns <= 0:
        raise value.error("expected a duration that is positive")
    return threshold_ns / SECOND_NS


def sampling(value: Value, warnings: list[str]) -> int:
    """How many of 100: a number or a percentage."""
    text = str(value.data).removesuffix("%") if type(value.data) in (int, str) else ""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:4]) <= SAMPLING_MAX:
        raise value.error("expected a sampling from 1 to 100")
    return int(text)


def _latency_sampling(value: Value, warnings: list[str]) -> int:
    is_by_headers = isinstance(value.data, str) and value.data.strip().lower() == "headers"
    return 0 if is_by_headers else sampling(value, warnings)


LATENCY = Section("latency", keys(subject=("", _subject(check_subject)), sampling=("", _latency_sampling)))


def _latency(value: Value, warnings: list[str]) -> Latency:
    if isinstance(value.data, str):
        return Latency(_subject(check_subject)(value, warnings))
    fields = LATENCY.read(value, warnings)
    if "subject" not in fields:
        raise value.error("Latency subject required, but missing")
    return Latency(**fields)


TRACE = Section("msg_trace", keys(trace_dest=("dest", _subject(check_subject)), trace_sampling=("sampling", sampling)))


def msg_trace(value: Value, warnings: list[str]) -> dict[str, Any]:
    """Where message traces go that another system's header asks for, as fields of an account."""
    if isinstance(value.data, str):
        return {"trace_dest": _subject(check_subject)(value, warnings)}
    return TRACE.read(value, warnings)


def _account_names(value: Value, warnings: list[str]) -> tuple[str, ...]:
    return tuple(string(item, warnings) for item in as_list(value, "an array of account names"))


EXPORT = Section(
    "an export",
    keys(
        stream=("", _subject(check_filter)),
        service=("", _subject(check_filter)),
        accounts=("", _account_names),
        account_token_position=("", integer(1)),
        response_type=("response response_type", _response_type),
        response_threshold_s=(_THRESHOLD, _threshold_s),
        latency=("", _latency),
        allow_trace=("", boolean),
    ),
)
_OF_SERVICES = ("response_type", "response_threshold_s", "latency", "allow_trace")

SOURCE = Section("what is imported", keys(account=("", string), subject=("", _subject(check_filter))))


def _source(value: Value, warnings: list[str]) -> dict[str, str]:
    fields = SOURCE.read(Value(as_map(value, "{account, subject}"), value.where), warnings)
    if len(fields) < 2:
        raise value.error("an import needs an 'account' and a 'subject'")
    return fields


IMPORT = Section(
    "an import",
    keys(
        stream=("", _source),
        service=("", _source),
        to=("", string),
        prefix=("", _subject(check_subject)),
        share=("", boolean),
        allow_trace=("", boolean),
    ),
)


def _kind(value: Value, fields: dict[str, Any], what: str) -> str:
    found = [kind for kind in (STREAM, SERVICE) if kind in fields]
    if len(found) != 1:
        raise value.error(f"{what} needs either 'stream' or 'service'")
    return found[0]


# ---------------------------------------------------------------------------------------------- exports


def _export(value: Value, warnings: list[str]) -> Export:
    fields = EXPORT.read(value, warnings)
    kind = _kind(value, fields, "an export")
    if kind == STREAM and (wrong := [name for name in _OF_SERVICES if name in fields]):
        raise value.error(f"a stream has no {wrong[0].removesuffix('_s')!r}: only services are answered")
    if "latency" in fields and fields.get("response_type", "singleton") != "singleton":
        raise value.error("'latency' is measured of single answers: bad service response type")
    subject, position = fields.pop(kind), fields.get("account_token_position", 0)
    if position and subject.split(".")[position - 1 : position] != ["*"]:
        raise value.error(f"'account_token_position': token {position} of {subject!r} is not '*'")
    return Export(kind=kind, subject=subject, **fields)


class Listed(NamedTuple):
    """An export or import with its place in the file."""

    value: Value
    read: Any


def listed(read: Reader, what: str) -> Reader:
    """A reader of arrays that remembers where each item stands."""
    return lambda value, warnings: [Listed(item, read(item, warnings)) for item in as_list(value, what)]


exports = listed(_export, "an array of exports")

# ---------------------------------------------------------------------------------------------- imports


def _import(value: Value, warnings: list[str]) -> Import:
    fields = IMPORT.read(value, warnings)
    kind = _kind(value, fields, "an import")
    source = fields.pop(kind)
    if kind == SERVICE and "allow_trace" in fields:
        raise value.error("'allow_trace' of a service belongs to its export")
    prefix, local = fields.pop("prefix", ""), fields.pop("to", "")
    if prefix and local:
        raise value.error("an import has a 'to' or a 'prefix', not both")
    if prefix and kind == STREAM:
        local = f"{prefix}.{source['subject']}"
    found = Import(kind=kind, **source, local=local or source["subject"], **fields)
    try:
        mapping = SubjectMapping(found.subject, found.local)
    except (BadRequest, BadSubject) as error:
        raise value.error(f"'to': {error}") from None
    if kind == STREAM and mapping.has_spare_wildcards:
        raise value.error(f"'to': {local!r} has more wildcards than {found.subject!r}")
    return found


imports = listed(_import, "an array of imports")


def link(accounts: dict[str, AccountOptions], shared: dict[str, dict[str, list[Listed]]]) -> dict[str, AccountOptions]:
    """The accounts with their exports and imports, each import knowing what its export says. Raises ConfigError."""
    offered = {name: lists.get("exports", []) for name, lists in shared.items()}
    for entry in (entry for entries in offered.values() for entry in entries):
        if unknown := set(entry.read.accounts) - accounts.keys():
            raise entry.value.error(f"the account {min(unknown)!r}, which may import this, is not defined")
    linked = {}
    for name, account in accounts.items():
        wanted = shared[name].get("imports", [])
        _check_duplicates(wanted)
        linked[name] = replace(
            account,
            exports=tuple(entry.read for entry in offered[name]),
            imports=tuple(_linked(name, entry, accounts, offered) for entry in wanted),
        )
    for name, lists in shared.items():
        for entry in lists.get("imports", []):
            if _comes_back(name, entry.read, linked):
                raise entry.value.error("the import forms a cycle: what it asks for is imported from here")
    return linked


def _linked(name: str, entry: Listed, accounts: dict[str, AccountOptions], offered: dict[str, list[Listed]]) -> Import:
    wanted: Import = entry.read
    if wanted.account not in accounts:
        raise entry.value.error(f"the account {wanted.account!r} is not defined")
    for offer in offered[wanted.account]:
        if _allows(offer.read, name, wanted):
            return wanted.as_offered(offer.read)
    problem = f"{wanted.account!r} does not export the {wanted.kind} {wanted.subject!r} to {name!r}"
    raise entry.value.error(problem)


def _allows(offer: Export, name: str, wanted: Import) -> bool:
    if offer.kind != wanted.kind or not is_subset(wanted.subject, offer.subject):
        return False
    if position := offer.account_token_position:
        return wanted.subject.split(".")[position - 1] == name
    return not offer.accounts or name in offer.accounts


def _check_duplicates(wanted: list[Listed]) -> None:
    seen = set()
    for entry in wanted:
        own = entry.read.local if entry.read.kind == SERVICE else entry.read.subject
        key = (entry.read.kind, entry.read.account, own)
        if key in seen:
            raise entry.value.error(f"the {entry.read.kind} {own!r} of {entry.read.account!r} is imported twice")
        seen.add(key)


def _comes_back(name: str, asked: Import, accounts: dict[str, AccountOptions]) -> bool:
    """Does what an import asks for lead, from import to import, back to the account?"""
    seen, ahead = set(), [asked]
    while ahead:
        step = ahead.pop()
        if step.account == name and overlaps(step.subject, _pattern(asked)):
            return True
        further = [found for found in _further(step, accounts[step.account]) if found not in seen]
        seen.update(further)
        ahead += further
    return False


def _further(step: Import, account: AccountOptions) -> Iterator[Import]:
    for found in account.imports:
        if found.kind == step.kind and overlaps(_pattern(found), step.subject):
            yield found


def _pattern(found: Import) -> str:
    return SubjectMapping(found.subject, found.local).local

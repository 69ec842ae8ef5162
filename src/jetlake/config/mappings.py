"""The `mappings` of an account: sources, and the destinations of each with their weights."""

from __future__ import annotations

from jetlake.config.options import MappingDestination, MappingOptions
from jetlake.config.read import Section, as_list, as_map, keys, string
from jetlake.config.value import Value
from jetlake.errors import BadSubject
from jetlake.subjects import check_filter

WEIGHT_MAX = 100


def mappings(value: Value, warnings: list[str]) -> tuple[MappingOptions, ...]:
    """Mappings in the order of the file. Whether destinations fit their sources is seen when they are used."""
    return tuple(_mapping(source, entry, warnings) for source, entry in as_map(value, "a map of subjects").items())


def _mapping(source: str, value: Value, warnings: list[str]) -> MappingOptions:
    try:
        check_filter(source)
    except BadSubject:
        raise value.error(f'Subject "{source}" is not a valid subject') from None
    if isinstance(value.data, str):
        return MappingOptions(source, (MappingDestination(value.data),))
    items = as_list(value) if isinstance(value.data, list) else [value]
    destinations = tuple(MappingDestination(**{"subject": ""} | DESTINATION.read(item, warnings)) for item in items)
    problem = _problem(destinations)
    if problem:
        raise value.error(f'Error adding mapping for "{source}" : {problem}')
    return MappingOptions(source, destinations)


def _problem(destinations: tuple[MappingDestination, ...]) -> str:
    subjects = [found.subject for found in destinations]
    for number, subject in enumerate(subjects):
        if not subject:
            return "a destination has no subject"
        if subject in subjects[:number]:
            return f'duplicate entry for "{subject}"'
    for cluster in {found.cluster for found in destinations}:
        if sum(found.weight for found in destinations if found.cluster == cluster) > WEIGHT_MAX:
            return "total weight needs to be <= 100"
    return ""


def _weight(value: Value, warnings: list[str]) -> int:
    """`20`, `20%` or `"20%"`."""
    text = str(value.data).strip().removesuffix("%") if not isinstance(value.data, bool) else ""
    if not (text.isascii() and text.isdigit()):
        raise value.error(f"expected a weight in per cent, found {value.data!r}")
    if int(text) > WEIGHT_MAX:
        raise value.error(f"Invalid weight {text} for mapping destination")
    return int(text)


DESTINATION = Section(
    "a mapping destination",
    keys(subject=("dest destination", string), weight=("", _weight), cluster=("", string)),
)

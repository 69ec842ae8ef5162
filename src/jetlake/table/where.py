"""Conditions to options: what of a SQL condition can rule out blocks before anything is read.

Spark 4.3 must not push filters into a Python source (it then answers later queries wrongly), so a read takes options
instead. `pruning` looks at the parts of a condition that are joined by AND at its top, and understands these:

    seq = 5        seq >= 5        5 < seq        seq BETWEEN 5 AND 9        seq IN (5, 7)
    time >= '2026-03-01'           time < TIMESTAMP '2026-03-01 12:00:00'    time_ns < 1772323200000000000
    subject = 'orders.eu.1'        subject IN ('a', 'b')                     subject LIKE 'orders.eu.%'
    region = 'eu'                  region IN ('eu', 'us')                    where region is a token of the subject

A part that is anything else rules nothing out, and so does a condition with comments, or with strings in other quotes
or with a backslash. The condition itself is always applied by Spark as well, so a part that is understood too narrowly
would be wrong, and one that is not understood is only slower.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from jetlake.clock import SECOND_NS
from jetlake.errors import BadSubject
from jetlake.subjects import check_filter, is_literal
from jetlake.table.errors import BadOption
from jetlake.table.options import parse_time_ns
from jetlake.table.tokens import TokenPattern

_FILTERS_MAX = 64
_TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^'\\]|'')*')|(?P<number>-?\d+)(?![\w.])|(?P<name>[A-Za-z_]\w*|`[^`]+`)"
    r"|(?P<sign><=>|<=|>=|<>|!=|=|<|>|\(|\)|,)|(?P<other>\S))"
)
_NOT_PLAIN = re.compile(r"""["\\$]|--|/\*|``""")  # strings, names and comments that _TOKEN does not see as Spark does
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "="}


def pruning(condition: str, subject_tokens: str = "", time_zone: str = "UTC") -> dict[str, str]:
    """Options that keep every message for which a condition is true."""
    bounds = _Bounds(TokenPattern(subject_tokens), _zone(time_zone))
    if _NOT_PLAIN.search(condition):
        return {}
    for part in _conjuncts(_tokens(condition)):
        bounds.narrow(part)
    return bounds.options()


def _zone(name: str) -> tzinfo | None:
    """A time zone by its name; None for the names that only Spark knows, like UTC+3."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


Token = tuple[str, str]  # kind and text


def _tokens(text: str) -> list[Token]:
    found, place = [], 0
    while (match := _TOKEN.match(text, place)) is not None:
        kind = str(match.lastgroup)
        found.append((kind, match[kind]))
        place = match.end()
    return found


def _conjuncts(tokens: list[Token]) -> list[list[Token]]:
    """The parts joined by AND at the top; none when there is an OR, or anything that is not balanced."""
    parts: list[list[Token]] = [[]]
    depth, between = 0, False
    if any(text.upper() == "CASE" for _, text in tokens):  # its own ANDs join nothing at the top
        return []
    for kind, text in tokens:
        word = text.upper() if kind == "name" else text
        depth += (word in ("(", "[")) - (word in (")", "]"))
        if depth < 0 or (not depth and word == "OR"):
            return []
        if not depth and word == "AND" and not between:
            parts.append([])
            continue
        if not depth and word in ("BETWEEN", "AND"):
            between = word == "BETWEEN"
        parts[-1].append((kind, word if word in ("AND", "BETWEEN", "IN", "LIKE", "NOT", "TIMESTAMP") else text))
    if depth:
        return []
    flat = []
    for part in parts:
        is_wrapped = len(part) > 2 and part[0][1] == "(" and _closes(part) == len(part) - 1
        flat += _conjuncts(part[1:-1]) if is_wrapped else [part]
    return flat


def _closes(part: list[Token]) -> int:
    """Where the parenthesis that opens a part is closed."""
    depth = 0
    for place, (_, text) in enumerate(part):
        depth += (text == "(") - (text == ")")
        if not depth:
            return place
    return -1


class _Bounds:
    """What is left after the parts so far."""

    def __init__(self, tokens: TokenPattern, zone: tzinfo | None) -> None:
        self._tokens, self._zone = tokens, zone
        self._first_seq, self._last_seq = 0, 2**63 - 1
        self._first_ns, self._end_ns = -(2**63), 2**63 - 1
        self._subjects: list[list[str]] = []  # each a list of filters of which one must match
        self._values: dict[str, list[str]] = {}

    def narrow(self, part: list[Token]) -> None:
        """Take one part into account."""
        comparison = _comparison(part)
        if comparison is None:
            return
        name, sign, literals = comparison
        if name == "seq":
            self._narrow_number(sign, literals, self._narrow_seq)
        elif name == "time_ns":
            self._narrow_number(sign, literals, self._narrow_time)
        elif name == "time":
            times = [("number", str(ns)) for ns in map(self._time_ns, literals) if ns is not None]
            if len(times) == len(literals):
                self._narrow_number(sign, times, self._narrow_coarse_time)
        elif name == "subject":
            self._narrow_subject(sign, literals)
        elif name in self._tokens.names and sign in ("=", "IN"):
            values = [text for text in map(_text, literals) if text is not None and _is_subject(text)]
            if len(values) == len(literals) and all("." not in value for value in values):
                known = self._values.get(name)
                self._values[name] = [value for value in values if known is None or value in known]

    def _narrow_number(self, sign: str, literals: list[Token], narrow: Callable[[Any, Any], None]) -> None:
        """Call `narrow` with the least and the greatest value that is possible."""
        if any(kind != "number" for kind, _ in literals):
            return
        numbers = [int(text) for _, text in literals]
        if sign in ("=", "IN"):
            narrow(min(numbers), max(numbers))
        elif sign == "BETWEEN":
            narrow(numbers[0], numbers[1])
        elif sign in (">", ">="):
            narrow(numbers[0] + (sign == ">"), None)
        elif sign in ("<", "<="):
            narrow(None, numbers[0] - (sign == "<"))

    def _narrow_seq(self, low: int | None, high: int | None) -> None:
        self._first_seq = max(self._first_seq, self._first_seq if low is None else low)
        self._last_seq = min(self._last_seq, self._last_seq if high is None else high)

    def _narrow_time(self, low: int | None, high: int | None) -> None:
        self._first_ns = max(self._first_ns, self._first_ns if low is None else low)
        self._end_ns = min(self._end_ns, self._end_ns if high is None else high + 1)

    def _narrow_coarse_time(self, low: int | None, high: int | None) -> None:
        """The column is in microseconds: what equals a literal lies up to a microsecond after it."""
        self._narrow_time(low, None if high is None else high + 999)

    def _narrow_subject(self, sign: str, literals: list[Token]) -> None:
        texts = [_text(literal) for literal in literals]
        if sign in ("=", "IN"):
            filters = [text for text in texts if text is not None and _is_subject(text)]
            if len(filters) == len(texts):
                self._subjects.append(filters)
        elif sign == "LIKE" and texts[0] is not None:
            prefix = re.split(r"[%_\\]", texts[0])[0]
            head, dot, _ = prefix.rpartition(".")
            if prefix == texts[0] and _is_subject(prefix):
                self._subjects.append([prefix])
            elif dot and _is_subject(head):
                self._subjects.append([f"{head}.>"])

    def _time_ns(self, literal: Token) -> int | None:
        """A time as Spark reads it: in the session's time zone unless it says otherwise."""
        text = _text(literal)
        if text is None:
            return None
        try:
            time_ns = parse_time_ns(text) // 1000 * 1000
        except BadOption:
            return None
        if re.search(r"(Z|[+-]\d\d:?\d\d)\s*$", text):
            return time_ns
        if self._zone is None:
            return None
        local = datetime.fromtimestamp(time_ns // SECOND_NS, UTC).replace(tzinfo=self._zone)
        return round(local.timestamp()) * SECOND_NS + time_ns % SECOND_NS

    def options(self) -> dict[str, str]:
        """The options that say all of this."""
        options = {}
        if self._first_seq > 0:
            options["startSeq"] = str(min(self._first_seq, 2**63 - 1))
        if self._last_seq < 2**63 - 1:
            options["endSeq"] = str(max(self._last_seq, 0))
        if self._first_ns > 0:
            options["startTime"] = _iso(min(self._first_ns, 2**63 - 1))
        if 0 <= self._end_ns < 2**63 - 1:
            options["endTime"] = _iso(self._end_ns)
        filters = self._filters()
        if filters:
            options["subject"] = ",".join(filters)
        return options

    def _filters(self) -> list[str]:
        """Filters that match what all the conditions on subjects let through: the shortest list of them."""
        lists = [*self._subjects]
        by_tokens = self._tokens.subjects(self._values) if self._values else []
        if by_tokens and all(map(_is_filter, by_tokens)):
            lists.append(by_tokens)
        lists = [choices for choices in lists if 0 < len(choices) <= _FILTERS_MAX]
        return min(lists, key=lambda choices: (any(">" in text for text in choices), len(choices)), default=[])


def _comparison(part: list[Token]) -> tuple[str, str, list[Token]] | None:
    """Column, sign and literals of a part; None when it is anything else."""
    part = _without_timestamp_words(part)
    kinds = [kind for kind, _ in part]
    texts = [text for _, text in part]
    literal = ("string", "number")
    if len(part) == 3 and kinds[0] == "name" and kinds[2] in literal and texts[1] in (*_FLIPPED, "LIKE"):
        return _column(texts[0]), texts[1], [part[2]]
    if len(part) == 3 and kinds[2] == "name" and kinds[0] in literal and texts[1] in _FLIPPED:
        return _column(texts[2]), _FLIPPED[texts[1]], [part[0]]
    if len(part) == 5 and kinds[0] == "name" and texts[1] == "BETWEEN" and texts[3] == "AND":
        return _column(texts[0]), "BETWEEN", [part[2], part[4]]
    if len(part) > 4 and kinds[0] == "name" and texts[1:3] == ["IN", "("] and texts[-1] == ")":
        inside = part[3:-1]
        literals, commas = inside[::2], inside[1::2]
        if all(text == "," for _, text in commas) and all(kind in ("string", "number") for kind, _ in literals):
            return _column(texts[0]), "IN", literals
    return None


def _without_timestamp_words(part: list[Token]) -> list[Token]:
    return [
        token
        for place, token in enumerate(part)
        if not (token[1] == "TIMESTAMP" and place + 1 < len(part) and part[place + 1][0] == "string")
    ]


def _column(name: str) -> str:
    return name.strip("`").lower() if not name.startswith("`") else name.strip("`")


def _text(literal: Token) -> str | None:
    """The text of a string; None where a setting of Spark says whether '' in it is a quote or nothing."""
    kind, text = literal
    return text[1:-1] if kind == "string" and "'" not in text[1:-1] else None


def _is_subject(text: str) -> bool:
    return _is_filter(text) and is_literal(text)


def _is_filter(text: str) -> bool:
    """True when it can be given as a filter, and finds what it stands for: "?" is also there for bytes unknown."""
    try:
        check_filter(text)
    except BadSubject:
        return False
    return "," not in text and "?" not in text


def _iso(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"

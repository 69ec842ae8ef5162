"""The text of a configuration file, in nats-server's format, to a tree of `Value`.

    # a comment                              // another
    port: 4222                               `:`, `=` or only a space after the key
    max_payload = 2MB                        k m g t p e are powers of 1000; kb ki kib mb … powers of 1024
    jetstream { store_dir: /data }           a map; the brace may stand on the next line
    server_tags: [eu, "west 1"]              an array; a comma or a new line between items
    PASS: "s3cret"                           any key is a variable for what follows it, in its map and those inside
    authorization { password: $PASS }        else the environment is asked; `$2a$…` is a bcrypt hash, not a variable
    include "users.conf"                     relative to this file; its keys are set here
    banner: (                                a block string ends at a `)` alone on its line
    any text
    )

A whole file may stand in braces, so JSON is read too. Bare strings end at a space, a new line, `,`, `;`, `]` or `}`;
double-quoted ones know the escapes \\xXX \\t \\n \\r \\" \\\\, single-quoted ones none. A key given twice keeps its
last value. A variable in an environment variable is resolved in turn.

Always true: any text gives a tree or a ConfigError; nesting and includes are bounded and cycles are found.
"""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from jetlake.config.value import ConfigError, Position, Value

DEPTH_MAX = 64  # maps and arrays inside each other
INCLUDE_DEPTH_MAX = 10
FILE_SIZE_MAX = 16 * 1024 * 1024

_BLANK = re.compile(r"(?:\s++|#[^\n\r]*+|//[^\n\r]*+)*+")
_COMMENT = re.compile(r"(?:#|//)[^\n\r]*")
_SPACE = re.compile(r"\s*")
_INLINE_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[^\s:=]+")
_BARE_PART = re.compile(r"[^\\\n\r;,\]} \t']*")
_QUOTED_PART = re.compile(r'[^\\"]*')
_INCLUDE_PATH = re.compile(r"[^\s;}]+")
_BLOCK_END = re.compile(r"\n\)(?=\r?\n|\Z)")
_END = r"(?=[\s;,\]}]|\Z)"
_INTEGER = re.compile(r"(-?[0-9]+)([kmgtpe][bi]*)?" + _END, re.IGNORECASE)
_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+" + _END)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z" + _END)
_BCRYPT = re.compile(r"2[aby]\$")
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_UNITS = {"": 1} | {
    letter + tail: (1024 if tail else 1000) ** power
    for power, letter in enumerate("kmgtpe", 1)
    for tail in ("", "b", "i", "ib")
}
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
_INT_DIGITS_MAX = 20


def parse_text(text: str, file: str = "config", environ: Mapping[str, str] | None = None) -> Value:
    """The map that a text spells. It cannot include files: it is not in a directory."""
    return _Parser(text, file, os.environ if environ is None else environ).parse()


def parse_file(path: str | Path, environ: Mapping[str, str] | None = None) -> Value:
    """The map that a file spells, with what it includes."""
    path = Path(path)
    try:
        text = _read(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the configuration file {path}: {_reason(error)}") from error
    environ = os.environ if environ is None else environ
    return _Parser(text, str(path), environ, path.parent, (_real(path),)).parse()


def _read(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(FILE_SIZE_MAX + 1)
    if len(content) > FILE_SIZE_MAX:
        raise ValueError(f"it is larger than {FILE_SIZE_MAX} bytes")
    return content.decode()


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike Path.resolve, it never raises on a loop of links


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    return getattr(error, "strerror", None) or str(error)


class _Parser:
    """One text, read from left to right."""

    def __init__(
        self,
        text: str,
        file: str,
        environ: Mapping[str, str],
        directory: Path | None = None,
        open_files: tuple[Path, ...] = (),
        open_variables: tuple[str, ...] = (),
    ) -> None:
        self.text, self.file, self.environ, self.directory = text, file, environ, directory
        self.open_files, self.open_variables = open_files, open_variables
        self.at = 0
        self.scopes: list[dict[str, Value]] = []
        self.depth = 0
        self.line_starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def parse(self) -> Value:
        if (nul := self.text.find("\0")) >= 0:
            raise self.error("a NUL character is not text", nul)
        top: dict[str, Value] = {}
        self.scopes.append(top)
        self.entries(top, closer="", opened_at=0)
        return Value(top, Position(self.file, 1, 1))

    # ------------------------------------------------------------------------------------------ where we are

    def position(self, offset: int) -> Position:
        line = bisect_right(self.line_starts, offset)
        return Position(self.file, line, offset - self.line_starts[line - 1] + 1)

    def error(self, problem: str, offset: int | None = None) -> ConfigError:
        return ConfigError(problem, self.position(self.at if offset is None else offset))

    def expected(self, what: str) -> ConfigError:
        return self.error(f"expected {what}, found {self.here()}")

    def here(self) -> str:
        if self.at >= len(self.text):
            return "the end of the file"
        return "a new line" if self.text[self.at] in "\r\n" else repr(self.text[self.at])

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, pattern: re.Pattern[str]) -> str:
        """What the pattern matches here, possibly nothing; we stand behind it then."""
        found = pattern.match(self.text, self.at)
        if not found:
            return ""
        self.at = found.end()
        return found[0]

    # ------------------------------------------------------------------------------------------ maps and arrays

    def entries(self, into: dict[str, Value], closer: str, opened_at: int) -> None:
        """The entries of a map, up to and with its closer; the top level ends with the text instead."""
        while True:
            self.take(_BLANK)
            if not self.peek():
                if closer:
                    raise self.unclosed(closer, opened_at)
                return
            if self.peek() == closer:
                self.at += 1
                return
            if self.peek() == "{" and not closer:  # a whole file in braces: JSON
                self.at += 1
                self.entries(into, "}", self.at - 1)
                continue
            self.entry(into, closer)
            self.separator(closer)

    def unclosed(self, closer: str, opened_at: int) -> ConfigError:
        opened = self.position(opened_at)
        return self.expected(f"{closer!r} to close what line {opened.line} column {opened.column} opens")

    def separator(self, closer: str) -> None:
        """The end of an entry or item: a new line, a comma, a semicolon or the closer, which stays."""
        self.take(_INLINE_SPACE)
        if self.take(_COMMENT) or not self.peek() or self.peek() == closer:
            return
        if self.peek() not in ("\n\r," if closer == "]" else "\n\r,;"):
            raise self.expected("a new line or ',' after the value" + (f", or {closer!r}" if closer else ""))
        self.at += 1

    def entry(self, into: dict[str, Value], closer: str) -> None:
        start = self.at
        quoted = self.peek() in "\"'"
        key = self.quoted_key() if quoted else self.bare_key()
        if not quoted and key.lower() == "include" and self.peek().isspace():
            self.include(into)
            return
        self.take(_SPACE)
        if self.peek() in (":", "="):
            self.at += 1
            # On the top level a new line after `port:` means a forgotten value, as in nats-server.
            self.take(_SPACE if closer else _INLINE_SPACE)
        if self.peek() in ("", "\n", "\r", ",", ";", "}", "]"):
            raise self.expected(f"a value for {key!r}")
        value = self.value()
        value.key_where = self.position(start)
        into[key] = value

    def quoted_key(self) -> str:
        start, quote = self.at, self.peek()
        end = self.text.find(quote, start + 1)
        if end < 0:
            raise self.error(f"the text opened with {quote} here is never closed")
        self.at = end + 1
        return self.text[start + 1 : end]

    def bare_key(self) -> str:
        if self.peek() in ":=,;{}[]()":
            raise self.expected("a key")
        start = self.at
        key = self.take(_BARE_KEY)
        if bracket := re.search(r"[{\[]", key):
            self.at = start + bracket.start()
            raise self.expected(f"a space or ':' after the key {key[: bracket.start()]!r}")
        return key

    def map(self) -> dict[str, Value]:
        into: dict[str, Value] = {}
        self.scopes.append(into)
        self.entries(into, "}", self.at - 1)
        self.scopes.pop()
        return into

    def array(self) -> list[Value]:
        items: list[Value] = []
        opened_at = self.at - 1
        while True:
            self.take(_BLANK)
            if not self.peek():
                raise self.unclosed("]", opened_at)
            if self.peek() == "]":
                self.at += 1
                return items
            if self.peek() in ",;}":
                raise self.expected("an item of the array or ']'")
            items.append(self.value())
            self.separator("]")

    # ------------------------------------------------------------------------------------------ values

    def value(self) -> Value:
        where, first = self.position(self.at), self.peek()
        if first in "{[":
            if self.depth >= DEPTH_MAX:
                raise self.error(f"more than {DEPTH_MAX} maps and arrays inside each other")
            self.at += 1
            self.depth += 1
            value = Value(self.map() if first == "{" else self.array(), where)
            self.depth -= 1
            return value
        if first in "\"'":
            return Value(self.double_quoted() if first == '"' else self.quoted_key(), where)
        if first == "(":
            return Value(self.block(), where)
        if first in "-0123456789" and (number := self.number(where)):
            return number
        if first in "-.":
            raise self.error("expected a number that starts with a digit; quote it if it is a string")
        return self.bare(where)

    def number(self, where: Position) -> Value | None:
        """An integer, a float or a date; None if this is a string that starts like one: 127.0.0.1:4222, 10s."""
        if found := _INTEGER.match(self.text, self.at):
            value = Value(self.integer(found[1], found[2] or ""), where, has_unit=bool(found[2]))
        elif found := _FLOAT.match(self.text, self.at):
            value = Value(float(found[0]), where)
            if math.isinf(float(found[0])):
                raise self.error("the float is out of range")
        elif found := _DATE.match(self.text, self.at):
            try:
                value = Value(datetime.strptime(found[0], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC), where)
            except ValueError:
                raise self.error(f"{found[0]} is not a date of the calendar") from None
        else:
            return None
        self.at = found.end()
        return value

    def integer(self, digits: str, unit: str) -> int:
        factor = _UNITS.get(unit.lower())
        if factor is None:
            raise self.error(f"unknown unit {unit!r}: expected one of k, kb, ki, kib, m, mb, … e, eb, ei, eib")
        # A sign and leading zeros may come on top; int() refuses thousands of digits, so they are not tried.
        number = int(digits) * factor if len(digits) <= _INT_DIGITS_MAX else _INT_MAX + 1
        if not _INT_MIN <= number <= _INT_MAX:
            raise self.error("the integer is out of range: it must fit in 64 bits")
        return number

    def double_quoted(self) -> str:
        start, parts = self.at, []
        self.at += 1
        while True:
            parts.append(self.take(_QUOTED_PART))
            if self.peek() == "\\":
                parts.append(self.escape())
            elif self.peek() == '"':
                self.at += 1
                return "".join(parts)
            else:
                raise self.error('the text opened with " here is never closed', start)

    def escape(self) -> str:
        letter = self.text[self.at + 1 : self.at + 2]
        if letter == "x":
            digits = self.text[self.at + 2 : self.at + 4]
            if not re.fullmatch("[0-9a-fA-F]{2}", digits):
                raise self.error("expected two hexadecimal digits after \\x")
            self.at += 4
            return chr(int(digits, 16))
        if letter not in _ESCAPES or not letter:
            raise self.error('unknown escape: expected \\xXX, \\t, \\n, \\r, \\" or \\\\')
        self.at += 2
        return _ESCAPES[letter]

    def block(self) -> str:
        found = _BLOCK_END.search(self.text, self.at)
        if not found:
            raise self.error("the block opened with ( here has no ) alone on a line")
        block = self.text[self.at + 1 : found.start() + 1]
        self.at = found.end()
        return block

    def bare(self, where: Position) -> Value:
        parts = [self.take(_BARE_PART)]
        escaped = self.peek() == "\\"
        while self.peek() == "\\":
            parts += [self.escape(), self.take(_BARE_PART)]
        if self.peek() == "'":
            raise self.error("a quote inside a bare string; quote the whole value")
        text = "".join(parts)
        if escaped:
            return Value(text, where)
        if text.lower() in _BOOLEANS:
            return Value(_BOOLEANS[text.lower()], where)
        if text.startswith("$") and not _BCRYPT.match(text, 1):
            return self.variable(text[1:], where)
        return Value(text, where)

    # ------------------------------------------------------------------------------------------ other places

    def variable(self, name: str, where: Position) -> Value:
        for scope in reversed(self.scopes):
            if defined := scope.get(name):
                defined.used_as_variable = True
                return Value(defined.data, where, has_unit=defined.has_unit)
        if name in self.open_variables:
            raise ConfigError(f"the variable ${name} refers to itself", where)
        if name not in self.environ:
            hint = "set before this line nor in the environment; quote it if it is a string"
            raise ConfigError(f"the variable ${name} is neither {hint}", where)
        inner = _Parser(
            f"value={self.environ[name]}",
            f"environment variable {name}",
            self.environ,
            open_variables=(*self.open_variables, name),
        )
        try:
            found = inner.parse().data
        except ConfigError as error:
            raise ConfigError(f"the variable ${name} cannot be used: {error.problem}", where) from error
        assert isinstance(found, dict)
        return Value(found["value"].data, where, has_unit=found["value"].has_unit)

    def include(self, into: dict[str, Value]) -> None:
        self.take(_INLINE_SPACE)
        where = self.position(self.at)
        if self.peek() in ("", "\n", "\r", "{", "[", "("):
            raise self.expected("the name of a file to include")
        name = self.quoted_key() if self.peek() in "\"'" else self.take(_INCLUDE_PATH)
        if self.directory is None:
            raise ConfigError("include is only possible in a file", where)
        path = self.directory / name
        resolved = _real(path)
        if resolved in self.open_files:
            raise ConfigError(f"{name} includes itself", where)
        if len(self.open_files) > INCLUDE_DEPTH_MAX:
            raise ConfigError(f"more than {INCLUDE_DEPTH_MAX} files include each other", where)
        try:
            text = _read(path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot include {name}: {_reason(error)}", where) from error
        included = _Parser(text, str(path), self.environ, path.parent, (*self.open_files, resolved)).parse().data
        assert isinstance(included, dict)
        into.update(included)

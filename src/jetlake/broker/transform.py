"""Subject transforms: from the subjects that match a source to new ones.

A destination is a row of tokens. A token is a function as a whole or it is literal text (`x{{wildcard(1)}}` is text):

    $n, {{wildcard(n)}}              the token that the n-th `*` of the source matched
    {{partition(count, n, ...)}}     FNV-1a (32 bits) of these tokens, one after the other, modulo count;
    {{partition(count)}}             the same of the whole subject, dots included
    {{split(n, separator)}}          the token in parts, as tokens; empty parts vanish (but see `_rejoined`)
    {{splitfromleft(n, size)}}       two tokens: the first `size` bytes, the others; also splitfromright
    {{slicefromleft(n, size)}}       tokens of `size` bytes, the last one shorter; also slicefromright
    {{left(n, size)}}                the first `size` bytes; also right
    {{random(count)}}                a number below count
    >                                the rest; the source then ends in `>` too

Spaces are allowed around arguments, and capitals at the beginning of the words in a name. A size that does not fit
leaves the token as it is; a count of zero gives 0. As in nats-server, `$0` and negative numbers stand for the first
token of the subject, a negative count wraps around as 32 bits do, and sizes count bytes, so that they may cut a
character in two.

What comes out need not be a valid subject: a split of a token that is all separators leaves an empty token.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from jetlake.errors import BadRequest
from jetlake.subjects import decode_subject, encode_subject

_Tokens = list[bytes]
_Function = Callable[[_Tokens], bytes]

_SPACE = re.compile(r"[\t\n\f\r ]")
_COMMA = re.compile(r",[\t\n\f\r ]*")
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)

_DESTINATION = "invalid mapping destination"
_BAD_TRANSFORM = f"{_DESTINATION}: invalid transform"
_UNKNOWN = f"{_DESTINATION}: unknown function"
_OUT_OF_RANGE = f"{_DESTINATION}: wildcard index out of range"
_TOO_FEW = f"{_DESTINATION}: not enough arguments passed to the function"
_TOO_MANY = f"{_DESTINATION}: too many arguments passed to the function"
_BAD_ARGUMENT = f"{_DESTINATION}: function argument is invalid or in the wrong format"


class BadTransform(BadRequest):
    """A transform that nats-server refuses, in its words.

    `part` is "source" (a stream's API error 10155, "stream transform source: ...") or "destination" (10156, "stream
    transform: ..."); `problem` is what stands for the dots.
    """

    def __init__(self, part: str, problem: str) -> None:
        super().__init__(f"transform {part}: {problem}")
        self.part, self.problem = part, problem


class SubjectTransform:
    """A transform that is known to be sound. Raises BadTransform otherwise."""

    def __init__(self, src: str, dest: str, random_int31: Callable[[], int] = lambda: random.getrandbits(31)) -> None:
        """An empty source is `>`; an empty destination leaves every subject alone."""
        self.src, self.dest = src, dest
        if src and not _is_valid(src):
            raise BadTransform("source", f"invalid subject {src}")
        _check_tokens(dest)
        self._source: _Tokens = encode_subject(src or ">").split(b".")
        self._goes_on = self._source[-1] == b">"  # in the source and, checked below, in the destination
        self._functions = _Compiler(src or ">", random_int31).compile(dest) if dest else None

    def apply(self, subject: str) -> str | None:
        """The new subject, or None when the source does not match."""
        found = self.apply_bytes(encode_subject(subject))
        return None if found is None else decode_subject(found)

    def apply_bytes(self, subject: bytes) -> bytes | None:
        """The same, in bytes."""
        tokens = subject.split(b".")
        if self._functions is None or not self._matches(tokens):
            return None
        mapped = [function(tokens) for function in self._functions]
        if self._goes_on:
            mapped += tokens[len(self._source) - 1 :]
        return b".".join(mapped)

    def _matches(self, tokens: _Tokens) -> bool:
        if b"" in tokens or b"*" in tokens or b">" in tokens:
            return False
        size = len(self._source)
        if len(tokens) < size or (len(tokens) > size and not self._goes_on):
            return False
        return all(want in (b"*", b">", token) for want, token in zip(self._source, tokens, strict=False))


def _is_valid(subject: str) -> bool:
    tokens = subject.split(".")
    return "" not in tokens and ">" not in tokens[:-1] and not _SPACE.search(subject)


def _check_tokens(dest: str) -> None:
    """What nats-server says of a destination before it looks at the source."""
    previous = ""
    for token in dest.split(".") if dest else ():
        if not token:
            raise BadTransform("destination", _BAD_TRANSFORM)
        if previous == ">":
            raise BadTransform("destination", f"{_BAD_TRANSFORM} in {token}")
        if _looks_like_function(token):
            if not any(pattern.search(token) for pattern, _ in _FUNCTIONS):
                raise BadTransform("destination", f"{_UNKNOWN} in {token}")
        elif _SPACE.search(token):
            raise BadTransform("destination", _BAD_TRANSFORM)
        previous = token


def _looks_like_function(token: str) -> bool:
    return len(token.encode("utf-8", "surrogatepass")) > 4 and token.startswith("{{") and token.endswith("}}")


class _Compiler:
    """Makes functions of the tokens of one destination."""

    def __init__(self, src: str, random_int31: Callable[[], int]) -> None:
        tokens = src.split(".")
        self._stars = [index for index, token in enumerate(tokens) if token == "*"]
        self._is_literal = not self._stars and tokens[-1] != ">"
        self._goes_on = tokens[-1] == ">"
        self._random_int31 = random_int31
        self._token = ""

    def compile(self, dest: str) -> list[_Function]:
        """The functions of all tokens but the final `>`."""
        tokens = dest.split(".")
        if "*" in tokens or (tokens[-1] == ">") != self._goes_on:
            raise BadTransform("destination", "invalid subject")
        return [self._function(token) for token in (tokens[:-1] if self._goes_on else tokens)]

    def _function(self, token: str) -> _Function:
        self._token = token
        if token.startswith("$") and (number := _integer(token[1:])) is not None:
            return self.wildcard([str(number)])
        if _looks_like_function(token):
            for pattern, make in _FUNCTIONS:
                if found := pattern.search(token):
                    return make(self, _COMMA.split(found[1]))
        text = encode_subject(token)
        return lambda tokens: text

    def wildcard(self, arguments: list[str]) -> _Function:
        if arguments == [""]:
            raise self._error(_TOO_FEW)
        self._check_count(arguments, 1)
        index = self._index(self._number(arguments[0]))
        return lambda tokens: tokens[index]

    def partition(self, arguments: list[str]) -> _Function:
        count = self._count(arguments[0])
        numbers = [self._number(argument) for argument in arguments[1:]]
        # nats-server forgets the token numbers when the source is literal, and hashes the whole subject.
        indexes = [] if self._is_literal else [self._index(number) for number in numbers]

        def partition(tokens: _Tokens) -> bytes:
            key = b"".join([tokens[index] for index in indexes]) if indexes else b".".join(tokens)
            return b"%d" % (fnv1a_32(key) % (count & 0xFFFFFFFF)) if count else b"0"

        return partition

    def random(self, arguments: list[str]) -> _Function:
        if len(arguments) != 1:
            raise self._error(_TOO_FEW)
        count = abs(self._count(arguments[0]))
        return lambda tokens: b"%d" % (self._random_int31() % count) if count else b"0"

    def split(self, arguments: list[str]) -> _Function:
        self._check_count(arguments, 2)
        number = self._number(arguments[0])
        if " " in arguments[1]:
            raise self._error(_BAD_ARGUMENT)
        index, separator = self._index(number), encode_subject(arguments[1])
        return lambda tokens: _rejoined(_parts(tokens[index], separator))

    def sized(self, arguments: list[str], cut: Callable[[bytes, int], list[bytes]]) -> _Function:
        """A function of a token and a size."""
        self._check_count(arguments, 2)
        number, size = self._number(arguments[0]), self._number(arguments[1], bits=32)
        index = self._index(number)

        def sized(tokens: _Tokens) -> bytes:
            token = tokens[index]
            return b".".join(cut(token, size)) if 0 < size < len(token) else token

        return sized

    def _index(self, number: int) -> int:
        """Where in a subject the token lies that the number stands for."""
        if self._is_literal:
            raise self._error(_OUT_OF_RANGE)
        if number > len(self._stars):
            raise BadTransform("destination", f"{_OUT_OF_RANGE} in {self._token}: [{number}]")
        return self._stars[number - 1] if number > 0 else 0

    def _number(self, text: str, bits: int = 64) -> int:
        number = _integer(text.strip(" "), bits)
        if number is None:
            raise self._error(_BAD_ARGUMENT)
        return number

    def _count(self, text: str) -> int:
        count = self._number(text)
        if count > 0x7FFFFFFF:
            raise self._error(_BAD_ARGUMENT)
        return (count + 0x80000000 & 0xFFFFFFFF) - 0x80000000

    def _check_count(self, arguments: list[str], count: int) -> None:
        if len(arguments) != count:
            raise self._error(_TOO_FEW if len(arguments) < count else _TOO_MANY)

    def _error(self, problem: str) -> BadTransform:
        return BadTransform("destination", f"{problem} in {self._token}")


def _sized(cut: Callable[[bytes, int], list[bytes]]) -> Callable[[_Compiler, list[str]], _Function]:
    return lambda compiler, arguments: compiler.sized(arguments, cut)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(r"{{[\t\n\f\r ]*" + name + r"[\t\n\f\r ]*\((.*)\)[\t\n\f\r ]*}}")


# In the order in which nats-server tries them: a strange token may match several.
_FUNCTIONS: list[tuple[re.Pattern[str], Callable[[_Compiler, list[str]], _Function]]] = [
    (_pattern("[wW]ildcard"), _Compiler.wildcard),
    (_pattern("[pP]artition"), _Compiler.partition),
    (_pattern("[sS]plit[fF]rom[lL]eft"), _sized(lambda token, size: [token[:size], token[size:]])),
    (_pattern("[sS]plit[fF]rom[rR]ight"), _sized(lambda token, size: [token[:-size], token[-size:]])),
    (_pattern("[sS]lice[fF]rom[lL]eft"), _sized(lambda token, size: _slices(token, size, 0))),
    (_pattern("[sS]lice[fF]rom[rR]ight"), _sized(lambda token, size: _slices(token, size, len(token) % size))),
    (_pattern("[rR]ight"), _sized(lambda token, size: [token[-size:]])),
    (_pattern("[lL]eft"), _sized(lambda token, size: [token[:size]])),
    (_pattern("[sS]plit"), _Compiler.split),
    (_pattern("[rR]andom"), _Compiler.random),
]


def _slices(token: bytes, size: int, start: int) -> list[bytes]:
    head = [token[:start]] if start else []
    return head + [token[offset : offset + size] for offset in range(start, len(token), size)]


def _parts(token: bytes, separator: bytes) -> list[bytes]:
    """As Go splits: by an empty separator into characters."""
    return token.split(separator) if separator else [encode_subject(char) for char in decode_subject(token)]


def _rejoined(parts: list[bytes]) -> bytes:
    """Parts as tokens. Empty ones vanish, but two or more at the beginning leave one, as in nats-server."""
    text = b".".join(part for part in parts if part)
    return b"." + text if text and parts[:2] == [b"", b""] else text


def _integer(text: str, bits: int = 64) -> int | None:
    """A number as Go reads it, or None."""
    if not _INTEGER.fullmatch(text) or len(text) > 400:
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def fnv1a_32(data: bytes) -> int:
    """The 32-bit FNV-1a hash."""
    found = 0x811C9DC5
    for byte in data:
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return found

"""The head of an HTTP request: what is asked for, and the fields."""

from __future__ import annotations

from typing import NamedTuple

from jetlake.errors import JetLakeError


class BadHead(JetLakeError):
    """What was received is no request."""


class Head(NamedTuple):
    """A request without its body."""

    method: str
    target: str
    version: str
    fields: dict[str, list[str]]  # by their names in small letters

    def get(self, name: str) -> str:
        """The first value of a field; nothing when there is none."""
        return next(iter(self.fields.get(name, ())), "")

    def items(self, name: str) -> list[str]:
        """The values of a field whose values are lists."""
        return [item.strip(" \t") for value in self.fields.get(name, ()) for item in value.split(",")]


def read_head(head: bytes) -> Head:
    """Read everything up to the empty line. Raises BadHead."""
    lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    match lines[0].split(" "):
        case [method, target, ("HTTP/1.0" | "HTTP/1.1") as version]:
            pass
        case _:
            raise BadHead(f"{lines[0][:80]!r} is no request line")
    return Head(method, target, version, read_fields(lines[1:]))


def read_fields(lines: list[str]) -> dict[str, list[str]]:
    """The fields of a head, by their names in small letters."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip().lower(), []).append(value.strip())
    return fields

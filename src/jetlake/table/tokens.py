"""Tokens of a subject as columns: the option `subject_tokens`.

A pattern is a subject whose tokens may be `{name}` (that token becomes a column), `*` (any one token), or, at the end,
`{name>}` (all the tokens that remain, dots included) or `>` (the same without a column). A subject that does not fit
has NULL in all of these columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from jetlake.table.errors import BadOption

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class TokenPattern:
    """A parsed pattern."""

    def __init__(self, text: str) -> None:
        self.text, self.names = text, list[str]()
        self._tokens = text.split(".") if text else []
        parts = [self._part(token, place == len(self._tokens) - 1) for place, token in enumerate(self._tokens)]
        self._regex = "^" + r"\.".join(parts) + "$"
        if len(set(map(str.lower, self.names))) < len(self.names):
            raise BadOption(f"subject_tokens {text!r} has a name twice")
        if text and not self.names:
            raise BadOption(f"subject_tokens {text!r} has no {{name}}, so there would be no column")

    def _part(self, token: str, is_last: bool) -> str:
        if not token:
            raise BadOption(f"subject_tokens {self.text!r} has an empty token")
        if token == ">" and is_last:
            return ".+"
        if token != ">" and "{" not in token:
            return "[^.]+" if token == "*" else re.escape(token)
        name, takes_rest = token[1:-1].removesuffix(">"), token.endswith(">}")
        if not token.endswith("}") or not _NAME.match(name) or (takes_rest and not is_last):
            raise BadOption(f"subject_tokens {self.text!r}: {token!r} is not {{name}}, or {{name>}} at the end")
        self.names.append(name)
        return f"(?P<{name}>.+)" if takes_rest else f"(?P<{name}>[^.]+)"

    def columns(self, subjects: pa.Array) -> dict[str, pa.Array]:
        """The columns of some subjects; each distinct one is looked at once."""
        encoded = subjects.dictionary_encode()
        found = pc.extract_regex(encoded.dictionary, self._regex)
        return {name: pc.struct_field(found, name).take(encoded.indices) for name in self.names}

    def subjects(self, values: Mapping[str, list[str]]) -> list[str]:
        """Subject filters for the messages whose tokens have one of these values; none when nothing is ruled out."""
        filters, narrowed = [""], False
        for place, token in enumerate(self._tokens):
            name = token.strip("{>}")
            choices = [token]
            if token.startswith("{"):
                choices = [">" if token.endswith(">}") else "*"]
                if name in values and not token.endswith(">}"):
                    choices, narrowed = values[name], True
            filters = [f"{head}{'.' if place else ''}{choice}" for head in filters for choice in choices]
        return filters if narrowed else []

"""How rows of an answer are printed: a table for people, a JSON list for machines."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

ROWS_MAX = 1000


class Answer(NamedTuple):
    """Rows with their columns; `numbers` are the columns that stand on the right."""

    names: Sequence[str]
    numbers: set[str]
    rows: Iterable[Sequence[Any]]


def show_answer(answer: Answer, *, as_json: bool, title: str = "") -> None:
    """Print the first rows as a table, or all of them as a JSON list."""
    if as_json:
        _print_json(answer)
        return
    table = Table(title=title or None)
    for name in answer.names:
        table.add_column(name, justify="right" if name in answer.numbers else "left")
    rows = list(islice(answer.rows, ROWS_MAX + 1))
    for row in rows[:ROWS_MAX]:
        table.add_row(*(_cell(value) for value in row))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    if len(rows) > ROWS_MAX:
        typer.echo(f"only the first {ROWS_MAX} rows are shown", err=True)


def _print_json(answer: Answer) -> None:
    mark = "["
    for row in answer.rows:
        found = dict(zip(answer.names, map(_finite, row), strict=True))
        typer.echo(mark + json.dumps(found, default=_plain), nl=False)
        mark = ", "
    typer.echo("[]" if mark == "[" else "]")


def _finite(value: Any) -> Any:
    """A value as JSON can hold it: NaN and infinities, which it has no word for, are null."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else _whole(value)


def _whole(value: Any) -> Any:
    """DuckDB's sums of integers are decimals without places."""
    return int(value) if isinstance(value, Decimal) and value.as_tuple().exponent == 0 else value


def _plain(value: Any) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return bytes(value).decode("utf-8", "backslashreplace") if isinstance(value, bytes | bytearray) else str(value)


def _cell(value: Any) -> str:
    value = _whole(value)
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return _plain(value)

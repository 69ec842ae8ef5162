"""The guide names every option, with its default."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from jetlake.table.options import Options, option_name
from jetlake.table.schema import BASE

GUIDE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


@pytest.mark.parametrize("item", fields(Options), ids=lambda item: item.name)
def test_every_option_is_in_the_guide(item: object) -> None:
    help = item.metadata["help"]  # type: ignore[attr-defined]
    lines = [line for line in GUIDE.splitlines() if line.startswith(f"| `{option_name(item)}` |")]
    assert any(line.endswith(f"| {help} |") for line in lines)


def test_every_column_is_in_the_guide() -> None:
    for name in BASE:
        assert f"| `{name}` |" in GUIDE

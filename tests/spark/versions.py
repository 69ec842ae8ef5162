"""What the tests ask of a Spark that has it, and do without on one that has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jetlake.spark.compat import HAS_READ_LIMITS

needs_limits = pytest.mark.skipif(not HAS_READ_LIMITS, reason="before Spark 4.2 a batch is all there is")


def at_most(rows: int) -> dict[str, Any]:
    """The option that cuts a stream into batches of so many rows; without limits there is one batch."""
    return {"maxRowsPerTrigger": rows} if HAS_READ_LIMITS else {}


def forget_last_commit(checkpoint: Path) -> None:
    """Leave a checkpoint as if the driver had died after its last write, before its own commit of it."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    for name in (f"commits/{last}", f"commits/.{last}.crc"):
        (checkpoint / name).unlink()

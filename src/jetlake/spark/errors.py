"""What can go wrong between Spark and a stream, beyond what `jetlake.table.errors` has."""

from __future__ import annotations

from jetlake.errors import JetLakeError


class SparkError(JetLakeError):
    """Spark cannot do what is asked, or cannot be started."""

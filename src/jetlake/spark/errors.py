"""What can go wrong between Spark and a stream. `jetlake.errors` has the rest of the family.

JetLakeError
└── SparkError
    ├── BadOption        an option of the data source is missing, unknown or makes no sense (a ValueError too)
    ├── NoStream         there is no such stream, or nothing at all, where the options point
    ├── OffsetMismatch   a checkpoint speaks of another stream than the one that is there
    ├── MessagesGone     messages were taken away before they could be read, and onGap=fail
    ├── MessagesDamaged  messages cannot be read because their bytes are damaged, and onDamage=fail
    ├── BadPayload       a payload is not what the options say, and malformed=fail
    └── ServerError      a live server refused, or did not answer in time
"""

from __future__ import annotations

from jetlake.errors import JetLakeError
from jetlake.store.check import show_ranges
from jetlake.store.sequence_set import SequenceSet


class SparkError(JetLakeError):
    """Something between Spark and a stream."""


class BadOption(SparkError, ValueError):
    """An option of the data source is missing, unknown or makes no sense."""


class NoStream(SparkError, LookupError):
    """There is no such stream."""


class OffsetMismatch(SparkError):
    """A checkpoint speaks of another stream."""


class MessagesGone(SparkError):
    """Messages were taken away before they could be read."""

    def __init__(self, stream: str, seqs: SequenceSet) -> None:
        super().__init__(
            f"stream {stream}: {seqs.count} messages were removed before they could be read, sequences "
            f"{show_ranges(seqs)}; option onGap=report goes on without them"
        )
        self.stream, self.seqs = stream, seqs


class MessagesDamaged(SparkError):
    """Messages cannot be read because their bytes are damaged."""

    def __init__(self, stream: str, seqs: SequenceSet, where: str = "") -> None:
        super().__init__(
            f"stream {stream}: {seqs.count} messages are damaged, sequences {show_ranges(seqs)}"
            f"{f' ({where})' if where else ''}; option onDamage=report goes on without them"
        )
        self.stream, self.seqs = stream, seqs


class BadPayload(SparkError, ValueError):
    """A payload is not what the options say."""


class ServerError(SparkError):
    """A live server refused, or did not answer in time."""

"""What can go wrong with a stream as a table. `jetlake.errors` has the rest of the family.

JetLakeError
└── TableError
    ├── BadOption        an option is missing, unknown or makes no sense (a ValueError too)
    ├── NoStream         there is no such stream, or nothing at all, where the options point
    ├── OffsetMismatch   a checkpoint speaks of another stream than the one that is there
    ├── MessagesGone     messages were taken away before they could be read, and onGap=fail
    ├── MessagesDamaged  messages cannot be read because their bytes are damaged, and onDamage=fail
    ├── BadPayload       a payload is not what the options say, and malformed=fail
    ├── ServerError      a live server refused, or did not answer in time
    └── MissingPackage   what was asked for needs a package that is not installed (an ImportError too)
"""

from __future__ import annotations

from jetlake.errors import JetLakeError
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.verify.check import show_ranges


class TableError(JetLakeError):
    """Something between a stream and its reader or writer."""


class BadOption(TableError, ValueError):
    """An option is missing, unknown or makes no sense."""


class NoStream(TableError, LookupError):
    """There is no such stream."""


class OffsetMismatch(TableError):
    """A checkpoint speaks of another stream."""


class MessagesGone(TableError):
    """Messages were taken away before they could be read."""

    def __init__(self, stream: str, seqs: SequenceSet) -> None:
        super().__init__(
            f"stream {stream}: {seqs.count} messages were removed before they could be read, sequences "
            f"{show_ranges(seqs)}; option onGap=report goes on without them"
        )
        self.stream, self.seqs = stream, seqs


class MessagesDamaged(TableError):
    """Messages cannot be read because their bytes are damaged."""

    def __init__(self, stream: str, seqs: SequenceSet, where: str = "") -> None:
        super().__init__(
            f"stream {stream}: {seqs.count} messages are damaged, sequences {show_ranges(seqs)}"
            f"{f' ({where})' if where else ''}; option onDamage=report goes on without them"
        )
        self.stream, self.seqs = stream, seqs


class BadPayload(TableError, ValueError):
    """A payload is not what the options say."""


class ServerError(TableError):
    """A live server refused, or did not answer in time."""


class MissingPackage(TableError, ImportError):
    """What was asked for needs a package that is not installed."""

    def __init__(self, package: str, install: str) -> None:
        super().__init__(f"{package} is not installed: pip install {install}")
        self.package = package

"""For readers of files that a server wrote: do they have all that the server promised?

While a server runs they do: what is in its redo log is in its files, as everybody else sees them. After a power cut the
log may have more, until the server is started again. Reading the files without that would pass over messages that were
acknowledged, so readers refuse.
"""

from __future__ import annotations

import os
import time

from jetlake.errors import StoreError
from jetlake.store.disk.files import Files
from jetlake.store.redo.replay import DIRECTORY_NAME, read_entries, unapplied

_DEPTH_MAX = 4  # how far above a stream's directory the log may lie
_LOOKS_MAX = 5
_PAUSE_S = 0.1


def check_at_rest(files: Files, directory: str) -> None:
    """Raise StoreError when the redo log has something that is missing in the files of a stream.

    A server that runs may be in the middle of a commit. So the log must stay as it is from one look to the next.
    """
    root = _root(files, directory)
    if root is None:
        return
    seen: tuple[int, list[str]] | None = None
    for _ in range(_LOOKS_MAX):
        try:
            look = len(read_entries(files, root)), unapplied(files, root, directory)
        except FileNotFoundError:  # a server is at work
            continue
        if not look[1]:
            return
        if look == seen:
            raise StoreError(
                f"{look[1][0]}: the redo log of the server has changes that are not in this file, as after a power cut:"
                " start the server once"
            )
        seen = look
        time.sleep(_PAUSE_S)


def _root(files: Files, directory: str) -> str | None:
    """The directory above a stream that has a redo log."""
    above = directory.rstrip("/")
    for _ in range(_DEPTH_MAX):
        above = os.path.dirname(above)
        if above and files.exists(f"{above}/{DIRECTORY_NAME}"):
            return above
    return None

"""Messages in memory and on disk: an ordered, durable, subject-indexed log.

from jetlake.store import FileStore
"""

from jetlake.store.api import (
    Discard,
    Pending,
    SimpleState,
    StoredMsg,
    StreamLimits,
    StreamState,
    StreamStore,
)
from jetlake.store.blocks.envelope import Cipher, Compression, KeySource
from jetlake.store.disk.file_options import FileOptions
from jetlake.store.filestore import FileStore
from jetlake.store.format import NEVER_NS
from jetlake.store.memstore import MemStore

__all__ = [
    "NEVER_NS",
    "Cipher",
    "Compression",
    "Discard",
    "FileOptions",
    "FileStore",
    "KeySource",
    "MemStore",
    "Pending",
    "SimpleState",
    "StoredMsg",
    "StreamLimits",
    "StreamState",
    "StreamStore",
]

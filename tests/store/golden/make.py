"""Write the golden stores: one for each compression and cipher, as this version writes them.

    .venv/bin/python -m tests.store.golden.make

Each is a stream's directory: two sealed blocks and an active one. They are made once and never changed, so that every
later version proves that it still reads them; one that is there is left alone. The messages are always the same. The
files are not: seeds, salts and nonces are random.
"""

from __future__ import annotations

from pathlib import Path

from jetlake.store import NEVER_NS, Cipher, Compression, FileOptions, FileStore, KeySource, StoredMsg
from jetlake.store.format import LOCK_NAME
from jetlake.testing.clock import FakeClock

HOME = Path(__file__).parent
KEY = bytes(range(32))
START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000_001
TTL_NS = 3600 * 1_000_000_000
HEADERS = b"NATS/1.0\r\nNats-Msg-Id: golden-3\r\n\r\n"
NOISE = bytes((n * n * 31 + n * 7) % 251 for n in range(64))  # compression does not shrink it

KINDS = {
    f"{compression.name}-{cipher.name}".lower(): (compression, cipher)
    for compression in Compression
    for cipher in Cipher
}

# Messages 2 (deleted) and 5 (erased) are gone, 8 and 9 were skipped. The blocks start at 1, 5 and 10.
MESSAGES = [
    StoredMsg(1, "golden.a", b"", b"the first message " * 8, START_NS),
    StoredMsg(3, "golden.b", HEADERS, b"with headers", START_NS + 2 * STEP_NS),
    StoredMsg(4, "golden.größe", b"", NOISE, START_NS + 3 * STEP_NS),
    StoredMsg(6, "golden.a", b"", b"goes after an hour", START_NS + 5 * STEP_NS, START_NS + 5 * STEP_NS + TTL_NS),
    StoredMsg(7, "golden.b", HEADERS, b"stays whatever its age " * 6, START_NS + 6 * STEP_NS, NEVER_NS),
    StoredMsg(10, "golden.a", b"", b"", START_NS + 7 * STEP_NS),
    StoredMsg(11, "golden.c", b"", b"the last message", START_NS + 8 * STEP_NS),
]
DELETED = [2, 5, 8, 9]
FIRST_SEQS = [1, 5, 10]  # of the blocks


def options(kind: str) -> FileOptions:
    compression, cipher = KINDS[kind]
    keys = (KeySource.key(KEY),) if cipher else ()
    return FileOptions(block_size_max=400, compression=compression, cipher=cipher, keys=keys)


def make(directory: Path, kind: str) -> None:
    """Write one golden store."""
    clock = FakeClock(START_NS)
    live = {message.seq: message for message in MESSAGES}
    with FileStore(directory, options=options(kind), clock=clock) as store:
        for seq in (1, 2, 3, 4, 5, 6, 7, 10, 11):
            message = live.get(seq, StoredMsg(seq, "golden.gone", b"", b"SECRET " * 10, 0))
            if seq == 10:
                store.skip(2)
            ttl_ns = {0: 0, NEVER_NS: NEVER_NS}.get(message.expires_ns, TTL_NS)
            stored = store.append(message.subject, message.payload, message.headers, ttl_ns=ttl_ns, msg_id=seq == 3)
            assert stored == seq
            clock.advance(ns=STEP_NS)
        store.remove(2)
        store.erase(5)
    (directory / LOCK_NAME).unlink()


def main() -> None:
    for kind in KINDS:
        directory = HOME / kind
        if not directory.exists():
            make(directory, kind)
            print(f"made {directory}")


if __name__ == "__main__":
    main()

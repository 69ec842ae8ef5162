"""Which of the compiled kernels are in use: the server's first log line says so."""

from __future__ import annotations

from importlib import import_module

from jetlake.config import ServerOptions

FACES = ("wire.tokenize", "broker.recipient_table", "broker.frames", "store.kernels")
WEBSOCKET_FACES, MAPPING_FACES = ("wire.unframe",), ("broker.map_subjects",)
JETSTREAM_FACES = (
    "jetstream.consumers.deliver",
    "jetstream.consumers.ack_pending",
    "jetstream.streams.msg_ids",
    "jetstream.streams.gets",
    "jetstream.streams.pub_acks",
    "jetstream.json.scan",
)


def describe(options: ServerOptions) -> str:
    """`compiled kernels`, or which of those that a server needs are not."""
    faces: tuple[str, ...] = FACES
    faces += JETSTREAM_FACES if options.jetstream.enabled else ()
    faces += WEBSOCKET_FACES if options.websocket is not None else ()
    has_mappings = options.mappings or any(account.mappings for account in options.accounts.values())
    faces += MAPPING_FACES if has_mappings else ()
    missing = [face for face in faces if not import_module(f"jetlake.{face}").COMPILED]
    return f"kernels in Python, which is slower: {', '.join(missing)}" if missing else "compiled kernels"

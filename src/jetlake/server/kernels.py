"""Which of the compiled kernels are in use: the server's first log line says so."""

from __future__ import annotations

from importlib import import_module

FACES = ("wire.tokenize", "broker.routes", "broker.frames", "store.kernels")
JETSTREAM_FACES = ("jetstream.deliver", "jetstream.msg_ids", "jetstream.ack_pending", "jetstream.json_scan")


def describe(has_jetstream: bool) -> str:
    """`compiled kernels`, or which of them are not."""
    faces = FACES + JETSTREAM_FACES if has_jetstream else FACES
    missing = [face for face in faces if not import_module(f"jetlake.{face}").COMPILED]
    return f"kernels in Python, which is slower: {', '.join(missing)}" if missing else "compiled kernels"

"""The compiled kernels are loaded; and without them, or without some of them, a store does the same."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

import jetlake

NO_KERNELS = bool(os.environ.get("JETLAKE_NO_KERNELS"))
needs_kernels = pytest.mark.skipif(NO_KERNELS, reason="JETLAKE_NO_KERNELS is set")
SOURCE = Path(jetlake.__path__[0])
KERNELS = sorted(
    ".".join(("jetlake", *path.relative_to(SOURCE).with_suffix("").parts)) for path in SOURCE.glob("store/**/_*_c.pyx")
)
FACES = {
    "records.record": ["decode", "encode"],
    "records.scan": ["scan", "uncount"],
    "records.encode": ["encode_batch"],
    "index.summary": ["encode_subjects", "localize", "merge_subjects"],
    "index.ranges": ["decode_ranges", "encode_ranges", "merge_ranges"],
    "records.trim": [
        "encode_losses",
        "leave",
        "locate",
        "measure_at",
        "message_size",
        "oldest_in",
        "oldest_known",
    ],
    "index.subject_table": ["SubjectFilter", "SubjectTable", "count_matches", "find_match", "find_match_back"],
}

# Stores, deletes, reads and opens again; prints what it saw. It runs in a process of its own.
WORKLOAD = r'''
import json, sys
from array import array

class Block:
    """Refuses to import some kernels."""
    def find_spec(self, name, path=None, target=None):
        if name in BLOCKED:
            raise ImportError(f"{name} is blocked")

BLOCKED = set(json.loads(sys.argv[1]))
sys.meta_path.insert(0, Block())

from jetlake.ops import OP_MSG_ID, append_op
from jetlake.store import FileOptions, FileStore, StreamLimits
from jetlake.testing.clock import FakeClock

def look(store):
    state = store.state()
    messages, seq = [], 0
    while (message := store.load_next(seq)) is not None:
        messages.append([str(field) for field in message])
        seq = message.seq + 1
    return [
        messages, state.msgs, state.bytes, state.first_seq, state.last_seq, list(state.deleted.ranges()),
        list(state.lost.ranges()), sorted(store.subjects_totals("s.>").items()), store.all_last_seqs(),
        store.num_pending(3, "s.*"), store.filtered_state(1, ["s.1", "s.2"]), store.damage,
    ]

def open_store():
    return FileStore(sys.argv[2], StreamLimits(max_msgs_per_subject=5), FileOptions(block_size_max=400), clock=clock)

clock, seen = FakeClock(), []
if sys.argv[3] == "write":
    with open_store() as store:
        for number in range(12):
            store.append(f"s.{number % 3}", b"x" * number, b"NATS/1.0\r\n\r\n" if number % 4 == 0 else b"")
            clock.advance(1)
        data, ops = bytearray(), array("I")
        for number in range(20):
            append_op(ops, data, b"s.%d" % (number % 7), b"y" * number, flags=OP_MSG_ID if number % 2 else 0)
        seen.append(store.append_batch(data, ops))
        seen.append([store.remove(15), store.remove(15), store.erase(20), store.purge("s.4", keep=1)])
        store.skip(3)
        store.append("s.last", b"", ttl_ns=10**15)
        seen.append(look(store))
with open_store() as store:
    seen.append(look(store))
loaded = sorted(name for name in sys.modules if name.startswith("jetlake.") and name.endswith("_c"))
print(json.dumps({"seen": seen, "loaded": loaded}))
'''


def run(blocked: list[str], directory: Path, mode: str = "write") -> dict[str, Any]:
    """Run the workload with some kernels blocked."""
    command = [sys.executable, "-c", WORKLOAD, json.dumps(blocked), str(directory), mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_kernels
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_is_compiled_and_loads(kernel: str) -> None:
    assert str(importlib.import_module(kernel).__file__).endswith(tuple(EXTENSION_SUFFIXES))


@needs_kernels
@pytest.mark.parametrize("face", FACES)
def test_every_face_shows_the_compiled_twin(face: str) -> None:
    module = importlib.import_module(f"jetlake.store.{face}")
    assert {getattr(module, name).__module__.endswith("_c") for name in FACES[face]} == {True}


def test_every_kernel_has_a_python_twin_with_the_same_names() -> None:
    for face, names in FACES.items():
        package, _, name = face.rpartition(".")
        twins = ["subject_filter", "subject_table", "subject_scan"] if name == "subject_table" else [name]
        found = {name for twin in twins for name in dir(importlib.import_module(f"jetlake.store.{package}._{twin}_py"))}
        assert found.issuperset(names)


def test_a_store_without_kernels_does_the_same(tmp_path: Path) -> None:
    compiled, pure = run([], tmp_path / "compiled"), run(KERNELS, tmp_path / "pure")
    assert pure["loaded"] == []
    used = [kernel for kernel in KERNELS if ".nats." not in kernel]  # those read nats-server's files
    assert NO_KERNELS or compiled["loaded"] == used
    assert pure["seen"] == compiled["seen"]
    assert pure["seen"][-1] == pure["seen"][-2]


@needs_kernels
def test_what_either_twin_wrote_the_other_reads(tmp_path: Path) -> None:
    compiled, pure = run([], tmp_path / "compiled"), run(KERNELS, tmp_path / "pure")
    assert run(KERNELS, tmp_path / "compiled", "read")["seen"] == compiled["seen"][-1:]
    assert run([], tmp_path / "pure", "read")["seen"] == pure["seen"][-1:]


@needs_kernels
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_store_without_one_of_the_kernels_does_the_same(kernel: str, tmp_path: Path) -> None:
    assert run([kernel], tmp_path / "some")["seen"] == run([], tmp_path / "all")["seen"]

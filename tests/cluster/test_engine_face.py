"""Without the engine: a sentence, and nothing else breaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jetlake.cluster.engine import next_incarnation, node_of, raft_id

ROOT = Path(__file__).parents[2]
# An import of the compiled module fails as it does where it was not built.
WITHOUT = "import sys; sys.modules['jetlake.cluster._engine'] = None; "


def test_without_the_engine_a_sentence_says_what_to_install() -> None:
    code = (
        WITHOUT
        + "from jetlake.cluster.engine import new_engine\ntry: new_engine(1, 1)\nexcept RuntimeError as e: print(e)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("the consensus engine is not built: ") and "install Rust 1.85 or newer" in said


def test_a_machine_without_rust_goes_on_with_a_printed_line(tmp_path: Path) -> None:
    """Neither cargo nor pip: the command runs all the same."""
    script = ROOT / "engine" / "with_rust.py"
    environment = {name: text for name, text in os.environ.items() if name != "JETLAKE_NO_ENGINE"}
    environment |= {"PATH": str(tmp_path), "PIP_INDEX_URL": "http://127.0.0.1:9", "PIP_RETRIES": "0"}
    block = (
        "import sys, runpy; sys.modules['puccinialin'] = None; del sys.argv[0];"
        "runpy.run_path(sys.argv[0], None, '__main__')"
    )
    command = [sys.executable, "-c", block, str(script), sys.executable, "-c", "print('went on')"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "went on\n")
    assert "No Rust, so no cluster; everything else works" in ran.stderr


def test_a_raft_id_is_a_node_and_an_incarnation() -> None:
    id = raft_id(5, 1)
    assert node_of(id) == node_of(next_incarnation(id)) == 5
    assert next_incarnation(id) == raft_id(5, 2)
    with pytest.raises(OverflowError, match="node 5 has no incarnation left"):
        next_incarnation(raft_id(5, 0xFFFF))

"""The official clients for JavaScript and Go, unmodified. What they need is fetched once into the user's cache.

Without node or go, or without a network the first time, these tests are skipped and say so.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.compat.servers import Server

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "jetlake-compat"
PARTS = ["core", "streams", "kv", "objects", "services", "consumers", "kvwatch"]


def skip(reason: str) -> None:
    print(reason)
    pytest.skip(reason)


def cached_copy(language: str) -> Path:
    """A copy of the program's directory in the cache, named after what is in it."""
    sources = sorted(path for path in (HERE / language).iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    directory = CACHE / f"{language}-{digest}"
    directory.mkdir(parents=True, exist_ok=True)
    for path in sources:
        shutil.copy(path, directory)
    return directory


def prepare(directory: Path, command: Sequence[str]) -> None:
    """Run the command that fetches and builds, unless it was done before."""
    done = directory / ".done"
    if done.exists():
        return
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=280)
    if run.returncode:
        skip(f"{' '.join(command)} did not work here: {run.stderr.strip()[-300:]}")
    done.touch()


@pytest.fixture(scope="session")
def node() -> list[str]:
    """How to run the JavaScript program."""
    if not (shutil.which("node") and shutil.which("npm")):
        skip("node and npm are not installed: nats.js is not tried")
    directory = cached_copy("js")
    prepare(directory, ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"])
    return ["node", str(directory / "compat.js")]


@pytest.fixture(scope="session")
def go() -> list[str]:
    """How to run the Go program."""
    if not shutil.which("go"):
        skip("go is not installed: nats.go is not tried")
    directory = cached_copy("go")
    prepare(directory, ["go", "build", "-o", "compat", "."])
    return [str(directory / "compat")]


def drive(program: list[str], server: Server, part: str, name: str) -> None:
    run = subprocess.run([*program, server.url, part, name], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.strip().endswith(f"{part} ok")


@pytest.mark.parametrize("part", PARTS)
def test_nats_js(node: list[str], server: Server, part: str, name: str) -> None:
    drive(node, server, part, name)


@pytest.mark.parametrize("part", PARTS)
def test_nats_go(go: list[str], server: Server, part: str, name: str) -> None:
    drive(go, server, part, name)

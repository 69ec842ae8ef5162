"""The source distribution and the wheel: complete, and at work outside the repository, with and without a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
builds_kernels = pytest.mark.skipif(
    not os.environ.get("JETLAKE_TEST_PACKAGES"), reason="make packages: every kernel is translated and compiled anew"
)
# A server, messages from a client, and a query on them by the installed command.
WORK = """
import asyncio, json, subprocess, sys
import nats
import jetlake
from jetlake.store.kernels import COMPILED
from jetlake.table.arrow import COMPILED as TABLE_COMPILED
from jetlake.testing.server import run_server

async def publish(url):
    client = await nats.connect(url)
    js = client.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    for number in range(20):
        await js.publish(f"orders.{number % 2}", b"%d" % number)
    await client.close()

with run_server("data") as url:
    asyncio.run(publish(url))
    query = "select subject, count(*) n from ORDERS group by 1 order by 1"
    command = [sys.executable, "-m", "jetlake.cli.main", "sql", "data", query, "--engine", "duckdb", "--json"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
print(json.dumps({"file": jetlake.__file__, "compiled": COMPILED and TABLE_COMPILED, "rows": rows}))
"""


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sdist")
    build = f"import setuptools.build_meta as build; build.build_sdist({str(directory)!r})"
    _run([sys.executable, "-c", build], cwd=ROOT)
    return next(directory.glob("jetlake-*.tar.gz"))


def _run(command: list[str], cwd: Path, **more: str) -> str:
    environment = {name: text for name, text in os.environ.items() if name != "JETLAKE_NO_KERNELS"} | more
    ran = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return ran.stdout


def _install(package: Path, site: Path, **more: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    _run([*pip, "--target", str(site), str(package)], cwd=site.parent, **more)


def _at_work(site: Path, compiled: bool) -> None:
    pytest.importorskip("duckdb")
    found = json.loads(_run([sys.executable, "-c", WORK], cwd=site.parent, PYTHONPATH=str(site)))
    assert Path(found["file"]).is_relative_to(site), "it was not the repository that ran"
    assert found["compiled"] is compiled
    assert found["rows"] == [{"subject": "orders.0", "n": 10}, {"subject": "orders.1", "n": 10}]


def test_a_source_distribution_has_every_source(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*")}
    kinds = (".py", ".pyx", ".pxd", ".pyi", ".h", ".properties", "py.typed")
    missing = {name for name in sources if name.endswith(kinds) and ".egg-info" not in name} - packed
    assert not missing
    crate = {path.relative_to(ROOT).as_posix() for path in (ROOT / "engine").rglob("*.rs")}
    assert crate | {"engine/Cargo.toml", "engine/Cargo.lock"} <= packed


@builds_kernels
def test_without_a_compiler_the_python_twins_serve(sdist: Path, tmp_path: Path) -> None:
    _install(sdist, tmp_path / "site", CC="false", CXX="false", CARGO="false")
    assert not list((tmp_path / "site").rglob("*_c.*.so"))
    assert not list((tmp_path / "site").rglob("_engine*.so"))
    _at_work(tmp_path / "site", compiled=False)


@builds_kernels
def test_a_wheel_has_all_kernels(sdist: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    _run([*pip, "-w", str(tmp_path / "wheel"), str(sdist)], cwd=tmp_path)
    (wheel,) = (tmp_path / "wheel").glob("jetlake-*.whl")
    _install(wheel, tmp_path / "site")
    built = {path.name.partition(".")[0] for path in (tmp_path / "site").rglob("*_c.*.so")}
    assert built == {path.stem for path in (ROOT / "src").rglob("_*_c.pyx")}
    assert bool(list((tmp_path / "site").rglob("_engine*.so"))) is bool(shutil.which("cargo"))
    _at_work(tmp_path / "site", compiled=True)

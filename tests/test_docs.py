"""The code blocks of README and docs are run, and what README says they print is what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ONE_PROGRAM = ("notebook.md",)  # pages whose blocks go on from each other
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```)?", re.MULTILINE | re.DOTALL)


def code_blocks() -> list[tuple[str, str, str]]:
    blocks = []
    for page in PAGES:
        found = [(match[1], match[2] or "") for match in BLOCK.finditer(page.read_text())]
        if page.name in ONE_PROGRAM:
            found = [("".join(code for code, _ in found), "".join(output for _, output in found))]
        blocks += [(f"{page.name}:{number}", *block) for number, block in enumerate(found, 1)]
    return blocks


@pytest.mark.parametrize(("name", "code", "output"), code_blocks(), ids=[name for name, _, _ in code_blocks()])
def test_a_code_block_runs_and_prints_what_the_page_says(
    name: str,
    code: str,
    output: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if "jetlake.spark" in code:  # here, for one Spark session to serve them all
        pytest.importorskip("pyspark")
        code = code.replace('"checkpoint"', repr(str(tmp_path / "checkpoint")))  # Java is where it was started
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
        printed = capsys.readouterr().out
    else:
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        printed = ran.stdout
    if output:
        assert printed == output


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_index_names_every_page_and_decision() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+)", index.read_text())}
    pages = {path.resolve() for path in index.parent.rglob("*.md")} - {index.resolve()}
    assert not pages - linked

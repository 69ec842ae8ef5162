"""Every benchmark runs at its smoke size and says what it has to say. What the figures are is not a test's business."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

NAMES = sorted(path.stem for path in (Path(__file__).parents[1] / "benchmarks").glob("bench_*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_prints_its_question_a_table_and_a_ratio(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = import_module(f"benchmarks.{name}")
    benchmark.main(smoke=True)
    printed = capsys.readouterr().out
    assert benchmark.__doc__.splitlines()[0] in printed
    assert "seed" in printed and "ratio" in printed and "kernels" in printed.lower()
    lines = printed.splitlines()
    rules = [number for number, line in enumerate(lines) if line and not line.strip("- ")]
    assert rules, "a table has a rule under its columns"
    for rule in rules:
        assert lines[rule - 1].strip() and lines[rule + 1].strip()


def test_runner_knows_every_benchmark(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    runner = import_module("benchmarks.__main__")
    assert {f"bench_{name}" for name in runner.NAMES} == set(NAMES)
    monkeypatch.setattr("sys.argv", ["benchmarks", "--smoke", "scan"])
    runner.main()
    assert "[scan:" in capsys.readouterr().out


def test_runner_refuses_a_name_that_it_does_not_know(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "speed"])
    with pytest.raises(SystemExit):
        import_module("benchmarks.__main__").main()
    assert "no benchmark speed" in capsys.readouterr().err

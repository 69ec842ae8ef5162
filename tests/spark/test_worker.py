"""What work does to the process that Spark runs it in."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from jetlake.spark.worker import settle


@pytest.fixture(autouse=True)
def nothing_frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("jetlake.spark.worker._settled_module_count", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


def is_frozen(wanted: object) -> bool:
    return all(each is not wanted for each in gc.get_objects())


def test_only_in_a_process_of_spark_is_what_is_loaded_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    settle()
    assert not is_frozen(loaded)
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    settle()
    assert is_frozen(loaded)


def test_it_is_frozen_again_only_when_modules_were_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    settle()
    later: list[int] = []
    settle()
    assert not is_frozen(later)
    monkeypatch.setitem(sys.modules, "_jetlake_loaded_later", types.ModuleType("_jetlake_loaded_later"))
    settle()
    assert is_frozen(later)

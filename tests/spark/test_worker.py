"""What work does to the process that Spark runs it in."""

from __future__ import annotations

import gc
import sys
import types

import pytest

pytest.importorskip("pyspark")

from jetlake.spark.worker import settle


def test_only_in_a_process_of_spark_and_only_once_is_what_is_loaded_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetlake.spark.worker._settled_module_count", 0)
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    gc.unfreeze()
    settle()
    assert gc.get_freeze_count() == 0
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    try:
        settle()
        frozen = gc.get_freeze_count()
        more: list[list[int]] = [[] for _ in range(100)]
        settle()
        assert 0 < gc.get_freeze_count() <= frozen and len(more) == 100
    finally:
        gc.unfreeze()


def test_modules_that_a_later_task_loads_are_frozen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetlake.spark.worker._settled_module_count", 0)
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    try:
        settle()
        frozen = gc.get_freeze_count()
        more: list[list[int]] = [[] for _ in range(100)]
        monkeypatch.setitem(sys.modules, "_jetlake_loaded_later", types.ModuleType("_jetlake_loaded_later"))
        settle()
        assert gc.get_freeze_count() >= frozen + len(more)
    finally:
        gc.unfreeze()

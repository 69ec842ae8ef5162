"""What tasks do to the process they run in."""

from __future__ import annotations

import gc
import sys
import types

import pytest

pytest.importorskip("pyspark")

from jetlake.spark.worker import settle


def test_only_in_a_task_and_only_once_is_what_is_loaded_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetlake.spark.worker._settled_module_count", 0)
    gc.unfreeze()
    settle()
    assert gc.get_freeze_count() == 0
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: object())
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
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: object())
    try:
        settle()
        frozen = gc.get_freeze_count()
        more: list[list[int]] = [[] for _ in range(100)]
        monkeypatch.setitem(sys.modules, "_jetlake_loaded_later", types.ModuleType("_jetlake_loaded_later"))
        settle()
        assert gc.get_freeze_count() >= frozen + len(more)
    finally:
        gc.unfreeze()

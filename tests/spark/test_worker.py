"""What tasks do to the process they run in."""

from __future__ import annotations

import gc

import pytest

pytest.importorskip("pyspark")

from jetlake.spark.worker import settle


def test_only_in_a_task_and_only_once_is_what_is_loaded_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.unfreeze()
    settle()
    assert gc.get_freeze_count() == 0
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: object())
    try:
        settle()
        frozen = gc.get_freeze_count()
        more = [[] for _ in range(100)]
        settle()
        assert 0 < gc.get_freeze_count() <= frozen and len(more) == 100
    finally:
        gc.unfreeze()

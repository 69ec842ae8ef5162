"""What work does to the process that Spark runs it in."""

from __future__ import annotations

import gc
import os
import sys
import types
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from jetlake.spark.worker import one_line_errors, settle
from jetlake.table.errors import BadOption


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


def test_an_error_of_ours_is_told_without_the_traceback_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_HIDE_TRACEBACK", "SPARK_REUSE_WORKER"):
        monkeypatch.delenv(name, raising=False)
    for variable, error, is_hidden in [
        ("", BadOption("ours"), False),
        ("SPARK_REUSE_WORKER", ValueError("another's"), False),
        ("SPARK_REUSE_WORKER", BadOption("ours"), True),
    ]:
        if variable:
            monkeypatch.setenv(variable, "1")
        with pytest.raises(type(error)), one_line_errors():
            raise error
        assert ("SPARK_HIDE_TRACEBACK" in os.environ) is is_hidden
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK")

"""Every kernel has a Python twin: tests run on both, and against each other."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest

NO_KERNELS = bool(os.environ.get("JETLAKE_NO_KERNELS"))
needs_kernels = pytest.mark.skipif(NO_KERNELS, reason="JETLAKE_NO_KERNELS is set")
both_twins = pytest.mark.parametrize("kind", ["py", pytest.param("c", marks=needs_kernels)])


def load_twin(name: str, kind: str) -> ModuleType:
    """The twin of a kernel: `load_twin("jetlake.wire._tokenize", "c")`."""
    return importlib.import_module(f"{name}_{kind}")


def load_twins(name: str) -> list[ModuleType]:
    """Both twins of a kernel."""
    return [load_twin(name, kind) for kind in ("py", "c")]

"""Whether the compiled kernels are there: all of them, or none is used.

They call each other at the level of C, so a mixture of compiled and Python twins would not work.
"""

from __future__ import annotations

import logging
from importlib import import_module

_log = logging.getLogger("jetlake.store")

KERNELS = (
    "index._ranges",
    "records._record",
    "index._subject_filter",
    "index._subject_table",
    "index._subject_scan",
    "index._subject_lists",
    "records._scan",
    "records._encode",
    "index._summary",
    "records._trim",
)


def _are_built() -> bool:
    try:
        for name in KERNELS:
            import_module(f"jetlake.store.{name}_c")
    except ImportError as error:
        _log.warning("kernels are not built, their Python twins serve: slower, never different missing=%s", error.name)
        return False
    return True


COMPILED = _are_built()

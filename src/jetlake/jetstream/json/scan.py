"""The syntax of JSON: the compiled kernel if it is built, else its Python twin, which says what it writes."""

from __future__ import annotations

try:
    from jetlake.jetstream.json._scan_c import scan

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.jetstream.json._scan_py import scan

    COMPILED = False

__all__ = ["COMPILED", "scan"]

"""Streams as Spark tables.

    from jetlake.spark import read, session

    spark = session()
    orders = read(spark, path="/data", stream="ORDERS", where="subject LIKE 'orders.eu.%' AND seq > 1000")

`docs/spark.md` has all options. Names are imported when they are first used: every Python process of Spark imports this
package, and most need little of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetlake.spark.frames import read, read_stream
    from jetlake.spark.names import register
    from jetlake.spark.source import JetStreamSource
    from jetlake.spark.spark_session import session

_HOMES = {"read": "frames", "read_stream": "frames", "session": "spark_session", "JetStreamSource": "source"}
_HOMES |= {"register": "names"}

__all__ = ["JetStreamSource", "read", "read_stream", "register", "session"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

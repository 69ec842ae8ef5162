"""JetLake: a JetStream server in Python whose streams are Spark tables."""

__version__ = "0.1.0"

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetlake.table.scan import scan as scan


def __getattr__(name: str) -> Any:
    """`jetlake.scan`, imported when it is first used: a server needs no Arrow."""
    if name != "scan":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module

    try:
        return import_module("jetlake.table.scan").scan
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ModuleNotFoundError("pyarrow is not installed: pip install 'jetlake[arrow]'", name="pyarrow") from None

"""`locked`: a method that one thread at a time may be in, of those of one object that have it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class HasLock(Protocol):
    """What has methods that are locked."""

    @property
    def lock(self) -> RLock: ...


_Self = TypeVar("_Self", bound=HasLock)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def locked(
    method: Callable[Concatenate[_Self, _Arguments], _Result],
) -> Callable[Concatenate[_Self, _Arguments], _Result]:
    """Let other threads wait while one is in the method; the same thread may call others from it."""

    @wraps(method)
    def alone(self: _Self, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with self.lock:
            return method(self, *args, **kwargs)

    return alone

"""Files of which a test changes something between two reads of somebody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jetlake.testing.memfiles import MemFiles


class RacedFiles(MemFiles):
    """Files in memory; while `meanwhile` is set, it is called before each read, and may itself use the files."""

    meanwhile: Callable[[], object] | None = None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            meanwhile()
            self.meanwhile = meanwhile
        with super()._reading():
            yield

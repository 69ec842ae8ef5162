"""A group: the servers that hold one log together, as the parts of a cluster see it.

`Group` is one server's member of it, and `Machine` what the entries are applied to: the meta group's assignments, or a
replicated stream. The consensus behind it (`node.py`) is not seen here, so a test can put a list in its place.

Always true: entries are applied in order, each once, on every member; `lead` comes after everything that earlier
leaders got committed was applied, so the leader's state is complete when it begins to decide.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

META_GROUP = 0


class Machine(Protocol):
    """What the entries of a group change."""

    def apply(self, index: int, data: bytes) -> None:
        """An entry was committed."""

    def lead(self, term: int) -> None:
        """This server leads from now on: it may propose."""

    def follow(self, leader: int) -> None:
        """Another server leads, or nobody known (0). What was proposed here and not applied may yet be, or may not."""


@runtime_checkable
class Checkpointing(Protocol):
    """A machine that can be asked to make itself durable, so that the log need not keep what it applied long ago."""

    def checkpoint_soon(self) -> None:
        """End with `Group.checkpoint`, in whatever time that takes. Asked again for as long as it matters."""


class Group(Protocol):
    """This server's member of a group."""

    @property
    def id(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def leader(self) -> int:
        """The raft id of the leader, 0 when none is known."""

    @property
    def applied(self) -> int:
        """The index of the last entry that was applied."""

    def propose(self, data: bytes) -> int:
        """Its index if it is committed in this term; 0 if this server does not lead or too much is uncommitted."""

    def transfer(self, to: int) -> None:
        """Let another member lead."""

    def step_down(self) -> None:
        """Lead no more."""

    def checkpoint(self, index: int) -> None:
        """What was applied up to here is durable by other means: the log may forget it."""

"""The consensus engine, or a sentence that says why there is none.

It is written in Rust (`engine/`), and optional: without it one server works as always, and a cluster is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jetlake.cluster._engine import Engine

WHY_NOT = ""  # there is no engine
try:
    from jetlake.cluster._engine import Engine as _Engine
except ImportError as error:
    WHY_NOT = f"{error}: install Rust 1.85 or newer (rustup.rs), then install JetLake again"

# Ticks are 100 ms. A leader that is not heard is replaced after 2 to 4 s. That is the backstop: a node that is down is
# noticed much sooner, for all its groups at once (`peers.py`).
TICK_S = 0.1
HEARTBEAT_TICKS = 5
ELECTION_TICKS = 20


class NoEngine(RuntimeError):
    """This installation cannot take part in a cluster."""

    def __init__(self) -> None:
        super().__init__(f"the consensus engine is not built: {WHY_NOT}")


def new_engine(
    node: int, seed: int, *, election_ticks: int = ELECTION_TICKS, heartbeat_ticks: int = HEARTBEAT_TICKS, **kept: int
) -> Engine:
    """An engine for a node; NoEngine where it is not built. A seed replays all that it draws by lot."""
    if WHY_NOT:
        raise NoEngine
    return _Engine(node, election_ticks, heartbeat_ticks, seed, **kept)


def raft_id(node: int, incarnation: int) -> int:
    """Who a node is in a group. An incarnation that lost some of its log is never used again."""
    assert 0 < node < 1 << 48 and 0 < incarnation < 1 << 16
    return node << 16 | incarnation


def node_of(id: int) -> int:
    """The node of a raft id."""
    return id >> 16


def next_incarnation(id: int) -> int:
    """The raft id that a member takes when it lost some of its log. OverflowError after the last one."""
    if id & 0xFFFF == 0xFFFF:
        raise OverflowError(f"node {node_of(id)} has no incarnation left")
    return id + 1

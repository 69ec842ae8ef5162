"""What the answers of a cluster are made of: how groups and servers are, as this server sees them.

The node implements `ClusterView`. Everything that tells or decides something (`info.py`, `answering.py`, `api.py`,
`advisories.py`, `observe.py`) is a function of it, and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jetlake.clock import SECOND_NS
from jetlake.cluster.assignments import GroupPlan, StreamAssignment
from jetlake.cluster.meta import Meta
from jetlake.cluster.placement import Candidate

if TYPE_CHECKING:
    from jetlake.jetstream.errors import ApiError
    from jetlake.jetstream.host import Host

LOST_NS = 10 * SECOND_NS  # a member that was silent for so long is not current
OFFLINE_NS = 2 * SECOND_NS  # a stream without servers for so long is offline
SYSTEM_TRAFFIC = "$SYS"  # the account whose traffic the groups' messages are


class MemberStatus(NamedTuple):
    """A member of a group."""

    peer: str
    is_current: bool = False
    active_ns: int = 0  # how long ago it was heard; 0 if it was not, or is not listened to
    lag: int = 0  # entries that it is behind
    replicated_index: int = 0  # what it is known to have; 0 unless this server leads


class LogStatus(NamedTuple):
    """The entries of a group that this server still has."""

    entry_count: int = 0
    size: int = 0
    first_index: int = 1
    first_ns: int = 0
    last_index: int = 0
    last_ns: int = 0


class GroupStatus(NamedTuple):
    """A group that this server is a member of."""

    leader: str = ""  # a peer
    leader_since_ns: int = 0  # since when this server leads; 0 if it does not
    members: tuple[MemberStatus, ...] = ()  # all, this server too
    state: str = "FOLLOWER"  # or LEADER, CANDIDATE
    had_leader: bool = True
    term: int = 0
    voted_for: str = ""
    committed: int = 0
    applied: int = 0
    last_term: int = 0
    last_index: int = 0
    waiting_count: int = 0  # proposals that are not committed
    log: LogStatus = LogStatus()

    @property
    def quorum(self) -> int:
        return len(self.members) // 2 + 1


class SnapshotTimes(NamedTuple):
    """The last snapshot of the meta group; `meta_files.MetaKeeper` has them."""

    last_ns: int = 0
    last_duration_ns: int = 0


class AccountUsage(NamedTuple):
    """An account on all servers together."""

    memory: int = 0
    storage: int = 0
    api_total: int = 0
    api_errors: int = 0


Infos = Mapping[str, Any]


class ClusterView(Protocol):
    """The cluster, as this server sees it."""

    @property
    def host(self) -> Host: ...
    @property
    def name(self) -> str:
        """The cluster's."""

    @property
    def peer(self) -> str:
        """This server's."""

    @property
    def meta(self) -> Meta: ...
    @property
    def unique_tag(self) -> str: ...

    def server_name(self, peer: str) -> str | None:
        """The name of a server, if it is known."""

    def is_online(self, peer: str) -> bool: ...
    def offline_since_ns(self, peer: str) -> int:
        """When a server was lost; 0 while it is online."""

    def candidates(self) -> list[Candidate]:
        """All servers, with what they have and use."""

    def status(self, group: GroupPlan) -> GroupStatus | None:
        """How a group is; None if this server is not in it, or if it has but one member."""

    def meta_status(self) -> GroupStatus: ...
    @property
    def snapshot_times(self) -> SnapshotTimes: ...
    def delivers(self, stream: StreamAssignment, consumer: str) -> bool:
        """Whether this server delivers for a consumer."""

    def transfer(self, group: GroupPlan | None, peer: str) -> None:
        """Hand the office of a group's leader (None: the meta group's) to a peer, or to anybody (empty)."""

    def move_deliverer(self, stream: StreamAssignment, consumer: str, peer: str) -> None:
        """Let another server (empty: any) deliver for a consumer."""

    def remove_member(self, peer: str, done: Callable[[ApiError | None], None]) -> None:
        """Take a server out of the meta group."""

    @property
    def can_move(self) -> bool:
        """Whether streams can get other servers than they have."""

    def usage(self, account: str) -> AccountUsage: ...
    def gather_streams(self, account: str, names: list[str], done: Callable[[Infos], None]) -> None:
        """Ask the leaders of streams for their infos; those that answered in time."""


def server_name(view: ClusterView, peer: str) -> str:
    """The name of a server, or what stands for it."""
    return view.server_name(peer) or f"Server name unknown at this time (peerID: {peer})"


def leader_of(view: ClusterView, group: GroupPlan) -> str:
    """The peer that leads a group as far as this server knows; empty if none does."""
    if len(group.peers) == 1 and group.desired is None:
        return group.peers[0]
    status = view.status(group)
    return status.leader if status is not None else ""


def is_offline(view: ClusterView, stream: StreamAssignment) -> bool:
    """Whether a stream has had too few servers for some time."""
    peers, now_ns = stream.group.peers, view.host.clock()
    lost = [since for peer in peers if (since := view.offline_since_ns(peer))]
    needed = len(peers) // 2 + 1
    if len(peers) - len(lost) >= needed:
        return False
    lost.sort()
    return now_ns - lost[len(peers) - needed] >= OFFLINE_NS  # when the last one that was needed was lost

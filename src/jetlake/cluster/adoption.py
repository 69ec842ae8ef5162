"""Streams that a server had before it was in a cluster: they become streams of the cluster, with one replica there.

The server tells the leader of the meta group of them when it is a member for the first time. One whose name or subjects
another stream of the cluster has is not taken: it is offline on its server, and its files stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from jetlake.cluster.assignments import GroupPlan, Origination
from jetlake.cluster.meta_codec import AssignStream
from jetlake.cluster.placement import group_name
from jetlake.cluster.questions import Reply
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.subjects import FilterSet
from jetlake.wire.go_time import plain_time

if TYPE_CHECKING:
    from jetlake.cluster.local import LocalCluster

WAIT_S = 2.0
AT_ONCE = 100  # streams in one question


class _Own(msgspec.Struct, frozen=True):
    account: str
    config: StreamConfig
    created_ns: int


class _Offer(msgspec.Struct, frozen=True):
    peer: str
    streams: list[_Own]


class Adoption:
    """Offers this server's own streams to the cluster, and takes those of others while this server leads."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._is_asking = False
        cluster.questions.serve("ADOPT", self._adopt)

    def offer(self) -> bool:
        """Ask for a place for streams that have none, some at a time; False when all have been answered for."""
        if self._is_asking:
            return True
        cluster, state = self._cluster, self._cluster.meta.state
        own = []
        for account in cluster.service.accounts.values():
            for stream in account.streams.values():
                if state.stream(account.account.name, stream.name) is None and not self._problem(
                    account.account.name, stream.config
                ):
                    own.append(_Own(account.account.name, stream.config, stream.created_ns))
        if not own:
            return False

        def over() -> None:
            self._is_asking = False

        def answered(payload: bytes) -> bool:
            over()
            return True

        self._is_asking = True
        offer = msgspec.json.encode(_Offer(cluster.peer, own[:AT_ONCE]), enc_hook=plain_time)
        cluster.questions.ask("ADOPT", offer, answered, over, WAIT_S)
        return True

    def _problem(self, account: str, config: StreamConfig) -> str:
        """Why the cluster cannot take a stream; empty if it can."""
        wanted = FilterSet(list(config.subjects)) if config.subjects else None
        for other in self._cluster.meta.streams_of(account).values():
            if other.name == config.name:
                return "its name is taken"
            if wanted is not None and any(map(wanted.overlaps, other.config.subjects)):
                return f"stream {other.name} has its subjects"
        return ""

    def _adopt(self, payload: bytes, reply: Reply) -> None:
        cluster = self._cluster
        if not cluster.meta.is_leader:
            return
        offer = msgspec.json.decode(payload, type=_Offer)
        for each in offer.streams if offer.peer in cluster.meta.state.nodes else ():
            if self._problem(each.account, each.config):
                continue
            config = replace(each.config, num_replicas=1)
            group = GroupPlan(
                name=group_name("S", 1, config.storage),
                peers=(offer.peer,),
                storage=config.storage,
                cluster=cluster.name,
                preferred=offer.peer,
            )
            entry = AssignStream(
                account=each.account, config=config, created_ns=each.created_ns, group=group, asked=Origination()
            )
            try:
                cluster.meta.propose(entry)
            except ApiError:
                return
        reply(b"")

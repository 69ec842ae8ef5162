"""Reconciler: the leader of the meta group sets right what no request asks for.

Streams that have a server which is no member of the cluster any more get another one in its place, if there is one. A
group that has arrived where it was to go has its assignment say so. The leader looks at all assignments when its office
begins and after each change of the servers, so nothing depends on the leader that saw the change.

A stream of one replica on a server that was removed stays as it is: its messages are there or nowhere.
"""

from __future__ import annotations

from msgspec.structs import replace

from jetlake.cluster.assignments import StreamAssignment
from jetlake.cluster.meta_codec import UpdateStream
from jetlake.cluster.moves import towards
from jetlake.cluster.placement import replace_peers, wish_of
from jetlake.cluster.view import ClusterView
from jetlake.jetstream.errors import ApiError


class Reconciler:
    """Looks after the assignments while this server leads the meta group."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        view.meta.on_leader_change(lambda is_leader, leader: self.look())

    def look(self) -> None:
        """Propose what is missing. Called when the servers changed, too."""
        meta = self._view.meta
        if not meta.is_leader or not self._view.can_move:
            return
        for stream in list(meta.state.streams()):
            current = meta.stream(stream.account, stream.name)
            if current is None or current.incarnation != stream.incarnation:
                continue
            entry = self._evacuation(current)
            if entry is not None:
                try:
                    meta.propose(entry)
                except ApiError:
                    return  # it leads no more, or has too much to do: there will be another look

    def _evacuation(self, stream: StreamAssignment) -> UpdateStream | None:
        """How a stream leaves servers that are gone for good."""
        view, group, nodes = self._view, stream.group, self._view.meta.state.nodes
        wanted = group.desired.peers if group.desired is not None else group.peers
        staying = [peer for peer in wanted if peer in nodes]
        if len(staying) == len(wanted) or not staying:
            return None
        wish = wish_of(stream.config, group.cluster or view.name, view.unique_tag)
        peers = replace_peers(wish, staying, view.candidates())
        return UpdateStream(
            account=stream.account,
            incarnation=stream.incarnation,
            config=stream.config,
            group=towards(view, stream, peers, wish.cluster),
        )

    def arrived(self, account: str, name: str, incarnation: int) -> None:
        """The members of a stream's group are those that were desired: the assignment follows. Raises ApiError."""
        stream = self._view.meta.stream(account, name)
        if stream is None or stream.incarnation != incarnation or stream.group.desired is None:
            return
        group, peers = stream.group, stream.group.desired.peers
        preferred = group.preferred if group.preferred in peers else peers[0]
        entry = UpdateStream(
            account=account,
            incarnation=incarnation,
            config=stream.config,
            group=replace(group, peers=peers, preferred=preferred, desired=None),
        )
        self._view.meta.propose(entry)

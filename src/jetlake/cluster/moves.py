"""Other servers for a stream: more or fewer replicas, another placement, a server that is to leave it.

The leader of the meta group writes down where a stream is to be (`Desired`); the stream's group goes there by itself,
one member at a time, and the meta leader clears what it wrote when the group has arrived.
"""

from __future__ import annotations

from msgspec.structs import replace

from jetlake.cluster.asked import assigned
from jetlake.cluster.assignments import Desired, GroupPlan, Origin, StreamAssignment, peer_id, peers_about
from jetlake.cluster.meta_codec import UpdateStream
from jetlake.cluster.placement import Candidate, group_name, replace_peer, select_peers, suits, wish_of
from jetlake.cluster.view import ClusterView, leader_of
from jetlake.jetstream import errors
from jetlake.jetstream.api.request import Request
from jetlake.jetstream.json.shape import STRING, Struct, is_empty_request
from jetlake.jetstream.streams.config import StreamConfig

_REMOVE_PEER = Struct("JSApiStreamRemovePeerRequest", {"peer": STRING})


def moved_group(view: ClusterView, stream: StreamAssignment, config: StreamConfig) -> GroupPlan | None:
    """The group of a stream with where a new configuration wants it; None if it is there. Raises ApiError."""
    old, group = stream.config, stream.group
    if (config.num_replicas, config.placement) == (old.num_replicas, old.placement):
        return None
    candidates = view.candidates()
    wish = wish_of(config, group.cluster or view.name, view.unique_tag)
    known = {each.node.peer: each for each in candidates}
    leader = leader_of(view, group)
    staying = sorted(group.peers, key=lambda peer: (peer != leader, not _is_online(known, peer)))
    staying = [peer for peer in staying if peer in known and suits(wish, known[peer].node)]
    peers = select_peers(wish, candidates, existing=staying[: wish.replicas])
    if set(peers) == set(group.peers):
        return None
    if not view.can_move:
        raise errors.CLUSTER_UNSUPPORTED_FEATURE()
    return towards(view, stream, peers, wish.cluster)


def _is_online(known: dict[str, Candidate], peer: str) -> bool:
    return peer in known and known[peer].is_online


def towards(view: ClusterView, stream: StreamAssignment, peers: tuple[str, ...], cluster: str) -> GroupPlan:
    """The group of a stream with these servers as its aim."""
    group, config = stream.group, stream.config
    origin = group.desired.origin if group.desired is not None else None
    desired = Desired(
        created_ns=view.host.clock(),
        peers=peers,
        cluster=cluster,
        origin=origin or Origin(replicas=config.num_replicas, placement=config.placement),
    )
    # A stream that was alone has had no group until now.
    name = group_name("S", len(peers), config.storage) if len(group.peers) == 1 else group.name
    return replace(group, name=name, desired=desired)


def remove_peer(view: ClusterView, request: Request) -> None:
    """STREAM.PEER.REMOVE and STREAM.PEER.EVACUATE: another server takes the place of one."""
    if is_empty_request(request.payload):
        raise errors.BAD_REQUEST()
    named = request.read(_REMOVE_PEER).get("peer", "")
    if not named:
        raise errors.BAD_REQUEST()
    stream = assigned(view, request)
    group = stream.group
    members = peers_about(group)
    peer = next((peer for peer in (peer_id(named), named) if peer in members), None)
    if peer is None:
        raise errors.CLUSTER_PEER_NOT_MEMBER()
    wish = wish_of(stream.config, group.cluster or view.name, view.unique_tag)
    peers = replace_peer(wish, group.peers, peer, view.candidates())
    if not view.can_move:
        raise errors.CLUSTER_UNSUPPORTED_FEATURE()
    _propose(view, request, stream, stream.config, towards(view, stream, peers, wish.cluster))


def cancel_move(view: ClusterView, request: Request) -> None:
    """STREAM.CANCEL_MOVE: back to the configuration before the move."""
    stream = assigned(view, request)
    desired = stream.group.desired
    if desired is None:
        raise errors.STREAM_RECONFIGURE_NOT_IN_PROGRESS()
    config = stream.config
    if desired.origin is not None:
        config = replace(config, num_replicas=desired.origin.replicas, placement=desired.origin.placement)
    _propose(view, request, stream, config, replace(stream.group, desired=None))


def _propose(
    view: ClusterView, request: Request, stream: StreamAssignment, config: StreamConfig, group: GroupPlan
) -> None:
    entry = UpdateStream(account=stream.account, incarnation=stream.incarnation, config=config, group=group)

    def applied(changed: bool) -> None:
        if changed:
            request.reply({"success": True})
        else:
            request.fail(errors.STREAM_NOT_FOUND())

    view.meta.propose(entry, applied)

"""Requests to leaders to hand over their office, and to the meta leader to remove a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jetlake.cluster.asked import assigned
from jetlake.cluster.placement import StepDownPlacement, step_down_target
from jetlake.cluster.view import ClusterView
from jetlake.jetstream import errors
from jetlake.jetstream.api.request import Request
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.json.shape import STRING, STRINGS, Struct, is_empty_request, is_json, read_request

_PLACEMENT = Struct(
    "Placement",
    {"cluster": STRING, "tags": STRINGS, "preferred": STRING},
    lambda fields: StepDownPlacement(**fields),
)
_STEP_DOWN = Struct("JSApiLeaderStepdownRequest", {"placement": _PLACEMENT})
_REMOVE = Struct("JSApiMetaServerRemoveRequest", {"peer": STRING, "peer_id": STRING})


def read_target(view: ClusterView, payload: bytes, leader: str, peers: tuple[str, ...], *, strict: bool = True) -> str:
    """The peer that a request wants to lead; empty if anybody may. Raises ApiError."""
    placement: StepDownPlacement | None = None
    if is_json(payload):
        placement = read_request(payload, _STEP_DOWN, strict=strict).get("placement")
    if placement is None:
        return ""
    return step_down_target(placement, leader, peers, {each.node.peer: each for each in view.candidates()})


def step_down_stream(view: ClusterView, request: Request) -> None:
    stream = assigned(view, request)
    if stream.is_replicated:
        target = read_target(view, request.payload, view.peer, stream.group.peers, strict=request.is_strict)
        view.transfer(stream.group, target)
    request.reply({"success": True})


def step_down_consumer(view: ClusterView, request: Request) -> None:
    stream, name = assigned(view, request), request.names[1]
    found = stream.consumers.get(name)
    if found is None and name not in request.stream.consumers:
        raise errors.CONSUMER_NOT_FOUND()
    if found is not None and len(found.group.peers) > 1:
        target = read_target(view, request.payload, view.peer, found.group.peers, strict=request.is_strict)
        view.move_deliverer(stream, name, target)
    request.reply({"success": True})


# The system account's


def step_down_meta(view: ClusterView, payload: bytes, answer: Callable[[ApiError | None], None]) -> None:
    """META.LEADER.STEPDOWN, on the leader."""
    status = view.meta_status()
    target = read_target(view, payload, view.peer, tuple(member.peer for member in status.members))
    view.transfer(None, target)
    answer(None)


def remove_server(view: ClusterView, payload: bytes, answer: Callable[[ApiError | None], None]) -> None:
    """SERVER.REMOVE, on the leader: `peer` is a server's name, `peer_id` comes before it."""
    if is_empty_request(payload):
        raise errors.BAD_REQUEST()
    fields: dict[str, Any] = read_request(payload, _REMOVE)
    named, by_id = fields.get("peer", ""), fields.get("peer_id", "")
    for node in view.meta.state.nodes.values():
        if (by_id and node.peer == by_id) or (not by_id and node.name == named):
            view.remove_member(node.peer, answer)
            return
    raise errors.CLUSTER_SERVER_NOT_MEMBER()


SYSTEM_CALLS = {
    "META.LEADER.STEPDOWN": ("meta_leader_stepdown_response", step_down_meta),
    "SERVER.REMOVE": ("meta_server_remove_response", remove_server),
}

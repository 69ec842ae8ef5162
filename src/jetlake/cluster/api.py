"""The JetStream API in a cluster: what its leaders do instead of what a server alone does.

The leader of the meta group checks what is asked against all assignments, in flight ones too, chooses servers, and
proposes. Who makes the stream or consumer then answers: the entry says where to. Removals are answered by the meta
leader once they are applied: they are sure to happen then, whichever server is away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jetlake.cluster.answering import answers
from jetlake.cluster.asked import asked_by, assigned
from jetlake.cluster.assignments import StreamAssignment
from jetlake.cluster.consumers_api import create_consumer, delete_consumer
from jetlake.cluster.info import cluster_block
from jetlake.cluster.meta_codec import AssignStream, RemoveStream, UpdateStream
from jetlake.cluster.moves import cancel_move, moved_group, remove_peer
from jetlake.cluster.placement import plan_group, select_peers, wish_of
from jetlake.cluster.step_down import step_down_consumer, step_down_stream
from jetlake.cluster.view import ClusterView
from jetlake.jetstream import errors
from jetlake.jetstream.api.consumers import CREATIONS
from jetlake.jetstream.api.request import Request
from jetlake.jetstream.api.streams import LIST_MAX, NAMES_MAX, read_page
from jetlake.jetstream.consumers.consumer import Consumer
from jetlake.jetstream.json.shape import is_empty_request
from jetlake.jetstream.streams.admission import Surroundings, admit_change, admit_new, reserved_size
from jetlake.jetstream.streams.config import Storage, StreamConfig, parse_request, with_level
from jetlake.jetstream.streams.rules import REPLICAS_MAX, check_create, check_sizes
from jetlake.jetstream.streams.stream import Stream
from jetlake.subjects import FilterSet

Handler = Callable[[ClusterView, Request], None]


class ClusterApi:
    """The cluster as JetStream asks it: see `jetstream.clustering.Cluster`."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def answers(self, request: Request) -> bool:
        return answers(self._view, request)

    def handler(self, pattern: str) -> Callable[[Request], None] | None:
        found = HANDLERS.get(pattern)
        if found is None:
            return None
        handler = found
        return lambda request: handler(self._view, request)

    def stream_block(self, stream: Stream) -> dict[str, Any]:
        found = self._view.meta.state.stream(stream.account.name, stream.name)
        return cluster_block(self._view, found.group) if found is not None else self._own_block()

    def consumer_block(self, consumer: Consumer) -> dict[str, Any]:
        stream = self._view.meta.state.stream(consumer.account.name, consumer.stream.name)
        found = stream.consumers.get(consumer.name) if stream is not None else None
        return cluster_block(self._view, found.group) if found is not None else self._own_block()

    def _own_block(self) -> dict[str, Any]:
        """Of what is on this server alone: an ephemeral consumer."""
        return {"name": self._view.name, "leader": self._view.host.server_name}


def around(view: ClusterView, request: Request) -> Surroundings:
    """What decides about a stream: the assignments of the account. Room on servers is for the placement to find."""
    return Surroundings(
        view.meta.streams_of(request.account_name),
        request.account.limits,
        request.host.options.jetstream.limits,
        lambda storage, size: False,
        replicas_max=REPLICAS_MAX,
    )


# Streams


def create(view: ClusterView, request: Request) -> None:
    config, pedantic = parse_request(request.payload, strict=request.is_strict)
    if config.name != request.names[0]:
        raise errors.STREAM_NAME_MISMATCH()
    config = with_level(config)  # its size counts
    check_create(config)
    admitted = admit_new(config, around(view, request), pedantic=pedantic)
    if admitted is None:  # whoever has the same stream answers
        _propose_change(view, request, assigned(view, request), None)
        return
    wish, candidates = wish_of(admitted, view.name, view.unique_tag), view.candidates()
    group = plan_group(admitted, select_peers(wish, candidates), wish.cluster, candidates)
    entry = AssignStream(
        account=request.account_name,
        config=admitted,
        created_ns=request.host.clock(),
        group=group,
        asked=asked_by(request),
    )
    view.meta.propose(entry, lambda changed: None if changed else request.fail(errors.STREAM_NAME_EXIST()))


def update(view: ClusterView, request: Request) -> None:
    config, pedantic = parse_request(request.payload, strict=request.is_strict)
    config = request.account.checked(config, pedantic=pedantic)
    if config.name != request.names[0]:
        raise errors.STREAM_NAME_MISMATCH()
    found, config = assigned(view, request), with_level(config)
    check_sizes(config)  # once more, since its level counts
    consumers = view.meta.consumers_of(request.account_name, found.name)
    admitted = admit_change(found.config, config, consumers, around(view, request))
    _propose_change(view, request, found, admitted)


def _propose_change(view: ClusterView, request: Request, found: StreamAssignment, config: StreamConfig | None) -> None:
    entry = UpdateStream(
        account=found.account,
        incarnation=found.incarnation,
        config=found.config if config is None else config,
        group=None if config is None else moved_group(view, found, config),
        asked=asked_by(request),
    )
    view.meta.propose(entry, lambda changed: None if changed else request.fail(errors.STREAM_NOT_FOUND()))


def delete(view: ClusterView, request: Request) -> None:
    if not is_empty_request(request.payload):
        raise errors.NOT_EMPTY_REQUEST()
    found = assigned(view, request)
    entry = RemoveStream(account=found.account, name=found.name, incarnation=found.incarnation, asked=asked_by(request))
    view.meta.propose(entry, lambda changed: _removed(request, changed))


def _removed(request: Request, changed: bool) -> None:
    if changed:
        request.reply({"success": True})
    else:
        request.fail(errors.STREAM_NOT_FOUND())


def restore(view: ClusterView, request: Request) -> None:
    raise errors.CLUSTER_UNSUPPORTED_FEATURE()


# Looking


def names(view: ClusterView, request: Request) -> None:
    found, offset = _about(view, request, "JSApiStreamNamesRequest")
    page = found[offset : offset + NAMES_MAX]
    request.reply({"total": len(found), "offset": offset, "limit": NAMES_MAX, "streams": page or None})


def list_all(view: ClusterView, request: Request) -> None:
    found, offset = _about(view, request, "JSApiStreamListRequest")
    page = found[offset : offset + LIST_MAX]

    def gathered(infos: Mapping[str, Any]) -> None:
        shown = [infos[name] for name in page if name in infos]
        fields: dict[str, Any] = {"total": len(found), "offset": offset, "limit": LIST_MAX, "streams": shown}
        if missing := [name for name in page if name not in infos]:
            fields["missing"] = missing
        request.reply(fields)

    view.gather_streams(request.account_name, page, gathered)


def _about(view: ClusterView, request: Request, type: str) -> tuple[list[str], int]:
    """The names of the streams that a list is about, and where its page begins."""
    offset, subject = read_page(request, type)
    streams = view.meta.state.accounts.get(request.account_name, {})
    found = sorted(streams)
    if subject:
        wanted = FilterSet([subject])
        found = [name for name in found if any(map(wanted.overlaps, streams[name].config.subjects))]
    return found, min(offset, len(found))


def account_info(view: ClusterView, request: Request) -> None:
    """What the account has on all servers."""
    account, usage = request.account_name, view.usage(request.account_name)
    streams = view.meta.state.accounts.get(account, {})
    info = request.account.info()
    info |= {
        "memory": usage.memory,
        "storage": usage.storage,
        "reserved_memory": reserved_size(streams, Storage.MEMORY),
        "reserved_storage": reserved_size(streams, Storage.FILE),
        "streams": len(streams),
        "consumers": sum(len(stream.consumers) for stream in streams.values()),
    }
    info["api"] = {**info["api"], "total": usage.api_total, "errors": usage.api_errors}
    request.reply(info)


HANDLERS: dict[str, Handler] = {
    "INFO": account_info,
    "STREAM.CREATE.*": create,
    "STREAM.UPDATE.*": update,
    "STREAM.DELETE.*": delete,
    "STREAM.NAMES": names,
    "STREAM.LIST": list_all,
    "STREAM.RESTORE.*": restore,
    "STREAM.PEER.REMOVE.*": remove_peer,
    "STREAM.PEER.EVACUATE.*": remove_peer,
    "STREAM.CANCEL_MOVE.*": cancel_move,
    "STREAM.LEADER.STEPDOWN.*": step_down_stream,
    "CONSUMER.LEADER.STEPDOWN.*.*": step_down_consumer,
    "CONSUMER.DELETE.*.*": delete_consumer,
    **dict.fromkeys(CREATIONS, create_consumer),
}

"""Durable consumers in a cluster: the leader of the meta group checks and proposes them."""

from __future__ import annotations

from jetlake.cluster.asked import asked_by, assigned
from jetlake.cluster.assignments import ConsumerAssignment, GroupPlan, StreamAssignment
from jetlake.cluster.meta_codec import AssignConsumer, RemoveConsumer
from jetlake.cluster.placement import group_name
from jetlake.cluster.view import ClusterView
from jetlake.jetstream import errors
from jetlake.jetstream.api.consumers import check_times, create, delete, read_creation, with_pause_of
from jetlake.jetstream.api.request import Request
from jetlake.jetstream.consumers.admission import ConsumerSurroundings, admit_consumer
from jetlake.jetstream.consumers.config import ConsumerConfig
from jetlake.jetstream.consumers.registry import ceilings_of
from jetlake.jetstream.consumers.rules import stamped
from jetlake.jetstream.json.shape import is_empty_request
from jetlake.jetstream.streams.config import Storage
from jetlake.subjects import encode_subject


def create_consumer(view: ClusterView, request: Request) -> None:
    """Propose a durable consumer; make one that is not, here, on the leader of its stream."""
    body, config = read_creation(request)
    account, name = request.account_name, config.durable_name or config.name
    existing = view.meta.consumer(account, request.names[0], name)
    if not config.is_durable and existing is None:
        create(request)
        return
    stream = assigned(view, request)
    if existing is not None:
        config = with_pause_of(existing.config, config)
    else:
        check_times(config)
    admitted = admit_consumer(stamped(config), body.action, _around(view, request, stream), pedantic=body.pedantic)
    consumer = ConsumerAssignment(
        name=admitted.name,
        config=admitted.config,
        created_ns=request.host.clock() if existing is None else existing.created_ns,
        group=_group(stream, admitted.config) if existing is None else existing.group,
        asked=asked_by(request),
    )
    entry = AssignConsumer(account=account, stream=stream.name, incarnation=stream.incarnation, consumer=consumer)
    view.meta.propose(entry, lambda changed: None if changed else request.fail(errors.STREAM_NOT_FOUND()))


def _around(view: ClusterView, request: Request, stream: StreamAssignment) -> ConsumerSurroundings:
    account, consumers = request.account, view.meta.consumers_of(request.account_name, stream.name)

    def is_bound(name: str) -> bool:
        subject = consumers[name].config.deliver_subject
        return bool(subject) and account.account.has_interest(encode_subject(subject))

    return ConsumerSurroundings(stream.config, consumers, ceilings_of(account), account.limits.max_consumers, is_bound)


def _group(stream: StreamAssignment, config: ConsumerConfig) -> GroupPlan:
    """The servers of a consumer: those of its stream, or some of them. Its group is the stream's; the name is shown."""
    peers = stream.group.peers[: config.num_replicas] if config.num_replicas else stream.group.peers
    storage = Storage.MEMORY if config.mem_storage else stream.config.storage
    return GroupPlan(
        name=group_name("C", len(peers), storage), peers=peers, storage=storage, cluster=stream.group.cluster
    )


def delete_consumer(view: ClusterView, request: Request) -> None:
    """Propose the removal of a durable consumer; remove one that is not, here, on the leader of its stream."""
    if not is_empty_request(request.payload):
        raise errors.NOT_EMPTY_REQUEST()
    found = view.meta.consumer(request.account_name, *request.names[:2])
    if found is None:
        delete(request)
        return
    stream = assigned(view, request)
    entry = RemoveConsumer(
        account=stream.account,
        stream=stream.name,
        incarnation=stream.incarnation,
        name=found.name,
        created_ns=found.created_ns,
        asked=asked_by(request),
    )

    def removed(changed: bool) -> None:
        if changed:
            request.reply({"success": True})
        else:
            request.fail(errors.CONSUMER_NOT_FOUND())

    view.meta.propose(entry, removed)

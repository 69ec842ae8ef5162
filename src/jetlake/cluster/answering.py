"""Which server of a cluster answers a request: all of them hear it.

| Endpoint's `answered_by` | Who answers |
| --- | --- |
| META_LEADER | the leader of the meta group |
| STREAM_LEADER | the leader of the stream |
| STREAM_MEMBER | the same; any member while the stream has no leader |
| DELIVERER | the server that delivers for the consumer |
| MAKER | the leader of the meta group for durable consumers, the leader of the stream for others |

The leader of the meta group answers for a stream that there is not (10059), or whose servers are gone (10118). Without
such a leader every server answers its own clients 10008, and the members of a stream without one say so, too.
"""

from __future__ import annotations

from jetlake.broker.peer import Kind
from jetlake.cluster.assignments import StreamAssignment
from jetlake.cluster.view import ClusterView, is_offline, leader_of
from jetlake.jetstream import errors
from jetlake.jetstream.api.consumers import CREATIONS, read_creation
from jetlake.jetstream.api.request import Request
from jetlake.jetstream.clustering import AnsweredBy
from jetlake.jetstream.errors import ApiError

_INFOS = ("STREAM.INFO.*", "CONSUMER.INFO.*.*")
_SILENT = "CONSUMER.RESET.*.*"  # a consumer answers that itself, so without one nobody does


def answers(view: ClusterView, request: Request) -> bool:
    """Whether this server answers a request; raises ApiError when that is the answer."""
    meta, by, pattern = view.meta, request.endpoint.answered_by, request.endpoint.pattern
    stream = meta.state.stream(request.account_name, request.names[0]) if request.names else None
    if stream is not None and pattern in _INFOS and _is_leaderless(view, stream):
        return True
    if stream is not None and pattern in _INFOS and leader_of(view, stream.group) == view.peer:
        return True
    if meta.is_leaderless:
        if request.msg.origin.kind is Kind.ROUTE:  # another server's client: that server answers
            return False
        raise errors.CLUSTER_NOT_AVAIL()
    if by is AnsweredBy.META_LEADER:
        return meta.is_leader
    if by is AnsweredBy.MAKER and _is_durable(view, request):
        return meta.is_leader
    if stream is None:
        return _answers_for_nothing(view, request)
    if by is AnsweredBy.DELIVERER and len(request.names) > 1 and request.names[1] in stream.consumers:
        return _answers_for(view, stream, is_own=view.delivers(stream, request.names[1]))
    return _answers_for(view, stream, is_own=leader_of(view, stream.group) == view.peer)


def _answers_for(view: ClusterView, stream: StreamAssignment, *, is_own: bool) -> bool:
    if is_own:
        return True
    if _is_leaderless(view, stream):
        raise errors.CLUSTER_NOT_AVAIL()
    if view.meta.is_leader and is_offline(view, stream):
        raise errors.STREAM_OFFLINE()
    return False


def _answers_for_nothing(view: ClusterView, request: Request) -> bool:
    """The meta leader knows that there is no such stream; one that is about to be made will answer later requests."""
    if not view.meta.is_leader or request.endpoint.pattern == _SILENT:
        return False
    raise errors.STREAM_NOT_FOUND()


def _is_leaderless(view: ClusterView, stream: StreamAssignment) -> bool:
    """Whether this server is a member of a stream's group that has no leader."""
    status = view.status(stream.group)
    return status is not None and not status.leader


def _is_durable(view: ClusterView, request: Request) -> bool:
    """Whether a consumer is, or will be, in the meta state. What cannot be read is for the meta leader to refuse."""
    account, stream = request.account_name, request.names[0]
    if request.endpoint.pattern not in CREATIONS:
        return view.meta.consumer(account, stream, request.names[1]) is not None
    try:
        _, config = read_creation(request)
    except ApiError:
        return True
    name = config.durable_name or config.name
    return config.is_durable or view.meta.consumer(account, stream, name) is not None

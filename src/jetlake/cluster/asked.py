"""What handlers of cluster requests share: the stream that is meant, and who asks."""

from __future__ import annotations

from jetlake.broker.client_info import client_info
from jetlake.cluster.assignments import Origination, StreamAssignment
from jetlake.cluster.view import ClusterView
from jetlake.jetstream import errors
from jetlake.jetstream.api.request import Request
from jetlake.subjects import decode_subject


def asked_by(request: Request) -> Origination:
    """Who asks, and where the answer is to go."""
    client = request.msg.client
    return Origination(
        client={**client_info(client), "server": request.host.server_name} if client is not None else {},
        subject=decode_subject(request.msg.subject),
        reply=decode_subject(request.msg.reply or b""),
    )


def assigned(view: ClusterView, request: Request) -> StreamAssignment:
    """The stream that a request names, as it will be; raises ApiError 10059."""
    found = view.meta.stream(request.account_name, request.names[0])
    if found is None:
        raise errors.STREAM_NOT_FOUND()
    return found

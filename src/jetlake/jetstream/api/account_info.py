"""What an account has and may have; and the calls that only a cluster can do something with."""

from __future__ import annotations

from jetlake.jetstream import errors
from jetlake.jetstream.api.request import Endpoint, Request
from jetlake.jetstream.clustering import AnsweredBy


def account_info(request: Request) -> None:
    request.reply(request.account.info())


def for_clusters(request: Request) -> None:
    raise errors.CLUSTER_REQUIRED()


def _cluster_call(pattern: str, type: str, answered_by: AnsweredBy) -> Endpoint:
    return Endpoint(pattern, type, for_clusters, is_for_clusters=True, answered_by=answered_by)


ENDPOINTS = [
    Endpoint("INFO", "account_info_response", account_info, answered_by=AnsweredBy.META_LEADER),
    _cluster_call("STREAM.PEER.REMOVE.*", "stream_remove_peer_response", AnsweredBy.META_LEADER),
    _cluster_call("STREAM.PEER.EVACUATE.*", "stream_evacuate_peer_response", AnsweredBy.META_LEADER),
    _cluster_call("STREAM.LEADER.STEPDOWN.*", "stream_leader_stepdown_response", AnsweredBy.STREAM_LEADER),
    _cluster_call("STREAM.CANCEL_MOVE.*", "stream_cancel_move_response", AnsweredBy.META_LEADER),
    _cluster_call("CONSUMER.LEADER.STEPDOWN.*.*", "consumer_leader_stepdown_response", AnsweredBy.DELIVERER),
]

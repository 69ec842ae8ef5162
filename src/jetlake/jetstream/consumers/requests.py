"""What a pull request does to a consumer: it waits, or it is told why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake.broker.subscription import Msg
from jetlake.clock import go_duration
from jetlake.jetstream.api_level import exceeds_api_level
from jetlake.jetstream.consumers.pull_request import BadPullRequest, NextRequest, PullRequest, read_next
from jetlake.wire.headers import status_block

if TYPE_CHECKING:
    from jetlake.jetstream.consumers.consumer import Consumer


def take(consumer: Consumer, msg: Msg) -> None:
    """A request came."""
    if not msg.reply:
        return
    if consumer.config.is_push:
        _refuse(consumer, msg.reply, 409, "Consumer is push based")
    elif exceeds_api_level(msg.headers):
        _refuse(consumer, msg.reply, 412, "Required Api Level")
    else:
        take_body(consumer, msg.reply, msg.payload)


def take_body(consumer: Consumer, reply: bytes, payload: bytes) -> None:
    """What a request asks for, from wherever it came."""
    if consumer.config.is_push:
        _refuse(consumer, reply, 409, "Consumer is push based")
        return
    now_ns = consumer.host.clock()
    try:
        body, is_json = read_next(payload)
        if (problem := _beyond(consumer, body)) is not None:
            _refuse(consumer, reply, 409, problem)
            return
        if is_json and not consumer.groups.check(body, now_ns):
            _refuse(consumer, reply, 423, "Nats-Pin-Id mismatch")
            return
    except BadPullRequest as error:
        _refuse(consumer, reply, 400, f"Bad Request - {error}")
        return
    _wait(consumer, PullRequest(reply, body, is_json, now_ns), now_ns)


def _beyond(consumer: Consumer, body: NextRequest) -> str | None:
    """Which ceiling of the consumer a request is beyond."""
    config = consumer.config
    if 0 < config.max_batch < body.batch:
        return f"Exceeded MaxRequestBatch of {config.max_batch}"
    if 0 < config.max_expires < body.expires:
        return f"Exceeded MaxRequestExpires of {go_duration(config.max_expires)}"
    if 0 < config.max_bytes < body.max_bytes:
        return f"Exceeded MaxRequestMaxBytes of {config.max_bytes}"
    return None


def _wait(consumer: Consumer, request: PullRequest, now_ns: int) -> None:
    requests = consumer.requests
    if requests.is_full:
        requests.drop_unheard(consumer.account.has_interest)
    consumer.activity.active_ns = now_ns
    if request.no_wait:
        available = consumer.num_pending() + len(consumer.ledger.queue)
        if not available and not request.expires_ns:
            _refuse(consumer, request.reply, 404, "No Messages")
            return
        if available and len(requests):
            requests.drop_unheard(consumer.account.has_interest)
            if available < requests.batch_sum:
                _refuse(consumer, request.reply, 408, "Requests Pending")
                return
    if not requests.add(request) and not request.heartbeat_ns:
        # One with a heartbeat notices by its absence; telling it would make it ask again at once.
        _refuse(consumer, request.reply, 409, "Exceeded MaxWaiting")


def _refuse(consumer: Consumer, reply: bytes, code: int, text: str) -> None:
    if reply:
        consumer.account.send(reply, headers=status_block(code, text))

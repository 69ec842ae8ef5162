"""The API of consumers: create and update, info, names, list, delete, pause, unpin, reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from jetlake.jetstream import errors
from jetlake.jetstream.api.request import Endpoint, Request
from jetlake.jetstream.clustering import AnsweredBy
from jetlake.jetstream.consumers.config import ConsumerConfig, CreateRequest, DeliverPolicy, read_create
from jetlake.jetstream.consumers.consumer import Consumer
from jetlake.jetstream.consumers.pause import Pause
from jetlake.jetstream.consumers.registry import delete_consumer, put_consumer
from jetlake.jetstream.consumers.rules import GROUP_NAME, stamped
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.json.shape import INT, STRING, TIME, UINT64, Struct, is_empty_request, is_json, read_request
from jetlake.jetstream.sourcing.origin import check_identity, for_copies, identity_headers, serves_copies
from jetlake.wire.go_time import ZERO_NS, ZERO_TIME, format_time, json_problem

NAMES_LIMIT = 1024
LIST_LIMIT = 256
_MARSHAL = "json: error calling MarshalJSON for type *time.Time: "
_PAGE = Struct("JSApiConsumersRequest", {"offset": INT})
_PAUSE = Struct("JSApiConsumerPauseRequest", {"pause_until": TIME})
_UNPIN = Struct("JSApiConsumerUnpinRequest", {"group": STRING})
_RESET = Struct("JSApiConsumerResetRequest", {"seq": UINT64})


# Create and update


def create(request: Request) -> None:
    """Make a consumer, or change one."""
    body, config = read_creation(request)
    _create(request, body, config)


def read_creation(request: Request) -> tuple[CreateRequest, ConsumerConfig]:
    """What a request asks for, and the configuration with the name that the subject gives; raises ApiError."""
    return _READERS[request.endpoint.pattern](request)


def _by_body(request: Request) -> tuple[CreateRequest, ConsumerConfig]:
    """CONSUMER.CREATE.S: the name, if there is one, is in the body."""
    body = _read(request)
    _check_path(body.config.name)
    if body.config.durable_name:
        raise errors.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME()
    return body, body.config


def _by_name(request: Request) -> tuple[CreateRequest, ConsumerConfig]:
    """CONSUMER.CREATE.S.C, perhaps with a filter behind it."""
    body, name = _read(request), request.names[1]
    _check_path(name)
    config = body.config
    if config.durable_name and config.durable_name != name:
        raise errors.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT()
    filter = request.names[2] if len(request.names) > 2 else ""
    if filter and config.filter_subjects:
        raise errors.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED()
    if filter and config.filter_subject != filter:
        raise errors.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH()
    return body, replace(config, name=name)


def _durable(request: Request) -> tuple[CreateRequest, ConsumerConfig]:
    """CONSUMER.DURABLE.CREATE.S.C, of older clients."""
    body, name = _read(request), request.names[1]
    _check_path(name)
    if not body.config.durable_name:
        raise errors.CONSUMER_DURABLE_NAME_NOT_SET()
    if body.config.durable_name != name:
        raise errors.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT()
    return body, replace(body.config, name=name)


def _read(request: Request) -> CreateRequest:
    body = read_create(request.payload, strict=request.is_strict)
    if body.stream_name != request.names[0]:
        raise errors.STREAM_NAME_MISMATCH()
    return body


def _check_path(name: str) -> None:
    if "/" in name or "\\" in name:
        raise errors.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS()


def _create(request: Request, body: CreateRequest, config: ConsumerConfig) -> None:
    if config.num_replicas > 1:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    stream, headers = request.stream, b""
    if serves_copies(config):
        check_identity(stream, request.msg.headers)
        config, headers = for_copies(stream, config), identity_headers(stream)
    existing = stream.consumers.get(config.durable_name or config.name)
    if existing is not None:
        config = with_pause_of(existing.config, config)
    else:
        check_times(config)
    consumer = put_consumer(stream, stamped(config), body.action, pedantic=body.pedantic)

    def reply(info: dict[str, Any]) -> None:
        request.reply(info, headers=headers)

    answer_when_durable(consumer, reply, request.fail, request.guarded, is_new=consumer is not existing)


def answer_when_durable(
    consumer: Consumer,
    reply: Callable[[dict[str, Any]], None],
    fail: Callable[[ApiError], None],
    guarded: Callable[[Callable[[], None]], Callable[[], None]],
    *,
    is_new: bool,
) -> None:
    """Answer once a consumer that was made or changed is durable; a new one delivers from then on."""

    def updated() -> None:
        reply(consumer.info())
        tell_pause()

    def tell_pause() -> None:
        if consumer.pause.is_on(consumer.host.clock()):
            consumer.events.paused(consumer.pause.until_ns, True)

    if not is_new:
        consumer.when_durable(guarded(updated))
        return
    info = consumer.info()

    def created() -> None:
        if consumer.keeper is not None:
            consumer.keeper.failed = None
        reply(info)
        consumer.events.action("create")
        tell_pause()
        consumer.release()

    def failed(error: BaseException) -> None:
        delete_consumer(consumer, lambda: None)
        fail(errors.CONSUMER_STORE_FAILED("consumer state can not be written"))

    if consumer.keeper is not None:
        consumer.keeper.failed = failed
    consumer.when_durable(guarded(created))


def check_times(config: ConsumerConfig) -> None:
    """Raise ApiError for times that cannot be kept."""
    if any(map(json_problem, (config.pause_until or 0, config.opt_start_time or 0))):
        raise errors.CONSUMER_CREATE("error creating store for consumer")


def with_pause_of(old: ConsumerConfig, config: ConsumerConfig) -> ConsumerConfig:
    """A changed configuration rests as long as the old one did: only CONSUMER.PAUSE changes that. Raises ApiError."""
    return replace(config, pause_until=_in_utc(old.pause_until))


def _in_utc(time_ns: int | None) -> int | None:
    """A time by the clock of UTC, if it can be kept; raises ApiError."""
    if time_ns is None:
        return None
    if problem := json_problem(int(time_ns)):
        raise errors.CONSUMER_CREATE(_MARSHAL + problem)
    return int(time_ns)


# Looking


def info(request: Request) -> None:
    if not is_empty_request(request.payload):
        raise errors.NOT_EMPTY_REQUEST()
    _reply_info(request, _consumer(request))


def names(request: Request) -> None:
    offset = _offset(request)
    consumers = _public(request)
    offset = min(offset, len(consumers))
    page = [consumer.name for consumer in consumers[offset : offset + NAMES_LIMIT]]
    request.reply({"total": len(consumers), "offset": offset, "limit": NAMES_LIMIT, "consumers": page})


def list_consumers(request: Request) -> None:
    offset = _offset(request)
    consumers = _public(request)
    offset = min(offset, len(consumers))
    page = [consumer.info(with_server=False) for consumer in consumers[offset : offset + LIST_LIMIT]]
    offline = {each.name: each.reason for each in request.stream.offline_consumers.values()}
    shown = {"total": len(consumers), "offset": offset, "limit": LIST_LIMIT, "consumers": page}
    request.reply({**shown, "offline": offline} if offline else shown)


def _offset(request: Request) -> int:
    return max(request.read(_PAGE).get("offset", 0), 0) if is_json(request.payload) else 0


def _public(request: Request) -> list[Consumer]:
    consumers: list[Consumer] = list(request.stream.consumers.values())
    return sorted((each for each in consumers if not each.config.direct), key=lambda consumer: consumer.name)


def _consumer(request: Request) -> Consumer:
    consumer: Consumer | None = request.stream.consumers.get(request.names[1])
    if consumer is None:
        raise _absence(request)
    return consumer


def _absence(request: Request) -> ApiError:
    name = request.names[1]
    offline = request.stream.offline_consumers.get(request.stream.consumer_files.base(name)) if name else None
    return errors.CONSUMER_NOT_FOUND() if offline is None else errors.CONSUMER_OFFLINE_REASON(offline.reason)


def _reply_info(request: Request, consumer: Consumer) -> None:
    request.reply(consumer.info())


# Changing


def delete(request: Request) -> None:
    if not is_empty_request(request.payload):
        raise errors.NOT_EMPTY_REQUEST()
    delete_consumer(_consumer(request), lambda: request.reply({"success": True}))


def pause(request: Request) -> None:
    until_ns = request.read(_PAUSE).get("pause_until") if is_json(request.payload) else None
    until_ns = None if until_ns in (None, ZERO_NS) else int(until_ns)  # in UTC, unlike in a create request
    consumer = _consumer(request)
    if until_ns is not None and (problem := json_problem(until_ns)):
        raise errors.CONSUMER_STORE_FAILED(_MARSHAL + problem)
    consumer.update(stamped(replace(consumer.config, pause_until=until_ns)))

    def paused() -> None:
        pause, now_ns = Pause(until_ns), request.host.clock()
        shown: dict[str, Any] = {
            "paused": pause.is_on(now_ns),
            "pause_until": format_time(until_ns) if until_ns is not None else ZERO_TIME,
        }
        if pause.is_on(now_ns):
            shown["pause_remaining"] = pause.left_ns(now_ns)
        request.reply(shown)

    consumer.when_durable(request.guarded(paused))


def unpin(request: Request) -> None:
    if not request.payload:
        raise errors.INVALID_JSON("unexpected end of JSON input")
    group = read_request(request.payload, _UNPIN, strict=False).get("group", "")
    if not group:
        raise errors.INVALID_JSON("consumer group not specified")
    if not GROUP_NAME.fullmatch(group):
        raise errors.CONSUMER_INVALID_GROUP_NAME()
    consumer = _consumer(request)
    if group not in consumer.config.priority_groups:
        raise errors.CONSUMER_INVALID_PRIORITY_GROUP()
    consumer.unpin(group, "admin")
    request.reply({})
    consumer.resume()


def reset(request: Request) -> None:
    stream = request.account.streams.get(request.names[0])
    consumer: Consumer | None = stream.consumers.get(request.names[1]) if stream is not None else None
    if consumer is None:  # the consumer itself answers, so without one nobody does
        return
    seq = read_request(request.payload, _RESET, strict=False).get("seq", 0)
    seq = _reset_seq(consumer, seq)
    consumer.reset(seq)

    def done() -> None:
        request.reply({**consumer.info(), "reset_seq": seq})
        consumer.resume()

    consumer.when_durable(request.guarded(done))


def _reset_seq(consumer: Consumer, seq: int) -> int:
    """Where a consumer may start anew; raises ApiError."""
    config = consumer.config
    if seq == 0:
        return consumer.ledger.floor_stream_seq + 1
    if config.deliver_policy is DeliverPolicy.ALL:
        return seq
    if config.deliver_policy is DeliverPolicy.BY_START_SEQUENCE:
        if seq < config.opt_start_seq:
            raise errors.CONSUMER_INVALID_RESET("below start seq")
        return seq
    if config.deliver_policy is DeliverPolicy.BY_START_TIME:
        assert config.opt_start_time is not None
        if seq < consumer.stream.store.seq_from_time(config.opt_start_time):
            raise errors.CONSUMER_INVALID_RESET("below start time")
        return seq
    raise errors.CONSUMER_INVALID_RESET("not allowed")


_CREATED = "consumer_create_response"
_BLANK_PAGE = {"total": 0, "offset": 0, "limit": 0, "consumers": []}

_NOT_PAUSED = {"paused": False, "pause_until": ZERO_TIME}
_MAKER, _DELIVERER = AnsweredBy.MAKER, AnsweredBy.DELIVERER

_READERS = {
    "CONSUMER.CREATE.*": _by_body,
    "CONSUMER.CREATE.*.*": _by_name,
    "CONSUMER.CREATE.*.*.>": _by_name,
    "CONSUMER.DURABLE.CREATE.*.*": _durable,
}
CREATIONS = tuple(_READERS)

ENDPOINTS = [
    *(Endpoint(pattern, _CREATED, create, answered_by=_MAKER) for pattern in CREATIONS),
    Endpoint("CONSUMER.INFO.*.*", "consumer_info_response", info, answered_by=_DELIVERER),
    Endpoint("CONSUMER.NAMES.*", "consumer_names_response", names, _BLANK_PAGE),
    Endpoint("CONSUMER.LIST.*", "consumer_list_response", list_consumers, _BLANK_PAGE),
    Endpoint("CONSUMER.DELETE.*.*", "consumer_delete_response", delete, answered_by=_MAKER),
    Endpoint("CONSUMER.PAUSE.*.*", "consumer_pause_response", pause, _NOT_PAUSED, answered_by=_DELIVERER),
    Endpoint("CONSUMER.UNPIN.*.*", "consumer_unpin_response", unpin, answered_by=_DELIVERER),
    Endpoint("CONSUMER.RESET.*.*", "consumer_reset_response", reset, {"reset_seq": 0}, answered_by=_DELIVERER),
]

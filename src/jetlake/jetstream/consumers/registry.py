"""How consumers come and go: made and changed by requests, recovered at the start, deleted.

A consumer is known to its stream before its file is durable, so that acks and requests find it, but it delivers nothing
before whoever made it was told.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jetlake.jetstream import errors
from jetlake.jetstream.consumers.ack_words import account_hash
from jetlake.jetstream.consumers.config import Action, ConsumerConfig
from jetlake.jetstream.consumers.consumer import Consumer
from jetlake.jetstream.consumers.rules import (
    INACTIVE_DEFAULT_NS,
    NAME_SIZE_MAX,
    Ceilings,
    check_config,
    check_partition,
    check_update,
    check_work_queue,
    same_config,
    with_defaults,
)
from jetlake.jetstream.consumers.state_files import REPLACED, Keeper, Kept, Unreadable
from jetlake.jetstream.streams.config import Retention
from jetlake.subjects import encode_subject

if TYPE_CHECKING:
    from jetlake.jetstream.js_account import JsAccount
    from jetlake.jetstream.snapshots.draft import DraftConsumer as Adopted
    from jetlake.jetstream.streams.stream import Stream


DROPPED_AT_ONCE = 100  # consumers of a deleted stream that go before others have their turn


def put_consumer(stream: Stream, config: ConsumerConfig, action: Action, *, pedantic: bool = False) -> Consumer:
    """Make a consumer, or change the one that has its name; raises ApiError. It is not durable, nor released, yet."""
    ceilings = ceilings_of(stream.js)
    config = with_defaults(config, stream.config, ceilings, pedantic=pedantic)
    check_config(config, stream.config, ceilings)
    name = config.durable_name or config.name
    existing: Consumer | None = stream.consumers.get(name) if name else None
    if existing is not None:
        _change(existing, config, action)
        return existing
    if action is Action.UPDATE:
        raise errors.CONSUMER_DOES_NOT_EXIST()
    if _counts(config):
        _check_count(stream)
    if stream.config.retention is Retention.WORKQUEUE:
        check_work_queue(config, [other.config for other in stream.consumers.values()])
    if len(encode_subject(name)) > NAME_SIZE_MAX:
        raise errors.CONSUMER_NAME_TOO_LONG(NAME_SIZE_MAX)
    return _add(stream, name or _new_name(stream), config if config.is_durable else _with_threshold(config), None)


def _change(consumer: Consumer, config: ConsumerConfig, action: Action) -> None:
    if action is Action.CREATE and not same_config(consumer.config, config):
        raise errors.CONSUMER_ALREADY_EXISTS()
    if consumer.stream.config.retention is Retention.WORKQUEUE:
        others = [other.config for other in consumer.stream.consumers.values() if other is not consumer]
        check_partition(config, others)
    is_bound = consumer.push is not None and consumer.account.has_interest(consumer.push.subject)
    check_update(consumer.config, config, is_bound=is_bound)
    # What it is decides, not what it is called now: a durable without a threshold gets none by losing its durable name.
    is_lasting = consumer.config.is_durable or not consumer.config.inactive_threshold
    consumer.update(config if is_lasting else _with_threshold(config))


def _add(stream: Stream, name: str, config: ConsumerConfig, kept: Kept | None) -> Consumer:
    consumer = Consumer(stream, name, config, stream.host.clock() if kept is None else kept.created_ns)
    if kept is not None:
        consumer.start_seq = kept.start_seq or consumer.start_seq
        consumer.restore(kept.state)
        consumer.removals.begin(kept.removing)
    stream.consumers[name] = consumer
    keeper = None
    if stream.directory is not None and not config.mem_storage and not config.direct:
        keeper = Keeper(stream.host, stream.consumer_files, name, consumer.created_ns, consumer.snapshot)
    consumer.open(keeper)
    consumer.changed()
    if stream.interest is not None:
        stream.interest.consumer_added(consumer)
    if stream.offline_consumers and (base := stream.consumer_files.base(name)) in stream.offline_consumers:
        consumer.when_durable(lambda: _replace_offline(stream, base))
    return consumer


def _replace_offline(stream: Stream, base: str) -> None:
    """A consumer has the name of one that cannot be read, whose file is of no use any more: it is put aside."""
    lost = stream.offline_consumers.pop(base, None)
    if lost is None:
        return
    try:
        stream.js.files.rename(lost.path, f"{lost.path}{REPLACED}")
    except OSError as error:
        stream.host.log("warning", f"file left over path={lost.path} error={error}")
    if stream.interest is not None:
        stream.interest.check()  # what was kept for it alone


def ceilings_of(js: JsAccount) -> Ceilings:
    """What consumers of an account may ask for at most."""
    limits = js.host.options.jetstream.limits
    return Ceilings(limits.max_ack_pending, limits.max_request_batch, js.limits.max_ack_pending)


def _check_count(stream: Stream) -> None:
    count_max, account_max = stream.config.max_consumers, stream.js.limits.max_consumers
    if count_max <= 0 or 0 < account_max < count_max:
        count_max = account_max
    if not 0 < count_max <= len(stream.consumers):
        return
    if count_max <= sum(_counts(other.config) for other in stream.consumers.values()):
        raise errors.MAXIMUM_CONSUMERS()


def _counts(config: ConsumerConfig) -> bool:
    """Whether a consumer is one of those that are limited."""
    return not (config.direct or config.sourcing)


def _with_threshold(config: ConsumerConfig) -> ConsumerConfig:
    """One that is not durable always goes when nobody uses it."""
    return config if config.inactive_threshold > 0 else replace(config, inactive_threshold=INACTIVE_DEFAULT_NS)


def _new_name(stream: Stream) -> str:
    while (name := account_hash(secrets.token_hex(16))) in stream.consumers:
        pass
    return name


# Leaving


def delete_consumer(consumer: Consumer, done: Callable[[], None]) -> None:
    """Delete a consumer; `done` is called when that is durable."""
    stream = consumer.stream
    if stream.consumers.get(consumer.name) is consumer:
        del stream.consumers[consumer.name]
    consumer.close(409, "Consumer Deleted")
    consumer.events.action("delete")
    if stream.interest is not None:
        stream.interest.consumer_removed(consumer)
    keeper = consumer.keeper
    if keeper is None:
        done()
    elif consumer.removals:  # which its file knows of, until they are durable
        stream.log.when_durable(lambda: keeper.delete(done), lambda error: keeper.delete(done))
    else:
        keeper.delete(done)


def take_consumers(stream: Stream) -> list[Consumer]:
    """A stream is deleted: nothing reaches its consumers any more, which are to be dropped."""
    consumers: list[Consumer] = list(stream.consumers.values())
    stream.consumers.clear()
    for consumer in consumers:
        consumer.is_closed = True
    return consumers


def drop_consumers(consumers: Iterable[Consumer], written: Callable[[], None]) -> Iterator[None]:
    """Let the consumers of a deleted stream go, files and all; others have their turn at each step.

    `written` is called for each that has a file, when nobody writes it any more.
    """
    rest = iter(consumers)
    while some := list(islice(rest, DROPPED_AT_ONCE)):
        for consumer in some:
            consumer.leave(409, "Consumer Deleted")
            consumer.events.action("delete")
            if consumer.keeper is not None:
                consumer.keeper.delete(written)
        if len(some) == DROPPED_AT_ONCE:
            yield


def close_consumers(stream: Stream) -> None:
    """The server stops: who waits is told, and what consumers remember is written with the last commit."""
    for consumer in stream.consumers.values():
        consumer.close(409, "Server Shutdown", shows_pending=True)
        if consumer.keeper is not None:
            consumer.keeper.flush()


# Coming back


def adopt_consumers(stream: Stream, kept: Iterable[Adopted]) -> None:
    """Give a stream that is being opened consumers which have no files to be recovered from."""
    for each in kept:
        state = Kept(each.name, each.created_ns, each.config, each.state, 0, [], "")
        _add(stream, each.name, each.config, state)
        if stream.directory is None:
            stream.consumers[each.name].release()


def recover_consumers(stream: Stream) -> None:
    """Open the consumers that a stream had. One that cannot be is reported and left aside, files and all."""
    if stream.directory is None:
        return
    files, host = stream.js.files, stream.host
    found = stream.consumer_files.read()
    for path in found.unknown:
        host.log("warning", f"unknown file left alone path={path}")
    for path in found.leftover:
        try:
            files.remove(path)
        except OSError as error:
            host.log("warning", f"file left over path={path} error={error}")
    unreadable, base = list(found.unreadable), stream.consumer_files.base
    for each in found.kept:
        try:
            _add(stream, each.name, each.config, each)
        except Exception as error:  # whatever it is about one, it must not cost the others
            unreadable.append(Unreadable(each.path, base(each.name), each.created_ns, error))
    made_ns = {base(each.name): each.created_ns for each in found.kept}
    for lost in unreadable:
        if made_ns.get(lost.base, 0) > lost.created_ns:
            host.log("warning", f"old file of a consumer left alone path={lost.path} error={lost.error}")
        else:
            stream.offline_consumers[lost.base] = lost
            host.log("error", f"consumer offline stream={stream.name} name={lost.name} error={lost.error}")
    if stream.interest is not None:
        stream.interest.check()
    for consumer in list(stream.consumers.values()):
        consumer.release()

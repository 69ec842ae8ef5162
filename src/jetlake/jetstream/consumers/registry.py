"""How consumers come and go: made and changed by requests, recovered at the start, deleted.

A consumer is known to its stream before its file is durable, so that acks and requests find it, but it delivers nothing
before whoever made it was told.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from jetlake.jetstream.consumers.ack_words import account_hash
from jetlake.jetstream.consumers.admission import ConsumerSurroundings, admit_consumer
from jetlake.jetstream.consumers.config import Action, ConsumerConfig
from jetlake.jetstream.consumers.consumer import Consumer
from jetlake.jetstream.consumers.rules import Ceilings
from jetlake.jetstream.consumers.state_files import REPLACED, Keeper, Kept, Unreadable

if TYPE_CHECKING:
    from jetlake.jetstream.js_account import JsAccount
    from jetlake.jetstream.snapshots.draft import DraftConsumer as Adopted
    from jetlake.jetstream.streams.stream import Stream


DROPPED_AT_ONCE = 100  # consumers of a deleted stream that go before others have their turn


def put_consumer(stream: Stream, config: ConsumerConfig, action: Action, *, pedantic: bool = False) -> Consumer:
    """Make a consumer, or change the one that has its name; raises ApiError. It is not durable, nor released, yet."""
    name, config, is_new = admit_consumer(config, action, surroundings(stream), pedantic=pedantic)
    if is_new:
        return make_consumer(stream, name or new_name(stream), config, stream.host.clock())
    existing: Consumer = stream.consumers[name]
    existing.update(config)
    return existing


def make_consumer(stream: Stream, name: str, config: ConsumerConfig, created_ns: int) -> Consumer:
    """Make a consumer that was admitted. It is not durable, nor released, yet."""
    return _add(stream, name, config, created_ns, None)


def surroundings(stream: Stream) -> ConsumerSurroundings:
    """What decides about a consumer of a stream that is here."""

    def is_bound(name: str) -> bool:
        consumer: Consumer = stream.consumers[name]
        return consumer.push is not None and consumer.account.has_interest(consumer.push.subject)

    return ConsumerSurroundings(
        stream.config, stream.consumers, ceilings_of(stream.js), stream.js.limits.max_consumers, is_bound
    )


def _add(stream: Stream, name: str, config: ConsumerConfig, created_ns: int, kept: Kept | None) -> Consumer:
    consumer = Consumer(stream, name, config, created_ns)
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


def new_name(stream: Stream) -> str:
    """A name for a consumer that was given none."""
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
        _add(stream, each.name, each.config, each.created_ns, state)
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
            _add(stream, each.name, each.config, each.created_ns, each)
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

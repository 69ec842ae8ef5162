"""Holder: makes, changes and removes the streams and consumers that are assigned to this server, and answers for them.

A stream with one replica is made here as on a server that is alone; one with several is handed to `Replicas`, which
runs its group. Whoever asked is answered when what was asked is durable: by the server that holds the stream, or leads
its group.

Always true: files are removed only for a committed removal of the very stream that they are of, which is known by when
it was created. A stream that is on the disk and not in the assignments is offline, and its files stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from jetlake.cluster.assignments import ConsumerAssignment, Node, Origination, StreamAssignment
from jetlake.cluster.meta_codec import RemoveConsumer, RemoveStream
from jetlake.cluster.view import ClusterView
from jetlake.jetstream import advisories, errors
from jetlake.jetstream.api.consumers import answer_when_durable
from jetlake.jetstream.api.stream_info import stream_info
from jetlake.jetstream.consumers.registry import delete_consumer, make_consumer
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.js_account import JsAccount
from jetlake.jetstream.service import JetStream
from jetlake.jetstream.streams.stream import Stream
from jetlake.subjects import encode_subject
from jetlake.wire.json_text import encode_json

_TYPE = "io.nats.jetstream.api.v1."
UNKNOWN = "stream is not assigned to this server"


class Replicas(Protocol):
    """Who runs the groups of replicated streams on this server."""

    def assigned(self, stream: StreamAssignment) -> None: ...
    def updated(self, stream: StreamAssignment) -> None: ...
    def removed(self, stream: StreamAssignment) -> None: ...
    def consumer_assigned(self, stream: StreamAssignment, consumer: ConsumerAssignment) -> None: ...
    def consumer_removed(self, stream: StreamAssignment, consumer: ConsumerAssignment) -> None: ...


class Holder:
    """The streams of this server, as the meta group assigns them: a `meta.MetaListener`."""

    def __init__(
        self,
        view: ClusterView,
        service: JetStream,
        replicas: Replicas,
        failed: Callable[[StreamAssignment], None] = lambda stream: None,
    ) -> None:
        """`failed` is told of a stream that could not be made here: the meta leader has to take it back."""
        self._view, self._service, self._replicas, self._failed = view, service, replicas, failed

    # Streams

    def stream_assigned(self, stream: StreamAssignment) -> None:
        if stream.is_replicated and self._is_ours(stream):
            self._replicas.assigned(stream)
        elif (account := self._account(stream)) is not None:
            self._make(account, stream)

    def stream_updated(self, stream: StreamAssignment) -> None:
        if (stream.is_replicated or stream.group.desired is not None) and self._is_ours(stream):
            self._replicas.updated(stream)
            return
        account = self._account(stream)
        found = self._stream(stream)
        if account is None or found is None:
            return
        try:
            if found.config != stream.config:
                account.change(found, stream.config)
        except ApiError as error:
            self._refuse(account, stream.asked, error)
            return
        self.answer_when_ready(account, found, stream)

    def stream_removed(self, stream: StreamAssignment, entry: RemoveStream) -> None:
        if stream.is_replicated and self._is_ours(stream):
            self._replicas.removed(stream)
            return
        account, found = self._account(stream), self._stream(stream)
        if account is not None and found is not None:
            account.remove(found, lambda: None, lambda error: None)

    def stream_unknown(self, stream: StreamAssignment) -> None:
        account, found = self._account(stream), self._stream(stream)
        if account is not None and found is not None:
            self._put_offline(account, found)

    def _make(self, account: JsAccount, stream: StreamAssignment) -> None:
        if account.when_gone(stream.name, lambda: self._make(account, stream)):
            return  # a stream of that name is on its way out
        current = self._view.meta.state.stream(stream.account, stream.name)
        if current is None or current.incarnation != stream.incarnation:  # it was removed in the meantime
            return
        stream = current
        existing = account.streams.get(stream.name)
        if existing is not None and existing.created_ns == stream.created_ns:
            return  # made before the last restart
        try:
            if existing is not None or stream.name in account.offline:
                raise errors.STREAM_CREATE("other files of that name are in the way")
            made = account.make(stream.config, stream.created_ns)
        except ApiError as error:
            self._refuse(account, stream.asked, error)
            self._failed(stream)
            return
        self.answer_when_ready(account, made, stream)

    def answer_when_ready(self, account: JsAccount, made: Stream, stream: StreamAssignment) -> None:
        """Answer who asked for a stream, or for a change of it, once that is durable."""
        asked, is_update = stream.asked, ".STREAM.UPDATE." in stream.asked.subject

        def done() -> None:
            if is_update:
                self._answer(account, asked, "stream_update_response", stream_info(made))
            else:
                info = {**stream_info(made, with_domain=False), "did_create": True}
                self._answer(account, asked, "stream_create_response", info)

        def failed(error: ApiError) -> None:
            failure = errors.STREAM_UPDATE if is_update else errors.STREAM_CREATE
            self._refuse(account, asked, failure(error.description))
            if not is_update and account.streams.get(stream.name) is not made:
                self._failed(stream)

        made.when_open(lambda: made.log.when_durable(done, failed))

    # Consumers

    def consumer_assigned(self, stream: StreamAssignment, consumer: ConsumerAssignment) -> None:
        if stream.is_replicated and self._is_ours(stream):
            self._replicas.consumer_assigned(stream, consumer)
            return
        account, holder = self._account(stream), self._stream(stream)
        if account is None or holder is None:
            return
        self.put_consumer(account, holder, consumer)

    def put_consumer(self, account: JsAccount, holder: Stream, consumer: ConsumerAssignment) -> None:
        """Make a consumer of a stream that this server leads, or change it, and answer who asked for that."""
        existing = holder.consumers.get(consumer.name)
        try:
            if existing is None:
                made = make_consumer(holder, consumer.name, consumer.config, consumer.created_ns)
            else:
                made = existing
                if existing.config != consumer.config:
                    existing.update(consumer.config)
        except ApiError as error:
            self._refuse(account, consumer.asked, error)
            return
        answer_when_durable(
            made,
            lambda info: self._answer(account, consumer.asked, "consumer_create_response", info),
            lambda error: self._refuse(account, consumer.asked, error),
            lambda step: step,
            is_new=existing is None,
        )

    def consumer_removed(self, stream: StreamAssignment, consumer: ConsumerAssignment, entry: RemoveConsumer) -> None:
        if stream.is_replicated and self._is_ours(stream):
            self._replicas.consumer_removed(stream, consumer)
            return
        holder = self._stream(stream)
        found = holder.consumers.get(consumer.name) if holder is not None else None
        if found is not None and found.created_ns == consumer.created_ns:
            delete_consumer(found, lambda: None)

    # Servers

    def node_joined(self, node: Node) -> None:
        """Links and groups know it by other ways."""

    def node_removed(self, node: Node) -> None:
        """Its streams are moved by entries of their own."""

    # The start

    def reconcile(self) -> None:
        """Compare what was recovered with the assignments: make what is missing, put away what is not assigned."""
        removed = {(each.account, each.name, each.created_ns) for each in self._view.meta.state.removed.values()}
        for account in self._service.accounts.values():
            for found in list(account.streams.values()):
                assigned = self._view.meta.state.stream(account.account.name, found.name)
                if assigned is not None and self._is_ours(assigned) and assigned.created_ns == found.created_ns:
                    self._catch_up(account, found, assigned)
                elif (account.account.name, found.name, found.created_ns) in removed:
                    account.remove(found, lambda: None, lambda error: None)
                else:
                    self._put_offline(account, found)
        for stream in self._view.meta.state.streams():
            if self._is_ours(stream) and self._stream(stream) is None:
                self.stream_assigned(stream)

    def _catch_up(self, account: JsAccount, found: Stream, assigned: StreamAssignment) -> None:
        if not assigned.is_replicated and found.config != assigned.config:
            account.change(found, assigned.config)

    def _put_offline(self, account: JsAccount, found: Stream) -> None:
        place = f"name={found.name} account={account.account.name} created_ns={found.created_ns}"
        self._view.host.log("error", f"{UNKNOWN}, its files stay {place}")
        del account.streams[found.name]
        account.offline[found.name] = UNKNOWN
        found.close()
        found.log.when_idle(found.abandon)

    # Answers

    def _answer(self, account: JsAccount, asked: Origination, type: str, fields: dict[str, Any]) -> None:
        if not asked.subject:  # nobody asked: the meta leader set something right
            return
        account.api_total += 1
        response = encode_json({"type": _TYPE + type, **fields})
        if asked.reply:
            account.account.send(encode_subject(asked.reply), response)
        advisories.assigned_audit(account.account, self._view.host, asked.client, asked.subject, response)

    def _refuse(self, account: JsAccount, asked: Origination, error: ApiError) -> None:
        account.api_errors += 1
        of = "consumer" if ".CONSUMER." in asked.subject else "stream"
        verb = "update" if ".UPDATE." in asked.subject else "create"
        self._answer(account, asked, f"{of}_{verb}_response", {"error": error.as_dict()})

    # Who is who

    def _is_ours(self, stream: StreamAssignment) -> bool:
        group = stream.group
        return self._view.peer in group.peers or (group.desired is not None and self._view.peer in group.desired.peers)

    def _account(self, stream: StreamAssignment) -> JsAccount | None:
        """The account of a stream that is this server's; None if it is not, or if the account has no JetStream."""
        if not self._is_ours(stream):
            return None
        found = self._service.accounts.get(stream.account)
        if found is None:
            self._view.host.log("error", f"stream of an unknown account name={stream.name} account={stream.account}")
        return found

    def _stream(self, stream: StreamAssignment) -> Stream | None:
        """The stream that an assignment means, if it is here."""
        account = self._service.accounts.get(stream.account)
        found = account.streams.get(stream.name) if account is not None else None
        return found if found is not None and found.created_ns == stream.created_ns else None

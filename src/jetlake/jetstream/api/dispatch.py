"""Api: everything that clients of one account ask on `$JS.API.…`, and on `$JETLAKE.API.…` what only JetLake does.

A subscription of the server's own each brings all of it. A subject without an endpoint gets no answer, like from
nats-server. Direct gets and pull requests answer with messages instead of JSON: the former are handled here too, the
latter by their consumer; and where there is nobody to ask, the client hears that there are no responders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake.broker.account import Account
from jetlake.broker.subscription import Msg
from jetlake.jetstream import advisories, errors
from jetlake.jetstream.api import account_info, compact, consumers, messages, remotes, snapshots, streams
from jetlake.jetstream.api.direct import direct_get
from jetlake.jetstream.api.request import EndpointTable, Request
from jetlake.jetstream.api_level import exceeds_api_level
from jetlake.subjects import decode_subject

if TYPE_CHECKING:
    from jetlake.jetstream.clustering import Cluster
    from jetlake.jetstream.host import Host
    from jetlake.jetstream.js_account import JsAccount
    from jetlake.jetstream.streams.stream import Stream

_PREFIX = b"$JS.API."
_OWN_PREFIX = b"$JETLAKE.API."
_DIRECT_GET = b"$JS.API.DIRECT.GET."
_MSG_NEXT = b"$JS.API.CONSUMER.MSG.NEXT."

_TABLE = EndpointTable(
    [
        *account_info.ENDPOINTS,
        *streams.ENDPOINTS,
        *messages.ENDPOINTS,
        *snapshots.ENDPOINTS,
        *consumers.ENDPOINTS,
    ]
)
_OWN_TABLE = EndpointTable([*compact.ENDPOINTS, *remotes.ENDPOINTS])


class Api:
    """The API of one account; `js_account` is None where JetStream is not enabled for it."""

    def __init__(
        self, account: Account, js_account: JsAccount | None, host: Host, cluster: Cluster | None = None
    ) -> None:
        self.account, self.js_account, self.host, self.cluster = account, js_account, host, cluster
        self.subscription = account.subscribe(_PREFIX + b">", self.handle)
        account.subscribe(_OWN_PREFIX + b">", self.handle_own)

    def handle(self, msg: Msg) -> bool:
        """Take a request; False when there is nobody to ask."""
        if msg.subject.startswith(_DIRECT_GET):
            return self._direct_get(msg)
        if msg.subject.startswith(_MSG_NEXT):
            return self._has_consumer(msg)
        is_elsewhere = self.js_account is None and self.account.imports_service(msg.subject)
        if is_elsewhere or msg.subject == _DIRECT_GET[:-1]:
            return False
        self._serve(_TABLE, msg, _PREFIX)
        return True

    def handle_own(self, msg: Msg) -> bool:
        """Take a request that only JetLake knows; False when it does not."""
        return self._serve(_OWN_TABLE, msg, _OWN_PREFIX)

    def _serve(self, table: EndpointTable, msg: Msg, prefix: bytes) -> bool:
        """Have a request handled; False when the table has no endpoint for it."""
        found = table.find(decode_subject(msg.subject[len(prefix) :]))
        if found is None:
            return False
        request = Request(self, found[0], msg, found[1])
        request.guarded(lambda: self._admit(request))()
        return True

    def answer(self, msg: Msg, response: bytes, is_counted: bool, error_count: int, headers: bytes = b"") -> None:
        """Send the answer to a request, and take note of it."""
        if self.js_account is not None and is_counted:
            self.js_account.api_total += 1
            self.js_account.api_errors += error_count
        if msg.reply:
            self.account.send(msg.reply, response, headers=headers)
        if is_counted:
            advisories.api_audit(self.account, self.host, msg, response)

    def _admit(self, request: Request) -> None:
        handler = request.endpoint.handler
        if self.cluster is not None:
            if not self.cluster.answers(request):
                return
            handler = self.cluster.handler(request.endpoint.pattern) or handler
        elif request.endpoint.is_for_clusters:
            raise errors.CLUSTER_REQUIRED()
        if exceeds_api_level(request.msg.headers):
            raise errors.REQUIRED_API_LEVEL()
        if self.js_account is None:
            raise errors.NOT_ENABLED_FOR_ACCOUNT()
        handler(request)

    def _direct_get(self, msg: Msg) -> bool:
        name, _, key = decode_subject(msg.subject[len(_DIRECT_GET) :]).partition(".")
        stream = self._direct_stream(name)
        if stream is None:
            return False
        if msg.reply:
            has_key = msg.subject.count(b".") > _DIRECT_GET.count(b".")
            direct_get(stream, msg, key if has_key else None, exceeds_api_level(msg.headers))
        return True

    def _direct_stream(self, name: str) -> Stream | None:
        """The stream that answers direct gets of a name: the one that has it, or else a mirror of it.

        Of a replicated one the leader answers, so that a get sees what was acknowledged before it.
        """
        streams = self.js_account.streams if self.js_account is not None else {}
        found = streams.get(name)
        if found is not None and found.config.allow_direct:
            return found if found.log.is_leading else None
        mirrors = (stream for stream in streams.values() if stream.answers_for(name) and stream.log.is_leading)
        return next(mirrors, None)

    def _has_consumer(self, msg: Msg) -> bool:
        """The consumer has a subscription of its own: only its absence is to be told here."""
        stream_name, _, consumer_name = decode_subject(msg.subject[len(_MSG_NEXT) :]).partition(".")
        stream = self.js_account.streams.get(stream_name) if self.js_account is not None else None
        return stream is not None and consumer_name in stream.consumers

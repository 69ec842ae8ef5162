"""What an operator asks of the meta group in the system account: META.LEADER.STEPDOWN and SERVER.REMOVE.

Only the leader answers, and other accounts hear nothing at all, as from nats-server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jetlake.broker.account import Account
from jetlake.broker.subscription import Msg
from jetlake.cluster.step_down import SYSTEM_CALLS
from jetlake.cluster.view import ClusterView
from jetlake.jetstream import advisories, errors
from jetlake.jetstream.api_level import exceeds_api_level
from jetlake.jetstream.errors import ApiError
from jetlake.wire.json_text import encode_json

_TYPE = "io.nats.jetstream.api.v1."

Call = Callable[[ClusterView, bytes, Callable[[ApiError | None], None]], None]


class SystemApi:
    """The requests of the system account."""

    def __init__(self, view: ClusterView, account: Account) -> None:
        self._view, self._account = view, account
        for name, (type, call) in SYSTEM_CALLS.items():
            account.subscribe(f"$JS.API.{name}".encode(), self._handler(type, call))

    def _handler(self, type: str, call: Call) -> Callable[[Msg], None]:
        def handle(msg: Msg) -> None:
            if not self._view.meta.is_leader:
                return
            try:
                if exceeds_api_level(msg.headers):
                    raise errors.REQUIRED_API_LEVEL()
                call(self._view, msg.payload, lambda error: self._answer(msg, type, error))
            except ApiError as error:
                self._answer(msg, type, error)
            except Exception as error:
                self._view.host.failed(f"request subject={msg.subject!r}", error)
                self._answer(msg, type, errors.STREAM_GENERAL("internal error"))

        return handle

    def _answer(self, msg: Msg, type: str, error: ApiError | None) -> None:
        outcome: dict[str, Any] = {"success": True} if error is None else {"error": error.as_dict()}
        response = encode_json({"type": _TYPE + type, **outcome})
        if msg.reply:
            self._account.send(msg.reply, response)
        advisories.api_audit(self._account, self._view.host, msg, response)

"""Infos of streams from all servers, for lists: each server is asked once, and tells of the streams that it leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from jetlake.cluster.questions import Reply
from jetlake.cluster.view import Infos, leader_of
from jetlake.jetstream.api.stream_info import stream_info
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.cluster.local import LocalCluster

WAIT_S = 2.0


class _Wanted(msgspec.Struct, frozen=True):
    account: str
    names: list[str]


class Gathering:
    """Asks others for infos, and answers them."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        cluster.questions.serve("STREAMS", self._answer)

    def streams(self, account: str, names: list[str], done: Callable[[Infos], None]) -> None:
        """The infos of streams, by name, of those servers that answered in time."""
        found: dict[str, Any] = {}
        if not names:
            done(found)
            return

        def heard(payload: bytes) -> bool:
            found.update(msgspec.json.decode(payload))
            if len(found) < len(names):
                return False
            done(found)
            return True

        wanted = msgspec.json.encode(_Wanted(account, names))
        self._cluster.questions.ask("STREAMS", wanted, heard, lambda: done(found), WAIT_S)

    def _answer(self, payload: bytes, reply: Reply) -> None:
        cluster, wanted = self._cluster, msgspec.json.decode(payload, type=_Wanted)
        account, infos = cluster.service.accounts.get(wanted.account), {}
        for name in wanted.names if account is not None else ():
            stream = account.streams.get(name) if account is not None else None
            assigned = cluster.meta.state.stream(wanted.account, name)
            if stream is not None and assigned is not None and leader_of(cluster, assigned.group) == cluster.peer:
                infos[name] = stream_info(stream, with_server=False)
        if infos:
            reply(encode_json(infos))

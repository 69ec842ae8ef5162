"""What a server tells the system account unasked: who comes and goes, how it is, and when it leaves.

    $SYS.ACCOUNT.<account>.CONNECT, .DISCONNECT     a client came, or left
    $SYS.ACCOUNT.<account>.SERVER.CONNS             how many connections the account has now
    $SYS.SERVER.<id>.CLIENT.AUTH.ERR                somebody could not log in
    $SYS.SERVER.<id>.STATSZ                         the server in numbers, now and then
    $SYS.SERVER.<id>.LAMEDUCK, .SHUTDOWN            it is about to go

An event is built only when somebody listens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jetlake.broker.account import Account
from jetlake.broker.client import Client
from jetlake.broker.client_info import client_info
from jetlake.broker.leaf import Leaf
from jetlake.clock import SECOND_NS
from jetlake.jetstream.advisories import new_id
from jetlake.server.observe.accountz import account_stat
from jetlake.server.observe.query import Query
from jetlake.server.observe.statsz import statsz
from jetlake.subjects import encode_subject
from jetlake.wire.go_time import format_time
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.server.server import Server

_TYPE = "io.nats.server.advisory.v1."
_AUTH_FAILURE = "Authentication Failure"
_FIRST_STATSZ_S, _STATSZ_S = 0.25, 10.0  # soon at first, so that a new server is seen; then ever less often


class Events:
    """Tells the system account."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._statsz_s = _FIRST_STATSZ_S

    def start(self) -> None:
        """Tell the server's numbers from now on."""
        self._server.call_at(self._server.clock() + int(self._statsz_s * SECOND_NS), self._tell_statsz)

    def _tell_statsz(self) -> None:
        server = self._server
        if not server.is_ready:
            return
        subject = f"$SYS.SERVER.{server.server_id}.STATSZ"
        self._tell(subject, lambda: {"server": server.system.identity(), "statsz": statsz(server, Query({}))})
        self._statsz_s = min(self._statsz_s * 2, _STATSZ_S)
        self.start()

    def joined(self, client: Client) -> None:
        """A client has logged in."""
        self._tell_count(client)
        self._tell(
            f"$SYS.ACCOUNT.{client.account.name}.CONNECT",
            lambda: self._event("client_connect", client=_describe(client)),
        )

    def left(self, client: Client) -> None:
        """A client is gone."""
        if client.is_connected:
            self._tell_count(client)
        elif client.close_reason == _AUTH_FAILURE:
            self._tell(f"$SYS.SERVER.{self._server.server_id}.CLIENT.AUTH.ERR", lambda: self._departure(client))
        self._tell(f"$SYS.ACCOUNT.{client.account.name}.DISCONNECT", lambda: self._departure(client))

    def leaf_joined(self, leaf: Leaf) -> None:
        """A leaf node connection is there."""
        self._tell_count_of(leaf.account)
        self._tell(
            f"$SYS.ACCOUNT.{leaf.account.name}.CONNECT",
            lambda: self._event("client_connect", client=_describe_leaf(leaf)),
        )

    def leaf_left(self, leaf: Leaf) -> None:
        """A leaf node connection is gone."""
        self._tell_count_of(leaf.account)
        self._tell(
            f"$SYS.ACCOUNT.{leaf.account.name}.DISCONNECT",
            lambda: self._event(
                "client_disconnect",
                client={**_describe_leaf(leaf), "stop": format_time(leaf.stop_ns), "rtt": leaf.rtt_ns},
                sent={"msgs": leaf.in_msgs, "bytes": leaf.in_bytes},
                received={"msgs": leaf.out_msgs, "bytes": leaf.out_bytes},
                reason=leaf.close_reason,
            ),
        )

    def leaving(self, how: str) -> None:
        """The server is about to go: `LAMEDUCK` or `SHUTDOWN`."""
        self._tell(f"$SYS.SERVER.{self._server.server_id}.{how}", self._server.system.identity)

    def _tell_count(self, client: Client) -> None:
        self._tell_count_of(client.account)

    def _tell_count_of(self, account: Account) -> None:
        name = account.name
        for subject in (f"$SYS.SERVER.ACCOUNT.{name}.CONNS", f"$SYS.ACCOUNT.{name}.SERVER.CONNS"):
            self._tell(subject, lambda: self.account_connections(account))

    def account_connections(self, account: Account) -> dict[str, Any]:
        """How many connections an account has now, and what they send."""
        return self._event("account_connections", **account_stat(account))

    def _departure(self, client: Client) -> dict[str, Any]:
        stop = {"stop": format_time(client.stop_ns), "rtt": client.rtt_ns}
        return self._event(
            "client_disconnect",
            client={**_describe(client), **{name: value for name, value in stop.items() if value}},
            sent={"msgs": client.in_msgs, "bytes": client.in_bytes},  # by the client, that is
            received={"msgs": client.out_msgs, "bytes": client.out_bytes},
            reason=client.close_reason,
        )

    def _event(self, type: str, **fields: Any) -> dict[str, Any]:
        server = self._server
        about = {"type": _TYPE + type, "id": new_id(), "timestamp": format_time(server.clock())}
        return {**about, "server": server.system.identity(), **fields}

    def _tell(self, subject: str, build: Callable[[], dict[str, Any]]) -> None:
        account, encoded = self._server.broker.system_account, encode_subject(subject)
        if (account.clients or account.links) and account.has_interest(encoded):
            try:
                account.send(encoded, encode_json(build()))
            except Exception as error:  # what is told of goes on all the same
                self._server.failed(f"event subject={subject}", error)


def _describe_leaf(leaf: Leaf) -> dict[str, Any]:
    host, _ = leaf.address
    about = {"start": format_time(leaf.start_ns), "host": host, "id": leaf.cid, "acc": leaf.account.name}
    who = {"user": leaf.user.name if leaf.user is not None else "", "name": leaf.name}
    return {
        **about,
        **{name: value for name, value in who.items() if value},
        "kind": leaf.kind.value,
        "name_tag": leaf.account.name,
    }


def _describe(client: Client) -> dict[str, Any]:
    """A client, without what is known only later."""
    info = client_info(client)
    info.pop("rtt", None)
    who = client.options.nkey or client.options.user  # of one who could not log in
    return {**info, **({"user": who} if who else {}), "name_tag": client.account.name_tag}

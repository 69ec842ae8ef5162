"""What every server uses, told among the servers: no entry of the meta group, for it changes all the time.

A server tells the others on `$JETLAKE.USAGE.<peer>` what it holds: bytes and API calls by account, and in all. It does
so when something changed, at most four times a second, and every ten seconds so that a new server hears it. The sums
serve account infos, limits and placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from jetlake.clock import SECOND_NS
from jetlake.cluster.view import AccountUsage
from jetlake.errors import JetLakeError
from jetlake.jetstream.host import Host
from jetlake.jetstream.js_account import JsAccount
from jetlake.jetstream.streams.config import Storage

SUBJECT = "$JETLAKE.USAGE."
INTERVAL_NS = SECOND_NS // 4
REPEAT_NS = 10 * SECOND_NS


class BadUsage(JetLakeError):
    """A message that is no server's usage."""


class ServerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one server uses."""

    memory: int = 0
    storage: int = 0
    accounts: dict[str, AccountUsage] = {}


def usage_of(accounts: Iterable[JsAccount]) -> ServerUsage:
    """What this server uses."""
    found = {
        account.account.name: AccountUsage(
            account.used(Storage.MEMORY), account.used(Storage.FILE), account.api_total, account.api_errors
        )
        for account in accounts
    }
    return ServerUsage(
        memory=sum(each.memory for each in found.values()),
        storage=sum(each.storage for each in found.values()),
        accounts=found,
    )


class UsageTable:
    """What all servers use, as far as it was told."""

    def __init__(self) -> None:
        self._servers: dict[str, ServerUsage] = {}

    def heard(self, peer: str, payload: bytes) -> None:
        """A server told what it uses; raises BadUsage."""
        try:
            self._servers[peer] = msgspec.json.decode(payload, type=ServerUsage)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadUsage(f"usage of {peer}: {error}") from error

    def set(self, peer: str, usage: ServerUsage) -> None:
        self._servers[peer] = usage

    def forget(self, peer: str) -> None:
        """A server was removed."""
        self._servers.pop(peer, None)

    def server(self, peer: str) -> ServerUsage | None:
        """What a server uses; None if it never told."""
        return self._servers.get(peer)

    def account(self, name: str) -> AccountUsage:
        """What an account uses on all servers."""
        found = [each.accounts[name] for each in self._servers.values() if name in each.accounts]
        return AccountUsage(*(sum(numbers) for numbers in zip(*found, strict=True))) if found else AccountUsage()


class Teller:
    """Tells the others what this server uses, when it changed."""

    def __init__(
        self,
        host: Host,
        peer: str,
        table: UsageTable,
        now: Callable[[], ServerUsage],
        send: Callable[[str, bytes], None],
    ) -> None:
        """`now` says what is used, `send` brings a message to all other servers."""
        self._host, self._peer, self._table, self._now, self._send = host, peer, table, now, send
        self._told: ServerUsage | None = None
        self._told_ns = 0
        self._is_running = False

    def start(self) -> None:
        self._is_running = True
        self._look()

    def stop(self) -> None:
        self._is_running = False

    def _look(self) -> None:
        if not self._is_running:
            return
        usage, now_ns = self._now(), self._host.clock()
        self._table.set(self._peer, usage)
        if usage != self._told or now_ns - self._told_ns >= REPEAT_NS:
            self._told, self._told_ns = usage, now_ns
            self._send(SUBJECT + self._peer, msgspec.json.encode(usage))
        self._host.call_at(now_ns + INTERVAL_NS, self._look)

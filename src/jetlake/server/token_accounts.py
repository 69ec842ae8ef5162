"""Accounts by their tokens: found when they are first needed, changed while they are in use, ended when they expire.

A client that names an account which is not known waits until its token, and those of the accounts that it imports
from, were fetched. A token that is sent for a known account changes it at once: for the clients that are connected, for
what it shares with others, and for its streams.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from jetlake import jwt, nkeys
from jetlake.broker.account import Account
from jetlake.broker.auth import AUTHORIZATION_VIOLATION, Credentials, User
from jetlake.broker.client import MAX_SUBSCRIPTIONS, Client
from jetlake.broker.operator import BadAccount, KnownAccount, is_revoked
from jetlake.broker.token_auth import TokenAuthenticator
from jetlake.clock import SECOND_NS
from jetlake.config import OperatorOptions
from jetlake.errors import JetLakeError
from jetlake.jetstream.host import Timer
from jetlake.server.resolver import Resolver, make_resolver
from jetlake.server.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetlake.server.server import Server

EXPIRED = "Account Authentication Expired"
REVOKED = "User Authentication Revoked"
_FETCHES_MAX = 4  # at a time
_EXPORTERS_MAX = 1000  # accounts that are fetched for the imports of one, and for theirs
_Result = TypeVar("_Result")


class NoSystemAccount(JetLakeError):
    """The system account has no token that can be used."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"error resolving system account: {problem}")


class TokenAccounts:
    """The accounts of a server in operator mode."""

    def __init__(self, server: Server, options: OperatorOptions) -> None:
        assert server.broker.operator is not None
        self._server, self._operator = server, server.broker.operator
        self.resolver: Resolver = make_resolver(options.resolver)
        self._options = options
        self._threads = ThreadPoolExecutor(_FETCHES_MAX, "resolver")
        self._loading: dict[str, asyncio.Task[KnownAccount | None]] = {}
        self._timers: dict[str, Timer] = {}
        self.changing = asyncio.Lock()  # one change at a time, so that the last one sent is the one that holds

    async def start(self, store_dir_accounts: list[str]) -> None:
        """Find the system account, and those that have streams. Raises JetLakeError or OSError."""
        await self.run(self.resolver.start, self._options.preload)
        system = self._server.options.system_account
        if system and not await self.load(system):
            raise NoSystemAccount("account missing")
        for account in store_dir_accounts:
            await self.load(account)

    def close(self) -> None:
        """Fetch nothing any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, function: Callable[..., _Result], *args: Any) -> _Result:
        """Make a call to the resolver in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    def is_known(self, name: str) -> bool:
        """True when an account was found before."""
        return name in self._operator.accounts

    def is_trusted(self, key: str) -> bool:
        """True for the keys of operators."""
        return self._operator.is_trusted(key)

    def is_strictly_unsigned(self, key: str) -> bool:
        """True for an operator's own key, where only its signing keys are to sign."""
        return any(claims.sub == key and body.strict_signing_key_usage for claims, body in self._operator.operators)

    async def check(self, credentials: Credentials, nonce: bytes) -> User | None:
        """Who this is; the account may have to be found first."""
        await self.load(self._authenticator.account_of(credentials))
        return self._authenticator.check(credentials, nonce)

    @property
    def _authenticator(self) -> TokenAuthenticator:
        authenticator = self._server.broker.authenticator
        assert isinstance(authenticator, TokenAuthenticator)
        return authenticator

    # Accounts become known

    async def load(self, name: str) -> bool:
        """Make an account known, with those that it imports from; False when it cannot be used."""
        if name in self._operator.accounts:
            return True
        if not nkeys.is_public(name, nkeys.ACCOUNT):
            return False
        found = await self._find(name)
        if found is None:
            return False
        accounts = {name: found}
        ahead = [wanted.account for wanted in found.body.imports]
        while ahead and len(accounts) < _EXPORTERS_MAX:
            exporter = ahead.pop()
            if exporter in accounts or exporter in self._operator.accounts:
                continue
            if (found := await self._find(exporter)) is not None:
                accounts[exporter] = found
                ahead += [wanted.account for wanted in found.body.imports]
        for account in reversed(accounts.values()):
            if account.name not in self._operator.accounts:  # nobody else was faster
                self._use(account)
        return True

    async def _find(self, name: str) -> KnownAccount | None:
        """An account's token, if it may be used. Those who ask for the same one wait for one answer."""
        waiting = self._loading.get(name)
        if waiting is None:
            waiting = self._loading[name] = asyncio.create_task(self._fetch(name))
            waiting.add_done_callback(lambda _: self._loading.pop(name, None))
        return await asyncio.shield(waiting)

    async def _fetch(self, name: str) -> KnownAccount | None:
        if not nkeys.is_public(name, nkeys.ACCOUNT):
            return None
        try:
            token = await self.run(self.resolver.fetch, name)
            known = self._operator.read(token) if token is not None else None
        except (OSError, JetLakeError) as error:
            self._server.log("error", f"Account fetch failed for {name}: {error}")
            return None
        return known if known is not None and known.name == name else None

    def _use(self, known: KnownAccount) -> None:
        server = self._server
        account = self._adopt(known)
        server.system.serve_account(account)
        if server.jetstream is not None:
            server.jetstream.add_account(account)

    def _adopt(self, known: KnownAccount) -> Account:
        """Let a token hold from now on, and look at it again when something of it expires."""
        now_s = self._operator.now_s  # before the look: what expires during it is looked at once more
        account = self._server.broker.use_account(known)
        self._watch(known.name, now_s)
        return account

    # Accounts change

    async def preload(self, tokens: dict[str, str]) -> None:
        """Take the tokens of another configuration. Raises OSError or ResolverError."""
        async with self.changing:
            await self.run(self.resolver.start, tokens)
            for name in tokens:
                token = await self.run(self.resolver.fetch, name)
                if token is not None:
                    await self.update(name, token)

    async def update(self, name: str, token: str) -> None:
        """Take another token of an account that is in use; one of no use changes nothing. Raises nothing."""
        if name not in self._operator.accounts:
            return
        try:
            known = self._operator.read(token)
        except (jwt.BadJwt, BadAccount) as error:
            self._server.log("error", f"Account update failed for {name}: {error}")
            return
        for wanted in known.body.imports:
            await self.load(wanted.account)
        await self._replace(known)

    async def _replace(self, known: KnownAccount) -> None:
        server, old = self._server, self._operator.accounts[known.name]
        if old.token == known.token:
            return
        account = self._adopt(known)
        if old.options.jetstream != known.options.jetstream:
            from jetlake.server.reload import apply_jetstream

            await apply_jetstream(server)
        excess = self._excess(list(account.clients.values()), known.options.max_connections)
        for client in excess:
            client.refuse("maximum account active connections exceeded")
        server.leafs.limit(account)
        turns = Turns()
        for client in list(account.clients.values()):
            await turns.pause()
            if not client.is_closed:
                await self._recheck(client, known, turns)
        server.flush()

    @staticmethod
    def _excess(clients: list[Client], count_max: int) -> list[Client]:
        """The newest ones, if there are too many."""
        return clients[count_max:] if 0 <= count_max < len(clients) else []

    async def _recheck(self, client: Client, known: KnownAccount, turns: Turns) -> None:
        """See whether a client may stay, and what it may do now."""
        server, user = self._server, client.user
        token = user.token if user is not None else None
        if user is None or token is None:
            return
        if is_revoked(known.body.revocations, user.name, token.issued_s):
            client.refuse(REVOKED)
            return
        if token.is_bearer and known.body.limits.disallow_bearer:
            client.refuse(AUTHORIZATION_VIOLATION)
            return
        changed = self._authenticator.refresh(user, known)
        if changed is None:  # its signing key is gone, or has another scope
            if token.scope is not None and token.issuer not in known.body.scopes:
                client.refuse(MAX_SUBSCRIPTIONS)  # as nats-server has it
            client.close("Authentication Failure")
            return
        client.set_user(changed)
        client.max_payload, client.max_subscriptions = server.broker.limits(client.account, changed)
        if 0 <= client.max_subscriptions <= len(client.subs):  # also when it has as many as it may, as in nats-server
            client.refuse(MAX_SUBSCRIPTIONS)
            return
        for _ in client.recheck_subscriptions():
            await turns.pause()

    # Accounts end

    def end(self, name: str) -> None:
        """An account is deleted, or expired: nobody may be there any more."""
        known = self._operator.accounts.get(name)
        if known is None:
            return
        account = self._server.broker.accounts[name]
        for client in list(account.clients.values()):
            client.refuse(EXPIRED)
        self._server.flush()

    def forget(self, name: str) -> None:
        """An account is deleted: it has to be found again, which fails."""
        self.end(name)
        self._server.broker.forget_account(name)
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def _watch(self, name: str, since_s: float) -> None:
        """Look again at an account when the next thing of it expires that had not at `since_s`."""
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        next_s = self._operator.next_change_s(name, since_s)
        if next_s:
            self._timers[name] = self._server.call_at(next_s * SECOND_NS, lambda: self._time_passed(name))

    def _time_passed(self, name: str) -> None:
        known = self._operator.accounts.get(name)
        if known is None:
            return
        if known.is_expired(self._operator.now_s):
            self.end(name)
        self._adopt(known)  # what it shares may have ended

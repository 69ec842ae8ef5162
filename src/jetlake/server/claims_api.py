"""Tokens of accounts over `$SYS`: look up, update, list, delete, pack.

What there is depends on the resolver. All of them take updates of accounts by their names; only a directory can be
listed, looked up in and packed, and only a full one deletes. As in nats-server, an update is not asked who signed it:
it has to be sound, and whether it is to be trusted is decided when it is used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from jetlake import jwt, nkeys
from jetlake.broker.subscription import Msg
from jetlake.errors import JetLakeError
from jetlake.server.resolver import DirectoryResolver
from jetlake.subjects import decode_subject
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.server.server import Server
    from jetlake.server.token_accounts import TokenAccounts

WAITING_MAX = 256  # requests
_FAILED, _INVALID = "jwt update resulted in error", "jwt validation failed"


class ClaimsApi:
    """Answers requests about tokens in the system account."""

    def __init__(self, server: Server, accounts: TokenAccounts) -> None:
        self._server, self._accounts, self._resolver = server, accounts, accounts.resolver
        self._waiting = 0

    def start(self) -> None:
        """Take requests."""
        self._answer("$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", lambda msg: self._update(msg, _token(msg, 3)))
        self._answer("$SYS.ACCOUNT.*.CLAIMS.UPDATE", lambda msg: self._update(msg, _token(msg, 2)))
        resolver = self._resolver
        if not isinstance(resolver, DirectoryResolver):
            return
        self._answer("$SYS.REQ.CLAIMS.UPDATE", lambda msg: self._update(msg, None))
        self._answer("$SYS.REQ.CLAIMS.LIST", lambda msg: self._list(msg, resolver))
        self._answer("$SYS.REQ.CLAIMS.DELETE", lambda msg: self._delete(msg, resolver))
        if not resolver.is_cache:
            self._answer("$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", lambda msg: self._look_up(msg, resolver))
            self._answer("$SYS.REQ.CLAIMS.PACK", lambda msg: self._pack(msg, resolver))

    def _answer(self, subject: str, work: Callable[[Msg], Awaitable[None]]) -> None:
        def handle(msg: Msg) -> None:
            if self._waiting < WAITING_MAX:
                self._waiting += 1
                self._server.spawn(self._work(work, msg))

        self._server.broker.system_account.subscribe(subject.encode(), handle)

    async def _work(self, work: Callable[[Msg], Awaitable[None]], msg: Msg) -> None:
        try:
            async with self._accounts.changing:
                await work(msg)
        except Exception as error:
            self._server.failed(f"request subject={decode_subject(msg.subject)}", error)
        finally:
            self._waiting -= 1
        self._server.flush()

    # Requests

    async def _update(self, msg: Msg, name: str | None) -> None:
        token = msg.payload.decode("utf-8", "replace").strip()
        try:
            claims, body = jwt.read_account(token)
        except jwt.BadJwt as error:
            self._tell(msg, name if not self._has_directory else "n/a", _FAILED, str(error))
            return
        if problems := jwt.account_problems(claims.sub, body):
            self._tell(msg, claims.sub, _INVALID, f"validation errors: [{' '.join(problems)}]")
        elif name not in (None, claims.sub):
            self._tell(msg, name, _FAILED, "subject does not match jwt content")
        elif self._has_directory and self._accounts.is_strictly_unsigned(claims.iss):
            self._tell(msg, claims.sub, _FAILED, "operator requires issuer be a signing key")
        else:
            await self._store(msg, claims.sub, token)

    @property
    def _has_directory(self) -> bool:
        return isinstance(self._resolver, DirectoryResolver)

    @property
    def _is_cache(self) -> bool:
        return isinstance(self._resolver, DirectoryResolver) and self._resolver.is_cache

    async def _store(self, msg: Msg, name: str, token: str) -> None:
        is_known = self._accounts.is_known(name)
        if not is_known and not self._has_directory:
            self._tell(msg, name, "jwt update skipped")
            return
        if not is_known and self._is_cache:
            self._tell(msg, name, "jwt update cache skipped")
            return
        try:
            await self._accounts.run(self._resolver.store, name, token)
        except (OSError, JetLakeError) as error:
            self._tell(msg, name, _FAILED, str(error))
            return
        await self._accounts.update(name, token)
        self._tell(msg, name, "jwt updated cache" if self._is_cache else "jwt updated")

    async def _look_up(self, msg: Msg, resolver: DirectoryResolver) -> None:
        name = _token(msg, 3)
        token = await self._accounts.run(resolver.fetch, name) if nkeys.is_public(name, nkeys.ACCOUNT) else None
        self._send(msg, (token or "").encode())

    async def _list(self, msg: Msg, resolver: DirectoryResolver) -> None:
        names = await self._accounts.run(resolver.accounts)
        self._send(msg, encode_json({"server": self._server.system.identity(), "data": names}))

    async def _pack(self, msg: Msg, resolver: DirectoryResolver) -> None:
        """All tokens, one message each, unless whoever asks has the same ones; then the end."""
        if await self._accounts.run(resolver.digest) != msg.payload:
            for name, token in await self._accounts.run(lambda: list(resolver.tokens())):
                self._send(msg, f"{name}|{token}".encode())
        self._send(msg, b"")

    async def _delete(self, msg: Msg, resolver: DirectoryResolver) -> None:
        who = ""
        try:
            claims = jwt.decode(msg.payload.decode("utf-8", "replace").strip(), nkeys.OPERATOR, nkeys.ACCOUNT)
            who = claims.sub
            names = self._deletable(claims)
        except JetLakeError as error:
            self._tell(msg, None, f"delete accounts request by {who} failed", str(error))
            return
        problems = []
        for name in names:
            try:
                await self._accounts.run(resolver.delete, name)
                self._accounts.forget(name)
            except (OSError, JetLakeError) as error:
                problems.append(str(error))
        done = f"deleted {len(names) - len(problems)} accounts"
        if problems:
            self._tell(msg, None, f"{done}, failed for {len(problems)}", "\n".join(problems))
        else:
            self._tell(msg, None, done)

    def _deletable(self, claims: jwt.Claims) -> list[str]:
        """The accounts that a request may delete. Raises JetLakeError."""
        operator = self._server.options.operator
        if operator is None or not operator.resolver.allow_delete:
            raise JetLakeError("delete must be enabled in server config")
        if claims.sub != claims.iss:
            raise JetLakeError("not self signed")
        if not self._accounts.is_trusted(claims.iss):
            raise JetLakeError("not trusted")
        names = claims.nats.get("accounts")
        if not isinstance(names, list) or not all(nkeys.is_public(name, nkeys.ACCOUNT) for name in names):
            raise JetLakeError("malformed request")
        if self._server.broker.system_account.name in names:
            raise JetLakeError("not allowed to delete system account")
        return names

    # Answers

    def _tell(self, msg: Msg, account: str | None, message: str, problem: str = "") -> None:
        about: dict[str, Any] = {"account": account} if account else {}
        fields = (
            {"error": {**about, "code": 500, "description": f"{message} - {problem}"}}
            if problem
            else {"data": {**about, "code": 200, "message": message}}
        )
        self._server.log("error" if problem else "debug", f"{message} - {account or ''} {problem}".strip())
        self._send(msg, encode_json({"server": self._server.system.identity(), **fields}))

    def _send(self, msg: Msg, payload: bytes) -> None:
        if msg.reply:
            self._server.broker.system_account.send(msg.reply, payload)


def _token(msg: Msg, number: int) -> str:
    return decode_subject(msg.subject).split(".")[number]

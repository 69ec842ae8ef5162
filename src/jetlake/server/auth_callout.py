"""The auth callout: a service in an account decides who a client is.

The server asks on `$SYS.REQ.USER.AUTH` with a token of its own, which says what the client said; the service answers
with a token that holds the token of a user. That user's key was made up for this one question, so no answer can be
used twice. With an `xkey` the question is sealed for the service, and the answer may be.

By configuration, the users of `authorization.auth_callout` and of the accounts that it leaves out are checked here; in
operator mode the account of the token that a client shows says whom to ask. Members of the account that is asked
cannot ask themselves: what they publish on that subject is denied.

Stricter than nats-server: the connection types and source addresses of the user that is answered hold here, too.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from jetlake import jwt, nkeys
from jetlake.broker.account import Account
from jetlake.broker.auth import Credentials, User
from jetlake.broker.permissions import Permissions
from jetlake.broker.subscription import Msg
from jetlake.broker.token_auth import TokenAuthenticator, permitted, plain_user
from jetlake.clock import SECOND_NS
from jetlake.errors import JetLakeError
from jetlake.sealed_box import BadBox, BoxKey
from jetlake.wire.headers import append_headers

if TYPE_CHECKING:
    from jetlake.broker.client import Client
    from jetlake.server.server import Server

SUBJECT = b"$SYS.REQ.USER.AUTH"
_XKEY_HEADER = b"Nats-Server-Xkey"
_AUDIENCE = "nats-authorization-request"


class CalloutFailed(JetLakeError):
    """The service did not let a client in, or said it in a way that does not count."""


class _Question(NamedTuple):
    """Whom to ask, and what counts as an answer."""

    account: Account
    issuer: str  # whose users are accepted
    xkey: str
    is_operator_mode: bool


class AuthCallout:
    """Asks, and checks the answers."""

    def __init__(self, server: Server, key: nkeys.KeyPair, box_key: BoxKey) -> None:
        self._server, self._key, self._box_key = server, key, box_key

    async def check(self, client: Client, credentials: Credentials, user: User | None) -> User | None:
        """Who this is. `user` is who it would be without a callout."""
        question, auth_users = self._question(credentials, user)
        if question is None:
            return user
        if _raw_user(credentials, question.is_operator_mode) not in auth_users:
            try:
                user = await self._ask(client, question, credentials)
            except JetLakeError as error:
                self._server.log("warning", f"{self._server.broker.label(client)} - Auth callout: {error}")
                return None
        if user is not None and user.account == question.account.name:
            return replace(user, permissions=_without_question(user.permissions))
        return user

    def _question(self, credentials: Credentials, user: User | None) -> tuple[_Question | None, tuple[str, ...]]:
        broker = self._server.broker
        if isinstance(broker.authenticator, TokenAuthenticator):
            assert broker.operator is not None
            known = broker.operator.accounts.get(broker.authenticator.account_of(credentials))
            if known is None or not known.body.authorization.auth_users:
                return None, ()
            external = known.body.authorization
            return _Question(broker.account(known.name), known.name, external.xkey, True), tuple(external.auth_users)
        single = self._server.options.authorization
        options = single.auth_callout if single is not None else None
        if options is None:
            return None, ()
        is_left_out = user is not None and user.account != "$G" and options.allowed_accounts
        if is_left_out and user is not None and user.account not in options.allowed_accounts:
            return None, ()
        account = broker.account(options.account or "$G")
        return _Question(account, options.issuer, options.xkey, False), options.auth_users

    # Asking

    async def _ask(self, client: Client, question: _Question, credentials: Credentials) -> User:
        """The user that the service lets in. Raises JetLakeError."""
        server, user_key = self._server, nkeys.KeyPair(nkeys.USER)
        timeout_s = server.options.auth_timeout_s
        text = jwt.encode(self._request(client, question, user_key.public, timeout_s), self._key).encode()
        headers = b""
        if question.xkey:
            text = await server.loop.run_in_executor(None, self._box_key.seal, text, question.xkey)
            headers = append_headers(b"", [(_XKEY_HEADER, self._box_key.public.encode())])
        answer = await self._send(question, text, headers, timeout_s)
        claims = await self._open(answer, question)
        if claims.type != "authorization_response":
            raise CalloutFailed("the answer is not an authorization response")
        if claims.sub != user_key.public:
            raise CalloutFailed("auth callout response is not for expected user")
        if claims.aud != server.server_id:
            raise CalloutFailed("auth callout response is not for server")
        if problem := claims.time_problem(server.clock() / SECOND_NS):
            raise CalloutFailed(f"the answer: {problem}")
        if error := claims.nats.get("error"):
            raise CalloutFailed(f"auth callout service returned an error: {error}")
        return await self._user(str(claims.nats.get("jwt", "")), user_key.public, question, credentials)

    async def _send(self, question: _Question, text: bytes, headers: bytes, timeout_s: float) -> bytes:
        answered: asyncio.Future[bytes] = self._server.loop.create_future()

        def take(msg: Msg) -> None:
            if not answered.done():
                answered.set_result(msg.payload)

        reply = f"$SYS._INBOX.{secrets.token_hex(4)}.{secrets.token_hex(4)}".encode()
        inbox = question.account.subscribe(reply, take)
        try:
            if not question.account.send(SUBJECT, text, reply=reply, headers=headers):
                raise CalloutFailed("no service answers for the account")
            self._server.flush()
            answer = await asyncio.wait_for(answered, timeout_s)
        except TimeoutError:
            raise CalloutFailed("auth callout response not received in time") from None
        finally:
            question.account.unsubscribe(inbox)
        if not answer:
            raise CalloutFailed("no reason supplied")
        return answer

    def _request(self, client: Client, question: _Question, user_key: str, timeout_s: float) -> dict[str, Any]:
        server, options, said = self._server, self._server.options, client.options
        now_s = server.clock() // SECOND_NS
        identity: dict[str, Any] = {
            "name": server.server_name,
            "host": options.host,
            "id": server.server_id,
            "version": server.broker.version,
            "tags": list(options.server_tags),
            "xkey": self._box_key.public if question.xkey else "",
        }
        about = {
            "host": client.host,
            "id": client.cid,
            "user": said.user,
            "name": said.name,
            "kind": "Client",
            "type": client.type,
            "nonce": client.nonce.decode() if said.sig else "",
        }
        connect = {
            "jwt": said.jwt,
            "nkey": said.nkey,
            "sig": said.sig,
            "auth_token": said.auth_token,
            "user": said.user,
            "pass": said.password,
            "name": said.name,
            "lang": said.lang,
            "version": said.version,
        }
        nats = {
            "server_id": _given(identity),
            "user_nkey": user_key,
            "client_info": _given(about),
            "connect_opts": {**_given(connect), "protocol": said.protocol},
            "client_tls": server.tls_details_of(client),
            "type": "authorization_request",
            "version": 2,
        }
        return {
            "aud": _AUDIENCE,
            "exp": now_s + max(int(timeout_s), 1),
            "iat": now_s,
            "sub": question.issuer,
            "nats": _given(nats),
        }

    # Answers

    async def _open(self, answer: bytes, question: _Question) -> jwt.Claims:
        is_sealed = False
        if question.xkey:
            try:
                answer = await self._server.loop.run_in_executor(None, self._box_key.open, answer, question.xkey)
                is_sealed = True
            except BadBox:
                pass  # the service may answer in clear
        claims = jwt.decode(answer.decode("utf-8", "replace"), nkeys.ACCOUNT)
        if question.is_operator_mode and not is_sealed:
            signer = str(claims.nats.get("issuer_account") or claims.iss)
            self._check_signer(question, signer)
        return claims

    def _check_signer(self, question: _Question, signer: str) -> None:
        operator = self._server.broker.operator
        assert operator is not None
        operator.signer_scope(operator.accounts[question.account.name], signer)

    async def _user(self, token: str, user_key: str, question: _Question, credentials: Credentials) -> User:
        claims, body = jwt.read_user(token)
        if claims.sub != user_key:
            raise CalloutFailed(f"expected authorized user of {user_key} but got {claims.sub}")
        now_s = self._server.clock() / SECOND_NS
        if problem := claims.time_problem(now_s):
            raise CalloutFailed(f"the user: {problem}")
        if question.is_operator_mode:
            user, limits = await self._user_of_account(token, claims, body, question)
        else:
            user, limits = self._configured_user(token, claims, body, question), body
        user = permitted(user, limits, credentials, now_s)
        return replace(user, name=claims.name or _raw_user(credentials, False) or user.name)

    def _configured_user(self, token: str, claims: jwt.Claims, body: jwt.UserBody, question: _Question) -> User:
        if body.issuer_account:
            raise CalloutFailed("issuer_account is for operator mode")
        if claims.iss != question.issuer:
            raise CalloutFailed(f"wrong issuer: expected {question.issuer}, got {claims.iss}")
        if claims.aud not in self._server.broker.accounts:
            raise CalloutFailed(f"the account {claims.aud!r} is not known")
        return plain_user(token, claims.aud, claims, body)

    async def _user_of_account(
        self, token: str, claims: jwt.Claims, body: jwt.UserBody, question: _Question
    ) -> tuple[User, jwt.UserLimits]:
        broker, name = self._server.broker, body.issuer_account or claims.iss
        assert broker.operator is not None and self._server.tokens is not None
        allowed = broker.operator.accounts[question.account.name].body.authorization.allowed_accounts
        if name != question.issuer and name not in allowed and "*" not in allowed:
            raise CalloutFailed(f"account {name} not permitted as valid account option for auth callout")
        if not await self._server.tokens.load(name):
            raise CalloutFailed(f"the account {name} is not known")
        authenticator = broker.authenticator
        assert isinstance(authenticator, TokenAuthenticator)
        return authenticator.make_user(token, broker.operator.accounts[name], claims, body)


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _raw_user(credentials: Credentials, is_operator_mode: bool) -> str:
    """What a client calls itself."""
    if is_operator_mode:
        try:
            return jwt.read_user(credentials.jwt)[0].sub
        except jwt.BadJwt:
            return ""
    return credentials.nkey or credentials.user


def _without_question(permissions: Permissions | None) -> Permissions:
    """The same permissions, without leave to ask what the server asks."""
    if permissions is None:
        return Permissions(publish_deny=[SUBJECT.decode()])
    return Permissions(
        permissions.publish_allow,
        (*permissions.publish_deny, SUBJECT.decode()),
        permissions.subscribe_allow,
        permissions.subscribe_deny,
        permissions.responses,
    )

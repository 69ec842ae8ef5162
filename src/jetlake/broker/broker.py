"""The broker: accounts, clients, and who may become one. Without I/O; `jetlake.server` puts sockets around it."""

from __future__ import annotations

import base64
import os
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from jetlake.broker import auth
from jetlake.broker.account import Account, Failed, raise_it
from jetlake.broker.auth import Authenticator, AuthOptions
from jetlake.broker.client import SUBS_AT_ONCE, Client, Connection
from jetlake.broker.imports import ServiceImport, StreamImport
from jetlake.broker.permissions import Permissions, ResponsePermission, go_quoted
from jetlake.broker.subscription import Subscription
from jetlake.clock import SECOND_NS, Clock, system_clock
from jetlake.config import Import, ServerOptions, SubjectMapping
from jetlake.config import Permissions as PermissionOptions
from jetlake.ops import OP_WORDS

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
OPS_MAX = 4096

Trace = Callable[[Client, str, bytes], None]
_Link = tuple[tuple[Import, ...], list[StreamImport], list[ServiceImport]]


class Broker:
    """Everything that clients share."""

    def __init__(self, options: ServerOptions, server_id: str, version: str, *, clock: Clock = system_clock) -> None:
        self.options, self.server_id, self.version, self.clock = options, server_id, version, clock
        self.accounts: dict[str, Account] = {}
        self.clients: dict[int, Client] = {}
        self.default_account = self.account(GLOBAL_ACCOUNT)
        self.ops_max = OPS_MAX
        self.ops = array("I", bytes(4 * OP_WORDS * OPS_MAX))  # shared: a batch is finished before the next is read
        self.in_msgs = self.in_bytes = self.out_msgs = self.out_bytes = 0
        self.slow_consumers = self.stale_connections = self.stalls = 0
        self.total_connections = self.auth_errors = 0
        self.closed = Counter[str]()
        self.on_joined: Callable[[Client], None] | None = None
        self.on_left: Callable[[Client], None] | None = None
        self.trace: Trace | None = None
        self.log: Callable[[str, str], None] = lambda level, line: None
        self.failed: Failed = raise_it
        self.port = options.port
        self.has_jetstream = False
        self.is_lame_duck = False
        self._imports: dict[str, tuple[Import, ...]] = {}
        self._last_cid = 0
        self._output: list[Client] = []
        self._leaving: deque[tuple[Account, Iterator[Subscription]]] = deque()
        self.call_soon: Callable[[Callable[[], None]], None] = lambda callback: callback()
        self.use_options(options)

    @property
    def server_name(self) -> str:
        return self.options.server_name or self.server_id

    @property
    def auth_required(self) -> bool:
        return self.authenticator.required and not self.options.no_auth_user

    def use_options(self, options: ServerOptions) -> None:
        """Take other options: users, permissions, limits. Raises JetLakeError, and then nothing has changed."""
        authenticator = make_authenticator(options)
        for name in (*options.accounts, options.system_account or SYSTEM_ACCOUNT):
            self.account(name)
        links = self._find_links(options)
        self.authenticator, self.options = authenticator, options
        self.system_account = self.account(options.system_account or SYSTEM_ACCOUNT)
        for name, (imports, streams, services) in links.items():
            self._imports[name] = imports
            self.accounts[name].use_imports(streams, services)

    def _find_links(self, options: ServerOptions) -> dict[str, _Link]:
        """What accounts import. Those whose imports are as before keep the answers they wait for."""
        links = {}
        for name, account in list(self.accounts.items()):
            imports = options.accounts[name].imports if name in options.accounts else ()
            if imports != self._imports.get(name, ()):
                links[name] = (imports, *self._find_imports(account, imports))
        return links

    def _find_imports(
        self, account: Account, imports: tuple[Import, ...]
    ) -> tuple[list[StreamImport], list[ServiceImport]]:
        streams = [
            StreamImport(self.account(found.account), SubjectMapping(found.subject, found.local))
            for found in imports
            if found.kind == "stream"
        ]
        services = [
            ServiceImport(account, self.account(found.account), found, self.clock)
            for found in imports
            if found.kind == "service"
        ]
        return streams, services

    def account(self, name: str) -> Account:
        """The account with this name, made if it is not there."""
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(name, lambda what, error: self.failed(what, error))
        return account

    # Clients come and go

    def connect(self, connection: Connection, host: str, port: int) -> Client:
        """A client for a new connection. It is not in an account before it has logged in."""
        self._last_cid += 1
        self.total_connections += 1
        nonce = base64.urlsafe_b64encode(os.urandom(11)).rstrip(b"=") if self.authenticator.needs_nonce else b""
        client = Client(self, connection, self._last_cid, host, port, nonce)
        self.clients[client.cid] = client
        return client

    def is_full(self) -> bool:
        """True when no more connections are allowed."""
        return 0 < self.options.max_connections < len(self.clients)

    def admit(self, client: Client) -> str | None:
        """Put a client into its account; the -ERR text when there is no place for it."""
        assert client.user is not None
        account = self.account(client.user.account.name)
        configured = self.options.accounts.get(account.name)
        if configured is not None and 0 <= configured.max_connections <= len(account.clients):
            return "maximum account active connections exceeded"
        client.account = account
        client.max_payload, client.max_subscriptions = self.limits(account)
        account.clients[client.cid] = client
        if self.on_joined is not None:
            self.on_joined(client)
        return None

    def limits(self, account: Account | None) -> tuple[int, int]:
        """The payload size and the number of subscriptions that a client may have there; -1 is no limit."""
        options = self.options
        configured = options.accounts.get(account.name) if account is not None else None
        payloads = [options.max_payload, configured.max_payload if configured is not None else -1]
        subscriptions = [
            options.max_subscriptions or -1,
            configured.max_subscriptions if configured is not None else -1,
        ]
        return _smallest(payloads), _smallest(subscriptions)

    def left(self, client: Client) -> None:
        """A client is closed."""
        self.clients.pop(client.cid, None)
        client.account.clients.pop(client.cid, None)
        self.closed[client.close_reason] += 1
        if self.on_left is not None:
            self.on_left(client)
        self.log("debug", f"{self.label(client)} - Client connection closed: {client.close_reason}")

    def forget(self, client: Client) -> None:
        """Take the subscriptions of a client that is closed out: if they are many, some now and the others soon."""
        if len(client.subs) > SUBS_AT_ONCE:
            client.account.client_closed()
        rest = iter(list(client.subs.values()))  # which stay with the client: /connz shows them
        if _forget_some(client.account, rest):
            self._leaving.append((client.account, rest))
            if len(self._leaving) == 1:
                self.call_soon(self._forget_more)

    def _forget_more(self) -> None:
        if not _forget_some(*self._leaving[0]):
            self._leaving.popleft()
        if self._leaving:
            self.call_soon(self._forget_more)

    def login_failed(self, client: Client) -> None:
        """Somebody is not who they say."""
        self.auth_errors += 1
        options = client.options
        who = options.nkey or options.user
        named = (
            f" - {'Nkey' if options.nkey else 'User'} {go_quoted(who.encode('utf-8', 'surrogatepass'))}" if who else ""
        )
        self.log("error", f"{self.label(client)} - authentication error{named}")

    def violation(self, client: Client, text: str) -> None:
        """A client did what it may not."""
        self.log("error", f"{self.label(client)} - {text}")

    def slow_consumer(self, client: Client, reason: str) -> None:
        """A client does not take what is sent to it."""
        self.slow_consumers += 1
        self.log("warning", f"{self.label(client)} - {reason}: connection closed")

    @staticmethod
    def label(client: Client) -> str:
        """How log lines name a client."""
        label = f"{client.host}:{client.port} - cid:{client.cid}"
        options = client.options
        about = ":".join(filter(None, (options.version and f"v{options.version}", options.lang, options.name)))
        who = f"{client.account.name}/user:{client.user_name}" if client.user_name else ""
        return " - ".join([label, *(f'"{text}"' for text in (about, who) if text)]) if client.is_connected else label

    # Output

    def has_output(self, client: Client) -> None:
        """A client has something to send."""
        self._output.append(client)

    def take_output(self) -> list[Client]:
        """The clients with something to send; each time anew."""
        clients, self._output = self._output, []
        return clients

    # INFO

    def info(self, client: Client, *, connect_info: bool = False) -> dict[str, Any]:
        """What a client is told about the server."""
        options = self.options
        fields: dict[str, Any] = {
            "server_id": self.server_id,
            "server_name": self.server_name,
            "version": self.version,
            "proto": 1,
            "git_commit": "jetlake",
            "go": "python",
            "host": options.host,
            "port": self.port,
            "headers": not options.no_header_support,
        }
        tls = options.tls
        optional = {
            "auth_required": self.authenticator.required if connect_info else self.auth_required,
            "tls_required": tls is not None and not options.allow_non_tls,
            "tls_verify": tls is not None and tls.verify,
            "tls_available": tls is not None and options.allow_non_tls,
        }
        fields |= {name: True for name, value in optional.items() if value}
        fields["max_payload"] = client.max_payload
        if self.has_jetstream:
            fields["jetstream"] = True
        fields |= {"client_id": client.cid, "client_ip": client.host}
        if client.nonce and not connect_info:
            fields["nonce"] = client.nonce.decode()
        if options.jetstream.domain:
            fields["domain"] = options.jetstream.domain
        if self.is_lame_duck:
            fields["ldm"] = True
        if connect_info:
            fields |= {"connect_info": True, "remote_account": client.account.name}
            if client.account is self.system_account:
                fields["acc_is_sys"] = True
        fields["api_lvl"] = API_LEVEL
        return fields


API_LEVEL = 5


def _forget_some(account: Account, subs: Iterator[Subscription]) -> bool:
    """Take some subscriptions out; False when there were fewer than that."""
    some = list(islice(subs, SUBS_AT_ONCE))
    for sub in some:
        account.remove(sub)
    return len(some) == SUBS_AT_ONCE


def _smallest(limits: list[int]) -> int:
    return min((limit for limit in limits if limit >= 0), default=-1)


def make_authenticator(options: ServerOptions) -> Authenticator:
    """Who may connect, by the configuration."""
    users = tuple(
        auth.User(
            user.name,
            auth.Account(user.account or GLOBAL_ACCOUNT),
            user.password,
            user.nkey,
            make_permissions(user.permissions),
            not user.allowed_connection_types or "STANDARD" in user.allowed_connection_types,
        )
        for user in options.users
    )
    single = options.authorization
    return Authenticator(
        AuthOptions(
            users,
            single.token if single else "",
            single.username if single else "",
            single.password if single else "",
            options.no_auth_user,
        )
    )


def make_permissions(options: PermissionOptions | None) -> Permissions | None:
    """The rules of a user, by the configuration."""
    if options is None:
        return None
    publish, subscribe, responses = options.publish, options.subscribe, options.allow_responses
    return Permissions(
        (publish.allow or ()) if publish else (),
        publish.deny if publish else (),
        (subscribe.allow or ()) if subscribe else (),
        subscribe.deny if subscribe else (),
        ResponsePermission(responses.max_msgs, int(responses.expires_s * SECOND_NS)) if responses else None,
    )

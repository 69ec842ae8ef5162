"""The broker: accounts, clients, and who may become one. Without I/O; `jetlake.server` puts sockets around it."""

from __future__ import annotations

import base64
import os
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from jetlake.broker import auth
from jetlake.broker.account import Account, Failed, raise_it
from jetlake.broker.auth import Authenticator, AuthOptions
from jetlake.broker.client import MAX_SUBSCRIPTIONS, SUBS_AT_ONCE, Client, Connection
from jetlake.broker.endpoint import STANDARD, TYPES, WEBSOCKET, Endpoint
from jetlake.broker.imports import CallAt, ServiceImport, StreamImport, never
from jetlake.broker.link import Link
from jetlake.broker.permissions import Permissions, ResponsePermission, go_quoted
from jetlake.broker.subscription import Subscription
from jetlake.clock import SECOND_NS, Clock, system_clock
from jetlake.config import Import, MappingOptions, ServerOptions, SubjectMapping
from jetlake.config import Permissions as PermissionOptions
from jetlake.ops import OP_WORDS

if TYPE_CHECKING:
    from jetlake.broker.mappings import Mappings
    from jetlake.broker.operator import KnownAccount, Operator
    from jetlake.broker.route import Route
    from jetlake.broker.token_auth import TokenAuthenticator

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
OPS_MAX = 4096

Trace = Callable[[Client, str, bytes], None]
SendTrace = Callable[[Account, bytes, dict[str, Any], bytes], None]  # where, what, and in which encodings
_Link = tuple[tuple[Import, ...], list[StreamImport], list[ServiceImport]]


class Broker:
    """Everything that clients share."""

    def __init__(self, options: ServerOptions, server_id: str, version: str, *, clock: Clock = system_clock) -> None:
        self.options, self.server_id, self.version, self.clock = options, server_id, version, clock
        self.accounts: dict[str, Account] = {}
        self.clients: dict[int, Client] = {}
        self.routes: dict[int, Route] = {}  # those that are open
        self.default_account = self.account(GLOBAL_ACCOUNT)
        self.ops_max = OPS_MAX
        self.ops = array("I", bytes(4 * OP_WORDS * OPS_MAX))  # shared: a batch is finished before the next is read
        self.in_msgs = self.in_bytes = self.out_msgs = self.out_bytes = 0
        self.link_in_msgs = self.link_in_bytes = self.link_out_msgs = self.link_out_bytes = 0  # of these, over links
        self.slow_consumers = self.stale_connections = self.stalls = 0
        self.total_connections = self.auth_errors = 0
        self.closed = Counter[str]()
        self.on_joined: Callable[[Client], None] | None = None
        self.on_left: Callable[[Client], None] | None = None
        self.trace: Trace | None = None
        self.log: Callable[[str, str], None] = lambda level, line: None
        self.failed: Failed = raise_it
        self.send_trace: SendTrace = lambda account, dest, event, encoding: None
        self.port = options.port
        self.websocket_port = 0
        self.features: dict[str, Any] = {}  # what INFO says of the server besides
        self.connect_urls: list[str] = []  # where clients may connect to, besides
        self.websocket_connect_urls: list[str] = []
        self.is_lame_duck = False
        self.operator: Operator | None = None
        self._imports: dict[str, tuple[Import, ...]] = {}
        self._last_cid = 0
        self._output: list[Client | Link] = []
        self._leaving: deque[tuple[Account, Iterator[Subscription]]] = deque()
        self.call_at: CallAt = never
        self.call_soon: Callable[[Callable[[], None]], None] = lambda callback: callback()
        self.use_options(options)

    @property
    def server_name(self) -> str:
        return self.options.server_name or self.server_id

    @property
    def authenticator(self) -> Authenticator | TokenAuthenticator:
        """Who may connect in the usual way."""
        return self._authenticators[STANDARD]

    def authenticator_of(self, client: Client) -> Authenticator | TokenAuthenticator:
        """Who may connect in the way that a client did."""
        return self._authenticators[client.endpoint.type]

    def authenticator_for(self, type: str) -> Authenticator | TokenAuthenticator:
        """Who may connect in one of the ways that there are."""
        return self._authenticators[type]

    def auth_required(self, client: Client) -> bool:
        """True when a client has to log in soon."""
        if client.endpoint.is_websocket:
            return self.authenticator_of(client).required
        return self.authenticator.required and not self.options.no_auth_user

    def use_options(self, options: ServerOptions) -> None:
        """Take other options: users, permissions, limits. Raises JetLakeError, and then nothing has changed."""
        authenticators = self._make_authenticators(options)
        for name in (*options.accounts, options.system_account or SYSTEM_ACCOUNT):
            self.account(name)
        links, mappings = self._find_links(options), make_mappings(options)
        self._authenticators, self.options = authenticators, options
        if options.operator is None:
            for name, account in self.accounts.items():
                account.options = options.accounts.get(name)
        self.system_account = self.account(options.system_account or SYSTEM_ACCOUNT)
        for name, (imports, streams, services) in links.items():
            self._imports[name] = imports
            self.accounts[name].use_imports(streams, services)
        if options.operator is None:
            for name, account in self.accounts.items():
                account.use_mappings(mappings.get(name))

    def _make_authenticators(self, options: ServerOptions) -> Mapping[str, Authenticator | TokenAuthenticator]:
        if options.operator is None:
            return make_authenticators(options)
        from jetlake.broker.operator import Operator  # few servers have one
        from jetlake.broker.token_auth import TokenAuthenticator

        if self.operator is None:
            self.operator = Operator(options.operator, self.clock, self.version)
        authenticator = TokenAuthenticator(self.operator, lambda level, line: self.log(level, line))
        return dict.fromkeys(TYPES, authenticator)

    def use_account(self, known: KnownAccount) -> Account:
        """Let an account be what its token says from now on, and those that import from it have what it exports."""
        assert self.operator is not None
        self.operator.accounts[known.name] = known
        for name in dict.fromkeys((known.name, *self.operator.importers(known.name))):
            self.relink(name)
        return self.accounts[known.name]

    def forget_account(self, name: str) -> None:
        """An account is not known any more: it has nothing of others, and they have nothing of it."""
        assert self.operator is not None
        if self.operator.accounts.pop(name, None) is not None:
            self.accounts[name].options = None
            self._imports.pop(name, None)
            self.accounts[name].use_imports((), ())
            for importer in self.operator.importers(name):
                self.relink(importer)

    def relink(self, name: str) -> None:
        """Let an account have of others what its token allows now."""
        assert self.operator is not None
        account, imports = self.account(name), self.operator.imports(name)
        account.options = replace(self.operator.accounts[name].options, imports=imports)
        self._use_mappings(account, account.options.mappings)
        if imports != self._imports.get(name, ()):
            self._imports[name] = imports
            account.use_imports(*self._find_imports(account, imports))

    def _use_mappings(self, account: Account, options: tuple[MappingOptions, ...]) -> None:
        """Take the mappings of a token; those that make no sense are left out, and the log says so."""
        found = None
        if options:
            from jetlake.broker.mappings import BadMapping, Mappings

            try:
                found = Mappings(options)
            except BadMapping as error:
                self.log("error", f"Account {account.name}: {error}")
        account.use_mappings(found)

    def _find_links(self, options: ServerOptions) -> dict[str, _Link]:
        """What accounts import. Those whose imports are as before keep the answers they wait for."""
        links: dict[str, _Link] = {}
        if options.operator is not None:
            return links
        for name, account in list(self.accounts.items()):
            imports = options.accounts[name].imports if name in options.accounts else ()
            if imports != self._imports.get(name, ()):
                links[name] = (imports, *self._find_imports(account, imports))
        return links

    def _find_imports(
        self, account: Account, imports: tuple[Import, ...]
    ) -> tuple[list[StreamImport], list[ServiceImport]]:
        streams = [
            StreamImport(self.account(found.account), SubjectMapping(found.subject, found.local), found.allow_trace)
            for found in imports
            if found.kind == "stream"
        ]
        services = [
            ServiceImport(account, self.account(found.account), found, self.clock, self._call_at)
            for found in imports
            if found.kind == "service"
        ]
        return streams, services

    def _call_at(self, time_ns: int, callback: Callable[[], None]) -> object:
        return self.call_at(time_ns, callback)

    def account(self, name: str) -> Account:
        """The account with this name, made if it is not there."""
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(name, lambda what, error: self.failed(what, error))
            for route in self.routes.values():
                route.add_account(account)
        return account

    # Clients come and go

    def next_cid(self) -> int:
        """A number for a new connection."""
        self._last_cid += 1
        return self._last_cid

    def connect(self, connection: Connection, endpoint: Endpoint) -> Client:
        """A client for a new connection. It is not in an account before it has logged in."""
        self.total_connections += 1
        nonce = base64.urlsafe_b64encode(os.urandom(11)).rstrip(b"=") if self._needs_nonce else b""
        client = Client(self, connection, self.next_cid(), endpoint, nonce)
        self.clients[client.cid] = client
        return client

    @property
    def _needs_nonce(self) -> bool:
        return self.authenticator.needs_nonce or bool(self.options.trusted_proxies)

    def proxy_of(self, signature: str, nonce: bytes) -> str:
        """The key of the trusted proxy that signed this nonce; empty when none of them did."""
        from jetlake import nkeys

        kinds = (nkeys.SERVER, nkeys.USER, nkeys.ACCOUNT, nkeys.OPERATOR)
        keys = self.options.trusted_proxies
        return next((key for key in keys if nkeys.is_signed(nkeys.public_key(key, *kinds), nonce, signature)), "")

    def is_full(self) -> bool:
        """True when no more connections are allowed."""
        return 0 < self.options.max_connections < len(self.clients)

    def admit(self, client: Client) -> str | None:
        """Put a client into its account; the -ERR text when there is no place for it."""
        assert client.user is not None
        account = self.account(client.user.account)
        if account.options is not None and 0 <= account.options.max_connections <= len(account.clients):
            return "maximum account active connections exceeded"
        client.account = account
        client.max_payload, client.max_subscriptions = self.limits(account, client.user)
        if client.max_subscriptions == 0:
            return MAX_SUBSCRIPTIONS
        account.clients[client.cid] = client
        if self.on_joined is not None:
            self.on_joined(client)
        return None

    def limits(self, account: Account | None, user: auth.User | None = None) -> tuple[int, int]:
        """The payload size and the number of subscriptions that a client may have there; -1 is no limit."""
        options, configured = self.options, account.options if account is not None else None
        payloads = [options.max_payload, configured.max_payload if configured is not None else -1]
        payloads.append(user.max_payload if user is not None else -1)
        subscriptions = [
            options.max_subscriptions or -1,
            configured.max_subscriptions if configured is not None else -1,
            user.max_subscriptions if user is not None else -1,
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
        self.forget_subscriptions(client.account, client.subs.values())  # they stay with the client: /connz shows them

    def forget_subscriptions(self, account: Account, subs: Iterable[Subscription]) -> None:
        """Take subscriptions out, some now and the others soon."""
        rest = iter(list(subs))
        if _forget_some(account, rest):
            self._leaving.append((account, rest))
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
        label = f"{client.endpoint} - {'wid' if client.endpoint.is_websocket else 'cid'}:{client.cid}"
        options = client.options
        about = ":".join(filter(None, (options.version and f"v{options.version}", options.lang, options.name)))
        who = f"{client.account.name}/user:{client.user_name}" if client.user_name else ""
        return " - ".join([label, *(f'"{text}"' for text in (about, who) if text)]) if client.is_connected else label

    # Output

    def has_output(self, client: Client | Link) -> None:
        """A client or link has something to send."""
        self._output.append(client)

    def take_output(self) -> list[Client | Link]:
        """The clients and links with something to send; each time anew."""
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
            **self._address(client),
            "headers": not options.no_header_support,
        }
        tls = options.tls if not client.endpoint.is_websocket else None
        optional = {
            "auth_required": self.authenticator.required if connect_info else self.auth_required(client),
            "tls_required": tls is not None and not options.allow_non_tls,
            "tls_verify": tls is not None and tls.verify,
            "tls_available": tls is not None and options.allow_non_tls,
        }
        fields |= {name: True for name, value in optional.items() if value}
        fields["max_payload"] = client.max_payload
        fields |= self.features
        fields |= {"client_id": client.cid, "client_ip": client.host}
        if client.nonce and not connect_info:
            fields["nonce"] = client.nonce.decode()
        if urls := self.websocket_connect_urls if client.endpoint.is_websocket else self.connect_urls:
            fields["connect_urls"] = urls
        if self.is_lame_duck:
            fields["ldm"] = True
        if connect_info:
            fields |= {"connect_info": True, "remote_account": client.account.name}
            if client.account is self.system_account:
                fields["acc_is_sys"] = True
        return fields

    def _address(self, client: Client) -> dict[str, Any]:
        websocket = self.options.websocket
        if client.endpoint.is_websocket and websocket is not None:
            return {"host": websocket.host, "port": self.websocket_port}
        return {"host": self.options.host, "port": self.port}


def _forget_some(account: Account, subs: Iterator[Subscription]) -> bool:
    """Take some subscriptions out; False when there were fewer than that."""
    some = list(islice(subs, SUBS_AT_ONCE))
    for sub in some:
        account.remove(sub)
    return len(some) == SUBS_AT_ONCE


def _smallest(limits: list[int]) -> int:
    return min((limit for limit in limits if limit >= 0), default=-1)


def make_mappings(options: ServerOptions) -> dict[str, Mappings]:
    """The subject mappings of accounts that have some, by the configuration. Raises JetLakeError."""
    configured = {GLOBAL_ACCOUNT: options.mappings}
    configured |= {name: account.mappings for name, account in options.accounts.items()}
    if not any(configured.values()):
        return {}
    from jetlake.broker.mappings import Mappings  # few servers have any, and all wait for what is imported

    return {name: Mappings(found) for name, found in configured.items() if found}


def make_authenticators(options: ServerOptions) -> dict[str, Authenticator]:
    """Who may connect in which way, by the configuration. Raises JetLakeError."""
    return {type: _make_authenticator(options, type) for type in TYPES}


def _make_authenticator(options: ServerOptions, type: str) -> Authenticator:
    users = tuple(
        auth.User(
            user.name,
            user.account or GLOBAL_ACCOUNT,
            user.password,
            user.nkey,
            make_permissions(user.permissions),
            not user.allowed_connection_types or type in user.allowed_connection_types,
            user.proxy_required,
        )
        for user in options.users
    )
    single, no_auth_user, websocket = options.authorization, options.no_auth_user, options.websocket
    tls = options.tls if type == STANDARD else websocket.tls if type == WEBSOCKET and websocket is not None else None
    if type == WEBSOCKET and websocket is not None:
        single = websocket.authorization or single
        no_auth_user = websocket.no_auth_user or no_auth_user
    return Authenticator(
        AuthOptions(
            users,
            single.token if single else "",
            single.username if single else "",
            single.password if single else "",
            no_auth_user,
            tls is not None and tls.verify_and_map,
            options.authorization is not None and options.authorization.auth_callout is not None,
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

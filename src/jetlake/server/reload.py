"""Take another configuration while running: the whole of it, or nothing.

Everything that can go wrong is tried before the first thing changes: the file, certificates, permissions, the log file,
and whether what changed can change at all. Then the new options count, and clients are looked at again: who may not be
here any more is refused (or hung up on, when the user is gone), who may do less loses the subscriptions that it may not
have. A client with which that fails is closed. If a step fails all the same, those that follow it are still taken, and
the next reload takes all of them again, whether or not the file has changed since.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from jetlake.broker.auth import AUTHORIZATION_VIOLATION
from jetlake.broker.broker import make_authenticators
from jetlake.broker.client import Client
from jetlake.config import ClusterOptions, JetStreamOptions, OperatorOptions, ServerOptions, WebSocketOptions
from jetlake.errors import JetLakeError, ReloadRefused
from jetlake.server.connection import ClientConnection
from jetlake.server.tls import make_context
from jetlake.server.turns import Turns

if TYPE_CHECKING:
    from jetlake.server.server import Server

_AUTH = frozenset({"authorization", "accounts", "no_auth_user"})
_SHOWN = frozenset(
    {
        "debug",
        "trace",
        "trace_verbose",
        "max_traced_msg_len",
        "logtime",
        "logtime_utc",
        "log_file",
        "log_size_limit",
        "syslog",
        "remote_syslog",
    }
    | {"log_max_num", "pid_file", "ports_file_dir", "max_connections", "max_control_line", "max_payload", "max_pending"}
    | {"max_subscriptions", "max_sub_tokens", "ping_interval_s", "ping_max", "write_deadline_s"}
    | {"lame_duck_duration_s", "lame_duck_grace_period_s", "allow_non_tls"}
)
_ROOM = ("max_memory", "max_store")
_SECRETS = ("key", "prev_key")
_SILENT = frozenset({"config_file", "warnings"})
_NAMED = frozenset(
    {
        "operator",
        "tls",
        "server_tags",
        "server_metadata",
        "jetstream",
        "websocket",
        "mappings",
        "leafnodes",
        "cluster",
    }
)


class ReloadIncomplete(JetLakeError):
    """The new options count, but not all that follows from them was done."""

    def __init__(self, steps: list[str]) -> None:
        super().__init__(f"new options are in use, but could not be applied to: {', '.join(steps)}; reload again")


async def reload(server: Server, options: ServerOptions) -> None:
    """Take other options. Raises JetLakeError or OSError, and then nothing has changed, but for ReloadIncomplete."""
    old = server.options
    changes = _changes(old, options)
    if options.may_call_out and server.key is None:
        raise ReloadRefused(
            "auth_callout", "none", "one: services know the server by a key, which it makes at the start"
        )
    if "leafnodes" in changes:
        if old.leafnodes is None or options.leafnodes is None:
            raise ReloadRefused("leafnodes", old.leafnodes, options.leafnodes)
        server.leafs.check_reload(options.leafnodes)
    if options.https_port and options.tls is None:
        raise ReloadRefused("tls", "certificates, which the monitoring port needs", "none")
    make_authenticators(options)
    context = make_context(options.tls) if options.tls is not None else None
    try:
        _write_files(server, options)
        server.use_options(options)
    except (OSError, JetLakeError):
        _write_files(server, old)
        raise
    if options.jetstream.enabled and server.jetstream is None:
        _start_jetstream(server, old)
    server.tls = context
    if server.monitor is not None and server.monitor.is_secure:
        server.monitor.use_certificate(options.tls)
    for field, value in changes.items():
        _tell(server, field, value)
    await _apply(server, changes.keys() | server.unapplied)
    server.flush()
    for warning in options.warnings:
        server.log("warning", warning)
    server.log("info", f"Reloaded server configuration {server.config_digest()}".rstrip())


def _changes(old: ServerOptions, new: ServerOptions) -> dict[str, Any]:
    """The new values of what changed. Raises ReloadRefused."""
    changes = {
        field: getattr(new, field)
        for field in old.__struct_fields__
        if getattr(old, field) != getattr(new, field) and field not in _SILENT
    }
    for field in changes:
        if field not in _AUTH | _SHOWN | _NAMED:
            raise ReloadRefused(field, getattr(old, field), getattr(new, field))
    _check_jetstream(old.jetstream, new.jetstream)
    _check_operator(old.operator, new.operator)
    _check_websocket(old.websocket, new.websocket)
    _check_cluster(old.cluster, new.cluster)
    return changes


def _check_cluster(old: ClusterOptions | None, new: ClusterOptions | None) -> None:
    """Routes may come and go, all else takes a restart."""
    is_same = old == new if old is None or new is None else replace(old, routes=new.routes) == new
    if not is_same:
        raise ReloadRefused("cluster", old, new)


def _check_websocket(old: WebSocketOptions | None, new: WebSocketOptions | None) -> None:
    """Certificates may change, all else takes a restart."""
    if old is None or new is None or (old.tls is None) != (new.tls is None) or replace(old, tls=new.tls) != new:
        if old != new:
            raise ReloadRefused("websocket", old, new)
    elif new.tls is not None:
        make_context(new.tls)


async def _apply(server: Server, changed: set[str]) -> None:
    """Do what follows from options that changed. Raises ReloadIncomplete."""
    server.unapplied = changed
    steps: dict[str, Callable[[], Awaitable[None]]] = {
        "clients": lambda: _recheck(server, changed),
        "connection limits": lambda: _apply_limits(server, changed),
        "JetStream": lambda: apply_jetstream(server),
        "accounts": lambda: _apply_preload(server),
        "the listener": lambda: _apply_tls(server),
        "the websocket listener": lambda: _apply_websocket(server, changed),
        "routes": lambda: _apply_routes(server, changed),
        "leaf nodes": lambda: _apply_leafs(server, changed),
    }
    failed = []
    for name, step in steps.items():
        try:
            await step()
        except Exception as error:
            server.failed(f"reload of {name}", error)
            failed.append(name)
    if failed:
        raise ReloadIncomplete(failed)
    server.unapplied = set()


async def _apply_routes(server: Server, changed: set[str]) -> None:
    if "cluster" in changed:
        server.routes.use_routes()


def _write_files(server: Server, options: ServerOptions) -> None:
    server.files.write_pid(options)
    server.files.write_ports(options, server.ports(options))
    server.logger.use_options(options)


_LIVE = ("remotes", "allow_remote_api")  # which are looked up when they are needed


def _check_jetstream(old: JetStreamOptions, new: JetStreamOptions) -> None:
    """JetStream may come and go, and be given more room; all else takes a restart."""
    if not (old.enabled and new.enabled):
        return
    for field in old.__struct_fields__:
        before, after = getattr(old, field), getattr(new, field)
        has_grown = field in _ROOM and before is not None and after is not None and after > before
        if before != after and not has_grown and field not in _LIVE:
            is_secret = field in _SECRETS
            raise ReloadRefused(f"jetstream {field}", "***" if is_secret else before, "***" if is_secret else after)


def _check_operator(old: OperatorOptions | None, new: OperatorOptions | None) -> None:
    """The tokens of accounts may change; whom to trust, and where tokens come from, takes a restart."""
    if old is None or new is None:
        same = old is new
    else:
        same = replace(old, preload={}) == replace(new, preload={})
    if not same:
        raise ReloadRefused("operator", "an operator and its resolver", "others")


async def _apply_preload(server: Server) -> None:
    if server.tokens is not None and server.options.operator is not None:
        await server.tokens.preload(server.options.operator.preload)


def _tell(server: Server, field: str, value: object) -> None:
    """Say what changed, but no secrets."""
    name = field.removesuffix("_s")
    if field == "tls":
        server.log("info", f"Reloaded: tls = {'enabled' if value is not None else 'disabled'}")
    elif field in _SHOWN:
        shown = f"{value:g}s" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else value
        server.log("info", f"Reloaded: {name} = {shown}")
    else:
        server.log("info", f"Reloaded: {name}")


async def _apply_limits(server: Server, changed: set[str]) -> None:
    broker = server.broker
    for client in list(broker.clients.values()):
        client.max_payload, client.max_subscriptions = broker.limits(client.account, client.user)
        if "ping_interval_s" in changed and isinstance(client.connection, ClientConnection):
            client.connection.reschedule()
    if "max_connections" in changed:
        for client in _excess(list(broker.clients.values()), server.options.max_connections):
            client.refuse("maximum connections exceeded")


async def _apply_tls(server: Server) -> None:
    """Whether connections are secure is the listener's business."""
    if server.listener.is_secure != (server.options.tls is not None or server.options.proxy_protocol):
        await server.listener.restart()


async def _apply_websocket(server: Server, changed: set[str]) -> None:
    if "websocket" in changed and server.options.websocket is not None:
        await server.websocket_listener.restart(server.options.websocket)


async def _apply_leafs(server: Server, changed: set[str]) -> None:
    if "leafnodes" in changed:
        server.leafs.reload()
    for account in list(server.broker.accounts.values()):
        server.leafs.limit(account)


def _start_jetstream(server: Server, old: ServerOptions) -> None:
    """Start JetStream; where that fails, take the old options back."""
    server.log("info", "Restarting JetStream")
    try:
        server.start_jetstream()
    except (JetLakeError, OSError):
        server.use_options(old)
        _write_files(server, old)
        raise


async def apply_jetstream(server: Server) -> None:
    """Stop the streams of those who have JetStream no longer, open those of others. Nobody is read from meanwhile."""
    jetstream, options = server.jetstream, server.options.jetstream
    if jetstream is not None and not options.enabled:
        with server.reading_held():
            await server.stop_jetstream()
        server.show_features()
    elif jetstream is not None:
        jetstream.max_memory = options.max_memory or jetstream.max_memory
        jetstream.max_store = options.max_store or jetstream.max_store
        jetstream.remotes_changed()
        if names := jetstream.close_accounts():
            with server.reading_held():
                await server.commits.drain()
            jetstream.remove_accounts(names)
        for account in server.broker.accounts.values():
            jetstream.add_account(account)
    server.system.serve_accounts()


def _excess(clients: list[Client], count_max: int) -> list[Client]:
    return clients[: len(clients) - count_max] if 0 <= count_max < len(clients) else []


async def _recheck(server: Server, changed: set[str]) -> None:
    """See who may still be here, and what they may do. Those who log in just now are checked by `Server.check`."""
    if not _AUTH & changed:
        return
    broker = server.broker
    clients = [client for client in broker.clients.values() if client.is_connected or client.subs]
    turns = Turns()
    for client in sorted(clients, key=lambda client: broker.authenticator_of(client).is_slow(client.credentials)):
        try:
            await _recheck_client(server, client, turns)
        except Exception as error:  # what it may do is not known, so nothing; the others are looked at all the same
            server.failed(f"reload cid={client.cid}", error)
            client.close("Internal Error")
    for name, configured in server.options.accounts.items():
        for client in _excess(list(broker.account(name).clients.values()), configured.max_connections):
            client.refuse("maximum account active connections exceeded")


async def _recheck_client(server: Server, client: Client, turns: Turns) -> None:
    await turns.pause()
    said, authenticator, credentials = client.options, server.broker.authenticator_of(client), client.credentials
    if authenticator.is_slow(credentials):
        user = await server.check(client, credentials)
    else:
        user = authenticator.check(credentials, client.nonce)
    if client.is_closed or client.options is not said:  # another login was checked meanwhile, or is being checked
        return
    name = client.user_name
    is_gone = user is None and name and not authenticator.has_user(name)
    if is_gone or (user is not None and user.account != client.account.name):
        client.close("Client Closed")  # without a word, as in nats-server; it comes back into the right account
    elif user is None:
        server.broker.login_failed(client)
        client.refuse(AUTHORIZATION_VIOLATION)
    else:
        client.set_user(user)
        for _ in client.recheck_subscriptions():
            await turns.pause()

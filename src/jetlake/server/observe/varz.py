"""/varz: the server in numbers, and the options that matter."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jetlake.clock import SECOND_NS
from jetlake.config import JetStreamOptions, WebSocketOptions
from jetlake.server.observe.features import FEATURES
from jetlake.server.observe.jetstream_stats import server_stats
from jetlake.server.observe.process import core_count, resident_size, uptime
from jetlake.server.observe.query import Query
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.jetstream.service import JetStream
    from jetlake.server.server import Server

_OF_CLIENTS_ONLY = {"routes": 0, "gateways": 0, "leafs": 0}
_NO_WAITS = {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0}


def varz(server: Server, query: Query) -> dict[str, Any]:
    """The page."""
    return {**_identity(server), **_options(server), **_runtime(server), **_about_config(server)}


def _identity(server: Server) -> dict[str, Any]:
    broker, options = server.broker, server.options
    tls = options.tls
    optional = {
        "auth_required": broker.authenticator.required,
        "tls_required": tls is not None and not options.allow_non_tls,
        "tls_verify": tls is not None and tls.verify,
    }
    return {
        "server_id": server.server_id,
        "server_name": server.server_name,
        "version": broker.version,
        "proto": 1,
        "git_commit": "jetlake",
        "go": "python",
        "host": options.host,
        "port": server.port,
        **{name: True for name, value in optional.items() if value},
    }


def _options(server: Server) -> dict[str, Any]:
    options = server.options
    limits = {"max_subscriptions": options.max_subscriptions} if options.max_subscriptions else {}
    return {
        "max_connections": options.max_connections,
        **limits,
        "ping_interval": int(options.ping_interval_s * SECOND_NS),
        "ping_max": options.ping_max,
        "http_host": options.http_host or options.host,
        "http_port": options.http_port,
        "http_base_path": options.http_base_path.rstrip("/"),
        "https_port": options.https_port,
        "auth_timeout": options.auth_timeout_s,
        "max_control_line": options.max_control_line,
        "max_payload": options.max_payload,
        "max_pending": options.max_pending,
        "cluster": _cluster(server),
        "gateway": {},
        "leaf": _leaf(server),
        "mqtt": {},
        "websocket": _websocket(options.websocket, server.websocket_listener.port),
        "jetstream": jetstream_varz(server),
        "tls_timeout": options.tls.timeout_s if options.tls is not None else 2.0,
        "write_deadline": int(options.write_deadline_s * SECOND_NS),
    }


def _cluster(server: Server) -> dict[str, Any]:
    options, listener = server.routes.options, server.routes.listener
    if listener is None:
        return {}
    shown = {
        "name": server.routes.name,
        "addr": options.host,
        "cluster_port": listener.port,
        "auth_timeout": server.routes.auth_timeout_s,
        "urls": [urlsplit(url).netloc.rpartition("@")[2] for url in options.routes],
        "tls_timeout": options.tls.timeout_s if options.tls is not None else 2.0,
        "tls_required": options.tls is not None,
        "tls_verify": options.tls is not None,
    }
    return {name: value for name, value in shown.items() if value}


def _leaf(server: Server) -> dict[str, Any]:
    options, listener = server.options.leafnodes, server.leafs.listener
    if options is None:
        return {}
    shown: dict[str, Any] = {}
    if listener is not None:
        shown = {"host": options.host, "port": listener.port, "auth_timeout": options.auth_timeout_s}
        shown["tls_timeout"] = options.tls.timeout_s if options.tls is not None else 2.0
    remotes = [
        {"local_account": remote.account, "urls": [f"{url.hostname}:{url.port}" for url in remote.urls]}
        for remote in server.leafs.remotes
    ]
    return shown | ({"remotes": remotes} if remotes else {})


def _websocket(options: WebSocketOptions | None, port: int) -> dict[str, Any]:
    if options is None or not port:
        return {}
    own = options.authorization
    is_usual = options.handshake_timeout_s == WebSocketOptions().handshake_timeout_s
    shown = {
        "host": options.host,
        "port": port,
        "advertise": options.advertise,
        "no_auth_user": options.no_auth_user,
        "jwt_cookie": options.jwt_cookie,
        "handshake_timeout": 0 if is_usual else int(options.handshake_timeout_s * SECOND_NS),
        "auth_timeout": own.timeout_s if own is not None else 0,
        "no_tls": options.no_tls,
        "same_origin": options.same_origin,
        "allowed_origins": [f"{origin.scheme}://{origin.host}:{origin.port}" for origin in options.allowed_origins],
        "compression": options.compression,
    }
    return {name: value for name, value in shown.items() if value}


def jetstream_varz(server: Server) -> dict[str, Any]:
    """JetStream, where there is any."""
    if server.jetstream is None:
        return {}
    return {
        "config": jetstream_config(server.jetstream, server.options.jetstream),
        "stats": server_stats(server.jetstream),
        "limits": jetstream_limits(server.options.jetstream),
    }


def jetstream_config(jetstream: JetStream, options: JetStreamOptions) -> dict[str, Any]:
    """Where streams are, and what they may take."""
    config: dict[str, Any] = {
        "max_memory": jetstream.max_memory,
        "max_storage": jetstream.max_store,
        "store_dir": os.path.normpath(jetstream.directory),
        "sync_interval": int(options.sync_interval_s * SECOND_NS),
    }
    if options.sync_always:
        config["sync_always"] = True
    if options.domain:
        config["domain"] = options.domain
    config["compress_ok"] = True
    return config | ({"strict": True} if options.strict else {})


def jetstream_limits(options: JetStreamOptions) -> dict[str, int]:
    """The limits that are set; there is none on the number of consumers but the stream's own."""
    limits = {
        "max_request_batch": options.limits.max_request_batch,
        "max_ack_pending": options.limits.max_ack_pending,
        "max_duplicate_window": options.limits.duplicate_window_ns,
    }
    return {"default_max_consumers": 0, **{name: value for name, value in limits.items() if value}}


def _runtime(server: Server) -> dict[str, Any]:
    broker, now_ns = server.broker, server.clock()
    received, sent = (broker.in_msgs, broker.in_bytes), (broker.out_msgs, broker.out_bytes)
    return {
        "start": format_time(server.start_ns),
        "now": format_time(now_ns),
        "uptime": uptime(now_ns - server.start_ns),
        "mem": resident_size(),
        "cores": core_count(),
        "gomaxprocs": core_count(),
        "cpu": server.cpu.percent(),
        "connections": len(broker.clients),
        "total_connections": broker.total_connections,
        "routes": len(server.routes.open),
        "remotes": len(server.routes.open),
        "leafnodes": len(server.leafs.open),
        "in_msgs": received[0],
        "in_bytes": received[1],
        "in_client_msgs": received[0] - broker.link_in_msgs,
        "in_client_bytes": received[1] - broker.link_in_bytes,
        "out_msgs": sent[0],
        "out_bytes": sent[1],
        "out_client_msgs": sent[0] - broker.link_out_msgs,
        "out_client_bytes": sent[1] - broker.link_out_bytes,
        "slow_consumers": broker.slow_consumers,
        "stale_connections": broker.stale_connections,
        "stalled_clients": broker.stalls,
        "subscriptions": sum(account.sublist.count for account in broker.accounts.values()),
        "http_req_stats": dict(server.monitor.requests) if server.monitor is not None else {},
    }


def _about_config(server: Server) -> dict[str, Any]:
    broker, options = server.broker, server.options
    optional = {"tags": list(options.server_tags), "metadata": options.server_metadata}
    return {
        "config_load_time": format_time(server.config_load_ns),
        "config_digest": server.config_digest().strip("()"),
        **{name: value for name, value in optional.items() if value},
        "feature_flags": FEATURES,
        "system_account": broker.system_account.name,
        "slow_consumer_stats": {"clients": broker.slow_consumers, **_OF_CLIENTS_ONLY},
        "stale_connection_stats": {"clients": broker.stale_connections, **_OF_CLIENTS_ONLY},
        "disk_io_wait_stats": _NO_WAITS,
    }

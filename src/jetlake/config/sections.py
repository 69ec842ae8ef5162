"""The keys of a configuration file: what each section takes, and the rules between keys.

The tables follow nats-server 2.15 key by key, with all its spellings. What is in no table is a mistake of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from jetlake import nkeys
from jetlake.config import operator
from jetlake.config.auth import GLOBAL_ACCOUNT, accounts, authorization
from jetlake.config.cluster import advertise, cluster_reader
from jetlake.config.grammar import parse_file, parse_text
from jetlake.config.leafnodes import leafnodes_reader
from jetlake.config.mappings import mappings
from jetlake.config.options import (
    PORT_DEFAULT,
    UNLIMITED,
    AuthCallout,
    JetStreamLimits,
    JetStreamOptions,
    ServerOptions,
    WebSocketOptions,
)
from jetlake.config.origin import WebOrigin, read_origin
from jetlake.config.read import (
    INT32_MAX,
    MERGE,
    SECOND_NS,
    Reader,
    Section,
    as_list,
    as_map,
    boolean,
    duration_ns,
    duration_s,
    enabled,
    host_port,
    integer,
    keys,
    names,
    port,
    positive_or,
    size,
    string,
    string_map,
    strings,
    warning,
)
from jetlake.config.remotes import remotes_reader
from jetlake.config.syslog_url import check_syslog_url
from jetlake.config.tls import client_tls, tls
from jetlake.config.value import ConfigError, Position, Value

SYSTEM_ACCOUNT = "$SYS"
LAME_DUCK_MIN_S = 30
_COUNT = integer(-1)
_NOT_NEGATIVE = integer(0)


def load_file(path: str | Path, environ: Mapping[str, str] | None = None) -> ServerOptions:
    """The options that a configuration file gives."""
    return read_options(parse_file(path, environ), config_file=str(path))


def load_text(text: str, file: str = "config", environ: Mapping[str, str] | None = None) -> ServerOptions:
    """The options that a text gives."""
    return read_options(parse_text(text, file, environ))


def read_options(top: Value, config_file: str | None = None) -> ServerOptions:
    """The options in a parsed map."""
    warnings: list[str] = []
    entries = as_map(top)
    if not entries:
        warnings.append(f"{top.where.file}: the configuration is empty")
    fields = SERVER.read(top, warnings)
    if "top_store_dir" in fields:
        _set_store_dir(fields, top)
    operator_place = _place(top, "operator", "operators", "root", "roots", "trusted", "trusted_keys", "resolver")
    fields["operator"] = operator.operator_options(fields, operator_place)
    options = ServerOptions(config_file=config_file, warnings=tuple(warnings), **fields)
    operator.check_operator(options, operator_place)
    _check_auth(options, entries)
    _check_limits(options, top)
    _check_cookies(options, top)
    return options


def _set_store_dir(fields: dict[str, Any], top: Value) -> None:
    store_dir = fields.pop("top_store_dir")
    jetstream = fields.get("jetstream", JetStreamOptions())
    if jetstream.store_dir is not None:
        raise ConfigError(
            "'store_dir' is set twice: on the top level and in jetstream", _place(top, "store_dir", "storedir")
        )
    fields["jetstream"] = replace(jetstream, store_dir=store_dir)


def _place(top: Value, *spellings: str) -> Position:
    """Where the first of these keys stands, else the top of the file."""
    entries = {key.lower(): value for key, value in as_map(top).items()}
    found = next((entries[name] for name in spellings if name in entries), top)
    return found.key_where or found.where


# ---------------------------------------------------------------------------------------------- rules between keys


def _check_auth(options: ServerOptions, entries: dict[str, Value]) -> None:
    places = {key.lower(): value.key_where for key, value in entries.items()}
    known: set[str] = set()
    for user in options.users:
        if user.name in known:
            place = places.get("accounts" if user.account else "authorization")
            raise ConfigError(f"the user {user.name!r} is defined twice", place)
        known.add(user.name)
    single = options.authorization
    if known and single and (single.username or single.token):
        what = "a user and password" if single.username else "a token"
        raise ConfigError(f"{what} for all cannot stand beside users or accounts", places.get("authorization"))
    websocket = options.websocket
    for name, key in (
        (options.no_auth_user, "no_auth_user"),
        (websocket.no_auth_user if websocket is not None else "", "websocket"),
    ):
        if name and name not in known:
            problem = f"no_auth_user {name!r} is not a user of authorization or of an account"
            raise ConfigError(problem, places.get(key))
    own = websocket.authorization if websocket is not None else None
    if known and own is not None and (own.username or own.token):
        what = "username" if own.username else "token"
        problem = f"websocket authentication {what} not compatible with presence of users/nkeys"
        raise ConfigError(problem, places.get("websocket"))
    callout = single.auth_callout if single is not None else None
    if callout is not None:
        _check_callout(callout, options, known, places.get("authorization"))
    if options.operator is not None:
        return
    if options.system_account and options.system_account not in (*options.accounts, SYSTEM_ACCOUNT):
        place = places.get("system_account", places.get("system"))
        raise ConfigError(f"system_account {options.system_account!r} is not in accounts", place)


def _check_cookies(options: ServerOptions, top: Value) -> None:
    cookie = options.websocket.jwt_cookie if options.websocket is not None and options.websocket.port else ""
    if cookie and options.operator is None:
        problem = "trusted operators or trusted keys configuration is required for JWT authentication via cookie"
        raise ConfigError(f'{problem} "{cookie}"', _place(top, "websocket", "ws"))


def _check_callout(callout: AuthCallout, options: ServerOptions, known: set[str], place: Position | None) -> None:
    if options.operator is not None:
        raise ConfigError("auth_callout: in operator mode the tokens of accounts say it", place)
    if unknown := set(callout.auth_users) - known:
        raise ConfigError(f"auth_callout: the user {min(unknown)!r} is not defined", place)
    accounts = {callout.account or GLOBAL_ACCOUNT, *callout.allowed_accounts}
    if unknown := accounts - {GLOBAL_ACCOUNT, *options.accounts}:
        raise ConfigError(f"auth_callout: the account {min(unknown)!r} is not defined", place)


def _check_limits(options: ServerOptions, top: Value) -> None:
    if options.max_payload > options.max_pending:
        problem = f"max_payload {options.max_payload} is larger than max_pending {options.max_pending}"
        raise ConfigError(problem, _place(top, "max_payload", "max_pending"))
    if options.lame_duck_grace_period_s >= options.lame_duck_duration_s:
        problem = "lame_duck_grace_period must be shorter than lame_duck_duration"
        raise ConfigError(problem, _place(top, "lame_duck_grace_period", "lame_duck_duration"))


# ---------------------------------------------------------------------------------------------- jetstream


def _sync(value: Value, warnings: list[str]) -> dict[str, Any]:
    if isinstance(value.data, str) and value.data.lower() == "always":
        return {"sync_always": True}
    interval_s = duration_s(value, warnings)
    if interval_s <= 0:
        raise value.error("expected 'always' or a duration above zero")
    return {"sync_always": False, "sync_interval_s": interval_s}


def _cipher(value: Value, warnings: list[str]) -> str:
    name = string(value, warnings).lower()
    if name not in ("chacha", "chachapoly", "aes"):
        raise value.error(f"unknown cipher {name!r}: expected 'chachapoly' or 'aes'")
    return "aes" if name == "aes" else "chachapoly"


JETSTREAM_BATCH = Section(
    "batch of the limits of jetstream",
    keys(
        batch_max_inflight_per_stream=("max_inflight_per_stream", _NOT_NEGATIVE),
        batch_max_inflight_total=("max_inflight_total", _NOT_NEGATIVE),
        batch_max_msgs=("max_msgs", _NOT_NEGATIVE),
        batch_timeout_ns=("timeout", duration_ns),
    ),
)
JETSTREAM_LIMITS = Section(
    "limits of jetstream",
    keys(
        max_ack_pending=("", _COUNT),
        max_request_batch=("", _COUNT),
        duplicate_window_ns=("duplicate_window", duration_ns),
    )
    | {"batch": (MERGE, JETSTREAM_BATCH.read)},
    ignored=names("max_ha_assets"),
)


def _room(value: Value, warnings: list[str]) -> int | None:
    """What all streams may take together; below zero it is what the machine has, as when nothing is said."""
    found = size(value, warnings)
    return found if found >= 0 else None


JETSTREAM = Section(
    "jetstream",
    keys(
        enabled=("enabled enable", boolean),
        store_dir=("store_dir storedir store", string),
        max_memory=("max_mem_store max_memory_store max_mem", _room),
        max_store=("max_file_store max_file", _room),
        domain=("", string),
        strict=("", boolean),
        key=("key ek encryption_key", string),
        prev_key=("prev_key prev_ek prev_encryption_key", string),
        cipher=("", _cipher),
        limits=("", lambda value, warnings: JetStreamLimits(**JETSTREAM_LIMITS.read(value, warnings))),
        remotes=("", remotes_reader(client_tls)),
        allow_remote_api=("", boolean),
    )
    | {"sync_interval": (MERGE, _sync), "sync": (MERGE, _sync)},
    refused=names("tpm"),
    ignored=names(
        "extension_hint unique_tag max_outstanding_catchup max_buffered_size max_buffered_msgs "
        "request_queue_limit info_queue_limit meta_compact meta_compact_size meta_compact_sync "
        "max_concurrent_io"
    ),
)


def _jetstream(value: Value, warnings: list[str]) -> JetStreamOptions:
    if isinstance(value.data, dict):
        return JetStreamOptions(**{"enabled": True} | JETSTREAM.read(value, warnings))
    return JetStreamOptions(enabled=enabled(value))


# ---------------------------------------------------------------------------------------------- listeners


def _listen(host: str, port_field: str, default: int = 0) -> Reader:
    def read(value: Value, warnings: list[str]) -> dict[str, Any]:
        name, number = host_port(value, warnings)
        return {port_field: number or default} | ({host: name} if name else {})

    return read


def _compression(value: Value, warnings: list[str]) -> bool:
    """A boolean; leaf nodes also name a mode or give a map."""
    if isinstance(value.data, bool):
        return value.data
    return not isinstance(value.data, str) or value.data.lower() not in ("off", "disabled")


_LISTENER_KEYS = keys(
    host=("host net", string), port=("", port()), tls=("", tls), compression=("compression compress", _compression)
) | {"listen": (MERGE, _listen("host", "port"))}


def _origins(value: Value, warnings: list[str]) -> frozenset[WebOrigin]:
    items = as_list(value) if isinstance(value.data, list) else [value]
    try:
        return frozenset(read_origin(string(item, warnings)) for item in items)
    except ValueError as error:
        raise value.error(f"unable to parse allowed origin: {error}") from None


def _headers(value: Value, warnings: list[str]) -> dict[str, str]:
    headers = string_map(value, warnings)
    for name, text in headers.items():
        if name.lower() in _HANDSHAKE_HEADERS or name.lower().startswith("sec-websocket-"):
            raise value.error(f"header {name!r} is part of the handshake itself")
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(text):
            raise value.error(f"{name!r} is not a header of one line")
    return headers


_HANDSHAKE_HEADERS = frozenset({"host", "content-length", "connection", "upgrade", "nats-no-masking"})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
WEBSOCKET = Section(
    "websocket",
    _LISTENER_KEYS
    | keys(
        no_tls=("", boolean),
        handshake_timeout_s=("handshake_timeout", positive_or(2.0, duration_s)),
        same_origin=("", boolean),
        allowed_origins=("allowed_origins allowed_origin allow_origins allow_origin origins origin", _origins),
        jwt_cookie=("", string),
        user_cookie=("", string),
        pass_cookie=("", string),
        token_cookie=("", string),
        no_auth_user=("", string),
        authorization=("authorization authentication", authorization),
        headers=("", _headers),
        advertise=("", string),
        ping_interval_s=("ping_interval", positive_or(0, duration_s)),
    ),
)


def _websocket(value: Value, warnings: list[str]) -> WebSocketOptions:
    websocket = WebSocketOptions(**WEBSOCKET.read(value, warnings))
    if websocket.port and websocket.tls is None and not websocket.no_tls:
        raise value.error("requires TLS configuration, or 'no_tls: true'")
    if websocket.authorization is not None and websocket.authorization.users:
        raise value.error("'users' belong in the general authorization")
    return websocket


_leafnodes = leafnodes_reader(_LISTENER_KEYS, client_tls)
_cluster = cluster_reader(_LISTENER_KEYS, client_tls)


# ---------------------------------------------------------------------------------------------- the top level


def _server_name(value: Value, warnings: list[str]) -> str:
    name = string(value, warnings)
    if " " in name:
        raise value.error("a server name cannot contain spaces")
    return name


def _tags(value: Value, warnings: list[str]) -> tuple[str, ...]:
    return tuple(tag.lower() for tag in strings(value, warnings))


def _lame_duck_duration(value: Value, warnings: list[str]) -> float:
    time_s = duration_ns(value, warnings) / SECOND_NS
    if time_s < LAME_DUCK_MIN_S:
        raise value.error(f"expected at least {LAME_DUCK_MIN_S} seconds")
    return time_s


def _lame_duck_grace_period(value: Value, warnings: list[str]) -> float:
    time_s = duration_ns(value, warnings) / SECOND_NS
    if time_s < 0:
        raise value.error("expected a duration that is not negative")
    return time_s


def _remote_syslog(value: Value, warnings: list[str]) -> str:
    text = string(value, warnings)
    try:
        return check_syslog_url(text)
    except ValueError as error:
        raise value.error(str(error)) from None


def _trace_too(field: str) -> Reader:
    return lambda value, warnings: {field: boolean(value, warnings), "trace": boolean(value, warnings)}


def _write_timeout(value: Value, warnings: list[str]) -> dict[str, Any]:
    """What becomes of a client that takes nothing: here it is closed, which is the default."""
    policy = string(value, warnings)
    if policy not in ("default", "close", "retry"):
        raise value.error(f"expected 'default', 'close' or 'retry', found {policy!r}")
    if policy == "retry":
        warnings.append(warning(value, "'retry' is not supported yet: such a client is closed"))
    return {}


PROXY = Section("a trusted proxy", keys(key=("", string)))
PROXIES = Section("proxies", keys(trusted=("", lambda value, warnings: _trusted_proxies(value, warnings))))


def _proxies(value: Value, warnings: list[str]) -> dict[str, Any]:
    if value.data is False:
        return {}
    return {"trusted_proxies": PROXIES.read(value, warnings).get("trusted", ())}


def _trusted_proxies(value: Value, warnings: list[str]) -> tuple[str, ...]:
    found = []
    for item in as_list(value, "an array of {key}"):
        key = PROXY.read(item, warnings).get("key", "")
        if not nkeys.is_public(key, nkeys.SERVER, nkeys.USER, nkeys.ACCOUNT, nkeys.OPERATOR):
            raise item.error("expected the public nkey of a proxy as its 'key'")
        found.append(key)
    return tuple(found)


def _off(value: Value, warnings: list[str]) -> dict[str, Any]:
    """What is not supported, but may be turned off."""
    if value.data not in (False, {}):
        raise value.error("is not supported yet")
    return {}


SERVER = Section(
    "",
    keys(
        host=("host net", string),
        port=("", port(PORT_DEFAULT)),
        http_port=("http_port monitor_port", port()),
        https_port=("", port()),
        http_base_path=("", string),
        server_name=("", _server_name),
        server_tags=("", _tags),
        server_metadata=("", string_map),
        ports_file_dir=("", string),
        pid_file=("pid_file pidfile", string),
        max_payload=("", integer(0, INT32_MAX, zero_is=1024 * 1024)),
        max_connections=("max_connections max_conn", integer(-1, INT32_MAX, zero_is=UNLIMITED)),
        max_subscriptions=("max_subscriptions max_subs", _COUNT),
        max_sub_tokens=("max_sub_tokens max_subscription_tokens", integer(1, 255)),
        max_control_line=("", integer(0, INT32_MAX, zero_is=4096)),
        max_pending=("", integer(0, zero_is=64 * 1024 * 1024)),
        write_deadline_s=("write_deadline", positive_or(10.0, duration_s)),
        ping_interval_s=("ping_interval", positive_or(120.0, duration_s)),
        ping_max=("", integer(0, INT32_MAX, zero_is=2)),
        lame_duck_duration_s=("lame_duck_duration", _lame_duck_duration),
        lame_duck_grace_period_s=("lame_duck_grace_period", _lame_duck_grace_period),
        no_header_support=("", boolean),
        debug=("", boolean),
        trace=("", boolean),
        max_traced_msg_len=("", _NOT_NEGATIVE),
        logtime=("", boolean),
        logtime_utc=("", boolean),
        log_file=("log_file logfile", string),
        syslog=("", boolean),
        remote_syslog=("", _remote_syslog),
        log_size_limit=("log_size_limit logfile_size_limit", _NOT_NEGATIVE),
        log_max_num=("log_max_num logfile_max_num", _NOT_NEGATIVE),
        jetstream=("", _jetstream),
        top_store_dir=("store_dir storedir", string),
        authorization=("", authorization),
        accounts=("", accounts),
        mappings=("mappings maps", mappings),
        no_auth_user=("", string),
        system_account=("system_account system", string),
        no_system_account=("no_system_account no_system no_sys_acc", boolean),
        operators=("operator operators root roots root_operator root_operators", operator.operators),
        trusted_keys=("trusted trusted_keys", operator.trusted_keys),
        resolver=("resolver account_resolver accounts_resolver", operator.resolver),
        resolver_tls=("", client_tls),
        preload=("resolver_preload", operator.preload),
        pinned_accounts=("resolver_pinned_accounts", operator.pinned_accounts),
        default_sentinel=("", operator.sentinel),
        tls=("", tls),
        allow_non_tls=("", boolean),
        proxy_protocol=("", boolean),
        websocket=("websocket ws", _websocket),
        leafnodes=("leafnodes leaf", _leafnodes),
        cluster=("", _cluster),
        client_advertise=("", advertise),
        default_js_domain=("", string_map),
    )
    | {
        "listen": (MERGE, _listen("host", "port", PORT_DEFAULT)),
        "http": (MERGE, _listen("http_host", "http_port")),
        "https": (MERGE, _listen("http_host", "https_port")),
        "trace_verbose": (MERGE, _trace_too("trace_verbose")),
        "trace_headers": (MERGE, lambda value, warnings: {"trace": boolean(value, warnings)}),
        "write_timeout": (MERGE, _write_timeout),
        "ocsp": (MERGE, _off),
        "proxies": (MERGE, _proxies),
    },
    refused=names("gateway mqtt ocsp_cache"),
    ignored=names(
        "disable_sublist_cache no_sublist_cache prof_port prof_block_rate "
        "connect_error_reports reconnect_error_reports feature_flags no_fast_producer_stall "
        "max_closed_clients"
    ),
)

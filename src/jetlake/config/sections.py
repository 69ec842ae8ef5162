"""The keys of a configuration file: what each section takes, and the rules between keys.

The tables follow nats-server 2.15 key by key, with all its spellings. What is in no table is a mistake of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from jetlake.config.auth import accounts, authorization
from jetlake.config.grammar import parse_file, parse_text
from jetlake.config.options import (
    PORT_DEFAULT,
    UNLIMITED,
    JetStreamLimits,
    JetStreamOptions,
    ListenerOptions,
    ServerOptions,
    TlsOptions,
)
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
    timeout_s,
    warning,
)
from jetlake.config.value import ConfigError, Position, Value

SYSTEM_ACCOUNT = "$SYS"
LAME_DUCK_MIN_S = 30
HANDSHAKE_FALLBACK_S = 0.05
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
    options = ServerOptions(config_file=config_file, warnings=tuple(warnings), **fields)
    _check_auth(options, entries)
    _check_limits(options, top)
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
    if options.no_auth_user and options.no_auth_user not in known:
        problem = f"no_auth_user {options.no_auth_user!r} is not a user of authorization or of an account"
        raise ConfigError(problem, places.get("no_auth_user"))
    if options.system_account and options.system_account not in (*options.accounts, SYSTEM_ACCOUNT):
        place = places.get("system_account", places.get("system"))
        raise ConfigError(f"system_account {options.system_account!r} is not in accounts", place)


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


def _handshake_first(value: Value, warnings: list[str]) -> dict[str, Any]:
    if isinstance(value.data, bool):
        return {"handshake_first": value.data}
    text = string(value, warnings).lower()
    if text in ("true", "on", "false", "off"):
        return {"handshake_first": text in ("true", "on")}
    if text in ("auto", "auto_fallback"):
        return {"handshake_first": True, "handshake_first_fallback_s": HANDSHAKE_FALLBACK_S}
    fallback_s = duration_ns(value, warnings) / SECOND_NS
    if fallback_s <= 0:
        raise value.error("expected a duration above zero")
    return {"handshake_first": True, "handshake_first_fallback_s": fallback_s}


def _tls_version(value: Value, warnings: list[str]) -> str:
    version = string(value, warnings)
    if version not in ("1.2", "1.3"):
        raise value.error(f'expected "1.2" or "1.3", found {version!r}')
    return version


_TLS13_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_TLS12_SUITES = {
    f"TLS_ECDHE_{key}_WITH_{name}": f"ECDHE-{key}-{openssl_name}"
    for key in ("ECDSA", "RSA")
    for name, openssl_name in {
        "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
        "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
        "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
        "AES_128_CBC_SHA": "AES128-SHA",
        "AES_256_CBC_SHA": "AES256-SHA",
    }.items()
}


def _ciphers(value: Value, warnings: list[str]) -> tuple[str, ...]:
    """The suites of TLS 1.2 among those named; as in Go, those of TLS 1.3 are always there."""
    suites = [(string(item, warnings), item) for item in as_list(value, "an array of cipher suites")]
    if not suites:
        raise value.error("expected at least one cipher suite")
    for name, item in suites:
        if name not in _TLS12_SUITES and name not in _TLS13_SUITES:
            raise item.error(f"unknown cipher suite {name!r}")
    return tuple(_TLS12_SUITES[name] for name, _ in suites if name in _TLS12_SUITES)


TLS = Section(
    "tls",
    keys(
        cert_file=("", string),
        key_file=("", string),
        ca_file=("", string),
        verify=("", boolean),
        timeout_s=("timeout", positive_or(2.0, timeout_s)),
        min_version=("", _tls_version),
        ciphers=("cipher_suites", _ciphers),
    )
    | dict.fromkeys(("handshake_first", "first", "immediate"), (MERGE, _handshake_first)),
    refused=names(
        "insecure verify_and_map verify_cert_and_check_known_urls allow_insecure_cipher_suites "
        "curve_preferences connection_rate_limit pinned_certs cert_store cert_match_by cert_match "
        "ca_certs_match cert_match_skip_invalid ocsp_peer certs certificates"
    ),
)


def _tls(value: Value, warnings: list[str]) -> TlsOptions:
    tls = TlsOptions(**TLS.read(value, warnings))
    for name in ("cert_file", "key_file"):
        if not getattr(tls, name):
            raise value.error(f"{name!r} is missing")
    return tls


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
    host=("host net", string), port=("", port()), tls=("", _tls), compression=("compression compress", _compression)
) | {"listen": (MERGE, _listen("host", "port"))}
WEBSOCKET = Section(
    "websocket",
    _LISTENER_KEYS | keys(no_tls=("", boolean)),
    ignored=names(
        "advertise same_origin allowed_origins allowed_origin allow_origins allow_origin origins origin "
        "handshake_timeout authorization authentication jwt_cookie user_cookie pass_cookie token_cookie "
        "no_auth_user headers ping_interval"
    ),
)
LEAFNODES = Section(
    "leafnodes",
    _LISTENER_KEYS,
    ignored=names(
        "authorization reconnect reconnect_delay reconnect_interval dial_timeout leafnode_advertise advertise "
        "no_advertise min_version minimum_version isolate_leafnode_interest isolate write_deadline "
        "write_timeout"
    ),
    refused=names("remotes"),
)


def _idle_listener(section: Section) -> Reader:
    def read(value: Value, warnings: list[str]) -> ListenerOptions:
        listener = ListenerOptions(**section.read(value, warnings))
        warnings.append(warning(value, f"{section.name!r} is not supported yet: nothing will be served there"))
        return listener

    return read


# ---------------------------------------------------------------------------------------------- the top level


def _server_name(value: Value, warnings: list[str]) -> str:
    name = string(value, warnings)
    if " " in name:
        raise value.error("a server name cannot contain spaces")
    return name


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
        http_base_path=("", string),
        server_name=("", _server_name),
        server_tags=("", strings),
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
        log_size_limit=("log_size_limit logfile_size_limit", _NOT_NEGATIVE),
        log_max_num=("log_max_num logfile_max_num", _NOT_NEGATIVE),
        jetstream=("", _jetstream),
        top_store_dir=("store_dir storedir", string),
        authorization=("", authorization),
        accounts=("", accounts),
        no_auth_user=("", string),
        system_account=("system_account system", string),
        no_system_account=("no_system_account no_system no_sys_acc", boolean),
        tls=("", _tls),
        allow_non_tls=("", boolean),
        websocket=("websocket ws", _idle_listener(WEBSOCKET)),
        leafnodes=("leafnodes leaf", _idle_listener(LEAFNODES)),
    )
    | {
        "listen": (MERGE, _listen("host", "port", PORT_DEFAULT)),
        "http": (MERGE, _listen("http_host", "http_port")),
        "trace_verbose": (MERGE, _trace_too("trace_verbose")),
        "trace_headers": (MERGE, lambda value, warnings: {"trace": boolean(value, warnings)}),
        "write_timeout": (MERGE, _write_timeout),
        "ocsp": (MERGE, _off),
        "proxies": (MERGE, _off),
    },
    refused=names(
        "cluster gateway mqtt operator operators root roots root_operator root_operators resolver "
        "account_resolver accounts_resolver resolver_tls resolver_preload resolver_pinned_accounts trusted "
        "trusted_keys default_sentinel mappings maps https https_port ocsp_cache proxy_protocol "
        "syslog remote_syslog"
    ),
    ignored=names(
        "client_advertise disable_sublist_cache no_sublist_cache prof_port prof_block_rate "
        "connect_error_reports reconnect_error_reports feature_flags default_js_domain no_fast_producer_stall "
        "max_closed_clients"
    ),
)

"""The `leafnodes` block: a listener for leafs, and the hubs that this server is a leaf of."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, urlsplit

from jetlake import nkeys
from jetlake.config.auth import nkey, subjects
from jetlake.config.options import LeafOptions, LeafRemote, LeafUser, TlsOptions
from jetlake.config.read import (
    Reader,
    Section,
    as_list,
    boolean,
    duration_s,
    keys,
    names,
    positive_or,
    string,
    timeout_s,
)
from jetlake.config.value import Value

DEFAULT_PORT = 7422
_SCHEMES = ("nats-leaf", "nats", "tls", "ws", "wss")
_WS_PORTS = {"ws": 80, "wss": 443}

_USER_KEYS = keys(
    username=("user username", string),
    password=("pass password", string),
    nkey=("", nkey(nkeys.USER, "U", "a user")),
    account=("account acc", string),
)
LEAF_USER = Section("a user of leafnodes", _USER_KEYS, ignored=names("permissions"), refused=names("proxy_required"))
LEAF_AUTHORIZATION = Section(
    "authorization of leafnodes",
    _USER_KEYS
    | keys(
        users=("", lambda value, warnings: _users(value, warnings)), timeout_s=("timeout", positive_or(0, timeout_s))
    ),
    refused=names("proxy_required"),
)


def _users(value: Value, warnings: list[str]) -> tuple[LeafUser, ...]:
    users = tuple(LeafUser(**LEAF_USER.read(item, warnings)) for item in as_list(value, "an array of users"))
    if any(not (user.username or user.nkey) for user in users):
        raise value.error("a user of leafnodes needs a name ('user') or an 'nkey'")
    return users


def _authorization(value: Value, warnings: list[str]) -> dict[str, Any]:
    fields = LEAF_AUTHORIZATION.read(value, warnings)
    users, timeout = fields.pop("users", ()), fields.pop("timeout_s", 0.0)
    single = LeafUser(**fields) if fields else None
    if single is not None and users and (single.username or single.nkey):
        raise value.error("can not have a single user/pass and a users array")
    if single is not None and not (single.username or single.nkey):
        return {"users": users, "default_account": single.account, "auth_timeout_s": timeout or 2.0}
    return {"users": (single,) if single is not None else users, "auth_timeout_s": timeout or 2.0}


def _url(value: Value, warnings: list[str]) -> str:
    """A URL with scheme and port."""
    text = string(value, warnings)
    try:
        found = urlsplit(text if "://" in text else f"nats-leaf://{text}")
        port = found.port or _WS_PORTS.get(found.scheme, DEFAULT_PORT)
    except ValueError as error:
        raise value.error(f"expected a URL: {error}") from None
    if found.scheme not in _SCHEMES or not found.hostname:
        raise value.error(f"expected a URL such as nats-leaf://host:{DEFAULT_PORT}")
    return _with_port(found, port)


def _with_port(url: SplitResult, port: int) -> str:
    user, _, _ = url.netloc.rpartition("@")
    host = f"[{url.hostname}]" if url.hostname and ":" in url.hostname else url.hostname
    return url._replace(netloc=f"{user}@{host}:{port}" if user else f"{host}:{port}").geturl()


def _urls(value: Value, warnings: list[str]) -> tuple[str, ...]:
    items = value.data if isinstance(value.data, list) else [value]
    return tuple(_url(item, warnings) for item in items)


def _remotes(tls: Reader) -> Reader:
    section = Section(
        "a remote of leafnodes",
        keys(
            urls=("url urls", _urls),
            account=("account local", string),
            credentials=("credentials creds", string),
            nkey_seed=("nkey seed", string),
            tls=("", tls),
            is_hub=("hub", boolean),
            deny_imports=("deny_imports deny_import", subjects),
            deny_exports=("deny_exports deny_export", subjects),
            no_randomize=("no_randomize dont_randomize", boolean),
            ignore_discovered=("ignore_discovered_servers", boolean),
            isolates=("isolate_leafnode_interest isolate", boolean),
            asks_isolation=("request_isolation", boolean),
            first_info_timeout_s=("first_info_timeout", positive_or(1.0, duration_s)),
            dial_timeout_s=("dial_timeout", positive_or(1.0, duration_s)),
            is_disabled=("disabled", boolean),
        ),
        ignored=names(
            "compression ws_compression websocket_compression ws_no_masking websocket_no_masking "
            "jetstream_cluster_migrate js_cluster_migrate"
        ),
        refused=names("proxy"),
    )

    def read(value: Value, warnings: list[str]) -> tuple[LeafRemote, ...]:
        remotes = []
        for item in as_list(value, "an array of remotes"):
            remote = LeafRemote(**section.read(item, warnings))
            if not remote.urls:
                raise item.error("a remote needs a 'url'")
            if len({urlsplit(url).scheme in _WS_PORTS for url in remote.urls}) > 1:
                raise item.error("a remote cannot have a mix of websocket and non-websocket urls")
            remotes.append(remote)
        return tuple(remotes)

    return read


def leafnodes_reader(listener: dict[str, tuple[str, Reader]], remote_tls: Reader) -> Reader:
    """A reader of the block; `listener` are the keys that all listeners have."""
    section = Section(
        "leafnodes",
        listener
        | keys(
            advertise=("leafnode_advertise advertise", string),
            no_advertise=("", boolean),
            min_version=("min_version minimum_version", string),
            isolates=("isolate_leafnode_interest isolate", boolean),
            reconnect_s=("reconnect reconnect_delay reconnect_interval", positive_or(1.0, duration_s)),
            dial_timeout_s=("dial_timeout", positive_or(1.0, duration_s)),
            authorization=("authorization authentication", _authorization),
            remotes=("", _remotes(remote_tls)),
        ),
        ignored=names("write_deadline write_timeout compression"),
    )

    def read(value: Value, warnings: list[str]) -> LeafOptions:
        fields = section.read(value, warnings)
        fields |= fields.pop("authorization", {})
        fields.pop("compression", None)
        fields.pop("no_tls", None)
        tls: TlsOptions | None = fields.get("tls")
        if tls is not None and not tls.cert_file:
            raise value.error("'cert_file' is missing")
        return LeafOptions(**fields)

    return read

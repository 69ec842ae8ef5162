"""The `cluster` block and its flags: where other servers come in, and which ones this server connects to."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from jetlake.config.options import RANDOM_PORT, ClusterOptions, TlsOptions
from jetlake.config.read import (
    INT32_MAX,
    Reader,
    Section,
    boolean,
    duration_s,
    integer,
    keys,
    names,
    positive_or,
    string,
    strings,
    timeout_s,
    warning,
)
from jetlake.config.value import ConfigError, Value

PING_INTERVAL_S_MAX = 30.0  # of routes, whatever clients have

_AUTHORIZATION = Section(
    "authorization of a cluster",
    keys(
        username=("user username", string),
        password=("pass password", string),
        auth_timeout_s=("timeout", positive_or(0, timeout_s)),
        token=("", string),
        users=("", lambda value, warnings: True),
        auth_callout=("auth_callout auth_hook", lambda value, warnings: True),
    ),
    refused=names("permissions default_permissions default_permission proxy_required"),
)


def _authorization(value: Value, warnings: list[str]) -> dict[str, Any]:
    fields = _AUTHORIZATION.read(value, warnings)
    if "users" in fields:
        raise value.error("Cluster authorization does not allow multiple users")
    for name, what in (("token", "tokens"), ("auth_callout", "callouts")):
        if name in fields:
            raise value.error(f"Cluster authorization does not support {what}")
    return fields


def cluster_name(text: str) -> str:
    """A name that all servers of a cluster share. Raises ValueError."""
    if " " in text:
        raise ValueError("cluster name cannot contain spaces or tabs")
    return text


def _name(value: Value, warnings: list[str]) -> str:
    try:
        return cluster_name(string(value, warnings))
    except ValueError as error:
        raise value.error(str(error)) from None


def route_url(text: str) -> str:
    """A URL with a host and a port. Raises ValueError."""
    text = text.strip()
    try:
        found = urlsplit(text)
        is_good = bool(found.hostname and found.port)
    except ValueError:
        is_good = False
    if not is_good:
        where = text.rpartition("@")[2]  # whoever reads the log need not know the password
        raise ValueError(f'error parsing route url ["{where}"]: expected a URL such as nats-route://host:6222')
    return text


def _routes(value: Value, warnings: list[str]) -> tuple[str, ...]:
    items = value.data if isinstance(value.data, list) else [value]
    found: dict[str, None] = {}
    for item in items:
        try:
            url = route_url(string(item, warnings))
        except ValueError as error:
            raise item.error(str(error)) from None
        if url in found:
            warnings.append(warning(item, "Duplicate route entry detected"))
        found[url] = None
    return tuple(found)


def advertised(text: str) -> tuple[str, int]:
    """`host:port` or `host`, whose port is 0 then. Raises ValueError."""
    try:
        found = urlsplit(f"//{text}")
        host, port = found.hostname, found.port or 0
    except ValueError:
        host, port = None, 0
    if not host or found.netloc != text or set(text) & set("@ \t"):
        raise ValueError(f"expected host:port, found {text!r}")
    return host, port


def advertise(value: Value, warnings: list[str]) -> str:
    """An address for others to use."""
    text = string(value, warnings)
    try:
        if text:
            advertised(text)
    except ValueError as error:
        raise value.error(str(error)) from None
    return text


def _ping_interval(value: Value, warnings: list[str]) -> float:
    time_s: float = positive_or(0, duration_s)(value, warnings)
    if time_s > PING_INTERVAL_S_MAX:
        warnings.append(warning(value, f"will reset to {PING_INTERVAL_S_MAX:.0f}s which is the max for routes"))
    return min(time_s, PING_INTERVAL_S_MAX)


def cluster_reader(listener: dict[str, tuple[str, Reader]], tls: Reader) -> Reader:
    """A reader of the block; `listener` are the keys that all listeners have."""
    section = Section(
        "cluster",
        {key: entry for key, entry in listener.items() if key in ("host", "net", "port", "listen")}
        | keys(
            name=("", _name),
            routes=("", _routes),
            tls=("", tls),
            authorization=("", _authorization),
            advertise=("cluster_advertise advertise", advertise),
            no_advertise=("", boolean),
            connect_retries=("", integer(0, INT32_MAX)),
            connect_backoff=("", boolean),
            ping_interval_s=("ping_interval", _ping_interval),
            ping_max=("", integer(0, INT32_MAX)),
            pool_size=("", integer(-INT32_MAX, INT32_MAX)),
            accounts=("", strings),
            compression=("", lambda value, warnings: value),
        ),
        refused=names("permissions"),
        ignored=names("write_deadline write_timeout"),
    )

    def read(value: Value, warnings: list[str]) -> ClusterOptions:
        fields = section.read(value, warnings)
        fields |= fields.pop("authorization", {})
        _check_pool(value, fields, warnings)
        options: TlsOptions | None = fields.get("tls")
        if options is not None:
            for name in ("cert_file", "key_file"):
                if not getattr(options, name):
                    raise value.error(f"{name!r} of tls is missing")
        return ClusterOptions(**fields)

    return read


def _check_pool(value: Value, fields: dict[str, Any], warnings: list[str]) -> None:
    """Pools and compression are for nats-server's: each side may do without, and this one does."""
    pool_size, accounts, compression = (fields.pop(name, None) for name in ("pool_size", "accounts", "compression"))
    if accounts and pool_size is not None and pool_size < 0:
        raise value.error("pool_size cannot be negative if pinned accounts are specified")
    if accounts and len(set(accounts)) < len(accounts):
        twice = next(name for name in accounts if accounts.count(name) > 1)
        raise value.error(f'found duplicate account name "{twice}" in pinned accounts list')
    idle = []
    if pool_size is not None and pool_size > 1:
        idle.append("pool_size")
    if accounts:
        idle.append("accounts")
    mode = compression.data if compression is not None else "off"
    if mode not in (False, "off", "disabled", "not supported", "accept"):
        idle.append("compression")
    warnings += [warning(value, f"{name!r} in cluster is not supported yet and has no effect") for name in idle]


# ---------------------------------------------------------------------------------------------- flags


def override_cluster(options: ClusterOptions | None, flags: dict[str, Any]) -> ClusterOptions | None:
    """The options with what the command line says. Raises ConfigError."""
    found = options or ClusterOptions()
    try:
        if "cluster_listen" in flags:
            found = replace(found, **_listen(flags["cluster_listen"]))
        if "routes" in flags:
            urls = [text for text in flags["routes"].split(",") if text.strip()]
            found = replace(found, routes=tuple(map(route_url, urls)))
        if flags.get("cluster_name"):
            found = replace(found, name=cluster_name(flags["cluster_name"]))
        if flags.get("cluster_advertise"):
            advertised(flags["cluster_advertise"])
            found = replace(found, advertise=flags["cluster_advertise"])
    except ValueError as error:
        raise ConfigError(str(error)) from None
    changes = {name: flags[name] for name in ("no_advertise", "connect_retries") if name in flags}
    found = replace(found, **changes)
    if flags.get("routes") and not found.port and "cluster_listen" not in flags and options is None:
        raise ConfigError("solicited routes require cluster capabilities, e.g. --cluster")
    return found if options is not None or found != ClusterOptions() else None


def _listen(text: str) -> dict[str, Any]:
    """Where other servers come in, and as whom. Nothing is no cluster. Raises ValueError."""
    if not text:
        return {"port": 0}
    is_random = text.endswith(":-1")
    try:
        found = urlsplit(text.removesuffix("-1") + "0" if is_random else text)
        port = found.port
    except ValueError:
        port = None
    if port is None or not found.netloc:
        raise ValueError("expected a cluster URL such as nats://host:6222")
    if found.username is not None and found.password is None:
        raise ValueError("expected cluster password to be set")
    who = {"username": unquote(found.username or ""), "password": unquote(found.password or "")}
    host = {"host": found.hostname} if found.hostname else {}
    return {"port": RANDOM_PORT if is_random else port, **host, **who}

"""nats-server's command line.

Flags take one dash or two, and their value after `=` or as the next argument (so `-p -1` is port -1). A boolean flag
takes a value only after `=`. Flags override the configuration file. What JetLake does not do yet is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from msgspec.structs import replace

from jetlake.config.options import PORT_DEFAULT, RANDOM_PORT, Authorization, JetStreamOptions, ServerOptions, TlsOptions
from jetlake.config.read import did_you_mean, names
from jetlake.config.syslog_url import check_syslog_url
from jetlake.config.value import ConfigError

EXIT_CODE = 1  # for a ConfigError. nats-server ends with 1 too, but with 0 after an unknown flag: a slip of its own


class Action(Enum):
    """What a command line asks for."""

    RUN = "run"
    TEST = "test"  # check the configuration and exit
    VERSION = "version"
    HELP = "help"
    SIGNAL = "signal"  # send one to a running server and exit; `ServerOptions.signal` says which


def _table(kind: type, **flags: str) -> dict[str, tuple[str, type]]:
    return {name: (field, kind) for field, names in flags.items() for name in names.split()}


_FLAGS: dict[str, tuple[str, type]] = (
    _table(
        str,
        server_name="n name server_name",
        host="a addr net",
        config_file="c config",
        pid_file="P pid",
        ports_file_dir="ports_file_dir",
        log_file="l log",
        store_dir="sd store_dir",
        username="user",
        password="pass",
        token="auth",
        tls_cert="tlscert",
        tls_key="tlskey",
        tls_ca="tlscacert",
        client_advertise="client_advertise",
        cluster_listen="cluster cluster_listen",
        cluster_name="cluster_name",
        cluster_advertise="cluster_advertise",
        routes="routes",
        signal="sl signal",
        remote_syslog="r remote_syslog",
    )
    | _table(
        int,
        port="p port",
        http_port="m http_port",
        https_port="ms https_port",
        log_size_limit="log_size_limit",
        max_traced_msg_len="max_traced_msg_len",
        profile="profile",
        connect_retries="connect_retries",
    )
    | _table(
        bool,
        help="h help help_tls",
        version="v version",
        test="t",
        debug="D debug",
        trace="V trace",
        trace_verbose="VV",
        debug_trace="DV",
        debug_trace_verbose="DVV",
        logtime="T logtime",
        logtime_utc="logtime_utc",
        syslog="s syslog",
        jetstream="js jetstream",
        tls="tls",
        tls_verify="tlsverify",
        no_advertise="no_advertise",
    )
)
_PORTS = ("port", "http_port", "https_port")
_PLAIN = names(
    "server_name host client_advertise pid_file ports_file_dir log_file syslog remote_syslog http_port https_port "
    "log_size_limit max_traced_msg_len debug trace logtime logtime_utc"
)
_NO_EFFECT = ("profile",)
_OF_CLUSTER = names("cluster_listen cluster_name cluster_advertise routes no_advertise connect_retries")
_LEVELS = {
    "debug_trace": ("debug", "trace"),
    "trace_verbose": ("trace", "trace_verbose"),
    "debug_trace_verbose": ("debug", "trace", "trace_verbose"),
}
_TRUE, _FALSE = names("1 t T true TRUE True"), names("0 f F false FALSE False")


def parse_args(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> tuple[Action, ServerOptions]:
    """What the arguments (without the program's name) ask for. The options are read where a server is to be run."""
    flags, rest = _scan(argv)
    for action in (Action.VERSION, Action.HELP):
        if flags.get(action.value) or (rest and rest[0].lower() == action.value):
            return action, ServerOptions()
    if rest:
        raise ConfigError(f"unrecognized command {rest[0]!r}: expected flags, 'help' or 'version'")
    if flags.get("signal"):
        return Action.SIGNAL, ServerOptions(signal=flags["signal"])
    path = flags.get("config_file")
    if flags.get("test") and not path:
        raise ConfigError("-t needs a configuration file to test: -c FILE")
    options = _load(path, environ) if path else ServerOptions()
    return Action.TEST if flags.get("test") else Action.RUN, _override(options, flags)


def _load(path: str, environ: Mapping[str, str] | None) -> ServerOptions:
    from jetlake.config.sections import load_file  # a server without a file starts sooner

    return load_file(path, environ)


def _scan(argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The flags by field, the last of each counting, and the arguments from the first that is no flag."""
    flags: dict[str, Any] = {}
    rest = list(argv)
    while rest and len(rest[0]) > 1 and rest[0].startswith("-"):
        argument = rest.pop(0)
        if argument == "--":
            break
        flag, equals, text = argument.partition("=")
        name = flag.removeprefix("-").removeprefix("-")
        if name not in _FLAGS:
            raise ConfigError(f"unknown flag {flag}{did_you_mean(name, _FLAGS, '--')}")
        field, kind = _FLAGS[name]
        if not equals and kind is not bool and not rest:
            raise ConfigError(f"flag {flag} needs a value")
        if not equals:
            text = "true" if kind is bool else rest.pop(0)
        value = _value(flag, text, kind)
        if field in _PORTS and not RANDOM_PORT <= int(value) <= 65535:
            raise ConfigError(f"flag {flag}: expected a port or -1, found {value}")
        flags[field] = value
    return flags, rest


def _value(flag: str, text: str, kind: type) -> str | int | bool:
    if kind is str:
        return text
    if kind is bool:
        if text not in _TRUE | _FALSE:
            raise ConfigError(f"flag {flag}: expected true or false, found {text!r}")
        return text in _TRUE
    try:
        return int(text, 0)
    except ValueError:
        raise ConfigError(f"flag {flag}: expected an integer, found {text!r}") from None


def _override(options: ServerOptions, flags: dict[str, Any]) -> ServerOptions:
    changes = {name: flags[name] for name in _PLAIN if name in flags}
    if "port" in flags:
        changes["port"] = flags["port"] or PORT_DEFAULT
    if "host" in changes and not changes["host"]:
        del changes["host"]
    if " " in changes.get("server_name", ""):
        raise ConfigError("a server name cannot contain spaces")
    try:
        check_syslog_url(flags.get("remote_syslog", ""))
    except ValueError as error:
        raise ConfigError(f"flag --remote_syslog: {error}") from None
    for name, fields in _LEVELS.items():
        if name in flags:
            changes |= dict.fromkeys(fields, flags[name])
    changes["jetstream"] = _override_jetstream(options, flags)
    changes["authorization"] = _override_authorization(options, flags)
    changes["tls"] = _override_tls(options, flags)
    if flags.keys() & _OF_CLUSTER:
        from jetlake.config.cluster import override_cluster  # most servers are alone

        changes["cluster"] = override_cluster(options.cluster, flags)
    idle = [f"flag --{name} is not supported yet and has no effect" for name in _NO_EFFECT if flags.get(name)]
    changes["warnings"] = (*options.warnings, *idle)
    return replace(options, **changes)


def _override_jetstream(options: ServerOptions, flags: dict[str, Any]) -> JetStreamOptions:
    changes = {"enabled": flags["jetstream"]} if "jetstream" in flags else {}
    if flags.get("store_dir"):
        changes["store_dir"] = flags["store_dir"]
    return replace(options.jetstream, **changes)


def _override_authorization(options: ServerOptions, flags: dict[str, Any]) -> Authorization | None:
    changes = {name: flags[name] for name in ("username", "password", "token") if name in flags}
    if not changes:
        return options.authorization
    return replace(options.authorization or Authorization(), **changes)


def _override_tls(options: ServerOptions, flags: dict[str, Any]) -> TlsOptions | None:
    if flags.get("tls") is False:
        return None
    if not flags.keys() & {"tls", "tls_verify", "tls_cert", "tls_key", "tls_ca"}:
        return options.tls
    for name, flag in (("tls_cert", "--tlscert"), ("tls_key", "--tlskey")):
        if not flags.get(name):
            raise ConfigError(f"TLS needs a certificate and its key: {flag} is missing")
    return replace(
        options.tls or TlsOptions(),
        cert_file=flags["tls_cert"],
        key_file=flags["tls_key"],
        ca_file=flags.get("tls_ca", ""),
        verify=flags.get("tls_verify", False),
    )

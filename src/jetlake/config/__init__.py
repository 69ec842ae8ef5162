"""nats-server's configuration: its files, its command line, and the options they give.

    action, options = parse_args(["-c", "server.conf", "-p", "-1", "-js"])

- `value` a parsed value with its place; ConfigError
- `grammar` text to values: maps, arrays, units, variables, includes
- `options` what a server can be told, typed, with defaults
- `read` values to typed fields; sections as tables of keys
- `auth`, `operator`, `sections` the tables, and the rules between keys
- `leafnodes`, `cluster` links to other servers
- `sharing`, `subject_mapping` what accounts export and import
- `flags` the command line

Nothing here opens a socket or looks at a certificate: a file that passes may still name a port in use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from jetlake.config.flags import EXIT_CODE, Action, parse_args
from jetlake.config.options import (
    RANDOM_PORT,
    UNLIMITED,
    AccountJetStream,
    AccountOptions,
    Authorization,
    ClusterOptions,
    Export,
    Import,
    JetStreamLimits,
    JetStreamOptions,
    Latency,
    LeafOptions,
    LeafRemote,
    LeafUser,
    MappingDestination,
    MappingOptions,
    OperatorOptions,
    Permissions,
    RemoteOptions,
    ResolverOptions,
    ResponsePermission,
    ServerOptions,
    SubjectPermission,
    TlsOptions,
    User,
    WebSocketOptions,
)
from jetlake.config.origin import WebOrigin, read_origin
from jetlake.config.subject_mapping import SubjectMapping
from jetlake.config.value import ConfigError, Position, Value

if TYPE_CHECKING:
    from jetlake.config.grammar import parse_file, parse_text
    from jetlake.config.sections import load_file, load_text
else:

    def __getattr__(name):
        """What reads files is imported when somebody asks for it: a server without one starts sooner."""
        if name not in _READERS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_READERS[name]}"), name)


_READERS = {"load_file": "sections", "load_text": "sections", "parse_file": "grammar", "parse_text": "grammar"}

__all__ = [
    "Action",
    "parse_args",
    "EXIT_CODE",
    "load_file",
    "load_text",
    "parse_file",
    "parse_text",
    "ConfigError",
    "Position",
    "Value",
    "ServerOptions",
    "JetStreamOptions",
    "JetStreamLimits",
    "Authorization",
    "User",
    "Permissions",
    "RemoteOptions",
    "SubjectPermission",
    "ResponsePermission",
    "AccountOptions",
    "AccountJetStream",
    "Export",
    "Latency",
    "Import",
    "SubjectMapping",
    "TlsOptions",
    "WebOrigin",
    "WebSocketOptions",
    "read_origin",
    "ClusterOptions",
    "LeafOptions",
    "LeafRemote",
    "LeafUser",
    "MappingDestination",
    "MappingOptions",
    "OperatorOptions",
    "ResolverOptions",
    "RANDOM_PORT",
    "UNLIMITED",
]

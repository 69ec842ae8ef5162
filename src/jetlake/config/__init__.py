"""nats-server's configuration: its files, its command line, and the options they give.

    action, options = parse_args(["-c", "server.conf", "-p", "-1", "-js"])

- `value` a parsed value with its place; ConfigError
- `grammar` text to values: maps, arrays, units, variables, includes
- `options` what a server can be told, typed, with defaults
- `read` values to typed fields; sections as tables of keys
- `auth`, `sections` the tables, and the rules between keys
- `sharing`, `subject_mapping` what accounts export and import
- `flags` the command line

Nothing here opens a socket or looks at a certificate: a file that passes may still name a port in use.
"""

from jetlake.config.flags import EXIT_CODE, Action, parse_args
from jetlake.config.grammar import parse_file, parse_text
from jetlake.config.options import (
    RANDOM_PORT,
    UNLIMITED,
    Account,
    AccountJetStream,
    Authorization,
    Export,
    Import,
    JetStreamLimits,
    JetStreamOptions,
    ListenerOptions,
    Permissions,
    ResponsePermission,
    ServerOptions,
    SubjectPermission,
    TlsOptions,
    User,
)
from jetlake.config.sections import load_file, load_text
from jetlake.config.subject_mapping import SubjectMapping
from jetlake.config.value import ConfigError, Position, Value

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
    "SubjectPermission",
    "ResponsePermission",
    "Account",
    "AccountJetStream",
    "Export",
    "Import",
    "SubjectMapping",
    "TlsOptions",
    "ListenerOptions",
    "RANDOM_PORT",
    "UNLIMITED",
]

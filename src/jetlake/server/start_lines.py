"""The lines with which a server starts, in nats-server's style and order: test suites and people look for them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jetlake import __version__
from jetlake.broker.auth import is_bcrypt
from jetlake.clock import SECOND_NS, go_duration
from jetlake.config import ServerOptions
from jetlake.jetstream.api_level import API_LEVEL
from jetlake.server import kernels
from jetlake.server.address import join
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.jetstream.service import JetStream
    from jetlake.server.server import Server

_CIPHER_NAMES = {"chachapoly": "ChaCha20-Poly1305", "aes": "AES-GCM"}  # as nats-server calls them


def server(server: Server) -> None:
    """Who starts, with what."""
    options = server.options
    for line in (
        f"Starting jetlake {__version__}, {kernels.describe(options)}",
        f"  Version:  {server.broker.version}",
        "  Git:      [jetlake]",
        f"  Name:     {server.server_name}",
        f"  ID:       {server.server_id}",
    ):
        server.log("info", line)
    if _has_plain_passwords(options):
        server.log("warning", "Plaintext passwords detected, use nkeys or bcrypt")
    if options.config_file is not None:
        server.log("info", f"Using configuration file: {options.config_file} {server.config_digest()}")
    for warning in options.warnings:
        server.log("warning", warning)


def operators(server: Server) -> None:
    """Whose accounts the server trusts."""
    operator = server.broker.operator
    if operator is None or not operator.operators:
        return
    server.log("info", "Trusted Operators")
    for claims, body in operator.operators:
        server.log("info", f'  System  : "{body.system_account}"')
        server.log("info", f'  Operator: "{claims.name}"')
        server.log("info", f"  Issued  : {format_time(claims.iat * SECOND_NS)}")
        server.log("info", f"  Expires : {format_time(claims.exp * SECOND_NS) if claims.exp else 'Never'}")


def _has_plain_passwords(options: ServerOptions) -> bool:
    single = options.authorization
    passwords = [user.password for user in options.users]
    if single is not None:
        passwords += [single.password, single.token]
    return any(password and not is_bcrypt(password) for password in passwords)


def jetstream(server: Server, jetstream: JetStream, took_ns: int) -> None:
    """What streams may take, and where they are."""
    options = server.options.jetstream
    for line in (
        "---------------- JETSTREAM ----------------",
        f"  Strict:          {str(options.strict).lower()}",
        f"  Max Memory:      {friendly_size(jetstream.max_memory)}",
        f"  Max Storage:     {friendly_size(jetstream.max_store)}",
        f'  Store Directory: "{os.path.normpath(jetstream.directory)}"',
        *([f"  Encryption:      {_CIPHER_NAMES[options.cipher]}"] if options.key else []),
        *([f"  Domain:          {options.domain}"] if options.domain else []),
        f"  Sync:            {'before every ack' if options.sync_always else f'every {options.sync_interval_s:g}s'}",
        f"  API Level:       {API_LEVEL}",
        "-------------------------------------------",
        f"Took {go_duration(took_ns)} to start JetStream",
    ):
        server.log("info", line)


def listening(server: Server) -> None:
    """Where clients come in."""
    options = server.options
    server.log("info", f"Listening for client connections on {join(options.host, server.port)}")
    if options.tls is None:
        return
    is_first_only = options.tls.handshake_first and options.tls.handshake_first_fallback_s is None
    may_be_plain = options.allow_non_tls and not is_first_only
    server.log("info", f"TLS {'available' if may_be_plain else 'required'} for client connections")
    if is_first_only:
        text = 'Clients that are not using "TLS Handshake First" option will fail to connect'
        server.log("warning", text)


def friendly_size(size: int) -> str:
    """A size for people: 10.00 MB."""
    if size < 1024:
        return f"{size} B"
    amount, unit = float(size), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.2f} {_UNITS[unit]}"


_UNITS = ("B", "KB", "MB", "GB", "TB", "PB", "EB")

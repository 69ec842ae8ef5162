"""Run a server in this process until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import resource
import sys
from collections.abc import Sequence

import uvloop

from jetlake.broker.broker import make_authenticators, make_mappings
from jetlake.config import EXIT_CODE, Action, ServerOptions, parse_args
from jetlake.errors import JetLakeError
from jetlake.server import signals, usage, watchdog
from jetlake.server.log import Log
from jetlake.server.server import NATS_VERSION, Server, config_digest
from jetlake.server.tls import make_context

_M_ARENA_MAX = -8  # of mallopt(3)


def main(argv: Sequence[str], environ: dict[str, str]) -> int:
    """Read the command line, run, and return the exit code."""
    log = Log(ServerOptions())
    try:
        action, options = parse_args(list(argv), environ)
        match action:
            case Action.VERSION:
                print(f"nats-server: v{NATS_VERSION}")
            case Action.HELP:
                print(usage.TEXT)
            case Action.TEST:
                _check(options)
                for warning in options.warnings:
                    print(warning, file=sys.stderr)
                place = f"{options.config_file} is valid {config_digest(options)}"
                print(f"nats-server: configuration file {place}", file=sys.stderr)
            case Action.SIGNAL:
                signals.send(options.signal)
            case Action.RUN:
                log = Log(options)
                _raise_file_limit()
                _share_heap()
                _run(options, log, list(argv), environ)
    except (JetLakeError, OSError) as error:
        log("fatal", str(error))
        return EXIT_CODE
    return 0


def _check(options: ServerOptions) -> None:
    """Try what a start would try of a configuration, without taking any port or directory."""
    make_authenticators(options)
    make_mappings(options)
    for tls in (options.tls, options.websocket.tls if options.websocket is not None else None):
        if tls is not None:
            make_context(tls)


def _share_heap() -> None:
    """Let all threads allocate from one heap: glibc would keep one for each, a tenth of the memory of a busy server."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def _raise_file_limit() -> None:
    """Take as many open files, and so connections, as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _run(options: ServerOptions, log: Log, argv: list[str], environ: dict[str, str]) -> None:
    limit_ms = watchdog.limit_ms(environ, options.debug)
    if limit_ms is None:
        uvloop.run(_serve(options, log, argv, environ))
        return
    dog = watchdog.Watchdog(limit_ms, log)
    try:
        uvloop.run(_serve(options, log, argv, environ, dog), loop_factory=lambda: watchdog.WatchedLoop(dog))
    finally:
        dog.close()


async def _serve(
    options: ServerOptions,
    log: Log,
    argv: list[str],
    environ: dict[str, str],
    dog: watchdog.Watchdog | None = None,
) -> None:
    server = Server(options, log, read_options=lambda: parse_args(argv, environ)[1])
    server.loop = asyncio.get_running_loop()
    if dog is not None:
        dog.is_on = lambda: server.is_ready  # recovery and the end may take as long as they need
    signals.install(server)
    await server.run()

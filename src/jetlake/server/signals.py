"""What the signals of the operating system mean to a server, and how they are sent: as for nats-server."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from jetlake.errors import JetLakeError

if TYPE_CHECKING:
    from jetlake.server.server import Server

_NAMES = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hangup",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
}

_COMMANDS = {
    "ldm": signal.SIGUSR2,
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
}


def install(server: Server) -> None:
    """Listen to signals."""
    actions: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGINT: server.stop_soon,
        signal.SIGTERM: lambda: None if server.broker.is_lame_duck else server.stop_soon(),  # it is on its way out
        signal.SIGHUP: server.reload_soon,
        signal.SIGUSR1: server.reopen_log,
        signal.SIGUSR2: server.lame_duck_soon,
    }
    for number, action in actions.items():
        server.loop.add_signal_handler(number, _trapped, server, number, action)


def _trapped(server: Server, number: signal.Signals, action: Callable[[], None]) -> None:
    server.log("info", f'Trapped "{_NAMES[number]}" signal')
    action()


def send(text: str) -> None:
    """Send a signal to another server: `reload=<pid or pid file>`. Raises JetLakeError or OSError."""
    command, _, target = text.partition("=")
    if command not in _COMMANDS:
        raise JetLakeError(f"unknown signal {command!r}: expected one of {', '.join(_COMMANDS)}")
    if not target:
        raise JetLakeError(f"signal {command!r}: to which server? Say {command}=<pid or pid file>")
    pid = _read_pid(target)
    try:
        os.kill(pid, _COMMANDS[command])
    except ProcessLookupError:
        raise JetLakeError(f"signal {command!r}: there is no process {pid}") from None


def _read_pid(target: str) -> int:
    text = target
    if os.path.isfile(target):
        with open(target) as file:
            text = file.read().strip()
    if not (text.isascii() and text.isdecimal() and int(text) > 0):  # 0 and -1 would mean many processes
        raise JetLakeError(f"invalid pid: {target}")
    return int(text)

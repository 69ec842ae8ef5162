"""What the signals of the operating system mean to a server: the same as to nats-server."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jetlake.server.server import Server

_NAMES = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hangup",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
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

"""Lame duck mode: a server that is about to go lets its clients leave in good order.

It accepts nobody any more, stops its streams, tells its clients (INFO with `ldm`), waits for the grace period, hangs up
on those who are still there, spread over what is left of the duration, and stops.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from jetlake.wire import writer

if TYPE_CHECKING:
    from jetlake.server.server import Server

_PAUSE_S_MAX = 1.0  # between two clients, even where there are few


async def lame_duck(server: Server) -> None:
    """Leave, slowly. Signals to stop are not heard meanwhile, so it ends in any case."""
    try:
        await _lame_duck(server)
    except Exception as error:
        server.failed("lame duck mode", error)
    await server.stop()


async def _lame_duck(server: Server) -> None:
    server.log("info", "Entering lame duck mode, stop accepting new clients")
    broker, options = server.broker, server.options
    broker.is_lame_duck = True
    server.close_listeners()
    server.events.leaving("LAMEDUCK")
    await server.stop_jetstream()
    if broker.clients:
        server.routes.lame_duck()
        for client in list(broker.clients.values()):
            if client.is_connected and client.options.protocol >= 1:
                client.send(writer.info(broker.info(client)))
        server.flush()
        await asyncio.sleep(options.lame_duck_grace_period_s)
        server.log("info", "Closing existing clients")
        await _close_clients(server, options.lame_duck_duration_s - options.lame_duck_grace_period_s)


async def _close_clients(server: Server, duration_s: float) -> None:
    clients = list(server.broker.clients.values())
    pause_s = min(duration_s / max(len(clients), 1), _PAUSE_S_MAX)
    for number, client in enumerate(clients):
        if number:
            await asyncio.sleep(random.uniform(pause_s / 2, pause_s))
        client.close("Server Shutdown")
        server.flush()

"""Where a client comes from: its address, and which kind of listener it came to.

A browser cannot say in CONNECT what a page does not know, but sends cookies with the request that begins a WebSocket:
what CONNECT leaves out is taken from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from jetlake.wire.verbs import ConnectOptions

# As `allowed_connection_types` calls them.
STANDARD, WEBSOCKET = "STANDARD", "WEBSOCKET"
LEAFNODE, LEAFNODE_WS = "LEAFNODE", "LEAFNODE_WS"
TYPES = (STANDARD, WEBSOCKET, LEAFNODE, LEAFNODE_WS)


class Endpoint(NamedTuple):
    """Where a client comes from."""

    host: str
    port: int
    type: str = STANDARD
    cookies: Mapping[str, str] = {}  # options of CONNECT that were sent as cookies
    forwarded_for: str = ""  # the address that a proxy tells of

    @property
    def is_websocket(self) -> bool:
        return self.type == WEBSOCKET

    def complete(self, options: ConnectOptions) -> ConnectOptions:
        """What a client says, with what its cookies add."""
        missing = {name: value for name, value in self.cookies.items() if value and not getattr(options, name)}
        return replace(options, **missing) if missing else options

    def __str__(self) -> str:
        address = f"{self.host}:{self.port}"
        return f"{self.forwarded_for}/{address}" if self.forwarded_for else address

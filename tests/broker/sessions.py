"""A broker without sockets: clients whose connections are lists of bytes."""

from __future__ import annotations

from jetlake.broker.auth import Credentials
from jetlake.broker.broker import Broker
from jetlake.broker.client import Client
from jetlake.broker.endpoint import Endpoint
from jetlake.config import ServerOptions, load_text
from jetlake.testing.clock import FakeClock


class FakeConnection:
    """What a client's connection was asked to do."""

    def __init__(self) -> None:
        self.client: Client
        self.pending = self.holds = self.stalls = 0
        self.is_closed = False
        self.login: Credentials | None = None

    def pending_size(self) -> int:
        return self.pending

    def close(self) -> None:
        self.is_closed = True

    def check_login(self, credentials: Credentials) -> None:
        self.login = credentials

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1

    def stall(self, slow: Client) -> None:
        self.stalls += 1

    def say(self, text: bytes) -> bytes:
        """Let the client receive something; what it is sent then."""
        data = bytearray(text)
        used = self.client.receive(data, 0, len(data))
        while self.client.has_more:  # on a busy machine its turn may be over sooner
            used = self.client.receive(data, used, len(data))
        assert used == len(data) or self.client.is_closed or self.client.is_checking
        return self.heard()

    def heard(self) -> bytes:
        """What the client was sent since it was last asked."""
        return self.client.take_output()


QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


def make_broker(config: str = "") -> Broker:
    """A broker that is configured like a server."""
    options = load_text(config) if config else ServerOptions()
    return Broker(options, "NTEST", "2.15.1", clock=FakeClock())


def connect(broker: Broker, line: bytes = QUIET) -> FakeConnection:
    """A client that has sent its CONNECT."""
    connection = FakeConnection()
    connection.client = broker.connect(connection, Endpoint("127.0.0.1", 1))
    connection.say(line)
    return connection

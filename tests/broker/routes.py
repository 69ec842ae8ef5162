"""Brokers of one cluster without sockets: what one side of a route sends is what the other one receives."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from jetlake.broker.broker import Broker
from jetlake.broker.route import Route
from jetlake.wire.routes import Info, Switch
from tests.broker.sessions import FakeConnection, connect, make_broker


class Host:
    """The server of routes, as simple as can be."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name
        self.told: list[Info] = []
        self.switched: list[Switch] = []
        self.closed: list[Route] = []
        self.takes_switches = self.lets_in = True

    def route_info(self, route: Route) -> dict[str, Any]:
        return {"server_id": self.name, "server_name": self.name, "headers": True}

    def route_connect(self, route: Route) -> dict[str, Any]:
        return {"name": self.name, "headers": True}

    def route_login(self, route: Route, fields: dict[str, Any]) -> None:
        if self.lets_in:
            route.admit()
        else:
            route.refuse("Authorization Violation")

    def route_known(self, route: Route, info: Info) -> None:
        route.open()

    def route_told(self, route: Route, info: Info) -> None:
        self.told.append(info)

    def route_switch(self, route: Route, switch: Switch) -> bool:
        self.switched.append(switch)
        return self.takes_switches

    def shares_jetstream(self, route: Route) -> bool:
        return False

    def route_closed(self, route: Route) -> None:
        self.closed.append(route)


class RouteEnd(FakeConnection):
    """One end of a route."""

    def flush(self) -> None: ...


class Wire:
    """A route between two brokers, of which the second one solicits. `seen` is all that each of them sent."""

    def __init__(self, one: Host, two: Host) -> None:
        self.ends = [self._end(one, ""), self._end(two, "nats-route://one:1")]
        self.seen = [b"", b""]
        for end in self.ends:
            end.greet()

    @staticmethod
    def _end(host: Host, url: str) -> Route:
        return Route(host.broker, host, RouteEnd(), host.broker.next_cid(), ("127.0.0.1", 1), url=url)

    def move(self) -> bool:
        """Let each side hear what the other one has said; False when neither has anything to say."""
        said = [end.take_output() for end in self.ends]
        for place, data in enumerate(said):
            self.seen[place] += data
            hear(self.ends[1 - place], data)
        return any(said)


def hear(route: Route, data: bytes) -> int:
    """Let a route receive something; how much of it was taken."""
    buffer, offset = bytearray(data), 0
    while offset < len(buffer) and not route.is_closed and not route.is_checking:
        offset = route.receive(buffer, offset, len(buffer))
    return offset


class Mesh:
    """Brokers that are all linked with each other."""

    def __init__(self, *configs: str) -> None:
        self.hosts = [Host(make_broker(config), f"S{number}") for number, config in enumerate(configs)]
        self.wires = {
            pair: Wire(*(self.hosts[place] for place in pair)) for pair in combinations(range(len(configs)), 2)
        }
        self.settle()

    def settle(self) -> None:
        """Let everything that was sent arrive."""
        while sum(wire.move() for wire in self.wires.values()):
            pass

    def connect(self, place: int, line: bytes | None = None) -> FakeConnection:
        broker = self.hosts[place].broker
        return connect(broker) if line is None else connect(broker, line)

    def sent(self, by: int, to: int) -> bytes:
        """What one server sent to another since that was last asked."""
        wire, place = self.wires[min(by, to), max(by, to)], int(by > to)
        said, wire.seen[place] = wire.seen[place], b""
        return said

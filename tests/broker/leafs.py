"""Brokers that are linked without sockets: what one side sends is what the other one receives."""

from __future__ import annotations

from typing import Any

from jetlake.broker.account import Account
from jetlake.broker.auth import Credentials
from jetlake.broker.broker import Broker
from jetlake.broker.leaf import Leaf, Rules
from jetlake.broker.link import Link
from jetlake.wire.links import LinkInfo
from tests.broker.sessions import FakeConnection, connect, make_broker


class Host:
    """The server of a leaf, as simple as can be."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name
        self.said: dict[str, Any] = {}
        self.rules = Rules(("$JS.API.>",), ("$JS.API.>",))
        self.opened: list[Leaf] = []

    def leaf_info(self, leaf: Leaf, *, connect_info: bool) -> dict[str, Any]:
        fields = {"server_name": self.name, "client_id": leaf.cid, "headers": True, "info_on_connect": True}
        permissions = leaf.permissions
        if not connect_info or permissions is None:
            return fields | {"connect_info": connect_info, "nonce": leaf.nonce}
        down = {"allow": permissions.subscribe_allow, "deny": permissions.subscribe_deny}
        return fields | {"connect_info": True, "import": down, "export": {"allow": permissions.publish_allow}}

    def leaf_connect(self, leaf: Leaf, info: LinkInfo) -> dict[str, Any]:
        return {"name": self.name, "headers": True, "cluster": self.name} | self.said

    def leaf_problem(self, fields: dict[str, Any]) -> str:
        return "no clients here" if fields.get("lang") else ""

    def leaf_login(self, leaf: Leaf, credentials: Credentials) -> None:
        leaf.finish_login(self.broker.authenticator.check(credentials, leaf.nonce.encode()))

    def leaf_rules(self, account: Account, domain: str) -> Rules:
        return self.rules

    def leaf_told(self, leaf: Leaf, info: LinkInfo) -> None: ...

    def leaf_opened(self, leaf: Leaf) -> None:
        self.opened.append(leaf)

    def leaf_closed(self, leaf: Leaf) -> None: ...


class LinkEnd(FakeConnection):
    """One end of a link."""

    link: Link

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self.wire = wire


class Wire:
    """A link between two brokers: `hub` accepts, `leaf` solicits. `seen` is all that went over, by direction."""

    def __init__(self, hub: Host, leaf: Host, account: str = "$G", **options: Any) -> None:
        down, up = LinkEnd(self), LinkEnd(self)
        own = leaf.broker.account(account)
        self.hub = Leaf(hub.broker, hub, down, hub.broker.next_cid(), ("hub", 1), nonce="n", is_isolated=False)
        self.leaf = Leaf(
            leaf.broker, leaf, up, leaf.broker.next_cid(), ("leaf", 2), own, **({"is_spoke": True} | options)
        )
        self.seen: dict[str, bytes] = {"down": b"", "up": b""}
        self.hub.greet()
        self.pump()

    def pump(self) -> None:
        """Let both sides hear each other until they have nothing more to say."""
        while True:
            down, up = self.hub.take_output(), self.leaf.take_output()
            if not down and not up:
                return
            self.seen["down"] += down
            self.seen["up"] += up
            self._hear(self.leaf, down)
            self._hear(self.hub, up)

    @staticmethod
    def _hear(link: Link, data: bytes) -> None:
        if data and not link.is_closed:
            buffer, offset = bytearray(data), 0
            while offset < len(buffer) and not link.is_closed:
                offset = link.receive(buffer, offset, len(buffer))

    def cut(self) -> None:
        """End the link, as if the connection was lost."""
        self.hub.close("Client Closed")
        self.leaf.close("Client Closed")


class Pair:
    """A hub and a leaf with one link, and a client at each."""

    def __init__(self, hub_config: str = "", leaf_config: str = "", said: dict[str, Any] | None = None, **options: Any):
        self.hub_host = Host(make_broker(hub_config), "HUB")
        self.leaf_host = Host(make_broker(leaf_config), "LEAF")
        self.leaf_host.said = said or {}
        self.wire = Wire(self.hub_host, self.leaf_host, **options)

    def connect_hub(self) -> FakeConnection:
        return connect(self.hub_host.broker)

    def connect_leaf(self) -> FakeConnection:
        return connect(self.leaf_host.broker)

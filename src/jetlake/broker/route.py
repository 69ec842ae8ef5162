"""A route: the link between two servers of one cluster, without I/O.

    accepting side                       soliciting side
    INFO                        ->
                                <-       CONNECT with the cluster's user, if there is one, and INFO
    RS+ of everything           ->
                                <-       RS+ of everything

Every server of a cluster is linked with every other one, so a message that came over a route goes to no other route,
and what another server wants is told to none. Each server looks after the imports and exports of its own clients: an
account means the same everywhere, and messages cross in the account that they were published in.

One connection carries all accounts (`RouteAccount`), each of which is named in every line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from jetlake.broker.account_link import AccountLink, LinkSubscription
from jetlake.broker.leaf import TRACE_PROTOCOL, Leaf
from jetlake.broker.link import Link, LinkConnection
from jetlake.broker.peer import Kind, Peer
from jetlake.subjects import decode_subject, encode_subject
from jetlake.wire import links, routes, writer
from jetlake.wire.links import Err, Interest, LinkConnect
from jetlake.wire.routes import GOSSIP_USUAL, Event, Info, RouteInfo, Switch, parse_route_line

if TYPE_CHECKING:
    from jetlake.broker.account import Account
    from jetlake.broker.broker import Broker

DUPLICATE = "Duplicate Route"
_OWN_REQUESTS = b"$SYS.REQ."  # each server answers for its own clients
_NO_POOL = "Not possible to have a dedicated route"  # what a nats-server with pools says when it finds none here
_JETSTREAM_REQUESTS = (b"$JS.API.", b"$JETLAKE.API.")


class RouteHost(Protocol):
    """What a route needs of its server."""

    def route_info(self, route: Route) -> dict[str, Any]: ...
    def route_connect(self, route: Route) -> dict[str, Any]: ...
    def route_login(self, route: Route, fields: dict[str, Any]) -> None: ...
    def route_known(self, route: Route, info: Info) -> None: ...
    def route_told(self, route: Route, info: Info) -> None: ...
    def route_switch(self, route: Route, switch: Switch) -> bool: ...
    def route_closed(self, route: Route) -> None: ...
    def shares_jetstream(self, route: Route) -> bool: ...


class RouteAccount(AccountLink):
    """One account of a route."""

    kind = Kind.ROUTE
    tells_services = False  # each server answers its own clients' requests, in the exporter's account

    def __init__(self, route: Route, account: Account) -> None:
        self.route, self.broker = route, route.broker
        self.takes_headers, self.takes_traces = route.takes_headers, route.takes_traces
        self.name = encode_subject(account.name)
        self.verb, self.headers_verb = b"RMSG " + self.name, b"HMSG " + self.name
        self.begin(account)

    @property
    def is_closed(self) -> bool:  # type: ignore[override]
        return self.route.is_closed

    @property
    def identity(self) -> tuple[int, str]:
        """The number of the connection, and the name of the other server."""
        return self.route.cid, self.route.server_name

    def wants_interest_of(self, other: Peer) -> bool:
        """True for everybody but other servers of the cluster, who tell it themselves."""
        return other.kind is not Kind.ROUTE

    def takes_from(self, origin: Peer) -> bool:
        """True for everybody but other servers, who send it themselves: of the cluster, and hubs that all have."""
        if origin.kind is Kind.ROUTE or (isinstance(origin, Leaf) and origin.is_spoke):
            return False
        return not self.route.is_closed

    def may_send(self, subject: bytes) -> bool:
        """True but for JetStream's requests where the account has streams here, unless both servers are of one.

        Servers whose JetStream is one hear all requests, and one of them answers; others answer for their own streams.
        """
        if self.account.jetstream is not None and subject.startswith(_JETSTREAM_REQUESTS):
            return self.route.shares_jetstream and not self.route.is_closed
        return not self.route.is_closed

    def may_receive(self, subject: bytes) -> bool:
        """True: servers of a cluster trust each other."""
        return True

    def hides(self, subject: bytes) -> bool:
        """True when the other side is not told that somebody here wants this.

        A nats-server passes the JetStream requests of its clients on in the system account, too; they are answered in
        the account that they are made in.
        """
        is_system = self.account is self.broker.system_account and not self.route.shares_jetstream
        return subject.startswith(_JETSTREAM_REQUESTS if is_system else _OWN_REQUESTS)

    def accepts(self, event: Interest) -> bool:
        """True: servers of a cluster trust each other."""
        return True

    def interest_line(self, subject: bytes, queue: bytes | None, weight: int) -> bytes:
        return routes.interest(self.name, subject, queue, weight)

    def no_interest_line(self, subject: bytes, queue: bytes | None) -> bytes:
        return routes.no_interest(self.name, subject, queue)

    def send(self, frames: bytes) -> None:
        self.route.send(frames)

    def send_msgs(self, frames: bytes, count: int, origin: Peer, size: int) -> None:
        self.route.send_msgs(frames, count, origin, size)

    def room(self) -> int:
        """How many bytes of deliveries may be queued before they should pause."""
        return self.route.room()

    def hold(self) -> None:
        """Read no more until `release`."""
        self.route.hold()

    def release(self) -> None:
        """Go on reading, once for each `hold`."""
        self.route.release()

    def hold_back(self, slow: Peer) -> None:
        """Read nothing for a moment: a subscriber cannot take what comes over."""
        self.route.hold_back(slow)


class Route(Link):
    """One side of a route."""

    kind = Kind.ROUTE
    is_route = True

    def __init__(
        self,
        broker: Broker,
        host: RouteHost,
        connection: LinkConnection,
        cid: int,
        address: tuple[str, int],
        *,
        url: str = "",
        is_explicit: bool = False,
        gossip_mode: int = GOSSIP_USUAL,
    ) -> None:
        """With a URL this is the soliciting side; an explicit route is one of the configuration."""
        super().__init__(broker, connection, cid)
        self.host, self.address = host, address
        self.url, self.is_explicit, self.gossip_mode = url, is_explicit, gossip_mode
        self.is_solicited = self.did_solicit = bool(url)  # the second also once a duplicate of it was solicited
        self.retries = False  # once more, when it is gone: a duplicate of it was dropped for it
        self.is_final = False  # not once more, whatever it is
        self.is_admitted = self.is_solicited  # the other side may be here
        self.is_switched = False
        self.takes_headers = True
        self.takes_traces = False
        self.info: RouteInfo | None = None
        self._accounts: dict[str, RouteAccount] = {}

    @property
    def label(self) -> str:
        """How log lines name the link."""
        host, port = self.address
        return f"{host}:{port} - rid:{self.cid}"

    @property
    def server_id(self) -> str:
        return self.info.server_id if self.info is not None else ""

    @property
    def server_name(self) -> str:
        return self.info.server_name if self.info is not None else ""

    @property
    def shares_jetstream(self) -> bool:
        """Whether the other server is one of those whose JetStream is one, this one among them."""
        return self.host.shares_jetstream(self)

    @property
    def subs_count(self) -> int:
        """How many subscriptions the other side has."""
        return sum(len(found.subs) for found in self._accounts.values())

    @property
    def subs(self) -> list[LinkSubscription]:
        """What the other side wants, in all accounts."""
        return [sub for found in self._accounts.values() for sub in found.subs.values()]

    # Agreeing

    def greet(self) -> None:
        """Say who this is."""
        if self.is_solicited:
            self.send(links.connect(self.host.route_connect(self)))
        self.send(writer.info(self.host.route_info(self)))

    def parse_line(self, line: bytes) -> Event:
        """The event of a line that is no message. Raises ProtocolError."""
        return parse_route_line(line)

    def take_event(self, event: Event) -> None:
        """Act on a line that is about the link itself."""
        match event:
            case LinkConnect(fields) if not self.is_admitted:
                self.host.route_login(self, fields)
            case Info():
                self._take_info(event)
            case Switch():
                self._switch(event)
            case Err(text):
                level = "debug" if text.startswith(_NO_POOL) else "error"
                self.broker.log(level, f"{self.label} - Route Error {text!r}")
                self.close("Parse Error")

    def admit(self) -> None:
        """The other side has shown that it is of this cluster."""
        self.is_admitted = True

    def _take_info(self, event: Info) -> None:
        if not self.is_admitted:
            self.not_open()
        elif self.info is None:
            self.info, self.takes_headers = event.fields, event.fields.headers
            self.takes_traces = event.fields.proto >= TRACE_PROTOCOL
            self.host.route_known(self, event)
        else:
            self.host.route_told(self, event)

    def _switch(self, switch: Switch) -> None:
        """The connection is for something else from now on, if anybody here wants that: see `wire.routes`."""
        if not self.is_admitted or self.is_open or not self.host.route_switch(self, switch):
            self.refuse("Unknown Protocol Operation")
            return
        self.is_switched = self.is_checking = True

    def close(self, reason: str) -> None:
        """Leave all accounts and let the connection go."""
        if not self.is_closed:
            self.broker.routes.pop(self.cid, None)
            super().close(reason)
            self.host.route_closed(self)

    # Accounts

    def open(self) -> None:
        """Both sides agreed: take part in all accounts."""
        self._accounts = {account.name: RouteAccount(self, account) for account in self.broker.accounts.values()}
        self.broker.routes[self.cid] = self
        super().open()

    def account_links(self) -> list[AccountLink]:
        """All accounts that take part."""
        return list(self._accounts.values())

    def add_account(self, account: Account) -> None:
        """There is a new account."""
        self._accounts[account.name] = found = RouteAccount(self, account)
        found.join()
        while found.interest.go_on():
            pass  # there is hardly anything in a new one

    def account_of(self, name: bytes) -> AccountLink | None:
        """The account that a line is about; it is made if there is none, as the other side has it."""
        text = decode_subject(name)
        found = self._accounts.get(text)
        if found is None:
            self.broker.account(text)  # which brings it here
            found = self._accounts.get(text)
        return found

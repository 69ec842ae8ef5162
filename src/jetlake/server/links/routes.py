"""The routes of a server: the listener for other servers of its cluster, and who is linked now.

Every server is linked with every other one by one connection. Two that connect to each other at the same time notice
when they say who they are: each keeps the connection that it knew first, and closes the other. If these were different
ones, both are gone, and each tries again after a moment of its own.

A server that joins is told of to all others (gossip), who connect to it themselves. `gossip_mode` keeps that from going
in circles; its rules are nats-server's.

Other parts of JetLake may use the port too: `identity` is what INFO says under the key `jetlake`, for peers to read as
`Route.info.jetlake` (`tell_identity` changes it); and `on_switch` has a callback for each further kind of connection,
`RAFT` and `COPY`, which is called with the kind, the arguments, and a connection that showed that it is of this
cluster. `take_over` is its own.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from jetlake.broker.auth import Authenticator, AuthOptions, Credentials
from jetlake.broker.leaf import TRACE_PROTOCOL
from jetlake.broker.route import DUPLICATE, Route
from jetlake.config import ClusterOptions
from jetlake.config.cluster import advertised
from jetlake.server.address import join
from jetlake.server.links.connect_urls import ConnectUrls
from jetlake.server.links.connection import RouteConnection
from jetlake.server.links.route_dial import Dialer, where
from jetlake.wire import writer
from jetlake.wire.routes import GOSSIP_ALWAYS, GOSSIP_NONE, GOSSIP_USUAL, Info, RouteInfo, Switch

if TYPE_CHECKING:
    from jetlake.server.links.listener import RouteListener
    from jetlake.server.server import Server

PROTOCOL = TRACE_PROTOCOL  # of INFO
INFO_S = 10.0  # for the other side to say who it is
OnSwitch = Callable[[str, bytes, RouteConnection], None]


class Routes:
    """The routes of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.open: dict[str, Route] = {}  # by the other server's id
        self.listener: RouteListener | None = None
        self.name, self.is_dynamic = "", False
        self.urls = ConnectUrls(server)
        self.identity: dict[str, Any] = {}
        self.on_switch: dict[str, OnSwitch] = {}
        self.on_linked: Callable[[], None] = lambda: None  # a server was linked, or its identity changed
        self.reached: dict[str, str] = {}  # the server's id behind each URL of the configuration that was connected to
        self._dialer = Dialer(server, self)
        self._authenticator: Authenticator | None = None
        self._is_leaving = False

    @property
    def options(self) -> ClusterOptions:
        return self._server.options.cluster or ClusterOptions()

    @property
    def login_timeout_s(self) -> float:
        """How long another server may take to say who it is."""
        return self.auth_timeout_s if self.options.username else INFO_S

    @property
    def auth_timeout_s(self) -> float:
        options = self.options
        return options.auth_timeout_s or (options.tls.timeout_s + 1 if options.tls is not None else 2.0)

    info_timeout_s = INFO_S

    # Life

    async def start(self) -> None:
        """Accept other servers. Raises JetLakeError."""
        options, server = self.options, self._server
        if not options.port:
            return
        from jetlake.server.links.listener import RouteListener  # most servers are alone

        if options.username:
            self._authenticator = Authenticator(AuthOptions((), "", options.username, options.password))
        self.name, self.is_dynamic = options.name or secrets.token_hex(11), not options.name
        server.show_features()
        server.log("info", f"Cluster name is {self.name}")
        if self.is_dynamic:
            server.log("warning", "Cluster name was dynamically generated, consider setting one")
        self.listener = RouteListener(server, options)
        await self.listener.start()
        server.log("info", f"Listening for route connections on {join(options.host, self.listener.port)}")

    def solicit(self) -> None:
        """Connect to the servers of the configuration, and stay connected."""
        if self.listener is not None:
            for url in self.options.routes:
                self._dialer.dial(url, is_explicit=True)

    def use_routes(self) -> None:
        """The configuration may name other servers than before: connect to new ones, leave those that it does not."""
        routes, known = self.options.routes, set[str]()
        for route in list(self.open.values()):
            if route.is_explicit and route.url not in routes:
                route.is_final = True
                route.close("Route Removed")
                self._server.log("info", f"Removed route {where(route.url)}")
            known.add(route.url)
        for url in routes if self.listener is not None else ():
            if url not in known:
                self._dialer.dial(url, is_explicit=True)

    def close(self) -> None:
        """Accept no servers any more, and connect to none."""
        self._is_leaving = True
        if self.listener is not None:
            self.listener.close()
        self._dialer.stop()

    def close_links(self, reason: str) -> None:
        """End all routes."""
        for route in list(self.open.values()):
            route.close(reason)

    def lame_duck(self) -> None:
        """Tell other servers that this one is about to go, and clients nothing of it any more."""
        for route in self.open.values():
            route.send(writer.info(self._info() | {"ldm": True}))
        self.urls.leave()

    # What other servers are told

    def accepted(self, connection: RouteConnection, address: tuple[str, int]) -> Route:
        """A server that has connected."""
        broker = self._server.broker
        return Route(broker, self, connection, broker.next_cid(), address)

    def route_info(self, route: Route) -> dict[str, Any]:
        """What another server is told first."""
        nonce = base64.urlsafe_b64encode(os.urandom(11)).rstrip(b"=").decode()  # nobody signs it
        mode = {"gossip_mode": route.gossip_mode} if route.gossip_mode else {}
        return self._info() | {"nonce": nonce} | mode

    def _info(self) -> dict[str, Any]:
        server, options = self._server, self.options
        host, port = options.host, self.listener.port if self.listener is not None else 0
        if options.advertise:
            host, given = advertised(options.advertise)
            port = given or port
        fields: dict[str, Any] = {
            "server_id": server.server_id,
            "server_name": server.server_name,
            "version": server.broker.version,
            "proto": PROTOCOL,
            "git_commit": "jetlake",
            "go": "python",
            "host": host,
            "port": port,
            "headers": not server.options.no_header_support,
            "max_payload": server.options.max_payload,
            "cluster": self.name,
        }
        leaf_url = server.leafs.advertised_url
        optional = {
            "auth_required": bool(options.username),
            "tls_required": options.tls is not None,
            "tls_verify": options.tls is not None,
            "ip": f"nats-route://{join(host, port)}/" if options.advertise else "",
            "cluster_dynamic": self.is_dynamic,
            "domain": server.options.jetstream.domain,
            "connect_urls": self.urls.own() if not options.no_advertise else [],
            "ws_connect_urls": self.urls.own_websocket() if not options.no_advertise else [],
            "leafnode_urls": [leaf_url] if leaf_url else [],
            "jetlake": self.identity,
        }
        return fields | {name: value for name, value in optional.items() if value}

    def shares_jetstream(self, route: Route) -> bool:
        """Whether another server is one of those whose JetStream is one, as this one's is or is about to be."""
        said = route.info.jetlake if route.info is not None else None
        if said is None or not self.identity:
            return False
        own, other = self.identity.get("cluster_id"), said.get("cluster_id")
        return not own or not other or own == other

    def tell_identity(self, identity: dict[str, Any]) -> None:
        """Say something else under `jetlake` from now on, also to those who are linked."""
        self.identity = identity
        for route in self.open.values():
            if route.info is not None and route.info.jetlake is not None:
                route.send(writer.info(self._info()))

    def route_connect(self, route: Route) -> dict[str, Any]:
        """What a server is told by which it lets this one in."""
        return self.connect_fields(route.url)

    def connect_fields(self, to: str) -> dict[str, Any]:
        """The same for a URL."""
        url, server = urlsplit(to), self._server
        fields: dict[str, Any] = {"echo": True, "verbose": False, "pedantic": False}
        if url.username is not None:
            fields |= {"user": unquote(url.username), "pass": unquote(url.password or "")}
        return fields | {
            "tls_required": self.options.tls is not None,
            "headers": not server.options.no_header_support,
            "name": server.server_id,
            "cluster": self.name,
            **({"cluster_dynamic": True} if self.is_dynamic else {}),
        }

    # Who may be here

    def route_login(self, route: Route, fields: dict[str, Any]) -> None:
        """Find out whether another server is of this cluster."""
        authenticator = self._authenticator
        if authenticator is None:
            self._finish_login(route, fields, is_known=True)
            return
        said = {name: value for name, value in fields.items() if isinstance(value, str)}
        credentials = Credentials(user=said.get("user", ""), password=said.get("pass", ""))
        if not authenticator.is_slow(credentials):
            self._finish_login(route, fields, is_known=authenticator.check(credentials, b"") is not None)
            return

        async def check() -> None:
            user = await self._server.loop.run_in_executor(None, authenticator.check, credentials, b"")
            if not route.is_closed:
                self._finish_login(route, fields, is_known=user is not None)

        connection = route.connection
        assert isinstance(connection, RouteConnection)
        connection.check(route, check())

    def _finish_login(self, route: Route, fields: dict[str, Any], *, is_known: bool) -> None:
        if not is_known:
            self._server.broker.auth_errors += 1
            self._server.log("error", f"{route.label} - authentication error")
            route.refuse("Authorization Violation")
        elif problem := self._problem(fields):
            self._server.log("error", f"{route.label} - {problem}")
            route.refuse(problem)
        else:
            route.admit()

    def _problem(self, fields: dict[str, Any]) -> str:
        """Why somebody who says this is no server of this cluster; empty when it may be one."""
        if fields.get("lang"):
            return "attempted to connect to route port"
        if gateway := fields.get("gateway"):
            return f'Rejecting connection from gateway "{gateway}" on the Route port'
        name, server_id = str(fields.get("cluster") or ""), str(fields.get("name") or "")
        if self._agree(name, fields.get("cluster_dynamic") is True, server_id):
            return ""
        return f'Rejecting connection, cluster name "{name}" does not match "{self.name}"'

    def _agree(self, name: str, is_dynamic: bool, server_id: str) -> bool:
        """Whether a server with this cluster name is one of ours. A name that was made up gives way to a better one."""
        if name == self.name:
            return True
        if not self.is_dynamic or (is_dynamic and name <= self.name):
            return False
        self.name, self.is_dynamic = name, is_dynamic
        self._server.show_features()
        self._server.log("info", f"Cluster name updated to {name}")
        for other in list(self.open.values()):
            if other.server_id != server_id:
                other.close("Cluster Name Conflict")
        return True

    # Servers come and go

    def route_known(self, route: Route, info: Info) -> None:
        """Another server said who it is: link with it, unless there is a reason not to."""
        server, fields = self._server, info.fields
        if route.is_explicit:
            self.reached[route.url] = fields.server_id
        if self._is_leaving or fields.server_id == server.server_id:
            route.is_final = True
            route.close(DUPLICATE)
        elif fields.cluster and not self._agree(fields.cluster, fields.cluster_dynamic, fields.server_id):
            route.close("Cluster Name Conflict")
        elif not route.is_solicited and fields.server_name == server.server_name:
            server.log("error", f'{route.label} - Remote server has a duplicate name: "{fields.server_name}"')
            route.close("Duplicate Server Name")
        elif fields.route_account:
            account = fields.route_account
            route.refuse(f'Not possible to have a dedicated route for account "{account}" between those servers')
        elif (other := self.open.get(fields.server_id)) is not None:
            _prefer(other, route)
            route.is_final = True
            route.close(DUPLICATE)
        else:
            self._add(route, info)

    def _add(self, route: Route, info: Info) -> None:
        fields, server = info.fields, self._server
        self.open[fields.server_id] = route
        server.log("info", f"{route.label} - Route connection created - Remote: {fields.server_name}")
        self._tell_others(route, info)
        if not self.options.no_advertise:
            self.urls.add(fields.connect_urls or (), fields.ws_connect_urls or ())
        route.open()
        server.leafs.told()
        self.on_linked()

    def route_told(self, route: Route, info: Info) -> None:
        """Another server said something about itself, or about a third one."""
        fields = info.fields
        if fields.server_id and fields.server_id != route.server_id:
            self._take_gossip(fields)
            return
        if fields.ldm and route.info is not None and not self.options.no_advertise:
            self._forget_urls(route)
        if fields.jetlake is not None and route.info is not None and fields.jetlake != route.info.jetlake:
            route.info = msgspec.structs.replace(route.info, jetlake=fields.jetlake)
            self.on_linked()

    def _forget_urls(self, route: Route) -> None:
        """Tell clients nothing of a server any more. That it is gone needs no second word."""
        info = route.info
        if info is not None and not self.options.no_advertise:
            self.urls.remove(info.connect_urls or (), info.ws_connect_urls or ())
            route.info = msgspec.structs.replace(info, connect_urls=None, ws_connect_urls=None)

    def route_closed(self, route: Route) -> None:
        """A connection to another server is gone."""
        if self.open.get(route.server_id) is route:
            del self.open[route.server_id]
            self._forget_urls(route)
            self._server.leafs.told()
        remote = f" - Remote: {route.server_name}" if route.server_name else ""
        level = "debug" if route.close_reason == DUPLICATE else "info"
        self._server.log(level, f"{route.label} - Router connection closed: {route.close_reason}{remote}")
        if not route.is_final and not self._is_leaving:
            self._connect_again(route)

    def _connect_again(self, route: Route) -> None:
        other = self.open.get(route.server_id)
        if other is not None:
            _upgrade(other, route)
        elif route.is_explicit or route.did_solicit or route.retries:
            url = route.url or (self._url(route, route.info) if route.info is not None else "")
            if url:
                self._dialer.dial(url, is_explicit=route.is_explicit, is_again=True)

    def route_switch(self, route: Route, switch: Switch) -> bool:
        """Let somebody else have the connection; False when nobody wants it."""
        handler, connection = self.on_switch.get(switch.kind), route.connection
        if handler is None:
            return False
        assert isinstance(connection, RouteConnection)
        connection.hold()
        self._server.call_soon(lambda: handler(switch.kind, switch.args, connection))
        return True

    # Gossip

    def _tell_others(self, route: Route, info: Info) -> None:
        """Tell the other servers of a new one, if it was not one of them that told of it."""
        was_told_of = route.did_solicit and not route.is_explicit and route.gossip_mode != GOSSIP_ALWAYS
        if was_told_of or info.fields.gossip_mode == GOSSIP_NONE:
            return
        url = info.fields.ip or self._url(route, info.fields)
        said: dict[str, Any] = {
            name: value for name, value in info.said.items() if name not in ("nonce", "gossip_mode")
        }
        for other in self.open.values():
            if other is not route:
                mode = _gossip_mode(route, other)
                other.send(writer.info(said | {"ip": url} | ({"gossip_mode": mode} if mode else {})))

    def _take_gossip(self, info: RouteInfo) -> None:
        """Connect to a server that another one told of, if that is news."""
        if info.server_id == self._server.server_id or info.server_id in self.open or info.route_account:
            return
        try:
            url = urlsplit(info.ip)
            if not (url.hostname and url.port):
                raise ValueError("no host or port")
        except ValueError as error:
            self._server.log("error", f"Error parsing URL from INFO: {info.ip!r}: {error}")
            return
        known = {where(route).lower() for route in self.options.routes}
        if {join(info.host, info.port).lower(), join(url.hostname, info.port).lower()} & known:
            return
        user = ""
        if info.auth_required and self.options.username:
            user = f"{quote(self.options.username, safe='')}:{quote(self.options.password, safe='')}@"
        self._dialer.dial(
            f"nats-route://{user}{join(url.hostname, url.port)}", is_explicit=False, gossip_mode=info.gossip_mode
        )

    @staticmethod
    def _url(route: Route, info: RouteInfo) -> str:
        """How others reach a server that does not say it: at the address that it has for us."""
        return info.ip or f"nats-route://{join(route.address[0], info.port)}/"


def _gossip_mode(new: Route, other: Route) -> int:
    """What a server is told to do with the news of a new one."""
    if (not new.did_solicit and other.is_explicit) or (new.did_solicit and new.is_explicit):
        return GOSSIP_ALWAYS
    return GOSSIP_NONE if not new.did_solicit else GOSSIP_USUAL


def _upgrade(kept: Route, other: Route) -> None:
    """Keep a route as if it was the other one, too: connect again if that would have been."""
    if other.did_solicit and (not kept.did_solicit or (other.is_explicit and not kept.is_explicit)):
        kept.url = other.url
        kept.did_solicit = True
    kept.is_explicit |= other.is_explicit


def _prefer(kept: Route, other: Route) -> None:
    """Of two connections to one server, keep the one that was there first."""
    _upgrade(kept, other)
    kept.retries = True

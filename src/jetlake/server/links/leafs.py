"""The leaf node connections of a server: the listener for leafs, the hubs it connects to, and who is linked now."""

from __future__ import annotations

import base64
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from jetlake.broker import auth
from jetlake.broker.account import Account
from jetlake.broker.auth import Authenticator, AuthOptions, Credentials, User
from jetlake.broker.broker import GLOBAL_ACCOUNT
from jetlake.broker.leaf import Leaf, Rules
from jetlake.broker.permissions import Permissions
from jetlake.broker.subscription import Msg
from jetlake.config import LeafOptions
from jetlake.server.address import join
from jetlake.server.links.connection import LeafConnection
from jetlake.server.links.rules import leaf_rules
from jetlake.wire.links import LinkInfo

if TYPE_CHECKING:
    from jetlake.server.links.listener import LeafListener
    from jetlake.server.links.remote import Remote
    from jetlake.server.server import Server

PROTOCOL = 1  # of INFO and CONNECT: no message traces
DUPLICATE = "Duplicate Remote LeafNode Connection"


class Leafs:
    """The leaf node connections of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.open: dict[int, Leaf] = {}
        self.listener: LeafListener | None = None
        self.remotes: list[Remote] = []
        self._authenticator: Authenticator | None = None

    @property
    def options(self) -> LeafOptions:
        return self._server.options.leafnodes or LeafOptions()

    @property
    def cluster_name(self) -> str:
        """A server that is a leaf itself goes by its own name among clusters, so that loops are seen."""
        return self._server.server_name if self.options.remotes else ""

    # Life

    async def start(self) -> None:
        """Accept leafs, and connect to hubs. Raises JetLakeError."""
        options = self.options
        if options.users:
            self._authenticator = Authenticator(
                AuthOptions(
                    tuple(
                        auth.User(user.username or user.nkey, user.account or GLOBAL_ACCOUNT, user.password, user.nkey)
                        for user in options.users
                    )
                )
            )
        for name in [user.account for user in options.users] + [remote.account for remote in options.remotes]:
            self._server.broker.account(name or GLOBAL_ACCOUNT)
        self._map_domains()
        if options.port:
            from jetlake.server.links.listener import LeafListener  # few servers have leafs

            self.listener = LeafListener(self._server, options)
            await self.listener.start()
            self._server.log("info", f"Listening for leafnode connections on {join(options.host, self.listener.port)}")

    def _map_domains(self) -> None:
        """Where there is no JetStream here, requests go to another domain, if one is named."""
        server = self._server
        if server.jetstream is None:
            for name, domain in server.options.default_js_domain.items():
                if domain:
                    account, prefix = server.broker.account(name), f"$JS.{domain}.API.".encode()
                    account.subscribe(b"$JS.API.>", partial(_ask_domain, account, prefix))

    def solicit(self) -> None:
        """Connect to hubs, and stay connected."""
        from jetlake.server.links.remote import Remote  # few servers are leafs

        self.remotes = [Remote(self._server, remote) for remote in self.options.remotes if not remote.is_disabled]
        for remote in self.remotes:
            remote.start()

    def close(self) -> None:
        """Accept no leafs any more, and connect to no hubs."""
        if self.listener is not None:
            self.listener.close()
        for remote in self.remotes:
            remote.stop()

    def close_links(self, reason: str) -> None:
        """End all links."""
        for leaf in list(self.open.values()):
            leaf.close(reason)

    # Leafs that come in

    def accepted(self, connection: LeafConnection, address: tuple[str, int], *, is_websocket: bool = False) -> Leaf:
        """A leaf that has connected."""
        nonce = base64.urlsafe_b64encode(os.urandom(11)).rstrip(b"=").decode()
        broker = self._server.broker
        return Leaf(
            broker,
            self,
            connection,
            broker.next_cid(),
            address,
            nonce=nonce,
            is_isolated=self.options.isolates,
            is_websocket=is_websocket,
        )

    def leaf_info(self, leaf: Leaf, *, connect_info: bool) -> dict[str, Any]:
        """What the soliciting side is told about the server."""
        server, options, listener = self._server, self.options, self.listener
        port = listener.port if listener is not None else 0
        fields: dict[str, Any] = {
            "server_id": server.server_id,
            "server_name": server.server_name,
            "version": server.broker.version,
            "proto": PROTOCOL,
            "git_commit": "jetlake",
            "go": "python",
            "host": options.host,
            "port": port,
            "headers": not server.options.no_header_support,
            "auth_required": True,
            "max_payload": server.options.max_payload,
            "ip": join(options.host, port),
            "client_id": leaf.cid,
            "info_on_connect": True,
        } | server.broker.features
        if self.cluster_name:
            fields["cluster"] = self.cluster_name
        if options.tls is not None and not leaf.is_websocket:
            fields |= {"tls_required": True} | ({"tls_verify": True} if options.tls.verify else {})
        if not options.no_advertise:
            fields["leafnode_urls"] = [options.advertise or join(options.host, port)]
        if not connect_info:
            return fields | {"nonce": leaf.nonce}
        fields |= {"connect_info": True, "remote_account": leaf.account.name}
        if leaf.account is server.broker.system_account:
            fields["acc_is_sys"] = True
        return fields | _permission_fields(leaf.permissions)

    def leaf_problem(self, fields: dict[str, Any]) -> str:
        """Why somebody who says this is no leaf of ours; empty when it may be one."""
        if fields.get("lang"):
            return "attempted to connect to leaf node port"
        if fields.get("gateway"):
            return f'Rejecting connection from gateway "{fields["gateway"]}" on the leafnode port'
        wanted, cluster = self.options.min_version, str(fields.get("cluster") or "")
        if wanted and _version(str(fields.get("version") or "")) < _version(wanted):
            return f'connection rejected since minimum version required is "{wanted}"'
        if " " in cluster:
            return "cluster name cannot contain spaces"
        if cluster and cluster == self.cluster_name:
            return "remote leafnode has same cluster name"
        return ""

    def leaf_login(self, leaf: Leaf, credentials: Credentials) -> None:
        """Find out who a leaf is."""
        authenticator = self._authenticator or self._server.broker.authenticator_for(leaf.type)
        if authenticator.is_slow(credentials):
            connection = leaf.connection
            assert isinstance(connection, LeafConnection)
            connection.check_login(credentials)
        else:
            self.finish_login(leaf, authenticator.check(credentials, leaf.nonce.encode()))

    async def check(self, leaf: Leaf, credentials: Credentials) -> User | None:
        """Who this is, where that takes a while."""
        server, nonce = self._server, leaf.nonce.encode()
        if self._authenticator is None and server.tokens is not None:
            return await server.tokens.check(credentials, nonce)
        authenticator = self._authenticator or server.broker.authenticator_for(leaf.type)
        return await server.loop.run_in_executor(None, authenticator.check, credentials, nonce)

    def finish_login(self, leaf: Leaf, user: User | None) -> None:
        """Let a leaf in, or not."""
        if user is None:
            self._server.log("error", f"{leaf.label} - authentication error")
        leaf.finish_login(user)

    # Both ways

    def leaf_connect(self, leaf: Leaf, info: LinkInfo) -> dict[str, Any]:
        """What a hub is told about this server."""
        connection = leaf.connection
        assert isinstance(connection, LeafConnection)
        remote = next(remote for remote in self.remotes if remote.connection is connection)
        return remote.connect_fields(info)

    def leaf_rules(self, account: Account, domain: str) -> Rules:
        """What does not cross a link."""
        server = self._server
        return leaf_rules(server.options, account.name, account is server.broker.system_account, domain)

    def leaf_opened(self, leaf: Leaf) -> None:
        """A link is there. One from the same server that was there before is gone, most likely."""
        if not leaf.is_solicited and leaf.remote_account:
            for other in list(self.open.values()):
                if not other.is_solicited and _same(leaf, other):
                    other.refuse(DUPLICATE)
        self.open[leaf.cid] = leaf
        leaf.account.leafs += 1
        server = self._server
        server.log("info", f"{leaf.label} - Leafnode connection created for account: {leaf.account.name}")
        server.events.leaf_joined(leaf)
        if leaf.user is not None and leaf.user.expires_ns:
            leaf.expiry = server.call_at(leaf.user.expires_ns, lambda: leaf.refuse("User Authentication Expired"))

    def leaf_closed(self, leaf: Leaf) -> None:
        """A link is gone."""
        server = self._server
        if leaf.expiry is not None:
            leaf.expiry.cancel()
        if self.open.pop(leaf.cid, None) is not None:
            leaf.account.leafs -= 1
            server.events.leaf_left(leaf)
        remote = f" - Remote: {leaf.name}" if leaf.name else ""
        server.log("info", f"{leaf.label} - Leafnode connection closed: {leaf.close_reason}{remote}")


def _ask_domain(account: Account, prefix: bytes, msg: Msg) -> bool:
    return account.deliver(msg._replace(subject=prefix + msg.subject[len(b"$JS.API.") :]))


def _same(leaf: Leaf, other: Leaf) -> bool:
    return (leaf.name, leaf.cluster, leaf.account, leaf.remote_account) == (
        other.name,
        other.cluster,
        other.account,
        other.remote_account,
    )


def _version(text: str) -> tuple[int, ...]:
    numbers = text.lstrip("v").partition("-")[0].split(".")
    return tuple(int(number) for number in numbers) if all(map(str.isdigit, numbers)) else ()


def _permission_fields(permissions: Permissions | None) -> dict[str, Any]:
    """A user's permissions, named from the leaf's side: what it may import and export."""
    if permissions is None:
        return {}
    lists = {
        "import": (permissions.subscribe_allow, permissions.subscribe_deny),
        "export": (permissions.publish_allow, permissions.publish_deny),
    }
    fields = {}
    for name, (allow, deny) in lists.items():
        shown = ({"allow": allow} if allow else {}) | ({"deny": deny} if deny else {})
        if shown:
            fields[name] = shown
    return fields

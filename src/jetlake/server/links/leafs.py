"""The leaf node connections of a server: the listener for leafs, the hubs it connects to, and who is linked now."""

from __future__ import annotations

import base64
import os
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from jetlake.broker import auth
from jetlake.broker.account import Account
from jetlake.broker.auth import Authenticator, AuthOptions, Credentials, User
from jetlake.broker.broker import GLOBAL_ACCOUNT
from jetlake.broker.leaf import TRACE_PROTOCOL, Leaf, Rules
from jetlake.broker.permissions import Permissions
from jetlake.broker.subscription import Msg
from jetlake.config import LeafOptions
from jetlake.errors import ReloadRefused
from jetlake.server import tls
from jetlake.server.address import join
from jetlake.server.links.connection import LeafConnection
from jetlake.server.links.rules import leaf_rules
from jetlake.wire import writer
from jetlake.wire.links import LinkInfo

if TYPE_CHECKING:
    from jetlake.server.links.listener import LeafListener
    from jetlake.server.links.remote import Remote
    from jetlake.server.server import Server

PROTOCOL = TRACE_PROTOCOL  # of INFO and CONNECT
DUPLICATE = "Duplicate Remote LeafNode Connection"
TOO_MANY = "maximum account active connections exceeded"


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
        """The cluster; a server that is a leaf itself goes by its own name, so that loops are seen."""
        return self._server.routes.name or (self._server.server_name if self.options.remotes else "")

    @property
    def advertised_url(self) -> str:
        """Where leafs come in, for other servers of the cluster to tell theirs; empty when nobody is to know."""
        options = self.options
        if self.listener is None or options.no_advertise:
            return ""
        return options.advertise or join(options.host, self.listener.port)

    def told(self) -> None:
        """Tell leafs of other servers of the cluster that they may connect to, which are others than before."""
        for leaf in self.open.values():
            if not leaf.is_solicited:
                leaf.send(writer.info(self._info(leaf)))

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

    def check_reload(self, new: LeafOptions) -> None:
        """Remotes may come, go, be disabled and have other certificates; the listener, other certificates.

        Raises JetLakeError.
        """
        from jetlake.server.links.remote import remote_key

        old = self.options
        if (old.tls is None) != (new.tls is None):
            raise ReloadRefused("leafnodes tls", old.tls, new.tls)
        for field in old.__struct_fields__:
            if field not in ("tls", "remotes") and getattr(old, field) != getattr(new, field):
                raise ReloadRefused(f"leafnodes {field}", getattr(old, field), getattr(new, field))
        known = {remote_key(remote): remote for remote in old.remotes}
        for remote in new.remotes:
            before = known.get(remote_key(remote), remote)
            if replace(before, tls=remote.tls, is_disabled=remote.is_disabled) != remote:
                raise ReloadRefused("leafnodes remotes", "a remote", "the same with other options")
        if new.tls is not None:
            tls.make_context(new.tls)

    def reload(self) -> None:
        """Use other options, which were checked."""
        from jetlake.server.links.remote import Remote, remote_key

        if self.listener is not None:
            self.listener.use(self.options)
        wanted = {remote_key(remote): remote for remote in self.options.remotes if not remote.is_disabled}
        for remote in self.remotes:
            if remote.key not in wanted:
                remote.stop()
        self.remotes = [remote for remote in self.remotes if remote.key in wanted]
        for remote in self.remotes:
            remote.options = wanted.pop(remote.key)
        for options in wanted.values():
            self._server.broker.account(options.account or GLOBAL_ACCOUNT)
            self.remotes.append(remote := Remote(self._server, options))
            remote.start()

    def limit(self, account: Account) -> None:
        """An account may have fewer leafs than before: the newest ones go."""
        if account.options is not None and 0 <= account.options.max_leafs < account.leafs:
            own = [leaf for leaf in self.open.values() if leaf.account is account]
            for leaf in own[account.options.max_leafs :]:
                leaf.refuse(TOO_MANY)

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
        fields = self._info(leaf)
        if not connect_info:
            return fields | {"nonce": leaf.nonce}
        fields |= {"connect_info": True, "remote_account": leaf.account.name}
        if leaf.account is self._server.broker.system_account:
            fields["acc_is_sys"] = True
        return fields | _permission_fields(leaf.permissions)

    def _info(self, leaf: Leaf) -> dict[str, Any]:
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
        if self.advertised_url:
            others = (route.info.leafnode_urls or () for route in server.routes.open.values() if route.info is not None)
            fields["leafnode_urls"] = list(dict.fromkeys([self.advertised_url, *chain.from_iterable(others)]))
        return fields

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
        leaf.finish_login(user, TOO_MANY if user is not None and self._is_full(user.account) else None)

    def _is_full(self, name: str) -> bool:
        """True when an account may have no more leafs."""
        account = self._server.broker.account(name)
        return account.options is not None and 0 <= account.options.max_leafs <= account.leafs

    # Both ways

    def leaf_connect(self, leaf: Leaf, info: LinkInfo) -> dict[str, Any]:
        """What a hub is told about this server."""
        return self._remote_of(leaf).connect_fields(info)

    def leaf_told(self, leaf: Leaf, info: LinkInfo) -> None:
        """A hub told, later, which other servers of its cluster there are."""
        if info.leafnode_urls is not None:
            self._remote_of(leaf).discover(info)

    def _remote_of(self, leaf: Leaf) -> Remote:
        return next(remote for remote in self.remotes if remote.connection is leaf.connection)

    def leaf_rules(self, account: Account, domain: str) -> Rules:
        """What does not cross a link."""
        server = self._server
        return leaf_rules(server.options, account.name, account is server.broker.system_account, domain)

    def leaf_opened(self, leaf: Leaf) -> None:
        """A link is there. One from the same server that was there before is gone, most likely."""
        if leaf.is_solicited and self._is_full(leaf.account.name):
            leaf.refuse(TOO_MANY)
            return
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

"""A leaf node connection: how two servers agree to be linked, and what may cross.

    accepting side                       soliciting side
    INFO with a nonce           ->
                                <-       CONNECT with credentials
    INFO with connect_info      ->       (or -ERR, and the end)
    LS+ of everything           ->
                                <-       LS+ of everything

The soliciting side is the spoke, the other one the hub, unless CONNECT says `is_hub`. A hub tells a spoke of all that
it knows, its other spokes included; a spoke tells its hub what is wanted at it and below it, never what another hub
wants. So interest goes up and down a tree. A loop of links would show in a subject of the account's own, `$LDS.<id>`,
which is told over every link, and comes back.

Permissions come from the user whom the leaf logged in as: what it may publish may come up, what it may subscribe to may
go down. The hub tells them, and the leaf keeps to them: what goes against them costs the link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jetlake.broker.account_link import AccountLink
from jetlake.broker.auth import Credentials, User
from jetlake.broker.endpoint import LEAFNODE, LEAFNODE_WS
from jetlake.broker.link import Link, LinkConnection
from jetlake.broker.peer import Kind, Peer
from jetlake.broker.permissions import Permissions, publish_violation, subscribe_violation
from jetlake.store.index.subject_table import SubjectFilter
from jetlake.subjects import decode_subject, encode_subject, is_literal, is_subset
from jetlake.wire import links, writer
from jetlake.wire.links import Err, Event, Info, Interest, LinkConnect, LinkInfo, Subjects, parse_link_line

if TYPE_CHECKING:
    from jetlake.broker.account import Account
    from jetlake.broker.broker import Broker
    from jetlake.broker.client import Cancellable

TRACE_PROTOCOL = 3  # of servers that know message traces
LOOP_PREFIX = b"$LDS."
_GATEWAY_REPLIES = (b"_GR_.", b"$GR.")
_REPLIES = (b"_R_.", b"$JS.ACK.")  # answers, which nobody could list in permissions
_OWN_REQUESTS = b"$SYS.REQ."  # each server answers for its own clients

LONG_WAIT_S = 30.0  # before a server connects again that did what it may not, or closed a loop


class Rules(NamedTuple):
    """What never crosses a link, beside what permissions say: subjects not sent, and subjects not told of."""

    not_sent: tuple[str, ...] = ()
    not_told: tuple[str, ...] = ()


_NO_RULES = Rules()


class LeafHost(Protocol):
    """What a leaf needs of its server."""

    def leaf_info(self, leaf: Leaf, *, connect_info: bool) -> dict[str, Any]: ...
    def leaf_connect(self, leaf: Leaf, info: LinkInfo) -> dict[str, Any]: ...
    def leaf_problem(self, fields: dict[str, Any]) -> str: ...
    def leaf_login(self, leaf: Leaf, credentials: Credentials) -> None: ...
    def leaf_rules(self, account: Account, domain: str) -> Rules: ...
    def leaf_told(self, leaf: Leaf, info: LinkInfo) -> None: ...
    def leaf_opened(self, leaf: Leaf) -> None: ...
    def leaf_closed(self, leaf: Leaf) -> None: ...


class Leaf(Link, AccountLink):
    """One side of a leaf node connection."""

    kind = Kind.LEAF
    verb, headers_verb = b"LMSG", b"HMSG"
    maps = True

    def __init__(
        self,
        broker: Broker,
        host: LeafHost,
        connection: LinkConnection,
        cid: int,
        address: tuple[str, int],
        account: Account | None = None,
        *,
        nonce: str = "",
        denials: Rules = _NO_RULES,
        is_spoke: bool = False,
        is_isolated: bool = False,
        is_websocket: bool = False,
    ) -> None:
        """With an account this is the soliciting side. `denials` are the remote's own."""
        super().__init__(broker, connection, cid)
        self.begin(account or broker.default_account)
        self.host, self.address, self.nonce = host, address, nonce
        self.is_solicited, self.is_spoke, self.is_isolated = account is not None, is_spoke, is_isolated
        self.is_websocket = is_websocket
        self.user: User | None = None
        self.expiry: Cancellable | None = None  # the timer that ends the link of a user whose time is up
        self.permissions: Permissions | None = None
        self.name = self.server_id = self.cluster = self.remote_account = ""
        self.reconnect_wait_s = 0.0  # how long to wait before the next try, if it is longer than usual
        self._denials = denials
        self._not_sent: SubjectFilter | None = None
        self._not_told: tuple[str, ...] = ()
        self._has_said_hello = False

    @property
    def label(self) -> str:
        """How log lines name the link."""
        host, port = self.address
        return f"{host}:{port} - {'lid_ws' if self.is_websocket else 'lid'}:{self.cid}"

    def describe(self) -> dict[str, Any]:
        """What a service of another account is told of who asks it."""
        return {"acc": self.account.name, "rtt": self.rtt_ns}

    @property
    def identity(self) -> tuple[int, str]:
        """The number of the connection, and the name of the other server."""
        return self.cid, self.name

    def account_of(self, name: bytes) -> AccountLink:
        """The account of the link: there is one."""
        return self

    def account_links(self) -> list[AccountLink]:
        """All accounts that take part."""
        return [self]

    def interest_line(self, subject: bytes, queue: bytes | None, weight: int) -> bytes:
        return links.interest(subject, queue, weight)

    def no_interest_line(self, subject: bytes, queue: bytes | None) -> bytes:
        return links.no_interest(subject, queue)

    def parse_line(self, line: bytes) -> Event:
        """The event of a line that is no message. Raises ProtocolError."""
        return parse_link_line(line)

    # Agreeing

    def greet(self) -> None:
        """Say INFO, on the accepting side."""
        self.send(writer.info(self.host.leaf_info(self, connect_info=False)))

    def take_event(self, event: Event) -> None:
        """Act on a line that is about the link itself."""
        match event:
            case Info(fields) if self.is_solicited:
                self._take_info(fields)
            case LinkConnect(fields) if not self.is_solicited:
                self._take_connect(fields)
            case Err(text):
                self._take_error(text)

    def _take_info(self, info: LinkInfo) -> None:
        if self.is_open:
            self.host.leaf_told(self, info)
            return
        if not self._has_said_hello:
            if not info.client_id:
                self.close("Wrong Port")
                return
            self._has_said_hello = True
            self.name, self.server_id, self.cluster = info.server_name, info.server_id, info.cluster
            self.takes_headers, self.takes_traces = info.headers, info.proto >= TRACE_PROTOCOL
            self._use_rules(info.domain)
            self.send(links.connect(self.host.leaf_connect(self, info)))
            if not info.info_on_connect:
                self._open()
        elif info.connect_info:
            self.remote_account = info.remote_account
            self.permissions = _permissions(info)
            self._open()

    def _take_connect(self, fields: dict[str, Any]) -> None:
        problem = self.host.leaf_problem(fields)
        if problem or self._has_said_hello:
            self.refuse(problem or "Authorization Violation")
            return
        self._has_said_hello = True
        text = {name: value for name, value in fields.items() if isinstance(value, str)}
        self.name, self.server_id = text.get("name", ""), text.get("server_id", "")
        self.cluster, self.remote_account = text.get("cluster", ""), text.get("remote_account", "")
        self.takes_headers = fields.get("headers") is True
        protocol = fields.get("protocol")
        self.takes_traces = isinstance(protocol, int) and protocol >= TRACE_PROTOCOL
        self.is_spoke = fields.get("is_hub") is True
        self.is_isolated |= fields.get("isolate") is True
        deny = fields.get("deny_pub")
        if isinstance(deny, list):
            self._denials = Rules(tuple(subject for subject in deny if isinstance(subject, str)))
        self._domain = text.get("domain", "")
        self.host.leaf_login(self, self._credentials(text))

    _domain = ""

    def _credentials(self, said: dict[str, str]) -> Credentials:
        """What the soliciting side says to be let in."""
        names = {"user": "user", "pass": "password"} | {name: name for name in ("auth_token", "nkey", "sig", "jwt")}
        fields: dict[str, Any] = {field: said[name] for name, field in names.items() if name in said}
        return Credentials(**fields, host=self.address[0], connection_type=self.type)

    @property
    def type(self) -> str:
        """How it connected, as users' `allowed_connection_types` call it."""
        return LEAFNODE_WS if self.is_websocket else LEAFNODE

    def finish_login(self, user: User | None, problem: str | None = None) -> None:
        """The credentials of the other side were checked: let it in, or not."""
        if self.is_closed:
            return
        if user is None:
            self.broker.auth_errors += 1
            self.refuse("Authorization Violation")
            return
        self.user, self.permissions, self.account = user, user.permissions, self.broker.account(user.account)
        self.is_limited = self.permissions is not None
        if problem:
            self.refuse(problem)
            return
        self._use_rules(self._domain)
        self.send(writer.info(self.host.leaf_info(self, connect_info=True)))
        self._open()

    def _open(self) -> None:
        self.is_limited |= bool(self._denials.not_told)
        self.send(links.interest(self.account.loop_subject, None, 1))
        self.host.leaf_opened(self)
        if not self.is_closed:
            self.open()

    def _take_error(self, text: str) -> None:
        if text.startswith(("Loop detected", "Permissions Violation", "remote leafnode has same cluster name")):
            self.reconnect_wait_s = LONG_WAIT_S
        self.broker.log("error", f"leafnode remote={self.name} error={text!r}")
        self.close(text)

    def close(self, reason: str) -> None:
        """Leave the account and let the connection go."""
        if not self.is_closed:
            super().close(reason)
            self.host.leaf_closed(self)

    # What may cross

    def _use_rules(self, domain: str) -> None:
        rules = self.host.leaf_rules(self.account, domain)
        not_sent = rules.not_sent + self._denials.not_sent
        self._not_sent = SubjectFilter([encode_subject(subject) for subject in not_sent]) if not_sent else None
        self._not_told = rules.not_told + self._denials.not_told

    def wants_interest_of(self, other: Peer) -> bool:
        """True when the other side is told what this peer wants."""
        if other.kind is Kind.ROUTE:
            return not self.is_spoke  # the other servers of this cluster are leafs of the hub themselves
        if not isinstance(other, Leaf):
            return True
        if other is self or self._is_beside(other):
            return False
        if self.is_spoke:
            return not other.is_spoke
        return other.is_spoke or not self.is_isolated

    def takes_from(self, origin: Peer) -> bool:
        """True when messages of this peer may go over."""
        if origin.kind is Kind.ROUTE and self.is_spoke:
            return False  # the server that it came from is a leaf of the hub itself
        return not self.is_closed and origin is not self and not (isinstance(origin, Leaf) and self._is_beside(origin))

    def _is_beside(self, other: Leaf) -> bool:
        """True when both lead to the same cluster, which passes messages on itself."""
        return bool(self.cluster) and self.cluster == other.cluster

    def may_send(self, subject: bytes) -> bool:
        """True when messages to this subject may go over."""
        if self.is_closed or (self._not_sent is not None and self._not_sent.matches(subject)):
            return False
        if self.permissions is None or subject.startswith(_GATEWAY_REPLIES):
            return True
        if self.is_solicited:
            return subject.startswith(_REPLIES) or self.permissions.may_publish(subject)
        return self.permissions.may_subscribe(subject)

    def may_receive(self, subject: bytes) -> bool:
        """True when messages to this subject may come over. On the accepting side the link ends if they may not."""
        if self.is_solicited:
            text = decode_subject(subject)
            return not any(is_subset(text, denied) for denied in self._denials.not_told)
        permissions = self.permissions
        if permissions is None or subject.startswith(_GATEWAY_REPLIES + _REPLIES) or permissions.may_publish(subject):
            return True
        self.refuse(publish_violation(subject))
        return False

    def may_trace_to(self, subject: bytes) -> bool:
        """True when traces of what comes over may go to a subject."""
        if self.is_solicited:
            text = decode_subject(subject)
            return not any(is_subset(text, denied) for denied in self._denials.not_told)
        return self.permissions is None or self.permissions.may_publish(subject)

    def hides(self, subject: bytes) -> bool:
        """True when the other side is not told that somebody here wants this."""
        if subject.startswith(LOOP_PREFIX):
            return False
        if subject.startswith(_OWN_REQUESTS) and self.account is not self.broker.system_account:
            return True
        text = decode_subject(subject)
        if any(is_subset(text, denied) for denied in self._not_told):
            return True
        is_checked = self.is_solicited and self.permissions is not None and is_literal(text)
        return is_checked and self.permissions is not None and not self.permissions.may_subscribe(subject)

    def accepts(self, event: Interest) -> bool:
        """True when the other side may want this. The link ends where it may not, and where it leads in a circle."""
        subject = event.subject
        if subject == self.account.loop_subject:
            self.reconnect_wait_s = LONG_WAIT_S
            self.refuse(
                f'Loop detected for leafnode account="{self.account.name}". '
                f"Delaying attempt to reconnect for {LONG_WAIT_S:.0f}s"
            )
            return False
        if self.is_solicited or self.permissions is None or subject.startswith((LOOP_PREFIX, *_GATEWAY_REPLIES)):
            return True
        if not is_literal(decode_subject(subject)) or self.permissions.may_subscribe(subject, event.queue):
            return True
        self.refuse(subscribe_violation(subject, event.queue))
        return False


def _permissions(info: LinkInfo) -> Permissions | None:
    """What a hub lets its leaf do, as the leaf's permissions."""
    if info.imports is None and info.exports is None:
        return None
    down, up = info.imports or Subjects(), info.exports or Subjects()
    return Permissions(up.allow or (), up.deny or (), down.allow or (), down.deny or ())

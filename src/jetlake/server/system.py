"""What clients can ask the server on `$SYS.REQ.…`.

`$SYS.REQ.USER.INFO` and pages about the account itself (`$SYS.REQ.ACCOUNT.PING.…`, `$SYS.REQ.SERVER.PING.CONNZ`) are
answered in every account; `$SYS.REQ.SERVER.…` and questions about other accounts in the system account only. Answers
are the pages of the monitoring port, in an envelope that says which server they come from. A body is JSON with the
options of the page and with what the server has to be like: one that is not like that stays silent. Pages are
compressed for those who ask for it. What is not a page is in `system_control`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from jetlake.broker.account import Account
from jetlake.broker.imports import STREAMED, ReplyMap
from jetlake.broker.permissions import Permissions
from jetlake.broker.subscription import InternalSubscription, Msg
from jetlake.server import system_control
from jetlake.server.observe.content_encoding import encode_content
from jetlake.server.observe.features import FEATURES
from jetlake.server.observe.json_options import BadJsonOptions, matches, read_options
from jetlake.server.observe.page import encode_page
from jetlake.server.observe.query import BadQuery, Query
from jetlake.server.turns import Turns
from jetlake.subjects import decode_subject, encode_subject
from jetlake.wire.headers import append_headers, header_value
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.server.server import Server

_USER_INFO = b"$SYS.REQ.USER.INFO"
_SERVER = b"$SYS.REQ.SERVER."
_ACCOUNT = b"$SYS.REQ.ACCOUNT."
_DEBUG_SUBSCRIBERS = b"$SYS.DEBUG.SUBSCRIBERS"
_JETSTREAM_FLAG = 1
WAITING_MAX = 256


class SystemServices:
    """The server's own subscriptions in its accounts."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._served: set[str] = set()
        self._seq = 0
        self._replies: dict[str, ReplyMap] = {}  # of accounts whose clients asked all servers of the cluster
        self._waiting = 0  # requests whose answers are too long for one turn, or came after such a one

    def serve_accounts(self) -> None:
        """Answer in every account; in those that are new, if it was called before."""
        for account in self._server.broker.accounts.values():
            self.serve_account(account)

    def serve_account(self, account: Account) -> None:
        """Answer in an account, if that is new."""
        if account.name not in self._served:
            self._served.add(account.name)
            self._serve(account)

    def _serve(self, account: Account) -> None:
        def answer(subject: bytes, handler: Callable[[Account, Msg], bool | None]) -> None:
            account.subscribe(subject, partial(handler, account))

        answer(_USER_INFO, self._user_info)
        if account is self._server.broker.system_account:
            answer(_SERVER + b"PING", lambda account, msg: self._answer(account, msg, "Statsz", self._statsz, "statsz"))
            for name in (b"PING", self._server.server_id.encode()):
                answer(_SERVER + name + b".*", self._server_page)
            answer(_ACCOUNT + b"*.*", self._account_page)
            answer(_ACCOUNT + b"NSUBS", self._count_subscribers)
            answer(_DEBUG_SUBSCRIBERS, self._count_own_subscribers)
        else:
            for subject in (_ACCOUNT + b"PING.CONNZ", _ACCOUNT + b"PING.STATZ", _SERVER + b"PING.CONNZ"):
                answer(subject, self._own_account_page)

    def forget_jetstream(self) -> None:
        """Streams are gone: nobody answers for them any more."""
        for account in self._server.broker.accounts.values():
            account.jetstream = None
            for sub in [
                sub for sub in account.sublist if type(sub) is InternalSubscription and sub.subject.startswith(b"$JS.")
            ]:
                account.unsubscribe(sub)

    # Questions

    def _user_info(self, account: Account, msg: Msg) -> None:
        client = msg.client
        if client is None:
            return
        name = client.account.name
        data: dict[str, Any] = {"user": client.user_name, "account": name, "account_name": client.account.name_tag}
        user = client.user
        if user is not None and user.token is not None and user.token.name:
            data["user_name"] = user.token.name
        if client.permissions is not None:
            data["permissions"] = permissions_json(client.permissions)
        if user is not None and user.expires_ns:
            data["expires"] = user.expires_ns - self._server.clock()
        self._reply(account, msg, {"data": data})

    def _server_page(self, account: Account, msg: Msg) -> bool:
        page = msg.subject.rpartition(b".")[2].decode("utf-8", "replace")
        if page == "STATSZ":
            self._answer(account, msg, "Statsz", self._statsz, "statsz")
        elif page == "IDZ":
            server = self._server
            identity = {"name": server.server_name, "host": server.options.host, "id": server.server_id}
            self._send(account, msg, identity)
        elif (function := _server_pages().get(page)) is not None:
            self._answer(account, msg, page.capitalize(), lambda query: function(self._server, query))
        elif page in ("KICK", "LDM", "RELOAD") and not msg.subject.startswith(_SERVER + b"PING."):
            self._control(account, msg, page)
        else:
            return False
        return True

    def _account_page(self, account: Account, msg: Msg) -> bool:
        """A question about any account, which only the system account may ask."""
        from jetlake.server.observe.accountz import some_accstatz

        name, _, page = decode_subject(msg.subject[len(_ACCOUNT) :]).rpartition(".")
        if page == "CONNS":
            self._account_connections(account, msg, name)
        elif (name, page) == ("PING", "STATZ"):
            self._answer(account, msg, "AccountStatz", lambda query: some_accstatz(self._server, query))
        else:
            return self._about_account(account, msg, name, page)
        return True

    def _account_connections(self, account: Account, msg: Msg, name: str) -> None:
        """How many connections an account has; silence means none."""
        found = self._server.broker.accounts.get(name)
        if found is not None and found.clients:
            self._send(account, msg, self._server.events.account_connections(found))

    def _own_account_page(self, account: Account, msg: Msg) -> bool:
        page = msg.subject.rpartition(b".")[2].decode("utf-8", "replace")
        if self._server.routes.open and msg.reply:
            self._ask_all_servers(account, msg, page)
            return True
        return self._about_account(account, msg, account.name, page)

    def _ask_all_servers(self, account: Account, msg: Msg, page: str) -> None:
        """Have a question about an account answered by all servers of the cluster, this one included."""
        system, replies = self._server.broker.system_account, self._replies.get(account.name)
        if replies is None:
            replies = self._replies[account.name] = ReplyMap(system, account, STREAMED, 0, self._server.clock)
            system.insert(replies)
        subject = encode_subject(f"$SYS.REQ.ACCOUNT.{account.name}.{page}")
        system.send(subject, msg.payload, reply=replies.add(msg.reply), headers=msg.headers)

    def _about_account(self, account: Account, msg: Msg, name: str, page: str) -> bool:
        function = _account_pages().get(page)
        if function is not None:
            options = {"STATZ": "AccountStatz", "INFO": "AccInfo"}.get(page, page.capitalize())
            self._answer(account, msg, options, lambda query: function(self._server, query.replace(acc=name)))
        return function is not None

    def _statsz(self, query: Query) -> dict[str, Any]:
        from jetlake.server.observe.statsz import statsz

        return statsz(self._server, query)

    # What is not a page

    def _control(self, account: Account, msg: Msg, what: str) -> None:
        if what == "RELOAD":
            self._server.spawn(self._reload(account, msg))
            return
        act = {"KICK": system_control.kick, "LDM": system_control.lame_duck}[what]
        try:
            if act(self._server, msg.payload):
                self._reply(account, msg, {})
        except system_control.NoSuchClient as error:
            self._reply(account, msg, {"error": {"code": 500, "description": str(error)}})

    async def _reload(self, account: Account, msg: Msg) -> None:
        problem = await self._server.reload()
        self._reply(account, msg, {"error": {"code": 500, "description": problem}} if problem else {})
        self._server.flush()

    def _count_subscribers(self, account: Account, msg: Msg) -> None:
        asked = system_control.read_asked(self._server, msg.payload)
        if asked is not None:
            self._server.spawn(self._send_count(account, msg, asked))

    def _count_own_subscribers(self, account: Account, msg: Msg) -> None:
        subject, _, queue = msg.payload.strip().partition(b" ")
        asked = system_control.Asked(account, decode_subject(subject), queue or None)
        self._server.spawn(self._send_count(account, msg, asked))

    async def _send_count(self, account: Account, msg: Msg, asked: system_control.Asked) -> None:
        """A bare number."""
        async with self._server.page_lock:
            count = sum(await Turns().take_all(system_control.subscribers(asked)))
        account.send(msg.reply, b"%d" % count)
        self._server.flush()

    # Answers

    def _answer(
        self, account: Account, msg: Msg, page: str, function: Callable[[Query], Any], field: str = "data"
    ) -> None:
        if not msg.reply:
            return

        def build() -> Iterator[bytes]:
            if not matches(self.identity(), msg.payload):
                return
            answer = function(read_options(page, msg.payload))
            if answer is not None:
                yield from encode_page({"server": self.identity(), field: answer})

        work, begun, is_done = build(), list[bytes](), False
        if not self._server.page_lock.locked():
            try:
                begun, is_done = Turns().take(work)
            except Exception as error:
                self._refuse(account, msg, error)
                return
        if is_done:
            self._send_text(account, msg, begun)
        elif self._waiting < WAITING_MAX:
            self._waiting += 1
            self._server.spawn(self._finish(account, msg, begun, work))
        else:
            self._reply(account, msg, {"error": {"code": 503, "description": "too many requests"}})

    async def _finish(self, account: Account, msg: Msg, begun: list[bytes], work: Iterator[bytes]) -> None:
        """Answer when there is time for it."""
        try:
            async with self._server.page_lock:
                rest = await Turns().take_all(work)
            text = b"".join([*begun, *rest])
            if text:
                in_thread = self._server.loop.run_in_executor(None, encode_content, _accepted(msg), text)
                self._send_encoded(account, msg, *await in_thread)
        except Exception as error:
            self._refuse(account, msg, error)
        finally:
            self._waiting -= 1
        self._server.flush()

    def _refuse(self, account: Account, msg: Msg, error: Exception) -> None:
        code, text = 500, str(error)
        if isinstance(error, BadJsonOptions):
            code = 400
        elif not isinstance(error, BadQuery):
            self._server.failed(f"request subject={decode_subject(msg.subject)}", error)
            text = "internal error"
        data = {} if isinstance(error, BadJsonOptions) else {"data": None}
        self._reply(account, msg, {**data, "error": {"code": code, "description": text}})

    def _send_text(self, account: Account, msg: Msg, pieces: list[bytes]) -> None:
        if pieces:
            self._send_encoded(account, msg, *encode_content(_accepted(msg), b"".join(pieces)))

    def _send_encoded(self, account: Account, msg: Msg, encoding: bytes, text: bytes) -> None:
        headers = append_headers(b"", [(b"Content-Encoding", encoding)]) if encoding else b""
        account.send(msg.reply, text, headers=headers)

    def _reply(self, account: Account, msg: Msg, fields: dict[str, Any]) -> None:
        self._send(account, msg, {"server": self.identity(), **fields})

    def _send(self, account: Account, msg: Msg, answer: dict[str, Any]) -> None:
        if msg.reply:
            account.send(msg.reply, encode_json(answer))

    def send_trace(self, account: Account, subject: bytes, event: dict[str, Any], accepted: bytes) -> None:
        """Tell what became of a message that is traced, in an encoding that is accepted."""
        encoding, text = encode_content(accepted, encode_json({"server": self.identity(), **event}))
        account.send(subject, text, headers=append_headers(b"", [(b"Content-Encoding", encoding)]) if encoding else b"")

    def identity(self) -> dict[str, Any]:
        """Which server this is, and the number of what it says."""
        from jetlake.wire.go_time import format_time

        server, options = self._server, self._server.options
        self._seq += 1
        identity: dict[str, Any] = {"name": server.server_name, "host": options.host, "id": server.server_id}
        if server.routes.name:
            identity["cluster"] = server.routes.name
        if options.jetstream.domain:
            identity["domain"] = options.jetstream.domain
        identity["ver"] = server.broker.version
        optional = {"tags": list(options.server_tags), "metadata": options.server_metadata}
        identity |= {name: value for name, value in optional.items() if value}
        identity["feature_flags"] = FEATURES
        has_jetstream = server.jetstream is not None
        identity |= {"jetstream": has_jetstream, "flags": _JETSTREAM_FLAG if has_jetstream else 0}
        return identity | {"seq": self._seq, "time": format_time(server.clock())}


def _accepted(msg: Msg) -> bytes | None:
    """The encodings that a request asks for. The server's numbers are short, and always sent as they are."""
    is_short = msg.subject.endswith((b".PING", b".STATSZ"))
    return None if is_short else header_value(msg.headers, b"Accept-Encoding")


def _server_pages() -> dict[str, Callable[[Server, Query], Any]]:
    from jetlake.server.observe import accountz, connz, healthz, jsz, nothing, subsz, varz  # few servers are asked
    from jetlake.server.observe.leafz import leafz
    from jetlake.server.observe.raftz import raftz
    from jetlake.server.observe.routez import routez

    return {
        "VARZ": varz.varz,
        "CONNZ": connz.connz,
        "SUBSZ": subsz.subsz,
        "JSZ": jsz.jsz,
        "ACCOUNTZ": accountz.accountz,
        "HEALTHZ": healthz.healthz_with_code,
        "ROUTEZ": routez,
        "GATEWAYZ": nothing.gatewayz,
        "LEAFZ": leafz,
        "RAFTZ": raftz,
    }


def _account_pages() -> dict[str, Callable[[Server, Query], Any]]:
    from jetlake.server.observe import accountz, connz, jsz, subsz
    from jetlake.server.observe.leafz import leafz

    return {
        "CONNZ": connz.connz,
        "SUBSZ": lambda server, query: subsz.subsz(server, query.replace(subs=True)),
        "JSZ": jsz.jsz_account,
        "INFO": accountz.one_account,
        "STATZ": accountz.one_account_statz,
        "LEAFZ": leafz,
    }


def permissions_json(permissions: Permissions) -> dict[str, Any]:
    """Permissions, as nats-server shows them."""
    shown: dict[str, Any] = {}
    for name, allow, deny in (
        ("publish", permissions.publish_allow, permissions.publish_deny),
        ("subscribe", permissions.subscribe_allow, permissions.subscribe_deny),
    ):
        lists = {"allow": sorted(allow), "deny": sorted(deny)}
        shown[name] = {key: value for key, value in lists.items() if value}
    if permissions.responses is not None:
        shown["responses"] = {"max": permissions.responses.max, "ttl": permissions.responses.expires_ns}
    return shown

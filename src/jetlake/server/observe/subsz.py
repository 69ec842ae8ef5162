"""/subsz: subscriptions, of clients and of the server itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from jetlake.broker.account import Account
from jetlake.broker.subscription import Subscription
from jetlake.errors import BadSubject
from jetlake.server.observe.connz import sub_detail
from jetlake.server.observe.page import items
from jetlake.server.observe.query import BadQuery, Query
from jetlake.subjects import check_subject, encode_subject
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.server.server import Server

_Found = tuple[Account, Subscription]


def subsz(server: Server, query: Query) -> dict[str, Any]:
    """The page. Raises BadQuery."""
    wanted = query.text("acc")
    accounts = [account for account in server.broker.accounts.values() if wanted in ("", account.name)]
    page: dict[str, Any] = {
        "server_id": server.server_id,
        "now": format_time(server.clock()),
        **sublist_stats(accounts),
        "total": 0,
        "offset": query.offset,
        "limit": query.limit,
    }
    test = _test_subject(query)
    if query.flag("subs"):
        matching = _matching(accounts, test) if test is not None else None
        total = page["total"] = len(matching) if matching is not None else page["num_subscriptions"]
        found = matching if matching is not None else _all(accounts)
        shown = islice(found, query.offset, query.offset + query.limit)
        if count := max(min(total - query.offset, query.limit), 0):
            page["subscriptions_list"] = items((_detail(account, sub) for account, sub in shown), count)
    return page


def sublist_stats(accounts: list[Account]) -> dict[str, Any]:
    """How subscriptions are found. What is not counted here is shown as nothing."""
    return {
        "num_subscriptions": sum(account.sublist.count for account in accounts),
        "num_cache": 0,
        "num_inserts": sum(account.sublist.count for account in accounts),
        "num_removes": 0,
        "num_matches": 0,
        "cache_hit_rate": 0.0,
        "max_fanout": 0,
        "avg_fanout": 0.0,
    }


def _test_subject(query: Query) -> bytes | None:
    text = query.text("test")
    if not text:
        return None
    try:
        check_subject(text)
    except BadSubject:
        raise BadQuery(f"invalid test subject, must be valid publish subject: {text}") from None
    return encode_subject(text)


def _all(accounts: list[Account]) -> Iterator[_Found]:
    return ((account, sub) for account in accounts for sub in account.sublist)


def _matching(accounts: list[Account], subject: bytes) -> list[_Found]:
    matches = [(account, account.sublist.match(subject)) for account in accounts]
    return [(account, sub) for account, found in matches for group in (found.plain, *found.queues) for sub in group]


def _detail(account: Account, sub: Subscription) -> dict[str, Any]:
    return {"account": account.name, "account_tag": account.name_tag, **sub_detail(sub)}

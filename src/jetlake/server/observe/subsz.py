"""/subsz: subscriptions, of clients and of the server itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.broker.account import Account
from jetlake.errors import BadSubject
from jetlake.server.observe.connz import sub_detail
from jetlake.server.observe.query import BadQuery, Query
from jetlake.subjects import check_subject, encode_subject
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.server.server import Server


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
        details = [detail for account in accounts for detail in _details(account, test)]
        page["total"] = len(details)
        if shown := query.page(details):
            page["subscriptions_list"] = shown
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


def _details(account: Account, test: bytes | None) -> list[dict[str, Any]]:
    names = {"account": account.name, "account_tag": account.name}
    if test is None:
        return [names | sub_detail(sub) for sub in account.sublist]
    found = account.sublist.match(test)
    return [names | sub_detail(sub) for group in (found.plain, *found.queues) for sub in group]

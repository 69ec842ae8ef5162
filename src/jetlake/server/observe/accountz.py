"""/accountz and /accstatz: accounts, their connections and what they send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.broker.account import Account
from jetlake.config import AccountOptions
from jetlake.server.observe.page import items
from jetlake.server.observe.query import BadQuery, Query
from jetlake.server.observe.subsz import sublist_stats
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.server.server import Server

_NOTHING = {"msgs": 0, "bytes": 0}


def accountz(server: Server, query: Query) -> dict[str, Any]:
    """The names of all accounts, or one of them in detail. Raises BadQuery."""
    broker, name = server.broker, query.text("acc")
    page: dict[str, Any] = {
        "server_id": server.server_id,
        "now": format_time(server.clock()),
        "system_account": broker.system_account.name,
    }
    if not name:
        return page | {"accounts": list(broker.accounts)}
    if name not in broker.accounts:
        raise BadQuery(f"Account {name} does not exist")
    return page | {"account_detail": account_info(server, broker.accounts[name])}


def account_info(server: Server, account: Account) -> dict[str, Any]:
    """An account in detail."""
    is_system = account is server.broker.system_account
    configured = account.options
    shared = {"exports": _exports(configured), "imports": _imports(configured)} if configured is not None else {}
    return {
        "account_name": account.name,
        "update_time": format_time(server.config_load_ns),
        **({"is_system": True} if is_system else {}),
        "expired": False,
        "complete": True,
        "jetstream_enabled": account.jetstream is not None,
        "leafnode_connections": account.leafs,
        "client_connections": len(account.clients),
        "subscriptions": account.sublist.count,
        "name_tag": account.name_tag,
        **{name: entries for name, entries in shared.items() if entries},
        **({"mappings": account.mappings.shown()} if account.mappings is not None else {}),
        "sublist_stats": sublist_stats([account]),
    }


def _exports(account: AccountOptions) -> list[dict[str, Any]]:
    return [
        {
            "subject": export.subject,
            "type": export.kind,
            **({"response_type": export.response_type.capitalize()} if export.kind == "service" else {}),
            **({"approved_accounts": list(export.accounts)} if export.accounts else {}),
        }
        for export in account.exports
    ]


def _imports(account: AccountOptions) -> list[dict[str, Any]]:
    return [
        {
            "subject": found.subject,
            "account": found.account,
            **({"to": found.local} if found.kind == "service" else {}),
            "local_subject": found.local,
            "type": found.kind,
            "invalid": False,
            "share": found.share,
            "tracking": False,
        }
        for found in account.imports
    ]


def one_account(server: Server, query: Query) -> dict[str, Any]:
    """One account in detail. Raises BadQuery."""
    detail: dict[str, Any] = accountz(server, query)["account_detail"]
    return detail


def one_account_statz(server: Server, query: Query) -> dict[str, Any] | None:
    """What one account sends and receives; None when there is nothing to say."""
    return some_accstatz(server, query.replace(accounts=[query.text("acc")]))


def some_accstatz(server: Server, query: Query) -> dict[str, Any] | None:
    """What accounts send and receive; None when there is nothing to say."""
    page = accstatz(server, query)
    return page if page["account_statz"] or query.flag("unused") else None


def accstatz(server: Server, query: Query) -> dict[str, Any]:
    """What accounts send and receive, all or those of a list: those with connections, or with `unused` all."""
    has_unused, accounts = query.flag("unused"), server.broker.accounts
    asked = [accounts[name] for name in query.texts("accounts") or accounts if name in accounts]
    shown = [account for account in asked if account.clients or has_unused]
    return {
        "server_id": server.server_id,
        "now": format_time(server.clock()),
        "account_statz": items(map(account_stat, shown), len(shown)),
    }


def account_stat(account: Account) -> dict[str, Any]:
    """An account in numbers: of the connections that it has now."""
    clients = account.clients.values()
    sent = {"msgs": sum(client.out_msgs for client in clients), "bytes": sum(client.out_bytes for client in clients)}
    received = {"msgs": sum(client.in_msgs for client in clients), "bytes": sum(client.in_bytes for client in clients)}
    elsewhere = {"gateways": _NOTHING, "routes": _NOTHING, "leafs": _NOTHING}
    return {
        "acc": account.name,
        "name": account.name_tag,
        "conns": len(clients),
        "leafnodes": account.leafs,
        "total_conns": len(clients),
        "num_subscriptions": account.sublist.count,
        "sent": sent | elsewhere,
        "received": received | elsewhere,
        "slow_consumers": 0,
    }

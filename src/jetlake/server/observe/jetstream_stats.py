"""What streams take, for the server and for an account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.jetstream.api_level import API_LEVEL

if TYPE_CHECKING:
    from jetlake.jetstream.js_account import JsAccount
    from jetlake.jetstream.service import JetStream

_UNSIGNED = (1 << 64) - 1  # nats-server shows "no limit", which is -1, as an unsigned number


def server_stats(jetstream: JetStream) -> dict[str, Any]:
    """All accounts together."""
    from jetlake.jetstream.streams.config import Storage

    accounts = jetstream.accounts.values()
    return {
        "memory": sum(account.used(Storage.MEMORY) for account in accounts),
        "storage": sum(account.used(Storage.FILE) for account in accounts),
        "reserved_memory": sum(account.reserved(Storage.MEMORY) for account in accounts),
        "reserved_storage": sum(account.reserved(Storage.FILE) for account in accounts),
        "accounts": len(jetstream.accounts),
        "ha_assets": 0,
        "api": {
            "level": API_LEVEL,
            "total": sum(account.api_total for account in accounts),
            "errors": sum(account.api_errors for account in accounts),
        },
    }


def account_stats(account: JsAccount) -> dict[str, Any]:
    """One account; what it may reserve stands where the server shows what is reserved."""
    from jetlake.jetstream.streams.config import Storage

    return {
        "memory": account.used(Storage.MEMORY),
        "storage": account.used(Storage.FILE),
        "reserved_memory": account.limits.max_memory & _UNSIGNED,
        "reserved_storage": account.limits.max_store & _UNSIGNED,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": account.api_total, "errors": account.api_errors},
    }

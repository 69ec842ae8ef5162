"""/jsz: JetStream, down to streams and consumers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jetlake.server.observe.jetstream_stats import account_stats, server_stats
from jetlake.server.observe.page import items
from jetlake.server.observe.query import BadQuery, Query
from jetlake.server.observe.varz import jetstream_config, jetstream_limits
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.cluster.view import ClusterView
    from jetlake.jetstream.consumers.consumer import Consumer
    from jetlake.jetstream.js_account import JsAccount
    from jetlake.jetstream.service import JetStream
    from jetlake.jetstream.streams.stream import Stream
    from jetlake.server.server import Server

_FLAGS = ("accounts", "streams", "consumers", "direct-consumers", "config", "leader-only", "raft", "stream-leader-only")
_NO_STATS = {"memory": 0, "storage": 0, "reserved_memory": 0, "reserved_storage": 0, "accounts": 0, "ha_assets": 0}


def jsz(server: Server, query: Query) -> dict[str, Any]:
    """The page. Raises BadQuery."""
    query.check(flags=_FLAGS, numbers=("offset", "limit"))
    identity = {"server_id": server.server_id, "now": format_time(server.clock())}
    jetstream = server.jetstream
    if jetstream is None:
        return {
            **_NO_STATS,
            "api": {"level": 0, "total": 0, "errors": 0},
            **identity,
            "disabled": True,
            "config": {"max_memory": 0, "max_storage": 0},
            **_totals([]),
            "total": 0,
        }
    totals = _totals([stream for account in jetstream.accounts.values() for stream in account.streams.values()])
    page = {
        **server_stats(jetstream),
        **identity,
        "config": jetstream_config(jetstream, server.options.jetstream),
        "limits": jetstream_limits(server.options.jetstream),
        **totals,
    }
    if server.cluster is not None:
        page = _in_cluster(page, server.cluster, query)
    elif query.flag("raft"):  # one server leads all that it has
        page |= {f"{what}_leader": totals[what] for what in ("streams", "consumers") if totals[what]}
    if accounts := _wanted(jetstream, query):
        details = (account_detail(account, query, server.cluster) for account in accounts)
        page["account_details"] = items(details, len(accounts))
    return {**page, "total": len(jetstream.accounts)}


def jsz_account(server: Server, query: Query) -> dict[str, Any]:
    """One account. Raises BadQuery."""
    name, jetstream = query.text("acc"), server.jetstream
    if jetstream is None:
        raise BadQuery("jetstream not enabled")
    if name not in jetstream.accounts:
        problem = "not jetstream enabled" if name in server.broker.accounts else "not found"
        raise BadQuery(f'account "{name}" {problem}')
    return account_detail(jetstream.accounts[name], query, server.cluster)


def _in_cluster(page: dict[str, Any], view: ClusterView, query: Query) -> dict[str, Any]:
    """The page with what the server leads, behind what it has, and the meta group."""
    from jetlake.cluster import observe

    led, shown = observe.led_counts(view) if query.flag("raft") else {}, {}
    for name, value in page.items():
        shown[name] = value
        if (leads := f"{name}_leader") in led:
            shown[leads] = led[leads]
    return {**shown, "ha_assets": observe.ha_assets(view), "meta_cluster": observe.meta_cluster(view)}


def _totals(streams: list[Stream]) -> dict[str, int]:
    catalogs = [stream.store.catalog for stream in streams]
    return {
        "streams": len(streams),
        "consumers": sum(len(stream.consumers) for stream in streams),
        "messages": sum(catalog.table.total for catalog in catalogs),
        "bytes": sum(catalog.size for catalog in catalogs),
    }


def _wanted(jetstream: JetStream, query: Query) -> list[JsAccount]:
    name = query.text("acc")
    if name in jetstream.accounts:
        return [jetstream.accounts[name]]
    if not (query.flag("accounts") or (not name and (query.flag("streams") or query.flag("consumers")))):
        return []
    return query.page([jetstream.accounts[name] for name in sorted(jetstream.accounts)])


def account_detail(account: JsAccount, query: Query, view: ClusterView | None = None) -> dict[str, Any]:
    """An account, with its streams if they are asked for."""
    name = account.account.name
    detail = {"name": name, "id": name, **account_stats(account)}
    if query.flag("streams") or query.flag("consumers"):
        streams = (_stream(stream, query, view) for stream in served_streams(account))
        if account.streams:
            detail["stream_detail"] = items(streams, len(account.streams))
    return detail


def served_streams(account: JsAccount) -> Iterator[Stream]:
    """The streams of an account by name; those that are deleted in the meantime are left out."""
    streams = [account.streams[name] for name in sorted(account.streams)]
    return (stream for stream in streams if not stream.is_closed)


def served_consumers(stream: Stream) -> Iterator[Consumer]:
    """The consumers of a stream; those that are deleted in the meantime are left out."""
    return (consumer for consumer in list(stream.consumers.values()) if not (consumer.is_closed or stream.is_closed))


def _stream(stream: Stream, query: Query, view: ClusterView | None) -> dict[str, Any]:
    from jetlake.jetstream.api.stream_info import stream_info

    info = stream_info(stream, with_server=False, with_cluster=True)
    detail = {"name": stream.config.name, "created": info["created"], "cluster": info["cluster"]}
    if query.flag("config"):
        detail["config"] = info["config"]
    detail["state"] = info["state"]
    detail |= {key: info[key] for key in ("mirror", "sources") if key in info}
    if query.flag("consumers") and stream.consumers:
        consumers = (_consumer(consumer, query) for consumer in served_consumers(stream))
        detail["consumer_detail"] = items(consumers, len(stream.consumers))
    if view is not None and query.flag("raft"):
        from jetlake.cluster import observe

        detail |= observe.raft_groups(view, stream.account.name, stream.name)
    return detail


def _consumer(consumer: Consumer, query: Query) -> dict[str, Any]:
    info = consumer.info(with_server=False)
    if not query.flag("config"):
        del info["config"]
    return info

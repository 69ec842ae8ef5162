"""/jsz: JetStream, down to streams and consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.server.observe.jetstream_stats import account_stats, server_stats
from jetlake.server.observe.query import BadQuery, Query
from jetlake.server.observe.varz import jetstream_config, jetstream_limits
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.jetstream.js_account import JsAccount
    from jetlake.jetstream.service import JetStream
    from jetlake.jetstream.stream import Stream
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
    if query.flag("raft"):  # one server leads all that it has
        page |= {f"{what}_leader": totals[what] for what in ("streams", "consumers") if totals[what]}
    if accounts := _wanted(jetstream, query):
        page["account_details"] = [account_detail(account, query) for account in accounts]
    return {**page, "total": len(jetstream.accounts)}


def jsz_account(server: Server, query: Query) -> dict[str, Any]:
    """One account. Raises BadQuery."""
    name, jetstream = query.text("acc"), server.jetstream
    if jetstream is None:
        raise BadQuery("jetstream not enabled")
    if name not in jetstream.accounts:
        problem = "not jetstream enabled" if name in server.broker.accounts else "not found"
        raise BadQuery(f'account "{name}" {problem}')
    return account_detail(jetstream.accounts[name], query)


def _totals(streams: list[Stream]) -> dict[str, int]:
    states = [stream.store.fast_state() for stream in streams]
    return {
        "streams": len(streams),
        "consumers": sum(len(stream.consumers) for stream in streams),
        "messages": sum(state.msgs for state in states),
        "bytes": sum(state.bytes for state in states),
    }


def _wanted(jetstream: JetStream, query: Query) -> list[JsAccount]:
    name = query.text("acc")
    if name in jetstream.accounts:
        return [jetstream.accounts[name]]
    if not (query.flag("accounts") or (not name and (query.flag("streams") or query.flag("consumers")))):
        return []
    return query.page([jetstream.accounts[name] for name in sorted(jetstream.accounts)])


def account_detail(account: JsAccount, query: Query) -> dict[str, Any]:
    """An account, with its streams if they are asked for."""
    name = account.account.name
    detail = {"name": name, "id": name, **account_stats(account)}
    if query.flag("streams") or query.flag("consumers"):
        streams = [_stream(account.streams[name], query) for name in sorted(account.streams)]
        if streams:
            detail["stream_detail"] = streams
    return detail


def _stream(stream: Stream, query: Query) -> dict[str, Any]:
    from jetlake.jetstream.api.stream_info import stream_info

    info = stream_info(stream, with_server=False, with_cluster=True)
    detail = {"name": stream.config.name, "created": info["created"], "cluster": info["cluster"]}
    if query.flag("config"):
        detail["config"] = info["config"]
    detail["state"] = info["state"]
    if query.flag("consumers"):
        consumers = [consumer.info(with_server=False) for consumer in stream.consumers.values()]
        if not query.flag("config"):
            consumers = [{key: value for key, value in info.items() if key != "config"} for info in consumers]
        if consumers:
            detail["consumer_detail"] = consumers
    return detail

"""/healthz: whether the server does its work, and whether a stream or consumer does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.clock import SECOND_NS
from jetlake.server.observe.query import Query

if TYPE_CHECKING:
    from jetlake.cluster.view import ClusterView
    from jetlake.jetstream.js_account import JsAccount
    from jetlake.jetstream.streams.stream import Stream
    from jetlake.server.server import Server

_OK, _BAD_REQUEST, _NOT_FOUND, _ERROR, _UNAVAILABLE = 200, 400, 404, 500, 503


class Unhealthy(Exception):
    """Something is not as it should be."""

    def __init__(self, code: int, kind: str, problem: str, **about: str) -> None:
        super().__init__(problem)
        self.code, self.kind, self.problem, self.about = code, kind, problem, about

    @property
    def status(self) -> str:
        return "error" if self.code in (_BAD_REQUEST, _ERROR) else "unavailable"


def healthz(server: Server, query: Query) -> tuple[int, dict[str, Any]]:
    """The HTTP status, and the page. Raises BadQuery."""
    query.check(flags=("js-enabled", "js-enabled-only", "js-server-only", "js-meta-only", "details"))
    try:
        _check(server, query)
    except Unhealthy as error:
        if query.flag("details"):
            details = {"type": error.kind, **error.about, "error": error.problem}
            return error.code, {"status": "error", "errors": [details]}
        return error.code, {"status": error.status, "error": error.problem}
    return _OK, {"status": "ok"}


def healthz_with_code(server: Server, query: Query) -> dict[str, Any]:
    """The page where there is no HTTP status to say it."""
    code, page = healthz(server, query)
    return {"status": page.pop("status"), "status_code": code, **page}


def _check(server: Server, query: Query) -> None:
    account, stream, consumer = query.text("account"), query.text("stream"), query.text("consumer")
    if stream and not account:
        raise Unhealthy(_BAD_REQUEST, "BAD_REQUEST", '"account" must not be empty when checking stream health')
    if consumer and not stream:
        raise Unhealthy(_BAD_REQUEST, "BAD_REQUEST", '"stream" must not be empty when checking consumer health')
    if not server.is_ready:
        raise Unhealthy(_ERROR, "CONNECTION", "server is not ready for connections")
    if query.flag("js-server-only") or not server.options.jetstream.enabled:
        return
    if server.jetstream is None:
        raise Unhealthy(_UNAVAILABLE, "JETSTREAM", "JetStream not enabled")
    if query.flag("js-enabled-only") or query.flag("js-enabled"):
        return
    if server.cluster is not None:
        _check_meta(server.cluster)
        if query.flag("js-meta-only"):
            return
    _check_streams(list(server.jetstream.accounts.values()), account, stream, consumer)


def _check_meta(view: ClusterView) -> None:
    from jetlake.cluster.observe import health_problem

    if (problem := health_problem(view)) is not None:
        raise Unhealthy(_UNAVAILABLE, "JETSTREAM", problem)


def _check_streams(accounts: list[JsAccount], account: str, stream: str, consumer: str) -> None:
    wanted = [found for found in accounts if account in ("", found.account.name)]
    if not wanted:
        raise Unhealthy(_NOT_FOUND, "ACCOUNT", f'JetStream account "{account}" not found', account=account)
    for found in wanted:
        for name, reason in found.offline.items():
            if stream in ("", name):
                about = {"account": found.account.name, "stream": name}
                raise Unhealthy(_UNAVAILABLE, "STREAM", f"stream '{name}' is offline: {reason}", **about)
        for served in found.streams.values():
            if stream in ("", served.name):
                _check_consumers(found, served, consumer)
                _check_origins(found, served)
    if stream:
        _check_stream(wanted[0], stream, consumer)


def _check_consumers(account: JsAccount, stream: Stream, consumer: str) -> None:
    for lost in stream.offline_consumers.values():
        if consumer in ("", lost.name):
            about = {"account": account.account.name, "stream": stream.name, "consumer": lost.name}
            problem = f"consumer '{lost.name}' of stream '{stream.name}' is offline: {lost.reason}"
            raise Unhealthy(_UNAVAILABLE, "CONSUMER", problem, **about)


def _check_origins(account: JsAccount, stream: Stream) -> None:
    for feed in stream.copying.feeds():
        if feed.is_silent or feed.error is not None:
            about = {"account": account.account.name, "stream": stream.name}
            reason = (feed.error or {}).get("description", f"not heard for {feed.silent_ns // SECOND_NS} s")
            problem = f"stream '{stream.name}' does not keep up with '{feed.source.name}': {reason}"
            raise Unhealthy(_UNAVAILABLE, "STREAM", problem, **about)


def _check_stream(account: JsAccount, name: str, consumer: str) -> None:
    about = {"account": account.account.name, "stream": name}
    where = f'on account "{account.account.name}"'
    stream = account.streams.get(name)
    if stream is None:
        raise Unhealthy(_NOT_FOUND, "STREAM", f'JetStream stream "{name}" not found {where}', **about)
    if consumer and consumer not in stream.consumers:
        problem = f'JetStream consumer "{consumer}" not found for stream "{name}" {where}'
        raise Unhealthy(_NOT_FOUND, "CONSUMER", problem, **about, consumer=consumer)

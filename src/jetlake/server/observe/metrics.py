"""/metrics: the server for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from jetlake.clock import SECOND_NS
from jetlake.server.log import printable
from jetlake.server.observe.jsz import served_consumers, served_streams
from jetlake.server.observe.process import resident_size

if TYPE_CHECKING:
    from jetlake.jetstream.js_account import JsAccount
    from jetlake.server.server import Server

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STREAM_LABELS = ["account", "stream"]
_ORIGIN_LABELS = [*_STREAM_LABELS, "origin"]
_CONSUMER_LABELS = [*_STREAM_LABELS, "consumer"]


class Metrics:
    """One page: what is to be read is read by `collect`, in the loop; the text is made of it, perhaps in a thread."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._families: list[Metric] = []

    def text(self) -> bytes:
        """The page, of what was collected."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(self._families))
        return bytes(generate_latest(registry))

    def collect(self) -> Iterator[None]:
        """Read the server; others may have their turn after each step."""
        self._families += self._broker()
        if self._server.jetstream is not None:
            yield from self._jetstream(list(self._server.jetstream.accounts.values()))

    def _broker(self) -> Iterator[Metric]:
        server, broker = self._server, self._server.broker
        subscriptions = sum(account.sublist.count for account in broker.accounts.values())
        yield GaugeMetricFamily("jetlake_up_seconds", "Time since the start", (server.clock() - server.start_ns) / 1e9)
        yield GaugeMetricFamily("jetlake_resident_bytes", "Memory of the process", resident_size())
        yield GaugeMetricFamily("jetlake_open_connections", "Open connections", len(broker.clients))
        yield GaugeMetricFamily("jetlake_subscriptions", "Subscriptions", subscriptions)
        for name, text, value in (
            ("jetlake_connections", "Connections since the start", broker.total_connections),
            ("jetlake_received_messages", "Messages from clients", broker.in_msgs),
            ("jetlake_received_bytes", "Bytes of messages from clients", broker.in_bytes),
            ("jetlake_sent_messages", "Messages to clients", broker.out_msgs),
            ("jetlake_sent_bytes", "Bytes of messages to clients", broker.out_bytes),
            ("jetlake_slow_consumers", "Connections closed because they were too slow", broker.slow_consumers),
            ("jetlake_stale_connections", "Connections closed because they were silent", broker.stale_connections),
            ("jetlake_auth_errors", "Logins that were refused", broker.auth_errors),
            ("jetlake_internal_errors", "Errors of the server's own, each told in the log", server.failed.count),
        ):
            yield CounterMetricFamily(name, text, value)

    def _jetstream(self, accounts: list[JsAccount]) -> Iterator[None]:
        messages = GaugeMetricFamily("jetlake_stream_messages", "Messages in a stream", labels=_STREAM_LABELS)
        size = GaugeMetricFamily("jetlake_stream_bytes", "Bytes of a stream", labels=_STREAM_LABELS)
        last = GaugeMetricFamily("jetlake_stream_last_seq", "Last sequence of a stream", labels=_STREAM_LABELS)
        lost = GaugeMetricFamily("jetlake_stream_lost_messages", "Messages lost to damage", labels=_STREAM_LABELS)
        pending = GaugeMetricFamily("jetlake_consumer_pending", "Messages to be delivered", labels=_CONSUMER_LABELS)
        unacked = GaugeMetricFamily("jetlake_consumer_ack_pending", "Messages to be acked", labels=_CONSUMER_LABELS)
        lag = GaugeMetricFamily("jetlake_origin_lag", "Messages still to be copied", labels=_ORIGIN_LABELS)
        silent = GaugeMetricFamily("jetlake_origin_silent_seconds", "Since it was heard", labels=_ORIGIN_LABELS)
        offline = GaugeMetricFamily("jetlake_streams_offline", "Streams that cannot be opened", labels=["account"])
        requests = CounterMetricFamily("jetlake_api_requests", "JetStream API requests", labels=["account"])
        failures = CounterMetricFamily("jetlake_api_errors", "JetStream API requests that failed", labels=["account"])
        for account in accounts:
            name = account.account.name
            offline.add_metric([name], len(account.offline))
            requests.add_metric([name], account.api_total)
            failures.add_metric([name], account.api_errors)
            for stream in served_streams(account):
                labels, state = [name, stream.config.name], stream.store.fast_state()
                messages.add_metric(labels, state.msgs)
                size.add_metric(labels, state.bytes)
                last.add_metric(labels, state.last_seq)
                lost.add_metric(labels, len(state.lost))
                for feed in stream.copying.feeds():
                    lag.add_metric([*labels, feed.source.name], feed.lag)
                    silent.add_metric([*labels, feed.source.name], feed.silent_ns / SECOND_NS)
                yield
                for consumer in served_consumers(stream):
                    info, named = consumer.info(), [*labels, printable(consumer.name)]  # different for different bytes
                    pending.add_metric(named, info["num_pending"])
                    unacked.add_metric(named, info["num_ack_pending"])
                    yield
        self._families += (messages, size, last, lost, lag, silent, pending, unacked, offline, requests, failures)


class _Collected:
    """What a registry asks for."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families

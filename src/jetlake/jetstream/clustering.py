"""What JetStream asks of the cluster that its server is in. A server that is alone has none.

As in nats-server, every server of a cluster hears every request, and one answers it. Each endpoint says who that is
(`AnsweredBy`); the cluster knows whether it is this server.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jetlake.jetstream.api.request import Request
    from jetlake.jetstream.consumers.consumer import Consumer
    from jetlake.jetstream.streams.stream import Stream


class AnsweredBy(Enum):
    """Which server of a cluster answers a request."""

    META_LEADER = "the leader of the meta group"
    STREAM_LEADER = "the leader of the stream"
    STREAM_MEMBER = "the leader of the stream, or any member while it has none"
    DELIVERER = "the server that delivers for the consumer, or any member while the stream has no leader"
    MAKER = "the leader of the meta group for durable consumers, the leader of the stream for others"


class Cluster(Protocol):
    """The cluster, as this server sees it."""

    def answers(self, request: Request) -> bool:
        """Whether this server answers a request; if not, another one may. Raises ApiError when that is the answer."""

    def handler(self, pattern: str) -> Callable[[Request], None] | None:
        """Who handles the requests of an endpoint in a cluster, where that is different."""

    def stream_block(self, stream: Stream) -> dict[str, Any]:
        """The `cluster` object of a stream's info."""

    def consumer_block(self, consumer: Consumer) -> dict[str, Any]:
        """The same of a consumer's."""

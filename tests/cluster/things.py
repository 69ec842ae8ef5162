"""Streams, consumers and servers for the tests of the meta group."""

from __future__ import annotations

from typing import Any

from jetlake.cluster.assignments import (
    Assignments,
    ConsumerAssignment,
    GroupPlan,
    Node,
    Origination,
    StreamAssignment,
    peer_id,
)
from jetlake.cluster.meta_codec import AssignConsumer, AssignStream, NodeJoined
from jetlake.jetstream.consumers.config import AckPolicy, ConsumerConfig
from jetlake.jetstream.streams.config import StreamConfig

N1, N2, N3 = (peer_id(name) for name in ("n1", "n2", "n3"))
TIME_NS = 1_700_000_000_000_000_000


def node(which: int, /, **fields: Any) -> Node:
    return Node(**{"name": f"n{which}", "number": which, "cluster": "C1", "max_store": 1 << 30, **fields})


def nodes(count: int = 3) -> list[NodeJoined]:
    return [NodeJoined(node=node(number)) for number in range(1, count + 1)]


def group(*peers: str, name: str = "S-R3F-aaaaaaaa", **fields: Any) -> GroupPlan:
    return GroupPlan(name=name, peers=peers or (N1, N2, N3), cluster="C1", **fields)


def stream(name: str = "S", *peers: str, account: str = "A", **config: Any) -> StreamAssignment:
    made = StreamConfig(name=name, subjects=(f"{name}.>",), num_replicas=len(peers) or 3, **config)
    return StreamAssignment(account=account, config=made, created_ns=TIME_NS, group=group(*peers))


def assign(name: str = "S", *peers: str, account: str = "A", **config: Any) -> AssignStream:
    made = stream(name, *peers, account=account, **config)
    asked = Origination(client={"acc": account}, subject=f"$JS.API.STREAM.CREATE.{name}", reply="_INBOX.1")
    return AssignStream(account=account, config=made.config, created_ns=TIME_NS, group=made.group, asked=asked)


def consumer(name: str = "C", *peers: str, created_ns: int = TIME_NS, **config: Any) -> ConsumerAssignment:
    made = ConsumerConfig(durable_name=name, name=name, ack_policy=AckPolicy.EXPLICIT, **config)
    plan = group(*peers, name="C-R3F-bbbbbbbb")
    return ConsumerAssignment(name=name, config=made, created_ns=created_ns, group=plan)


def assign_consumer(incarnation: int, name: str = "C", stream: str = "S", **fields: Any) -> AssignConsumer:
    return AssignConsumer(account="A", stream=stream, incarnation=incarnation, consumer=consumer(name, **fields))


def with_nodes(count: int = 3) -> Assignments:
    state = Assignments()
    for each in nodes(count):
        state.process_node_joined(each.node)
    return state


class Recorder:
    """A listener that remembers what it was told, and a host that remembers what was reported."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.failures: list[str] = []
        self.fails: Exception | None = None

    def _tell(self, what: str, name: str) -> None:
        self.told.append((what, name))
        if self.fails is not None:
            raise self.fails

    def stream_assigned(self, stream: StreamAssignment) -> None:
        self._tell("assigned", stream.name)

    def stream_updated(self, stream: StreamAssignment) -> None:
        self._tell("updated", stream.name)

    def stream_removed(self, stream: StreamAssignment, entry: Any) -> None:
        self._tell("removed", stream.name)

    def stream_unknown(self, stream: StreamAssignment) -> None:
        self._tell("unknown", stream.name)

    def consumer_assigned(self, stream: StreamAssignment, consumer: ConsumerAssignment) -> None:
        self._tell("consumer assigned", consumer.name)

    def consumer_removed(self, stream: StreamAssignment, consumer: ConsumerAssignment, entry: Any) -> None:
        self._tell("consumer removed", consumer.name)

    def node_joined(self, node: Node) -> None:
        self._tell("joined", node.name)

    def node_removed(self, node: Node) -> None:
        self._tell("left", node.name)

    def log(self, level: str, line: str) -> None:
        self.lines.append(f"{level} {line}")

    def failed(self, what: str, error: BaseException) -> None:
        self.failures.append(f"{what}: {error}")

"""Compaction through a running server, on `$JETLAKE.API.STREAM.COMPACT.<stream>`: nats-server has nothing like it.

    {"dead": 0.1}       blocks of which more than this part is dead, from 0 to 1; a tenth when not given
    {"blocks": 3, "size_before": 100663296, "size_after": 41232384}

The answer comes when every block is written anew and durable. The stream is in use meanwhile: each of its commits
takes one block along.
"""

from __future__ import annotations

from jetlake.jetstream.api.request import Endpoint, Request
from jetlake.jetstream.json.shape import BadShape, Place, Shape, Struct
from jetlake.jetstream.json.syntax import Node

DEAD_PART_DEFAULT = 0.1


class _Part(Shape):
    """A number from 0 to 1."""

    go_type, zero = "float64", 0.0

    def read(self, node: Node, place: Place, strict: bool) -> float:
        if node.kind != "number":
            raise place.mismatch(node.kind, self.go_type)
        if not 0 <= float(node.text) <= 1:
            raise BadShape(f"{place.path} is {node.text}, not a number from 0 to 1")
        return float(node.text)


_COMPACT = Struct("JetLakeStreamCompactRequest", {"dead": _Part()})


def compact(request: Request) -> None:
    stream, dead_part_max = request.stream, request.read(_COMPACT).get("dead", DEAD_PART_DEFAULT)
    stream.compact(dead_part_max, lambda result: request.reply(result._asdict()), request.fail)


ENDPOINTS = [Endpoint("STREAM.COMPACT.*", "stream_compact_response", compact)]

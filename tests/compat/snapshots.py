"""Take snapshots and restore them, as the `nats` CLI does."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.compat.peer import Msg, Peer

CHUNK_SIZE = 64 * 1024


class Taken(NamedTuple):
    """A snapshot: the response, the archive, and the message that ended it."""

    response: dict[str, Any]
    data: bytes
    end: Msg
    chunks: list[Msg]


def take(peer: Peer, stream: str, inbox: str = "_INBOX.snapshot", **fields: Any) -> Taken:
    """Take a snapshot. Chunks come to a connection of their own: the first may be faster than the response."""
    with Peer(peer.socket.getpeername()[1]) as reader:
        reader.subscribe(inbox)
        reader.ask()
        response = peer.api(f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox, **fields})
        assert "error" not in response, response
        data, chunks = bytearray(), []
        while (msg := reader.message()).payload:
            if msg.reply:
                reader.publish(msg.reply)
            data += msg.payload
            chunks.append(msg)
        return Taken(response, bytes(data), msg, chunks)


def restore(peer: Peer, config: dict[str, Any], data: bytes, state: Any = None, chunk_size: int = CHUNK_SIZE) -> Any:
    """Restore a snapshot; the last answer."""
    begun = peer.api(f"STREAM.RESTORE.{config['name']}", {"config": config, "state": state or {}})
    if "error" in begun:
        return begun
    for start in range(0, len(data), chunk_size):
        answer = peer.request(begun["deliver_subject"], data[start : start + chunk_size])
        assert not answer.payload, answer
    return peer.request(begun["deliver_subject"]).json

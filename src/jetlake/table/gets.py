"""A range of a work queue on its way here, asked for by sequence.

Its messages belong to its consumers, and a server takes no other one beside them, so each message is fetched by the
request that looks at one and leaves it alone. Many requests are under way at a time. The answers are put in the form in
which a consumer would have had them, and are decoded like all others.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from jetlake.table.arrow import arrays
from jetlake.table.nats import ApiRefused, Connection, Disconnected, pub_frame
from jetlake.table.pull import BATCH_SIZE, Pull
from jetlake.wire.go_time import parse_time

_AHEAD_MAX = 256
_NO_MESSAGE = 10037


class Gets(Pull):
    """A range that is read without a consumer."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        size = self._origin.average_size(self._stream)
        self._ahead = max(min(BATCH_SIZE // size, self._batch, _AHEAD_MAX), 1)

    def _must_choose(self) -> bool:
        return bool(self._filters)

    def _on_one_connection(self) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        link, frames, count = self._origin.connection(), bytearray(), 0
        end_seq = min(self._selection.last_seq, self._origin.bounds(self._stream).last_seq)
        seq = self._last_seq + 1 if self._last_seq else self._start_seq(link)
        while seq <= end_seq:
            try:
                found = self._get(link, range(seq, min(seq + self._ahead - 1, end_seq) + 1))
            except Disconnected:  # perhaps these were too large together: the next attempt asks for fewer at a time
                self._ahead = max(self._ahead // 8, 1)
                raise
            seq += self._ahead
            if not found:  # many more may be gone
                following = self._next(link, seq)
                seq = end_seq + 1 if following is None else following["seq"]
            frames += b"".join(map(_frame, found))
            count += len(found)
            if count and (seq > end_seq or count >= self._batch or len(frames) >= BATCH_SIZE):
                columns, decoded = self._decode(frames)
                if decoded.rows:
                    yield from self._chosen(decoded.rows, arrays(self._names, columns, decoded, **self._more))
                self._last_seq, count = decoded.last_seq, 0

    def _start_seq(self, link: Connection) -> int:
        """Where to begin. For a time: the first message that is not older, looked for by halves."""
        if "opt_start_time" not in self._start:
            return int(self._start["opt_start_seq"])
        time_ns = parse_time(self._start["opt_start_time"])
        low, high = self._origin.bounds(self._stream)
        high += 1
        while low < high:
            middle = (low + high) // 2
            message = self._next(link, middle)
            if message is None or parse_time(message["time"]) >= time_ns:
                high = middle
            else:
                low = message["seq"] + 1
        return low

    def _next(self, link: Connection, seq: int) -> dict[str, Any] | None:
        """The first message from a sequence on."""
        try:
            answer = link.api(f"STREAM.MSG.GET.{self._stream}", {"seq": seq, "next_by_subj": ">"})
        except ApiRefused as error:
            if error.code == _NO_MESSAGE:
                return None
            raise
        message: dict[str, Any] = answer["message"]
        return message

    def _get(self, link: Connection, seqs: range) -> list[dict[str, Any]]:
        """Those of some messages that are there."""
        name, found = f"STREAM.MSG.GET.{self._stream}", []
        waiting = {b"%s.g%d" % (link.inbox_bytes, seq): b'{"seq":%d}' % seq for seq in seqs}
        for inbox, body in waiting.items():
            link.publish(pub_frame(f"$JS.API.{name}".encode(), body, reply=inbox))
        link.flush()
        for reply in link.replies():
            if waiting.pop(reply.subject, None) is None:
                continue
            if reply.status:
                raise Disconnected(f"{link.where}: {name}: {reply.status} {reply.description}")
            answer = json.loads(reply.payload)
            if "message" in answer:
                found.append(answer["message"])
            elif answer["error"].get("err_code") != _NO_MESSAGE:
                raise ApiRefused(link.where, name, answer["error"])
            if not waiting:
                return sorted(found, key=lambda message: int(message["seq"]))
        raise Disconnected(f"{link.where}: {len(waiting)} of {len(seqs)} messages did not come")


def _frame(message: dict[str, Any]) -> bytes:
    """A message as a consumer's delivery."""
    headers, payload = (base64.b64decode(message.get(part, "")) for part in ("hdrs", "data"))
    ack = b"$JS.ACK.S.C.1.%d.0.%d.0" % (message["seq"], parse_time(message["time"]))
    subject = str(message["subject"]).encode()
    sizes = b"%d %d" % (len(headers), len(headers) + len(payload)) if headers else b"%d" % len(payload)
    verb = b"HMSG" if headers else b"MSG"
    return b"%s %s 1 %s %s\r\n%s%s\r\n" % (verb, subject, ack, sizes, headers, payload)

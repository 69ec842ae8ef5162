"""Questions: what the servers of a cluster ask each other, as messages of the system account.

    questions.serve("HELLO", answer)          answer(payload) -> a reply, several, or None for silence
    questions.ask("HELLO", payload, heard)    heard(payload) for every reply, until it returns True or time is up

They travel as all messages do, over routes, on `$JETLAKE.CLUSTER.<name>`. They are for what is seldom and small; what
has to be fast or large has connections of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jetlake.broker.account import Account
from jetlake.broker.subscription import Msg
from jetlake.clock import SECOND_NS
from jetlake.jetstream.host import Host, Timer

PREFIX = b"$JETLAKE.CLUSTER."
_REPLIES = b"$JETLAKE.REPLY."

Reply = Callable[[bytes], None]
Heard = Callable[[bytes], bool]


class _Asked:
    def __init__(self, heard: Heard, timer: Timer) -> None:
        self.heard, self.timer = heard, timer


class Questions:
    """The questions of one server, and its answers to those of others."""

    def __init__(self, host: Host, system: Account, peer: str) -> None:
        self._host, self._system = host, system
        self._asked: dict[bytes, _Asked] = {}
        self._count = 0
        self._inbox = _REPLIES + peer.encode() + b"."
        system.subscribe(self._inbox + b"*", self._hear)

    def serve(self, name: str, handler: Callable[[bytes, Reply], None]) -> None:
        """Have a question answered, at once or later; no answer is silence."""

        def handle(msg: Msg) -> None:
            handler(msg.payload, lambda payload: self._answer(msg.reply, payload))

        self._system.subscribe(PREFIX + name.encode(), handle)

    def _answer(self, reply: bytes, payload: bytes) -> None:
        if reply:
            self._system.send(reply, payload)

    def ask(
        self, name: str, payload: bytes, heard: Heard, over: Callable[[], None] = lambda: None, wait_s: float = 2.0
    ) -> None:
        """Ask all servers. `over` is called when the time is up and nobody said that it is enough."""
        self._count += 1
        inbox = b"%s%d" % (self._inbox, self._count)

        def end() -> None:
            if self._asked.pop(inbox, None) is not None:
                over()

        timer = self._host.call_at(self._host.clock() + int(wait_s * SECOND_NS), end)
        self._asked[inbox] = _Asked(heard, timer)
        self._system.send(PREFIX + name.encode(), payload, reply=inbox)

    def _hear(self, msg: Msg) -> None:
        asked = self._asked.get(msg.subject)
        if asked is not None and asked.heard(msg.payload) and self._asked.pop(msg.subject, None) is not None:
            asked.timer.cancel()


def parts_of(data: bytes, size_max: int) -> Iterable[bytes]:
    """What is too long for one message, in pieces: at least one."""
    return [data[at : at + size_max] for at in range(0, max(len(data), 1), size_max)]

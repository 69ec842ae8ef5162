"""Scripts about consumers: what they deliver is noted as it comes, without the times in it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from tests.compat.conftest import Pair
from tests.compat.peer import Msg, Peer, parse_msg
from tests.compat.script import Script, assert_same

MS = 1_000_000
ANSWER_S = 1.0
_ACK_TIME = re.compile(r"(\$JS\.ACK\.\S+\.\d+\.\d+\.\d+)\.\d{19}\.(\d+)")
_FLOW = re.compile(r"(\$JS\.FC\.[^.]+\.[^.]+)\.\w{4}\b")
_PIN = re.compile(r"Nats-Pin-Id: \w{22}")
_INFO_VARIES = ("ts", "created", "cluster")


class ConsumerScript:
    """A script on one stream, with a connection `peer` for what is delivered beside the script's own."""

    def __init__(self, script: Script, peer: Peer) -> None:
        self.script, self.peer, self.name = script, peer, script.name
        self.inbox = f"in.{script.name}"
        self.replies: list[str] = []  # ack subjects, in the order they came
        self.questions: list[str] = []  # of flow control
        self.pins: list[str] = []
        self._numbers = 0
        self._kept: list[bytes] = []  # what came while something else was awaited
        self.peer.subscribe(f"{self.inbox}.*", "in")

    # Making

    def consumer(self, name: str = "c", **config: Any) -> Any:
        """Make a durable consumer with explicit acks; what the answer says but for times."""
        config = {"durable_name": name, "ack_policy": "explicit", **config}
        config = {key: value for key, value in config.items() if value is not None}
        return self.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})

    def api(self, subject: str, body: object = None) -> Any:
        subject, body = self.script._own(subject), self.script._own_body(body)
        answer = self.script.peer.api(subject, body)
        self.script.note(f"{subject} {body!r:.400}", without_times(answer))
        return answer

    def info(self, name: str = "c") -> Any:
        return self.api(f"CONSUMER.INFO.S.{name}")

    def state(self) -> None:
        """Note what is in the stream."""
        state = self.script.peer.api(f"STREAM.INFO.{self.name}", {"deleted_details": True})["state"]
        shown = {key: state.get(key) for key in ("messages", "first_seq", "last_seq", "deleted", "consumer_count")}
        self.script.note("state", shown)

    def publish(self, *payloads: bytes, subject: str = "S.a", headers: bytes = b"") -> None:
        """Store messages; nats-server tells its consumers of them a moment after it has acknowledged them."""
        for payload in payloads:
            self.script.peer.request(self.script._own(subject), payload, headers)
        time.sleep(0.02)

    def subscribe(self, subject: str, sid: str, queue: str = "") -> None:
        """Subscribe; what that sets off is heard with the next `listen`."""
        self._kept += self.peer.ask(f"SUB {subject} {queue} {sid}\r\n".encode())

    def unsubscribe(self, *sids: str) -> None:
        """Unsubscribe, and go on when the server has done it."""
        self._kept += self.peer.ask("".join(f"UNSUB {sid}\r\n" for sid in sids).encode())

    # Talking

    def next(self, body: object = None, name: str = "c", wait_s: float = 0.06, headers: bytes = b"") -> list[Msg]:
        """Ask for messages, and note what comes within a while."""
        self._numbers += 1
        payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.name}.{name}"
        self.peer.publish(subject, payload, headers, f"{self.inbox}.{self._numbers}")
        return self.listen(f"next {name} {payload!r}", wait_s)

    def ack(self, place: int = -1, payload: bytes = b"", *, answer: bool = False, wait_s: float = 0.03) -> list[Msg]:
        """Acknowledge a delivery by its place among all; note what comes."""
        reply = f"{self.inbox}.ack" if answer else ""
        self.peer.publish(self.replies[place], payload, b"", reply)
        if answer:
            self._await(f" {reply} ".encode())
        return self.listen(f"ack {place} {payload!r}", wait_s)

    def _await(self, text: bytes) -> None:
        """Wait until something that contains a text has come, or for long enough to be sure that it does not."""
        deadline_s = time.monotonic() + ANSWER_S
        while not any(text in frame for frame in self._kept) and time.monotonic() < deadline_s:
            time.sleep(0.01)
            self._kept += self.peer.ask()

    def hear_payloads(self) -> None:
        """Note what came, without what depends on when it was sent."""
        messages = self._hear(0.06)
        self.script.note("payloads", [each.payload.decode() for each in messages])

    def hear_kinds(self, wait_s: float) -> None:
        """Note how many messages came before, between and after questions of flow control."""
        kinds = [
            "?" if each.reply.startswith("$JS.FC.") else "m" for each in self._hear(wait_s) if "Idle" not in each.status
        ]
        self.script.note("kinds", "".join(kinds))

    def listen(self, asked: str = "listen", wait_s: float = 0.06) -> list[Msg]:
        """Note what comes within a while."""
        messages = self._hear(wait_s)
        self.script.note(asked, [self._shown(each) for each in messages])
        return messages

    def _hear(self, wait_s: float) -> list[Msg]:
        time.sleep(wait_s)
        messages = [parse_msg(each) for each in self._kept + self.peer.ask()]
        self._kept.clear()
        for each in messages:
            if each.reply.startswith("$JS.ACK."):
                self.replies.append(each.reply)
            if each.reply.startswith("$JS.FC."):
                self.questions.append(each.reply)
            if pin := re.search(rb"Nats-Pin-Id: (\w+)", each.headers):
                self.pins.append(pin[1].decode())
        return messages

    def _shown(self, message: Msg) -> Any:
        fields = (message.subject, message.sid, message.reply, message.headers.decode(), message.payload.decode()[:50])
        texts = (field.replace(self.inbox, "INBOX") for field in fields)
        return [
            _PIN.sub("Nats-Pin-Id: <pin>", _FLOW.sub(r"\1.<>", _ACK_TIME.sub(r"\1.<ns>.\2", each))) for each in texts
        ]


def without_times(answer: Any) -> Any:
    """An info without what differs by nature; of pins it matters that they are there."""
    if not isinstance(answer, dict):
        return answer
    shown = {key: value for key, value in answer.items() if key not in _INFO_VARIES}
    if "pause_remaining" in shown:
        shown["pause_remaining"] = "<ns>"
    if "consumers" in shown and shown["consumers"] and isinstance(shown["consumers"][0], dict):
        shown["consumers"] = [without_times(each) for each in shown["consumers"]]
    for group in shown.get("priority_groups", ()):
        if "pinned_client_id" in group:
            group["pinned_client_id"] = "<pin>"
    if len(shown.get("name", "")) == 8:  # generated
        shown["name"] = "<name>"
    return shown


def same(pair: Pair, name: str, steps: Callable[[ConsumerScript], None]) -> None:
    """Both servers do the same, step by step."""

    def act(script: Script) -> None:
        with Peer(script.server) as peer:
            steps(ConsumerScript(script, peer))

    assert_same(pair, name, act)

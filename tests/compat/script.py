"""A script of requests run on two servers, and their answers compared, but for what differs by nature.

Times, server names and generated ids become placeholders, and the test's stream is called S in what is compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compat.conftest import Pair
from tests.compat.peer import Msg, Peer
from tests.compat.servers import Server

_TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_MORE_TRIES = 3
_SERVER_ID = re.compile(r"\bN[A-Z2-7]{55}\b")


class Script:
    """Sends requests on one connection and notes what was asked and what came back."""

    def __init__(self, server: Server, peer: Peer, name: str) -> None:
        self.server, self.peer, self.name = server, peer, name
        self.notes: list[tuple[str, Any]] = []

    def api(self, subject: str, body: object = None, headers: bytes = b"") -> Any:
        """An API request; `S` alone between dots stands for the test's stream in subject and body."""
        subject, body = self._own(subject), self._own_body(body)
        answer = self.peer.api(subject, body, headers)
        self.note(f"{subject} {body!r:.200}", answer)
        return answer

    def create(self, **config: Any) -> Any:
        return self.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], **config})

    def update(self, **config: Any) -> Any:
        return self.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.>"], **config})

    def publish(self, subject: str, payload: bytes = b"", headers: bytes = b"") -> Any:
        """A publish with its PubAck."""
        answer = self.peer.request(self._own(subject), payload, headers)
        self.note(f"publish {subject} {headers!r}", json.loads(answer.payload) if answer.payload else answer.headers)
        return json.loads(answer.payload) if answer.payload else None

    def request(self, subject: str, body: object = None, headers: bytes = b"", count: int = 1) -> list[Msg]:
        """A request that answers with messages of its own shape."""
        body = self._own_body(body)
        payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        answers = self.peer.requests(self._own(subject), payload, headers, count)
        self.note(f"{subject} {body!r:.200}", [tuple(answer) for answer in answers])
        return answers

    def note(self, asked: str, answer: Any) -> None:
        self.notes.append((self._anonymous(asked), self.normal(answer)))

    def normal(self, answer: Any) -> Any:
        """An answer without what differs by nature."""
        if isinstance(answer, dict):
            if answer.get("deleted") == [0]:  # nats-server's slip: an empty stream has lost sequence 0
                answer = {key: value for key, value in answer.items() if key not in ("deleted", "num_deleted")}
            return {self._anonymous(key): self.normal(value) for key, value in answer.items()}
        if isinstance(answer, list | tuple):
            return [self.normal(value) for value in answer]
        if isinstance(answer, bytes):
            return self._anonymous(answer.decode("latin-1"))
        return self._anonymous(answer) if isinstance(answer, str) else answer

    def _anonymous(self, text: str) -> str:
        return _SERVER_ID.sub("<server>", _TIME.sub("<time>", re.sub(rf"\b{self.name}\b", "S", text)))

    def _own(self, text: str) -> str:
        return re.sub(r"(?<![\w$])S(?!\w)", self.name, text)

    def _own_body(self, body: object) -> object:
        if isinstance(body, dict):
            return {key: self._own_body(value) for key, value in body.items()}
        if isinstance(body, list):
            return [self._own_body(value) for value in body]
        return self._own(body) if isinstance(body, str) else body


Act = Callable[[Script], None]


def run(server: Server, name: str, act: Act) -> list[tuple[str, Any]]:
    with Peer(server) as peer:
        script = Script(server, peer, name)
        act(script)
        peer.api(f"STREAM.DELETE.{name}")
        return script.notes


def assert_same(pair: Pair, name: str, act: Act) -> list[tuple[str, Any]]:
    """Both servers answer the script alike, request by request; what the real one answered.

    Where its threads race each other the real one gives different answers to the same script: ours, which is asked
    once, must have given those of one of a few tries.
    """
    real, ours = run(pair.real, name, act), run(pair.ours, name, act)
    for _ in range(_MORE_TRIES):
        if real == ours:
            break
        real = run(pair.real, name, act)
    for (asked, expected), (_, found) in zip(real, ours, strict=False):
        if found != expected:
            differences = "\n".join(differing(expected, found))
            pytest.fail(f"asked: {asked}\n{pair.real.kind} | {pair.ours.kind}\n{differences}", pytrace=False)
    assert len(real) == len(ours)
    return real


def differing(real: Any, ours: Any, path: str = "") -> Iterator[str]:
    """Where two answers differ, and how."""
    if isinstance(real, dict) and isinstance(ours, dict):
        for key in [*real, *(ours.keys() - real.keys())]:
            yield from differing(real.get(key, "absent"), ours.get(key, "absent"), f"{path}.{key}")
    elif isinstance(real, list) and isinstance(ours, list) and len(real) == len(ours):
        for number, pair in enumerate(zip(real, ours, strict=True)):
            yield from differing(*pair, f"{path}[{number}]")
    elif real != ours:
        yield f"{path}: {real!r} | {ours!r}"

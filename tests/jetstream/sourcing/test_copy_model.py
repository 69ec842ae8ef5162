"""Whatever happens to an origin, its consumers and the server: at rest its copies have all that it has.

The model is what was ever published, by sequence. What left the origin before it was copied may be missing from a copy;
what is in a copy was published, is the same message, and is there once.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jetlake.jetstream.sourcing.names import SOURCE_HEADER, read_source_header
from jetlake.wire.headers import header_value, without_header
from tests.jetstream.harness import FakeHost, InProcess
from tests.jetstream.sourcing.test_feed import World

COPIES = {"M": {"mirror": {"name": "O"}}, "C": {"sources": [{"name": "O"}]}, "MM": {"mirror": {"name": "M"}}}
STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 8)),
    st.tuples(st.just("delete"), st.integers(1, 30)),
    st.tuples(st.just("purge"), st.fixed_dictionaries({"keep": st.integers(0, 3)})),
    st.tuples(st.just("purge"), st.fixed_dictionaries({"filter": st.sampled_from(["o.0", "o.1"])})),
    st.tuples(st.just("cut"), st.sampled_from(["O", "M"])),
    st.tuples(st.just("lose"), st.sampled_from(sorted(COPIES))),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.5, 5.0, 12.0])),
    st.tuples(st.just("restart"), st.none()),
)


class Model(World):
    """A server with an origin and its copies, and all that was ever published."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.published: dict[int, tuple[str, bytes, bytes]] = {}
        super().__init__(directory)
        for name, config in COPIES.items():
            self.make(name, **config)

    def act(self, kind: str, value: Any) -> None:
        if kind == "publish":
            for _ in range(value):
                self.publish_one()
        elif kind == "delete":
            self.server.request("$JS.API.STREAM.MSG.DELETE.O", json.dumps({"seq": value}).encode())
        elif kind == "purge":
            self.server.request("$JS.API.STREAM.PURGE.O", json.dumps(value).encode())
        elif kind == "cut":
            for consumer in list(self.stream(value).consumers.values()):
                consumer.close(409, "Consumer Deleted")
        elif kind == "lose":
            feed = self.feed(value)
            if feed._deliveries is not None:
                feed._deliveries._take = lambda frames: None
        elif kind == "wait":
            self.pass_time(value)
        else:
            self.restart()

    def publish_one(self) -> None:
        number = len(self.published)
        subject, payload = f"o.{number % 3}", b"%d" % number
        headers = b"NATS/1.0\r\nA: b\r\n\r\n" if number % 4 == 0 else b""
        (answer,) = self.server.request(subject, payload, headers)
        self.published[json.loads(answer[1])["seq"]] = (subject, headers, payload)

    def restart(self) -> None:
        self.server.stop()
        self.server = InProcess(str(self.directory), FakeHost(clock=self.clock))

    def rest(self) -> None:
        """Let everything come to an end: what is missing is seen when one more message comes."""
        self.pass_time(300)
        self.publish_one()
        self.pass_time(300)

    def check(self) -> None:
        live = {message.seq for message in self.stream("O").store.messages()}
        for name in ("M", "MM"):
            found = {message.seq: message for message in self.stream(name).store.messages()}
            assert live <= set(found) and self.stream(name).last_seq == self.stream("O").last_seq
            for seq, message in found.items():
                assert (message.subject, message.headers, message.payload) == self.published[seq]
        seqs = []
        for message in self.stream("C").store.messages():
            origin = read_source_header(header_value(message.headers, SOURCE_HEADER) or b"")
            assert origin is not None
            seqs.append(origin.seq)
            headers = without_header(message.headers, SOURCE_HEADER)
            assert (message.subject, headers, message.payload) == self.published[origin.seq]
        assert seqs == sorted(set(seqs)) and live <= set(seqs)


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(STEPS, max_size=20))
def test_copies_have_at_rest_what_their_origin_has(steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        model = Model(Path(directory))
        for kind, value in steps:
            model.act(kind, value)
        model.rest()
        model.check()
        model.server.stop()

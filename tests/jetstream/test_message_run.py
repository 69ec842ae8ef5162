"""STREAM.MSG.GET requests that arrive together, answered as the API answers each alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jetstream.consumer_world import World, frame

SUBJECT = "$JS.API.STREAM.MSG.GET."


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.publish(b"one", b"", b"three", subject="s.a")
    world.peer.pub("s.b", b"four", headers=b"NATS/1.0\r\nX: y\r\n\r\n")
    yield world
    world.stop()


def answers(world: World, text: bytes) -> list[str]:
    """The bodies of the answers to requests, in the order of their replies."""
    world.peer.say(text)
    found = sorted(world.peer.take(), key=lambda each: each.subject)
    return [each.payload.decode() for each in found]


BODIES = [
    b'{"seq":1}',
    b'{"seq":2}',
    b'{"seq":4}',
    b'{"seq":4,"no_hdr":true}',
    b'{"seq":5}',
    b'{"seq":3}',
    b'{"last_by_subj":"s.b"}',
    b'{"last_by_subj":"s.*"}',
    b'{"last_by_subj":"s.none"}',
    b"nonsense",
    b'{"seq":1}',
]


def test_a_run_gets_the_answers_that_each_request_gets_alone(world: World) -> None:
    world.peer.request("STREAM.MSG.DELETE.S", {"seq": 2})
    together = answers(
        world, b"".join(frame(SUBJECT + "S", body, f"in.{chr(97 + place)}") for place, body in enumerate(BODIES))
    )
    # A message with headers goes through the API.
    alone = [answers(world, frame(SUBJECT + "S", body, "in.x", b"NATS/1.0\r\n\r\n"))[0] for body in BODIES]
    assert together == alone
    assert [json.loads(each).get("message", {}).get("seq") for each in together] == [
        1, None, 4, 4, None, 3, 4, 4, None, None, 1,
    ]  # fmt: skip


def test_a_run_may_be_about_several_streams(world: World) -> None:
    world.peer.request("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})
    world.publish(b"t", subject="t")
    names = ["S", "T", "none", "S"]
    found = answers(world, b"".join(frame(SUBJECT + name, b'{"seq":1}', f"in.{at}") for at, name in enumerate(names)))
    subjects = [json.loads(each).get("message", {}).get("subject") for each in found]
    assert subjects == ["s.a", "t", None, "s.a"]

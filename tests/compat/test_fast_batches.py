"""Fast-ingest batches: acknowledgements, gaps, pings, commits and errors. Both servers say the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.conftest import Pair, Start
from tests.compat.peer import Peer, header_block, publication
from tests.compat.script import Script, assert_same, run
from tests.compat.servers import wait_until

BEGIN, APPEND, COMMIT, COMMIT_ONLY, PING = range(5)


class Publisher:
    """One batch: what is sent, and what comes back."""

    def __init__(self, script: Script, batch: str = "b", flow: object = 10, mode: str = "fail") -> None:
        self.script, self.batch, self.flow, self.mode = script, batch, flow, mode
        self.inbox = f"_INBOX.{script.name}.{batch}"
        script.peer.subscribe(f"{self.inbox}.>", batch)

    def line(
        self, seq: object, operation: object, payload: bytes = b"x", headers: bytes = b"", to: str = "S.a"
    ) -> bytes:
        reply = f"{self.inbox}.{self.batch}.{self.flow}.{self.mode}.{seq}.{operation}.$FI"
        return publication(self.script._own(to), payload, headers, reply)

    def send(self, *lines: bytes) -> None:
        """Send, then note everything that came back until a lone publish is answered."""
        self.script.peer.send(b"".join(lines))
        script, inbox = self.script, f"_INBOX.{self.script.name}.done"
        script.peer.send(f"SUB {inbox} done\r\n".encode() + publication(script._own("S.done"), b"", b"", inbox))
        answers: list[Any] = []
        while (msg := script.peer.message()).sid != "done":
            answers.append([msg.subject.removeprefix(self.inbox), msg.payload])
        script.peer.send(b"UNSUB done\r\n")
        script.note(f"{lines!r:.300}", answers)


def batch(script: Script, **options: Any) -> Publisher:
    script.create(allow_batched=True)
    return Publisher(script, **options)


def test_acknowledgements_come_every_few_messages(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        publisher = batch(script, flow=4)
        publisher.send(publisher.line(1, BEGIN))
        publisher.send(*(publisher.line(seq, APPEND) for seq in range(2, 25)))
        publisher.send(publisher.line(25, COMMIT))
        publisher.send(publisher.line(26, APPEND))
        script.api("STREAM.INFO.S")
        script.api("STREAM.MSG.GET.S", {"seq": 7})

    assert_same(pair, name, act)


@pytest.mark.parametrize("flow", [1, 3, 500, 501, 70000, 0, -1, "x", ""])
def test_the_flow_is_what_the_publisher_asks_for_within_limits(pair: Pair, name: str, flow: object) -> None:
    def act(script: Script) -> None:
        publisher = batch(script, flow=flow)
        publisher.send(publisher.line(1, BEGIN), *(publisher.line(seq, APPEND) for seq in range(2, 12)))
        publisher.send(publisher.line(12, COMMIT_ONLY))

    assert_same(pair, name, act)


def test_several_publishers_are_slowed_down_and_ramp_up(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        first = batch(script, flow=100)
        second = Publisher(script, "c", 100)
        first.send(first.line(1, BEGIN))
        second.send(second.line(1, BEGIN))
        second.send(*(second.line(seq, APPEND) for seq in range(2, 300)))
        first.send(*(first.line(seq, APPEND) for seq in range(2, 250)))
        second.send(second.line(300, COMMIT))
        first.send(first.line(250, COMMIT_ONLY))

    assert_same(pair, name, act)


@pytest.mark.parametrize("mode", ["fail", "ok"])
def test_gaps_are_reported_and_end_the_batch_where_it_wants_that(pair: Pair, name: str, mode: str) -> None:
    def act(script: Script) -> None:
        for label, seqs in {"ahead": (4, 5), "back": (2,), "same": (3,)}.items():
            publisher = batch(script, batch=label, flow=2, mode=mode)
            publisher.send(publisher.line(1, BEGIN), publisher.line(2, APPEND), publisher.line(3, APPEND))
            publisher.send(*(publisher.line(seq + 1 if label == "ahead" else seq, APPEND) for seq in seqs))
            publisher.send(publisher.line(8, COMMIT))
        script.api("STREAM.INFO.S")

    assert_same(pair, name, act)


@pytest.mark.parametrize("mode", ["fail", "ok"])
def test_a_ping_repeats_the_last_acknowledgement(pair: Pair, name: str, mode: str) -> None:
    def act(script: Script) -> None:
        publisher = batch(script, flow=3, mode=mode)
        publisher.send(publisher.line(1, PING))
        publisher.send(publisher.line(1, BEGIN))
        publisher.send(publisher.line(1, PING))
        publisher.send(*(publisher.line(seq, APPEND) for seq in range(2, 6)))
        publisher.send(publisher.line(5, PING))
        publisher.send(publisher.line(9, PING))
        publisher.send(publisher.line(10, APPEND))
        publisher.send(publisher.line(11, COMMIT_ONLY))

    assert_same(pair, name, act)


MALFORMED = {
    "operation": [(1, 5), (1, -1), (1, "x"), (1, "")],
    "sequence": [(0, 0), ("x", 0), (-1, 1), (2**64 - 1, 1), (2**64, 1)],
    "not the first": [(2, 0), (1, 1), (1, 3)],
    "unknown": [(2, 1), (2, 2), (2, 3), (2, 4)],
    "single": [(1, 2)],
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_replies_are_refused(pair: Pair, name: str, case: str) -> None:
    def act(script: Script) -> None:
        publisher = batch(script)
        for seq, operation in MALFORMED[case]:
            publisher.send(publisher.line(seq, operation))

    assert_same(pair, name, act)


def test_malformed_modes_ids_and_short_replies_are_refused(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        publisher = batch(script, mode="maybe")
        publisher.send(publisher.line(1, BEGIN))
        publisher.mode, publisher.batch = "fail", "x" * 64
        publisher.send(publisher.line(1, BEGIN))
        publisher.batch = "x" * 65
        publisher.send(publisher.line(1, BEGIN))
        script.peer.subscribe(f"{name}R.>", "short")
        for reply in (f"{name}R.$FI", f"{name}R.0.$FI", f"{name}R.1.0.$FI", f"{name}R.10.fail.1.0.$FI"):
            publisher.send(publication(script._own("S.a"), b"", b"", reply))

    assert_same(pair, name, act)


@pytest.mark.parametrize("mode", ["fail", "ok"])
@pytest.mark.parametrize("seq", [1, 2, 3])
def test_a_message_that_is_refused_is_reported(pair: Pair, name: str, mode: str, seq: int) -> None:
    wrong = header_block(**{"Nats-Expected-Last-Sequence": 99})

    def act(script: Script) -> None:
        for last in (COMMIT, COMMIT_ONLY):
            publisher = batch(script, batch=f"b{last}", flow=2, mode=mode)
            for number in (1, 2, 3):
                operation = BEGIN if number == 1 else last if number == 3 else APPEND
                publisher.send(publisher.line(number, operation, b"x", wrong if number == seq else b""))
            publisher.send(publisher.line(4, APPEND))
        publisher = Publisher(script, "single", 2, mode)
        publisher.send(publisher.line(1, COMMIT, b"x", wrong))
        script.api("STREAM.INFO.S")

    assert_same(pair, name, act)


@pytest.mark.parametrize("mode", ["fail", "ok"])
def test_duplicates_are_counted_and_not_stored(pair: Pair, name: str, mode: str) -> None:
    def msg_id(number: int) -> bytes:
        return header_block(**{"Nats-Msg-Id": number})

    def act(script: Script) -> None:
        publisher = batch(script, flow=2, mode=mode)
        publisher.send(publisher.line(1, BEGIN, b"x", msg_id(1)))
        publisher.send(*(publisher.line(seq, APPEND, b"x", msg_id(seq // 2)) for seq in range(2, 9)))
        publisher.send(publisher.line(9, COMMIT, b"x", msg_id(1)))
        for operation in (COMMIT, BEGIN):
            publisher.send(publisher.line(1, operation, b"x", msg_id(1)))
        publisher.send(publisher.line(2, COMMIT_ONLY))
        script.api("STREAM.INFO.S")

    assert_same(pair, name, act)


RULES: dict[str, tuple[dict[str, Any], list[bytes]]] = {
    "expected": ({}, [header_block(**{"Nats-Expected-Last-Sequence": seq}) for seq in (0, 1, 2)]),
    "subject": ({}, [header_block(**{"Nats-Expected-Last-Subject-Sequence": seq}) for seq in (0, 1, 5)]),
    "discard new": ({"discard": "new", "max_msgs": 2}, [b"", b"", b"", b""]),
    "roll-up": ({"allow_rollup_hdrs": True}, [b"", b"", header_block(**{"Nats-Rollup": "sub"})]),
    "ttl": ({"allow_msg_ttl": True}, [header_block(**{"Nats-TTL": ttl}) for ttl in ("1h", "x", "never")]),
    "counter": ({"allow_msg_counter": True}, [header_block(**{"Nats-Incr": value}) for value in (1, 2, "x")]),
    "limits": ({"max_msgs": 1}, [b"", b"", b""]),
    "interest": ({"retention": "interest"}, [b"", b"", b""]),
    "transform": ({"subject_transform": {"src": "S.a", "dest": "S.b"}}, [b"", b""]),
    "batch headers": ({}, [header_block(**{"Nats-Batch-Id": "z", "Nats-Batch-Sequence": 9}), b""]),
    "level": (
        {},
        [b"", header_block(**{"Nats-Required-Api-Level": 5}), header_block(**{"Nats-Required-Api-Level": 6})],
    ),
    "status": ({}, [b"NATS/1.0 503\r\n\r\n", b"NATS/1.0 503\r\nA: b\r\n\r\n"]),
    "memory": ({"storage": "memory"}, [b"", b"", b""]),
}


@pytest.mark.parametrize("mode", ["fail", "ok"])
@pytest.mark.parametrize("case", RULES)
def test_all_rules_hold_for_each_message(pair: Pair, name: str, case: str, mode: str) -> None:
    config, blocks = RULES[case]

    def act(script: Script) -> None:
        script.create(allow_batched=True, **config)
        publisher = Publisher(script, flow=2, mode=mode)
        payload = b"" if case == "counter" else b"payload"
        for seq, block in enumerate(blocks, 1):
            publisher.send(publisher.line(seq, APPEND if seq > 1 else BEGIN, payload, block))
        publisher.send(publisher.line(len(blocks) + 1, COMMIT_ONLY))
        info = script.api("STREAM.INFO.S")
        for seq in range(1, info["state"]["last_seq"] + 1):
            script.api("STREAM.MSG.GET.S", {"seq": seq})

    assert_same(pair, name, act)


def test_what_is_not_enabled_sealed_or_too_large_is_refused(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(max_msg_size=50)
        publisher = Publisher(script)
        publisher.send(publisher.line(1, BEGIN), publisher.line("x", "y"))
        script.update(allow_batched=True, max_msg_size=50)
        publisher.send(publisher.line(1, BEGIN, b"x" * 60), publisher.line(1, BEGIN))
        publisher.send(publisher.line(2, APPEND, b"x" * 60), publisher.line(2, APPEND))
        script.update(allow_batched=False, max_msg_size=50)
        publisher.send(publisher.line(3, APPEND))
        script.update(allow_batched=True, max_msg_size=50)
        publisher.send(publisher.line(3, APPEND))

    assert_same(pair, name, act)


def test_a_batch_of_which_nothing_is_heard_is_forgotten(start: Start) -> None:
    limits = "jetstream { limits { batch { max_inflight_per_stream: 1, timeout: 500ms } } }"
    with Peer(start(limits, "-js")) as peer:
        peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], "allow_batched": True})
        peer.subscribe("R.>")

        def ask(batch: str, seq: int, operation: int) -> Any:
            peer.publish("S.a", b"", b"", f"R.{batch}.10.fail.{seq}.{operation}.$FI")
            return peer.message().json

        assert ask("b", 1, BEGIN) == {"type": "ack", "seq": 0, "msgs": 10}
        assert ask("c", 1, BEGIN)["error"]["err_code"] == 10211
        wait_until(lambda: ask("c", 1, BEGIN) == {"type": "ack", "seq": 0, "msgs": 10}, "the end of the first")
        assert ask("b", 2, APPEND)["error"]["err_code"] == 10208


def test_a_restart_ends_batches_and_keeps_what_they_stored(start: Start) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], "allow_batched": True})
        peer.subscribe("R.>")
        for seq in range(1, 4):
            peer.publish("S.a", b"", b"", f"R.b.1.fail.{seq}.{min(seq - 1, 1)}.$FI")
        assert [peer.message().json["seq"] for _ in range(4)] == [0, 1, 2, 3]
    server.stop()
    server.start()
    with Peer(server) as peer:
        peer.subscribe("R.>")
        peer.publish("S.a", b"", b"", "R.b.1.fail.4.1.$FI")
        assert peer.message().json["error"]["err_code"] == 10208
        assert peer.api("STREAM.INFO.S")["state"]["messages"] == 3


@pytest.mark.parametrize("mode", ["fail", "ok"])
def test_difference_wrong_last_msg_id_is_a_gap_like_any_other(pair: Pair, name: str, mode: str) -> None:
    """nats-server answers it as it answers a lone publish, and then never answers the commit."""

    def act(script: Script) -> None:
        publisher = batch(script, flow=2, mode=mode)
        publisher.send(publisher.line(1, BEGIN))
        publisher.send(publisher.line(2, APPEND, b"x", header_block(**{"Nats-Expected-Last-Msg-Id": "x"})))
        publisher.send(publisher.line(3, COMMIT_ONLY))

    real, ours = (repr(run(server, name, act)[2:]) for server in pair)
    assert "10070" in real and "10070" in ours
    assert '"count"' not in real and '"type":"err"' not in real
    assert '{"type":"err","seq":2,' in ours and ('"count":1' in ours) == (mode == "fail")
    assert '"count":' in ours

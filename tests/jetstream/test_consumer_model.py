"""A pull consumer against a simple model: random publishes, pulls, acks, time, purges and restarts.

The model knows which messages there are, which of them were delivered how often, and when each is due again. After
every step the consumer's own numbers must be the model's.

A second ledger gets nothing but the consumer's commands, and must say the same.
"""

from __future__ import annotations

import shutil
import tempfile
from array import array
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jetlake.jetstream.consumers.commands import AckMany, Command
from jetlake.jetstream.consumers.ledger import Ledger
from tests.jetstream.consumer_world import Received, S, World, frame

WAIT_S = 10
DELIVER_MAX = 3
SUBJECTS = ("s.a", "s.b", "s.c")
FILTER = {"s.a", "s.b"}


class ConsumerModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.stored: dict[int, str] = {}  # what is in the stream
        self.last_seq = 0
        self.position = 1  # messages before it were delivered, or are gone, or are not wanted
        self.count: dict[int, int] = {}  # deliveries of messages that are not done
        self.due_s: dict[int, float] = {}  # of pending ones
        self.queued: set[int] = set()
        self.given_up: set[int] = set()
        self.done: set[int] = set()
        self.replies: dict[int, str] = {}
        self.now_s = 0.0

    @initialize(pending_max=st.sampled_from([2, 5, 1000]))
    def start(self, pending_max: int) -> None:
        self.pending_max = pending_max
        self.world = World(self.directory)
        self.world.create(
            ack_wait=WAIT_S * S,
            max_deliver=DELIVER_MAX,
            filter_subjects=sorted(FILTER),
            max_ack_pending=pending_max,
        )
        self.follow()

    def follow(self) -> None:
        """Let a second ledger go on from where the consumer's is."""
        consumer = self.world.consumer()
        self.second = Ledger(consumer.config)
        self.second.restore(consumer.ledger.state(), self.last_seq)
        self.second.next_seq = consumer.ledger.next_seq

        def submit(command: Command) -> Any:
            theirs = command._replace(seqs=array("Q", command.seqs)) if isinstance(command, AckMany) else command
            result, other = consumer.ledger.apply(command), self.second.apply(theirs)
            assert result == other
            return result

        consumer.submit = submit  # type: ignore[method-assign]

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.stop()
        shutil.rmtree(self.directory)

    # What the model expects

    def wanted_from(self, seq: int) -> list[int]:
        return [each for each, subject in sorted(self.stored.items()) if each >= seq and subject in FILTER]

    def expect(self, messages: list[Received]) -> None:
        """Messages came: each is one that was queued, or the next new one."""
        for message in messages:
            deliveries, seq, _, pending = message.ack
            assert seq in self.stored and seq not in self.done
            if seq in self.queued:
                self.queued.remove(seq)
            else:
                assert not self.queued, "what is due comes before what is new"
                assert len(self.due_s) < self.pending_max
                assert seq == self.wanted_from(self.position)[0]
                self.position = seq + 1
                assert pending == len(self.wanted_from(self.position))
            self.count[seq] = self.count.get(seq, 0) + 1
            assert deliveries == self.count[seq] <= DELIVER_MAX
            self.due_s[seq] = self.now_s + WAIT_S
            self.replies[seq] = message.reply

    def finish(self, seq: int) -> None:
        self.done.add(seq)
        for kept in (self.count, self.due_s):
            kept.pop(seq, None)
        self.queued.discard(seq)
        self.given_up.discard(seq)

    def give_up(self, seq: int) -> None:
        self.given_up.add(seq)
        del self.due_s[seq]
        self.queued.discard(seq)

    # Steps

    @rule(subjects=st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=6))
    def publish(self, subjects: list[str]) -> None:
        self.world.peer.say(b"".join(frame(subject, b"x") for subject in subjects))
        for subject in subjects:
            self.last_seq += 1
            self.stored[self.last_seq] = subject

    @rule(batch=st.integers(1, 6))
    def pull(self, batch: int) -> None:
        again = self.take_queued(batch)
        self.world.peer.sub("pull", "p")
        messages = self.world.next(batch=batch, reply="pull")
        self.world.peer.unsub("p")  # what is not filled by now is forgotten
        room = max(self.pending_max - len(self.due_s), 0)
        assert len(messages) == min(batch, again + min(len(self.wanted_from(self.position)), room))
        self.expect(messages)

    def take_queued(self, batch: int) -> int:
        """How many of a request's messages come from the queue; what is exhausted among them is given up."""
        queue, count = list(self.world.consumer().ledger.queue), 0
        assert set(queue) == self.queued
        for seq in queue:
            if count == batch:
                break
            if self.count[seq] < DELIVER_MAX:
                count += 1
            else:
                self.give_up(seq)
        return count

    @precondition(lambda self: self.replies)
    @rule(data=st.data(), kind=st.sampled_from([b"", b"+ACK", b"+TERM", b"-NAK", b"+WPI", b"-NAK 3s"]))
    def acknowledge(self, data: st.DataObject, kind: bytes) -> None:
        seq = data.draw(st.sampled_from(sorted(self.replies)))
        self.world.peer.pub(self.replies[seq], kind, "in.ack")
        assert [each.subject for each in self.world.peer.take()] == ["in.ack"]
        if kind in (b"", b"+ACK", b"+TERM"):
            self.finish(seq)
        elif seq in self.due_s and kind == b"+WPI":
            self.due_s[seq] = self.now_s + WAIT_S
        elif seq in self.due_s and kind == b"-NAK":
            self.queued.add(seq)
        elif seq in self.due_s:
            self.queued.discard(seq)
            self.due_s[seq] = self.now_s + 3

    @precondition(lambda self: len(self.due_s) > 1)
    @rule()
    def acknowledge_all_at_once(self) -> None:
        seqs = sorted(self.due_s)
        self.world.peer.say(b"".join(frame(self.replies[seq]) for seq in seqs))
        for seq in seqs:
            self.finish(seq)

    @rule(seconds=st.sampled_from([0.5, 4.0, 10.5]))
    def pass_time(self, seconds: float) -> None:
        self.world.wait(seconds)
        self.now_s += seconds
        self.world.peer.take()
        for seq in sorted(self.due_s):
            if seq not in self.queued and self.due_s[seq] <= self.now_s:
                self.queued.add(seq)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.stored)))
        self.world.peer.request("STREAM.MSG.DELETE.S", {"seq": seq})
        self.gone([seq])

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.stored)))
        self.world.peer.request("STREAM.PURGE.S", {"seq": seq})
        self.gone([each for each in self.stored if each < seq])

    @rule(subject=st.sampled_from(SUBJECTS))
    def purge_subject(self, subject: str) -> None:
        self.world.peer.request("STREAM.PURGE.S", {"filter": subject})
        self.gone([each for each, its in self.stored.items() if its == subject])

    def gone(self, seqs: list[int]) -> None:
        for seq in seqs:
            del self.stored[seq]
            self.finish(seq)
            self.replies.pop(seq, None)

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.follow()
        self.queued.clear()  # what was queued and not delivered waits for its time again

    @rule()
    def crash_after_a_while(self) -> None:
        self.pass_time(2.5)  # long enough for what nobody waited for to be written
        self.world.crash()
        self.follow()
        self.queued.clear()

    @invariant()
    def the_second_ledger_agrees(self) -> None:
        if hasattr(self, "world"):
            ledger = self.world.consumer().ledger
            assert ledger.state() == self.second.state()
            assert (ledger.next_seq, list(ledger.queue)) == (self.second.next_seq, list(self.second.queue))
            assert ledger.deadlines.next_ns == self.second.deadlines.next_ns

    @invariant()
    def numbers_agree(self) -> None:
        if not hasattr(self, "world"):
            return
        info = self.world.info()
        assert info["num_pending"] == len(self.wanted_from(self.position))
        assert info["num_ack_pending"] == len(self.due_s)
        redelivered = {seq for seq, count in self.count.items() if count > 1} | self.given_up
        assert info["num_redelivered"] == len(redelivered)
        assert info["num_waiting"] == 0
        floor, delivered = info["ack_floor"], info["delivered"]
        assert floor["stream_seq"] <= delivered["stream_seq"] < max(self.position, delivered["stream_seq"] + 1)
        assert all(seq > floor["stream_seq"] for seq in self.due_s)


ConsumerModel.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestConsumerModel = ConsumerModel.TestCase

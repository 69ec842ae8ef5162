"""Monitor: entries are carried out in order; those that are none are logged and skipped."""

from __future__ import annotations

from jetlake.cluster.assignments import Assignments
from jetlake.cluster.meta_codec import RemoveConsumer, RemoveStream, SetDesired, UpdateStream, encode_entry
from jetlake.cluster.monitor import Monitor
from tests.cluster.things import TIME_NS, Recorder, assign, assign_consumer, nodes, stream


def monitor() -> tuple[Monitor, Recorder]:
    recorder = Recorder()
    made = Monitor(Assignments(), recorder, recorder)
    for index, entry in enumerate(nodes(), 1):
        made.process(index, encode_entry(entry))
    recorder.told.clear()
    return made, recorder


def test_each_kind_of_entry_is_told_once() -> None:
    on, heard = monitor()
    gone = RemoveConsumer(account="A", stream="S", incarnation=4, name="C", created_ns=TIME_NS)
    entries = [
        assign(),
        UpdateStream(account="A", incarnation=4, config=stream(max_msgs=1).config),
        assign_consumer(4),
        gone,
        RemoveStream(account="A", name="S", incarnation=4),
    ]
    for index, entry in enumerate(entries, 4):
        assert on.process(index, encode_entry(entry)) == entry
    assert heard.told == [
        ("assigned", "S"),
        ("updated", "S"),
        ("consumer assigned", "C"),
        ("consumer removed", "C"),
        ("removed", "S"),
    ]


def test_an_entry_that_changes_nothing_is_not_told() -> None:
    on, heard = monitor()
    for entry in (
        RemoveStream(account="A", name="S", incarnation=4),
        SetDesired(account="A", name="S", incarnation=4),
        assign_consumer(4),
        nodes()[0],
    ):
        assert on.process(9, encode_entry(entry)) is None
    assert heard.told == [] and heard.lines == []


def test_malformed_entries_are_logged_and_skipped() -> None:
    on, heard = monitor()
    assert on.process(4, b"\x63\x01junk") is None
    assert on.process(5, encode_entry(assign("S", "zzzzzzzz"))) is None
    assert on.process(6, encode_entry(assign())) is not None
    assert on.skipped == 2
    assert heard.lines == [
        "error meta entry skipped index=4 error=an entry of unknown kind 99",
        "error meta entry skipped index=5 error=stream S: unknown peers zzzzzzzz",
    ]


def test_a_listener_that_fails_does_not_stop_the_entries() -> None:
    on, heard = monitor()
    heard.fails = RuntimeError("no disk")
    assert on.process(4, encode_entry(assign())) is not None
    assert on.process(5, encode_entry(assign("T"))) is not None
    assert sorted(on.state.accounts["A"]) == ["S", "T"]
    assert heard.failures == ["assignment stream_assigned: no disk"] * 2

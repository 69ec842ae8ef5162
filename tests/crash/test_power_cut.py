"""The power fails at every single operation on the disk. What was acknowledged is there when it comes back."""

from __future__ import annotations

import random

import pytest

from jetlake.store import FileStore, StoredMsg, StreamLimits
from jetlake.store.verify.check import check_store
from jetlake.testing.memfiles import MemFiles, PowerCut
from tests.crash.workload import ENVELOPES, SCRIPTS, Life, Script, rewrites, steps
from tests.store.model import Model


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_the_workload_itself_agrees_with_the_model(script: Script) -> None:
    life = Life(MemFiles(), ENVELOPES["none-none"], script)
    life.run()
    assert_holds(life.store, life.before, life.before, {})


@pytest.mark.parametrize(
    ("envelope", "script"),
    [
        *[pytest.param(envelope, steps, id=envelope) for envelope in ENVELOPES],
        *[
            pytest.param(envelope, rewrites, id=f"{envelope}-rewrites")
            for envelope in ("none-none", "zstd-aes_256_gcm")
        ],
    ],
)
def test_a_power_cut_at_any_operation_loses_nothing_acknowledged(
    envelope: str, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JETLAKE_VERIFY", raising=False)  # every store is checked below, once is enough
    life = Life(MemFiles(), ENVELOPES[envelope], script)
    life.run()
    for number in range(1, life.files.op_count + 1):
        life = cut_short(envelope, script, number)
        for label, files in what_is_left(life.files, number):
            try:
                reopen_and_compare(life, files)
            except BaseException as error:
                pytest.fail(f"cut at operation {number} ({life.files.ops[-1]}), {label}: {error!r}")


@pytest.mark.parametrize("limits", [StreamLimits(max_msgs=6), StreamLimits(max_msgs_per_subject=6)], ids=["all", "one"])
@pytest.mark.parametrize("envelope", ["none-none", "zstd-aes_256_gcm"])
def test_a_block_that_is_filled_and_emptied_before_it_is_written_is_not_taken_for_lost(
    envelope: str, limits: StreamLimits
) -> None:
    number, is_done = 0, False
    while not is_done:
        number += 1
        files = MemFiles()
        store = FileStore("s", limits, ENVELOPES[envelope], files=files, autocommit=False)
        for subject in range(8):
            store.append(f"a.{subject}", b"payload")
        store.commit()
        for _ in range(40):
            store.append("b", b"a longer payload")
        files.cut(files.op_count + number)
        try:
            store.commit()
            is_done = True
        except PowerCut:
            left = FileStore("s", limits, ENVELOPES[envelope], files=files.after_cut(keep="all"))
            assert not left.state().lost, f"cut at {files.ops[-1]}"
            assert left.damage == []


def cut_short(envelope: str, script: Script, number: int) -> Life:
    """Run the workload until the power fails at an operation."""
    life = Life(MemFiles(), ENVELOPES[envelope], script)
    life.files.cut(number)
    with pytest.raises(PowerCut):
        life.run()
    return life


def what_is_left(files: MemFiles, seed: int) -> list[tuple[str, MemFiles]]:
    """What the disk may hold: the least, everything, and the last write torn at some byte; each content once."""
    torn = random.Random(seed).randrange(1, 200)
    found = [
        ("nothing unsynced kept", files.after_cut()),
        ("everything kept", files.after_cut(keep="all")),
        (f"last write torn after {torn} bytes", files.after_cut(torn_bytes=torn)),
        ("last write torn after 1 byte", files.after_cut(keep="all", torn_bytes=1)),
    ]
    contents = [left.snapshot() for _, left in found]
    # Without a file there may still be directories, which a snapshot does not show.
    return [
        one for number, one in enumerate(found) if not contents[number] or contents[number] not in contents[:number]
    ]


def reopen_and_compare(life: Life, files: MemFiles) -> None:
    """The store opens by itself, holds what it must, is sound, and goes on."""
    store = FileStore("s", life.limits, life.options, files=files, clock=life.clock)
    expired_before, expired_after = life.before, life.after
    for model in (expired_before, expired_after):
        model.update(life.limits)
        model.expire(life.clock())
    assert store.damage == []
    assert not store.state().lost
    assert_holds(store, expired_before, expired_after, life.passing)
    report = check_store("s", files=files, keys=life.options.keys)
    assert report.ok, report.problems
    seq = store.append("after", b"x")
    assert seq > min(expired_before.last, expired_after.last)
    store.stop()
    report = check_store("s", files=files, keys=life.options.keys)
    assert not report.problems


def assert_holds(store: FileStore, before: Model, after: Model, passing: dict[int, StoredMsg]) -> None:
    """Every message is one that may be there, whole; every one that must be there is.

    Of a batch that was cut short the first messages may be there, even if its end would have made a limit take them.
    """
    held = {}
    seq = 1
    while (message := store.load_next(seq)) is not None:
        held[message.seq] = message
        seq = message.seq + 1
    for seq, message in held.items():
        known = (before.msgs.get(seq), after.msgs.get(seq), passing.get(seq))
        assert message in known, f"{message} was never stored"
    must = {seq: message for seq, message in before.msgs.items() if after.msgs.get(seq) == message}
    missing = sorted(must.keys() - held.keys())
    assert not missing, f"acknowledged and missing: {missing}"
    state = store.state()
    assert state.msgs == len(held)
    assert state.bytes == sum(map(before.size, held.values()))
    assert state.last_seq >= min(before.last, after.last)
    assert store.subjects_totals() == {
        subject: sum(message.subject == subject for message in held.values())
        for subject in {message.subject for message in held.values()}
    }

"""A log in segments, on disks that fail."""

from __future__ import annotations

import errno
import random

import pytest

from jetlake.store.log.log import Log, LogContents, clear_log, read_log
from jetlake.store.log.segment import HEADER_SIZE
from jetlake.testing.memfiles import MemFiles, PowerCut

ROOM = HEADER_SIZE + 200  # of a segment: a few records


def _files() -> MemFiles:
    files = MemFiles()
    files.make_dirs("log")
    return files


def _log(files: MemFiles, next_seq: int = 1, next_number: int = 1) -> Log:
    sizes = {"segment_size": ROOM, "reserve_size": 96}
    return Log(files, "log", purpose=1, next_seq=next_seq, next_number=next_number, **sizes)  # type: ignore[arg-type]


def _read(files: MemFiles) -> LogContents:
    return read_log(files, "log", purpose=1)


def _bodies(found: LogContents) -> list[bytes]:
    return [record.body for record in found.records]


BODIES = [b"body %d" % number * (number % 4) for number in range(20)]


def _write(log: Log, durable: list[bytes], *, retires: bool = False) -> None:
    for first in range(0, len(BODIES), 2):
        log.append(BODIES[first : first + 2])
        log.sync()
        durable += BODIES[first : first + 2]
        if retires and log.number % 2:
            log.retire(log.number - 1)


def test_what_was_appended_is_read_through_all_segments() -> None:
    files, durable = _files(), list[bytes]()
    log = _log(files)
    _write(log, durable)
    found = _read(files)
    assert _bodies(found) == BODIES == durable and log.number > 2
    assert (found.damage, found.tail, found.next_seq, found.next_number) == ([], "", 21, log.number + 1)


def test_a_body_larger_than_a_segment_gets_one_of_its_own() -> None:
    files = _files()
    log = _log(files)
    for body in (b"small", bytes(range(256)) * 40, b"small again"):
        log.append([body])
    log.sync()
    assert [len(body) for body in _bodies(_read(files))] == [5, 10240, 11] and log.number == 3


def test_a_new_log_goes_on_behind_the_old_one() -> None:
    files = _files()
    first = _log(files)
    first.append([b"old"])
    first.sync()
    first.close()
    found = _read(files)
    second = _log(files, next_seq=found.next_seq, next_number=found.next_number)
    second.append([b"new"])
    second.sync()
    assert _bodies(_read(files)) == [b"old", b"new"] and not _read(files).damage


def test_retired_segments_are_gone_and_not_missed() -> None:
    files = _files()
    log = _log(files)
    _write(log, [])
    log.retire(log.number)
    found = _read(files)
    assert found.damage == [] and _bodies(found) == BODIES[-len(found.records) :]
    assert not any(files.read("log/spare"))
    log.next_segment()
    _write(log, [])
    assert _bodies(_read(files))[len(found.records) :] == BODIES and not _read(files).damage
    clear_log(files, "log")
    assert files.list("log") == []


def test_a_log_of_another_purpose_is_damage() -> None:
    files = _files()
    _write(_log(files), [])
    found = read_log(files, "log", purpose=2)
    assert not found.records and "another log" in found.damage[0]


def test_a_segment_that_vanished_is_damage() -> None:
    files = _files()
    _write(_log(files), [])
    files.remove("log/00000002.log")
    found = _read(files)
    assert any("are missing" in problem for problem in found.damage)


def test_every_flipped_bit_is_noticed_or_harmless() -> None:
    files = _files()
    log = _log(files)
    _write(log, [])
    whole, disk = _bodies(_read(files)), files.snapshot()
    for path, data in disk.items():
        for bit in (*range(0, 8 * 600, 37), *range(8 * HEADER_SIZE, 8 * len(data), 5)):
            hurt = MemFiles.from_snapshot(disk)
            hurt.flip(path, bit)
            found = _read(hurt)
            assert _bodies(found) == whole or found.damage or found.tail, (path, bit)


@pytest.mark.parametrize("keep", ["none", "all", "random"])
@pytest.mark.parametrize("retires", [False, True])
def test_a_power_cut_at_any_call_keeps_what_was_synced(keep: str, retires: bool) -> None:
    call, is_cut = 0, True
    while is_cut:
        call += 1
        for torn_bytes in (None, 1, 30, 70):
            files, durable = _files(), list[bytes]()
            files.cut(files.op_count + call)
            try:
                _write(_log(files), durable, retires=retires)
                is_cut = False
            except PowerCut:
                is_cut = True
            disk = files.after_cut(torn_bytes=torn_bytes, keep=keep, rng=random.Random(call))
            found = _read(disk)
            bodies, start = _bodies(found), found.records[0].seq - 1 if found.records else 0
            assert bodies == BODIES[start : start + len(bodies)] and start + len(bodies) >= len(durable)
            assert not start or retires
            assert not found.damage, found.damage
    assert call > 30


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("partial_bytes", [0, 20, 60])
def test_an_error_at_any_call_ends_the_log_and_loses_nothing_that_was_synced(code: int, partial_bytes: int) -> None:
    for call in range(1, 60):
        files, durable = _files(), list[bytes]()
        files.fail(files.op_count + call, OSError(code, "refused"), partial_bytes=partial_bytes)
        log = _log(files)
        try:
            _write(log, durable)
        except OSError:
            with pytest.raises(OSError, match="takes no more"):
                log.append([b"more"])
            with pytest.raises(OSError, match="takes no more"):
                log.sync()
        assert _bodies(_read(files.after_cut()))[: len(durable)] == durable

"""The log of an encrypted server: nothing of it is readable, and it follows the server's key."""

from __future__ import annotations

import pytest

from jetlake.cluster.wal_conversion import convert_wal
from jetlake.errors import WrongKey
from jetlake.store.blocks.envelope import Cipher, KeySource
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.log.segment import HEADER_SIZE
from jetlake.testing.memfiles import MemFiles, PowerCut
from tests.cluster.engines import needs_engine
from tests.cluster.test_wal import DIRECTORY, Writer, found_values, small_log

pytestmark = needs_engine
OLD, NEW = KeySource.key(b"o" * 32), KeySource.key(b"n" * 32)


def sealer(*keys: KeySource, accepts_plain: bool = True) -> Sealer:
    cipher = Cipher.CHACHA20_POLY1305 if keys else Cipher.NONE
    return Sealer(cipher, keys, accepts_plain=accepts_plain)


def test_a_sealed_log_is_read_as_it_was_written_and_tells_nothing() -> None:
    files, applied = small_log(sealer(OLD))
    assert found_values(files, sealer(OLD)) == applied
    assert not any(b"value" in content for content in files.snapshot().values())


def test_segments_that_are_full_begin_with_where_the_groups_stand() -> None:
    """Also where the sealed record does not fit, and the plain one would have."""
    files = MemFiles()
    writer = Writer(files, sealer=sealer(OLD))
    for number in range(200):
        writer.put(0, b"%d" % number + bytes(number))
        writer.checkpoint(number % 2)
    assert len(files.list(DIRECTORY)) < 6
    found = found_values(files, sealer(OLD))
    assert found[0] is not None and found[1] is not None


@pytest.mark.parametrize("keys", [(), (NEW,)])
def test_another_key_opens_nothing_and_changes_nothing(keys: tuple[KeySource, ...]) -> None:
    files, _ = small_log(sealer(OLD))
    before = files.snapshot()
    for use in (found_values, lambda files, sealer: convert_wal(files, DIRECTORY, sealer)):
        with pytest.raises(WrongKey):
            use(files, sealer(*keys))
    assert files.snapshot() == before


@pytest.mark.parametrize(("before", "during"), [((), (NEW,)), ((OLD,), (NEW, OLD))], ids=["encrypt", "rotate"])
def test_a_power_cut_at_any_step_of_a_conversion_loses_nothing(
    before: tuple[KeySource, ...], during: tuple[KeySource, ...]
) -> None:
    start, applied = small_log(sealer(*before))
    whole = MemFiles.from_snapshot(start.snapshot())
    convert_wal(whole, DIRECTORY, sealer(*during))
    assert found_values(whole, sealer(NEW, accepts_plain=False)) == applied
    for operation in range(1, whole.op_count + 1):
        files = MemFiles.from_snapshot(start.snapshot())
        files.cut(operation)
        with pytest.raises(PowerCut):
            convert_wal(files, DIRECTORY, sealer(*during))
        after = files.after_cut()
        convert_wal(after, DIRECTORY, sealer(*during))
        assert found_values(after, sealer(NEW, accepts_plain=False)) == applied


def test_a_plain_record_in_an_encrypted_log_is_damage() -> None:
    files, _ = small_log()
    settled = sealer(NEW, accepts_plain=False)
    assert found_values(files, settled) == {}
    assert any("is not encrypted" in problem for problem in Writer(files, sealer=settled).wal.problems)


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_damaged_record_is_noticed_after_the_conversion_too(place: str) -> None:
    files, applied = small_log()
    ((path, content),) = files.snapshot().items()
    used = len(content.rstrip(b"\0"))
    files.flip(path, (HEADER_SIZE + 40 if place == "first" else used - 20) * 8)
    before = found_values(files)
    assert before != applied
    convert_wal(files, DIRECTORY, sealer(NEW))
    assert found_values(files, sealer(NEW)) == before

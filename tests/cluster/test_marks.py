"""The mark of a replica."""

from __future__ import annotations

import pytest

from jetlake.cluster.marks import Mark, read_mark, write_mark
from jetlake.cluster.replica import NO_CUT, Checkpoint
from jetlake.errors import CorruptBlock
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.testing.memfiles import MemFiles

PATH = "streams/S/replica.json"
MARK = Mark(group=9, created_ns=1, checkpoint=Checkpoint(12, 3, 4096, StreamConfig(name="S", subjects=("s.>",))))


def test_what_was_written_is_read() -> None:
    files = MemFiles()
    assert read_mark(files, PATH) is None
    write_mark(files, PATH, MARK)
    found = read_mark(files.after_cut(keep="none"), PATH)
    assert found == MARK and found is not None and found.checkpoint.cut == (3, 4096)


def test_a_first_mark_cuts_everything() -> None:
    assert Checkpoint(0, *NO_CUT, MARK.checkpoint.config).cut == NO_CUT


def test_a_changed_byte_is_noticed() -> None:
    files = MemFiles()
    write_mark(files, PATH, MARK)
    files.flip(PATH, 8 * 60)
    with pytest.raises(CorruptBlock):
        read_mark(files, PATH)

"""Who a server is, on a disk that may fail."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from jetlake.cluster.identity import NAME, Identity, read_identity, write_identity
from jetlake.errors import CorruptBlock
from jetlake.testing.memfiles import MemFiles

OWN = Identity(name="n1", store_uuid="abc")


def test_a_new_store_has_no_identity() -> None:
    assert read_identity(MemFiles(), "d") is None


def test_what_was_written_is_read() -> None:
    files, member = MemFiles(), replace(OWN, cluster_id="c", number=7, was_member=True)
    write_identity(files, "d", OWN)
    write_identity(files, "d", member)
    assert read_identity(files, "d") == member
    assert member.shown() == {"cluster_id": "c", "node": 7, "proto": 1}


def test_a_power_cut_at_any_operation_leaves_one_or_the_other() -> None:
    from jetlake.testing.memfiles import PowerCut

    for at in range(1, 30):
        files, member = MemFiles(), replace(OWN, number=7)
        write_identity(files, "d", OWN)
        files.cut(files.op_count + at)
        try:
            write_identity(files, "d", member)
        except PowerCut:
            assert read_identity(files.after_cut(keep="none"), "d") in (OWN, member)
        else:
            assert at > 1
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize("place", range(0, 60, 7))
def test_a_changed_byte_is_noticed(place: int) -> None:
    files = MemFiles()
    write_identity(files, "d", OWN)
    files.flip(f"d/{NAME}", 8 * place)
    with pytest.raises(CorruptBlock):
        read_identity(files, "d")

"""The checkpoint of a stream: its bytes, and what of it can be trusted."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store.blocks.checkpoint import (
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from jetlake.store.format import CHECKPOINT_NAME, hash64
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.testing.memfiles import MemFiles, PowerCut

U64, I64 = st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)
RANGES = st.lists(st.tuples(U64, U64), max_size=4)
SMALL = Checkpoint(3, 9, 1_700_000_000_000_000_000, 5, 170, gone=[(5, 6)], lost=[(8, 8)])

checkpoints = st.builds(
    Checkpoint,
    first_seq=U64,
    last_seq=U64,
    last_time_ns=I64,
    msgs=U64,
    bytes=U64,
    gone=st.none() | RANGES,
    lost=RANGES,
    truncate_seq=st.none() | U64,
)


def directory(checkpoint: Checkpoint | None = None) -> MemFiles:
    """A file system with a stream's directory, and its checkpoint."""
    files = MemFiles()
    files.make_dirs("/s")
    if checkpoint is not None:
        write_checkpoint(files, "/s", checkpoint)
    return files


def with_hash(body: bytes) -> bytes:
    return body + b"%016x\n" % hash64(body, 0)


@given(checkpoints)
def test_a_checkpoint_that_was_encoded_is_decoded(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


def test_a_checkpoint_that_was_written_is_read() -> None:
    assert read_checkpoint(directory(SMALL), "/s") == SMALL


def test_a_later_checkpoint_replaces_the_one_before() -> None:
    files = directory(SMALL)
    write_checkpoint(files, "/s", Checkpoint(1, 2, 3, 4, 5))
    assert read_checkpoint(files, "/s") == Checkpoint(1, 2, 3, 4, 5)
    assert files.list("/s") == [CHECKPOINT_NAME]


def test_a_checkpoint_is_text_that_a_person_can_read() -> None:
    body, hash_line, rest = encode_checkpoint(SMALL).split(b"\n")
    assert json.loads(body) == {
        "first_seq": 3,
        "last_seq": 9,
        "last_time_ns": 1_700_000_000_000_000_000,
        "msgs": 5,
        "bytes": 170,
        "gone": [[5, 6]],
        "lost": [[8, 8]],
        "truncate_seq": None,
        "truncations": 0,
        "stream_id": "",
        "unmarked": [],
        "block_id": 0,
        "reserved_seq": 0,
        "version": 2,
    }
    assert (int(hash_line, 16), rest) == (hash64(body + b"\n", 0), b"")


def test_what_is_gone_and_lost_come_as_sets() -> None:
    assert SMALL.gone_seqs == SequenceSet([(5, 6)])
    assert SMALL.lost_seqs == SequenceSet([(8, 8)])
    assert Checkpoint(1, 0, 0, 0, 0).gone_seqs == SequenceSet()


def test_two_checkpoints_do_not_share_what_is_lost() -> None:
    one, other = Checkpoint(1, 0, 0, 0, 0), Checkpoint(1, 0, 0, 0, 0)
    one.lost.append((1, 1))
    assert other.lost == []


def test_no_checkpoint_is_none() -> None:
    assert read_checkpoint(directory(), "/s") is None


def test_every_flipped_bit_is_detected() -> None:
    data = encode_checkpoint(SMALL)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):
            decode_checkpoint(bytes(damaged))


def test_a_checkpoint_cut_at_any_byte_is_refused() -> None:
    data = encode_checkpoint(SMALL)
    for size in range(len(data)):
        with pytest.raises(ValueError):
            decode_checkpoint(data[:size])


def test_a_damaged_checkpoint_is_as_good_as_none() -> None:
    files = directory(SMALL)
    files.flip(f"/s/{CHECKPOINT_NAME}", 100)
    assert read_checkpoint(files, "/s") is None


@given(st.binary(max_size=100))
def test_any_bytes_are_a_checkpoint_or_refused(data: bytes) -> None:
    with suppress(ValueError):
        decode_checkpoint(data)
    with suppress(ValueError):
        decode_checkpoint(with_hash(data))


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"first_seq":"1"}', encode_checkpoint(SMALL).split(b"\n")[0][:-1] + b',"newer":1}']
)
def test_a_checkpoint_of_another_shape_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="checkpoint:"):
        decode_checkpoint(with_hash(body + b"\n"))


def test_a_checkpoint_of_a_newer_version_is_refused() -> None:
    with pytest.raises(ValueError):
        decode_checkpoint(encode_checkpoint(Checkpoint(1, 2, 3, 4, 5, version=3)))


@pytest.mark.parametrize("keep", ["none", "all"])
def test_a_power_cut_leaves_the_old_checkpoint_or_the_new_one(keep: str) -> None:
    new = Checkpoint(4, 10, 0, 0, 0)
    done = directory(SMALL)
    before = done.op_count
    write_checkpoint(done, "/s", new)
    for op_number in range(before + 1, done.op_count + 1):
        files = directory(SMALL)
        files.cut(op_number)
        with pytest.raises(PowerCut):
            write_checkpoint(files, "/s", new)
        assert read_checkpoint(files.after_cut(keep=keep), "/s") in (SMALL, new)


def test_a_checkpoint_that_was_written_durably_survives_a_power_cut() -> None:
    assert read_checkpoint(directory(SMALL).after_cut(), "/s") == SMALL

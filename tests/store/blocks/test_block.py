"""One block in memory: its index, and its bytes in chunks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store.blocks.block import CACHED_CHUNKS_MAX, CHUNK_SIZE_MAX, CHUNK_SIZE_MIN, BlockIndex, MsgBlock
from jetlake.store.format import BlockHeader
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.records.record import Record, encode

SEED = 42
HEADER = BlockHeader(0, 0, 1, 0, 10, 10, 0, SEED)
SEQ_LISTS = st.lists(st.integers(1, 60), min_size=1, unique=True).map(sorted)


def index_of(*seqs: int) -> BlockIndex:
    """An index with a message at each sequence, 100 bytes apart."""
    index = BlockIndex(SubjectTable())
    for position, seq in enumerate(seqs):
        index.add(seq, 100 * position, position % 3)
    return index


def block_with(*gone: tuple[int, int], last_seq: int = 20) -> MsgBlock:
    """A block of sequences 10 to 20, some of them gone."""
    block = MsgBlock(HEADER)
    block.last_seq, block.gone = last_seq, SequenceSet(gone)
    return block


def staged(*sizes: int) -> tuple[MsgBlock, bytes]:
    """A block with records of these sizes staged, and its body."""
    block, body = MsgBlock(HEADER), bytearray()
    for number, size in enumerate(sizes):
        record = bytes((number % 251 + 1,)) * size
        assert block.stage(record) == len(body)
        body += record
    return block, bytes(body)


def written(block: MsgBlock, body: bytes, size: int) -> None:
    """Let a block have `size` bytes of its body on disk."""
    disk = body[:size]
    block.written_size = block.synced_size = size
    block.read_body = lambda start, end: disk[start:end]


def pending(block: MsgBlock) -> bytes:
    return b"".join(block.pending())


def small_chunks(count: int) -> tuple[MsgBlock, bytes]:
    """A block with so many chunks, each filled to the last byte."""
    block, body = staged(*(min(CHUNK_SIZE_MIN << number, CHUNK_SIZE_MAX) for number in range(count)))
    assert len(block.chunks) == count
    return block, body


# The index


def test_an_index_without_gaps_stores_no_sequences() -> None:
    index = index_of(7, 8, 9)
    assert (index.seqs, index.base_seq, index.count) == (None, 7, 3)
    assert [index.seq(position) for position in range(3)] == [7, 8, 9]


def test_an_index_with_a_gap_stores_distances() -> None:
    index = index_of(7, 8, 20, 21)
    assert list(index.seqs or ()) == [0, 1, 13, 14]
    assert [index.seq(position) for position in range(4)] == [7, 8, 20, 21]


def test_the_base_of_an_empty_index_is_its_first_message() -> None:
    index = BlockIndex(SubjectTable(), 3)
    index.add(9, 0, 0)
    assert (index.base_seq, index.seqs, index.position(9)) == (9, None, 0)


@given(SEQ_LISTS)
def test_every_sequence_is_found_and_no_other(seqs: list[int]) -> None:
    index = index_of(*seqs)
    assert {seq: index.position(seq) for seq in range(62)} == {
        seq: seqs.index(seq) if seq in seqs else -1 for seq in range(62)
    }


@given(SEQ_LISTS)
def test_the_first_message_from_a_sequence_on_is_found(seqs: list[int]) -> None:
    index = index_of(*seqs)
    for seq in range(62):
        assert index.position_from(seq) == sum(1 for other in seqs if other < seq)


@pytest.mark.parametrize("seqs", [(5, 6, 7), (5, 6, 9)])
def test_sequences_far_outside_are_found_to_be_outside(seqs: tuple[int, ...]) -> None:
    index = index_of(*seqs)
    assert (index.position_from(0), index.position_from(2**64)) == (0, 3)
    assert (index.position(0), index.position(2**64)) == (-1, -1)


def test_an_empty_index_finds_nothing() -> None:
    index = BlockIndex(SubjectTable(), 5)
    assert [(index.position(seq), index.position_from(seq)) for seq in (0, 5, 6)] == [(-1, 0)] * 3


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=8))
def test_runs_of_sequences_are_noted_as_single_ones_are(runs: list[tuple[int, int]]) -> None:
    index, seqs, seq = BlockIndex(SubjectTable()), list[int](), 1
    for gap, count in runs:
        seq += gap
        index.reserve(count)
        index.extend(seq, count)
        seqs += range(seq, seq + count)
        seq += count
    single = index_of(*seqs)
    assert [index.seq(position) for position in range(index.count)] == seqs
    assert (index.seqs, index.base_seq) == (single.seqs, single.base_seq)


def test_offsets_and_ids_keep_what_was_added() -> None:
    index = index_of(*range(1, 200))
    assert list(index.offsets[: index.count]) == [100 * position for position in range(199)]
    assert list(index.ids[: index.count]) == [position % 3 for position in range(199)]


@pytest.mark.parametrize("count", [1, 64, 1000])
def test_reserved_room_is_for_that_many_more(count: int) -> None:
    index = index_of(1, 2, 3)
    index.reserve(count)
    assert len(index.offsets) == len(index.ids) >= 3 + count
    assert (list(index.offsets[:3]), index.count) == ([0, 100, 200], 3)


def test_room_that_is_there_is_not_reserved_again() -> None:
    index = index_of(1)
    room = len(index.offsets)
    index.reserve(room - 1)
    assert len(index.offsets) == room


def test_trimming_gives_back_the_room_to_grow() -> None:
    index = index_of(1, 2, 3)
    index.trim()
    assert (list(index.offsets), list(index.ids), index.count) == ([0, 100, 200], [0, 1, 2], 3)
    index.add(4, 300, 0)
    assert (index.position(4), index.offsets[3]) == (3, 300)


def test_a_message_ends_where_the_next_one_starts_or_the_body_ends() -> None:
    index = index_of(1, 2)
    assert [index.end(position, 250) for position in range(2)] == [100, 250]


def test_the_memory_of_an_index_is_four_bytes_a_word() -> None:
    index = index_of(1, 2, 9)
    assert index.size_bytes == 4 * (len(index.offsets) + len(index.ids) + 3)


# What is live


def test_a_new_block_holds_no_message() -> None:
    block = MsgBlock(HEADER)
    assert (block.id, block.seed, block.first_seq, block.last_seq) == (1, SEED, 10, 9)
    assert (block.message_count, block.pending_size) == (0, 0)
    assert (block.next_live(0), block.prev_live(2**64), list(block.live_runs(0, 2**64))) == (None, None, [])


def test_live_messages_are_those_not_gone() -> None:
    block = block_with((10, 11), (15, 15), (20, 20))
    live = [seq for seq in range(25) if block.is_live(seq)]
    assert live == [12, 13, 14, 16, 17, 18, 19]
    assert block.message_count == len(live)


@given(st.lists(st.integers(10, 20)), st.integers(5, 25))
def test_the_next_and_the_previous_live_message_are_found(gone: list[int], seq: int) -> None:
    block = block_with(*((number, number) for number in gone))
    live = [number for number in range(10, 21) if number not in gone]
    assert block.next_live(seq) == min((number for number in live if number >= seq), default=None)
    assert block.prev_live(seq) == max((number for number in live if number <= seq), default=None)


@given(st.lists(st.integers(10, 20)), st.integers(5, 25), st.integers(5, 25))
def test_live_runs_are_the_live_messages_between_two(gone: list[int], first: int, last: int) -> None:
    block = block_with(*((number, number) for number in gone))
    runs = list(block.live_runs(first, last))
    found = [seq for run_first, run_last in runs for seq in range(run_first, run_last + 1)]
    assert found == [seq for seq in range(max(first, 10), min(last, 20) + 1) if seq not in gone]
    assert all(one[1] + 1 < other[0] for one, other in pairwise(runs))


# Chunks


@given(st.lists(st.integers(1, 9000), max_size=12), st.data())
def test_staged_bytes_are_read_back_across_chunks(sizes: list[int], data: st.DataObject) -> None:
    block, body = staged(*sizes)
    assert (block.body_size, block.pending_size, pending(block)) == (len(body), len(body), body)
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, len(body)))
    if start < end:
        assert block.read(start, end) == body[start:end]


def test_chunks_grow_up_to_a_bound() -> None:
    block, _ = staged(*[3000] * 2000)
    sizes = [len(chunk.data) for chunk in block.chunks]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (CHUNK_SIZE_MIN, CHUNK_SIZE_MAX)


def test_a_record_larger_than_any_chunk_gets_one_of_its_size() -> None:
    block, body = staged(100, CHUNK_SIZE_MAX + 1, 100)
    assert [len(chunk.data) for chunk in block.chunks] == [CHUNK_SIZE_MIN, CHUNK_SIZE_MAX + 1, CHUNK_SIZE_MAX]
    assert block.read(0, len(body)) == body


def test_chunks_follow_each_other_without_a_gap() -> None:
    block, body = staged(*[3000] * 10)
    assert [chunk.base for chunk in block.chunks] == [0, *(chunk.end for chunk in block.chunks[:-1])]
    assert block.chunks[-1].end == len(body)


def test_a_chunk_with_room_is_used_to_its_last_byte() -> None:
    block, _ = staged(1000)
    assert block.room(CHUNK_SIZE_MIN - 1000) is block.chunks[0]
    assert block.room(CHUNK_SIZE_MIN - 999) is not block.chunks[0]


def test_the_last_hash_is_the_end_of_what_was_staged_before_and_after_a_block_is_sealed() -> None:
    block = MsgBlock(HEADER)
    assert block.last_hash == 0
    for last_hash in (5, 7):
        block.stage(bytes(20) + last_hash.to_bytes(8, "little"))
        assert block.last_hash == last_hash
    block.room(2 * CHUNK_SIZE_MIN)  # for something that did not come
    block.seal()
    block.written_size = block.body_size
    block.trim_chunks(0)
    assert block.last_hash == 7


def test_what_is_written_is_no_longer_pending() -> None:
    block, body = staged(*[3000] * 4)
    for size in (1, 3000, 4096, 6001, len(body)):
        written(block, body, size)
        assert (pending(block), block.pending_size) == (body[size:], len(body) - size)


def test_pending_views_show_the_chunk_itself() -> None:
    block, _ = staged(100)
    (view,) = block.pending()
    assert view.obj is block.chunks[0].data


def test_staging_goes_on_while_pending_views_are_held() -> None:
    block, body = staged(100)
    views = block.pending()
    block.stage(b"more")
    assert (b"".join(views), pending(block)) == (body, body + b"more")


def test_chunks_on_disk_are_let_go_but_for_the_newest_few() -> None:
    block, body = small_chunks(5)
    chunks = list(block.chunks)
    written(block, body, len(body))
    block.trim_chunks()
    assert block.chunks == chunks[-CACHED_CHUNKS_MAX:]
    block.trim_chunks(0)
    assert block.chunks == []


def test_chunks_that_are_not_wholly_on_disk_stay() -> None:
    block, body = small_chunks(4)
    chunks = list(block.chunks)
    written(block, body, chunks[1].end + 1)
    block.trim_chunks(0)
    assert block.chunks == chunks[2:]


def test_bytes_are_read_from_disk_and_memory_and_across_both() -> None:
    block, body = small_chunks(4)
    edge = block.chunks[2].base
    written(block, body, len(body))
    block.trim_chunks()
    for start, end in ((0, 10), (edge - 5, edge), (edge - 5, edge + 5), (edge, edge + 5), (0, len(body))):
        assert block.read(start, end) == body[start:end]


def test_what_is_in_memory_is_not_read_from_disk() -> None:
    block, body = small_chunks(3)
    written(block, body, len(body))
    asked: list[tuple[int, int]] = []
    block.read_body = recorder(asked, body)
    edge = block.chunks[1].base
    block.trim_chunks()
    assert block.read(edge - 3, len(body)) == body[edge - 3 :]
    assert asked == [(edge - 3, edge)]


def recorder(asked: list[tuple[int, int]], body: bytes) -> Callable[[int, int], bytes]:
    def read_body(start: int, end: int) -> bytes:
        asked.append((start, end))
        return body[start:end]

    return read_body


def test_bytes_that_are_nowhere_are_a_bug() -> None:
    with pytest.raises(AssertionError, match="neither in memory nor on disk"):
        MsgBlock(HEADER).read(0, 1)


# Records


def block_with_records(*records: Record) -> tuple[MsgBlock, BlockIndex]:
    block, index = MsgBlock(HEADER), BlockIndex(SubjectTable())
    for record in records:
        index.add(record.seq, block.stage(encode(record, SEED)), 0)
    return block, index


def test_a_record_is_decoded_by_its_position() -> None:
    records = [Record(0, b"a", b"", bytes((seq,)) * 2000, seq, 1) for seq in (10, 11, 15)]
    block, index = block_with_records(*records)
    assert [block.record(index, position) for position in range(3)] == records


def test_other_records_between_messages_do_no_harm() -> None:
    one, two = Record(0, b"a", b"", b"1", 10, 1), Record(0, b"a", b"", b"2", 11, 1)
    block, index = block_with_records(one)
    block.stage(encode(Record(1, b"", b"", b"tombstone", 10, 1), SEED))
    index.add(11, block.stage(encode(two, SEED)), 0)
    block.stage(encode(Record(8, b"", b"", b"", 10, 1), SEED))
    assert [block.record(index, position) for position in range(2)] == [one, two]


def test_a_damaged_record_is_not_returned() -> None:
    block, index = block_with_records(Record(0, b"a", b"", b"hello", 10, 1))
    block.chunks[0].data[6] ^= 1
    assert block.record(index, 0) is None


def test_a_record_of_more_than_half_a_chunk_gets_one_of_its_size() -> None:
    half = CHUNK_SIZE_MAX // 2
    block, body = staged(half + 1, half + 1, half)
    assert [len(chunk.data) for chunk in block.chunks] == [half + 1, half + 1, CHUNK_SIZE_MAX]
    assert block.read(0, len(body)) == body

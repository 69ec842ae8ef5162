"""Planning and reading pieces: everything that is wanted exactly once, and no block that cannot hold it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from jetlake.store import FileOptions, FileStore  # noqa: E402
from jetlake.store.index.sequence_set import SequenceSet  # noqa: E402
from jetlake.store.view import StreamView  # noqa: E402
from jetlake.table import blocks  # noqa: E402
from jetlake.table.blocks import Losses, Piece, PieceReader, Selection  # noqa: E402
from jetlake.table.errors import MessagesDamaged, MessagesGone  # noqa: E402
from jetlake.table.plan import first_seq_at, last_within, nth_live, partitions, plan, size_between  # noqa: E402
from jetlake.testing.clock import FakeClock  # noqa: E402
from jetlake.testing.memfiles import MemFiles  # noqa: E402
from tests.crash.workload import ENVELOPES, KEYS  # noqa: E402
from tests.store.raced_files import RacedFiles  # noqa: E402

SECOND = 1_000_000_000


class Stream:
    """A store of forty messages, one a second, in small blocks; three subjects, of which s.rare is in one block."""

    def __init__(
        self,
        options: FileOptions = FileOptions(block_size_max=500),  # noqa: B008
        count: int = 40,
        files: MemFiles | None = None,
    ) -> None:
        self.files, self.clock = files or MemFiles(), FakeClock()
        self.store = FileStore("s", options=options, files=self.files, clock=self.clock)
        self.start_ns = self.clock()
        for number in range(1, count + 1):
            self.store.append("s.rare" if number == 20 else f"s.{number % 2}", b"payload %d" % number)
            self.clock.advance(1)
        self.view = StreamView("s", files=self.files, keys=KEYS)

    def pieces(self, size_max: int = 10_000, **selection: Any) -> list[Piece]:
        self.view.refresh()
        return plan(self.view, Selection(**selection), size_max).pieces

    def seqs(self, pieces: list[Piece], *, fail: bool = True, **selection: Any) -> list[int]:
        losses = Losses("S", fail_on_gap=fail, fail_on_damage=fail)
        reader = PieceReader(["seq", "payload"], Selection(**selection), losses, KEYS, self.files)
        found = []
        for piece in pieces:
            for rows, batch in reader.read(piece):
                assert rows == len(batch["seq"])
                for seq, payload in zip(batch["seq"].to_pylist(), batch["payload"].to_pylist(), strict=True):
                    assert payload == b"payload %d" % seq
                    found.append(seq)
        return found

    def read(self, **selection: Any) -> list[int]:
        return self.seqs(self.pieces(**selection), **selection)


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("size_max", [1, 150, 10_000])
def test_pieces_of_any_size_hold_every_live_message_once(envelope: str, size_max: int) -> None:
    stream = Stream(ENVELOPES[envelope])
    for seq in (1, 2, 9, 17, 18, 40):
        stream.store.remove(seq)
    pieces = stream.pieces(size_max)
    assert stream.seqs(pieces) == [seq for seq in range(1, 41) if stream.store.catalog.is_live(seq)]


@pytest.mark.parametrize("window", [16, 100, 2_000])
def test_messages_larger_than_a_window_are_read(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "WINDOW_SIZE", window)
    assert Stream(FileOptions()).read() == list(range(1, 41))


def test_a_selection_is_exact() -> None:
    stream = Stream()
    start = stream.start_ns
    assert stream.read(first_seq=7, last_seq=9) == [7, 8, 9]
    assert stream.read(filters=("s.rare",)) == [20]
    assert stream.read(filters=("s.1", "s.rare"), first_seq=19, last_seq=22) == [19, 20, 21]
    assert stream.read(time_ns_min=start + 4 * SECOND, time_ns_max=start + 6 * SECOND) == [5, 6, 7]
    assert stream.read(first_seq=50) == [] == stream.read(last_seq=0)


def test_blocks_that_cannot_match_are_not_read() -> None:
    stream = Stream()
    everything = stream.pieces()
    assert len(everything) == 4
    for selection in (
        {"first_seq": 20, "last_seq": 20},
        {"filters": ("s.rare",)},
        {"time_ns_min": stream.start_ns + 19 * SECOND, "time_ns_max": stream.start_ns + 19 * SECOND},
    ):
        (piece,) = stream.pieces(**selection)
        assert stream.seqs([piece], **selection) == [20]
    assert stream.pieces(filters=("t",)) == []


def test_pieces_share_partitions_up_to_a_size() -> None:
    pieces = [Piece("p", 0, 1, 1, 1, 0, size, b"") for size in (40, 40, 30, 200, 10)]
    assert [[piece.end for piece in row] for row in partitions(pieces, 100)] == [[40, 40], [30], [200], [10]]


def test_every_core_gets_a_share_that_is_worth_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    mib = 1024 * 1024

    def counts(*sizes: int) -> list[int]:
        pieces = [Piece("p", 0, 1, 1, 1, 0, size * mib, b"") for size in sizes]
        return [len(row) for row in partitions(pieces, 128 * mib)]

    assert counts(*[2] * 90) == [45, 45]
    assert counts(32, 32) == [1, 1]
    assert counts(3, 3, 1) == [3]
    assert counts(*[32] * 12) == [3, 3, 3, 3]


def test_partitions_are_of_the_same_size_also_where_blocks_do_not_fill_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)

    def counts(count: int, size: int) -> list[int]:
        return [len(row) for row in partitions([Piece("p", 0, 1, 1, 1, 0, size, b"")] * count, 100 << 20)]

    assert counts(35, 10 << 20) == [9, 8, 9, 9]  # not 10, 10, 10 and 5
    assert counts(11, 40 << 20) == [2, 2, 1, 2, 2, 2]  # three of them would be too large
    assert counts(3, 200 << 20) == [1, 1, 1]
    assert counts(0, 1) == [] and counts(2, 0) == [2]


def test_the_set_of_messages_is_fixed_by_the_plan() -> None:
    stream = Stream()
    pieces = stream.pieces()
    stream.store.remove(3)
    stream.store.remove(40)
    stream.store.append("s.0", b"later")
    assert stream.seqs(pieces) == list(range(1, 41))


def test_messages_that_were_dropped_since_are_gone(caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream()
    pieces = stream.pieces()
    stream.store.compact(25)
    with pytest.raises(MessagesGone, match="sequences 1-"):
        stream.seqs(pieces)
    with caplog.at_level(logging.WARNING):
        found = stream.seqs(pieces, fail=False)
    assert found == list(range(found[0], 41)) and 20 < found[0] <= 25
    assert f"stream=S seqs=1-{pieces[0].last_seq}" in caplog.text


def test_a_block_that_was_written_anew_yields_what_it_still_has() -> None:
    stream = Stream()
    pieces = stream.pieces(150)
    stream.store.compact_files()
    assert stream.seqs(pieces) == list(range(1, 41))
    for seq in range(2, 8):
        stream.store.remove(seq)
    stream.store.compact_files()
    with pytest.raises(MessagesGone, match="sequences 2"):
        stream.seqs(pieces)
    assert stream.seqs(pieces, fail=False) == [1, *range(8, 41)]


@pytest.mark.parametrize("envelope", ["none-none", "zstd-none"])
def test_an_erased_message_is_gone_not_damaged(envelope: str) -> None:
    stream = Stream(ENVELOPES[envelope])
    pieces = stream.pieces()
    stream.store.erase(5)
    with pytest.raises(MessagesGone, match="sequences 5;"):
        stream.seqs(pieces)
    assert stream.seqs(pieces, fail=False) == [seq for seq in range(1, 41) if seq != 5]


@pytest.mark.damages
def test_damage_costs_one_message_and_is_told_by_sequence(caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream()
    pieces = stream.pieces()
    with stream.files.open(pieces[1].path, write=True) as file:
        file.pwrite(256 + 20, b"\xff")
    hit = pieces[1].first_seq
    with pytest.raises(MessagesDamaged, match=rf"sequences {hit} \(s/000002.blk\)"):
        stream.seqs(pieces)
    with caplog.at_level(logging.WARNING):
        assert stream.seqs(pieces, fail=False) == [seq for seq in range(1, 41) if seq != hit]
    assert "messages damaged stream=S" in caplog.text


@pytest.mark.damages
def test_a_block_without_a_header_is_damaged_as_a_whole() -> None:
    stream = Stream()
    pieces = stream.pieces()
    with stream.files.open(pieces[0].path, write=True) as file:
        file.pwrite(0, bytes(256))
    with pytest.raises(MessagesDamaged, match="both headers"):
        stream.seqs(pieces)
    assert stream.seqs(pieces, fail=False) == list(range(pieces[1].first_seq, 41))


@pytest.mark.damages
def test_what_was_lost_before_is_in_the_plan() -> None:
    stream = Stream()
    stream.store.stop()
    stream.files.remove("s/000002.blk")
    stream.view.refresh()
    found = plan(stream.view, Selection())
    assert found.damaged and not set(found.damaged) & set(stream.seqs(found.pieces))


def test_limits_are_found_by_count_and_by_size() -> None:
    stream = Stream()
    for seq in (3, 4):
        stream.store.remove(seq)
    catalog = stream.view.refresh()
    assert [nth_live(catalog, 1, count) for count in (1, 2, 3, 38, 99)] == [1, 2, 5, 40, 40]
    assert nth_live(catalog, 3, 1) == 5
    size = catalog.index(catalog.blocks[0]).offsets[1]
    assert last_within(catalog, 1, 1) == 1 and last_within(catalog, 41, 1) == 40
    assert last_within(catalog, 1, 2 * size) == 2
    assert last_within(catalog, 1, 10**9) == 40
    ends = [last_within(catalog, 1, size) for size in range(1, 3000, 50)]
    assert ends == sorted(ends) and ends[-1] == 40


def test_sizes_are_those_of_the_records() -> None:
    stream = Stream()
    catalog = stream.view.refresh()
    size = catalog.index(catalog.blocks[0]).offsets[1]
    assert size_between(catalog, 1, 1) == size and size_between(catalog, 2, 3) == 2 * size
    assert size_between(catalog, 1, 99) == sum(block.body_size for block in catalog.blocks)
    assert size_between(catalog, 41, 99) == 0 == size_between(catalog, 5, 4)


def test_a_time_is_found() -> None:
    stream = Stream()
    catalog = stream.view.refresh()
    block = catalog.blocks[1]
    assert first_seq_at(catalog, 0) == 1
    assert first_seq_at(catalog, block.time_ns_min - 1) == first_seq_at(catalog, block.time_ns_max) == block.first_seq
    assert first_seq_at(catalog, stream.start_ns + 100 * SECOND) == 41


# While the stream goes on

ACTIONS = {
    "erase": lambda store: store.erase(4),
    "rewrite": lambda store: (store.remove(4), store.compact_files()),
    "drop": lambda store: store.remove_many(range(1, 12)),
    "purge": lambda store: store.purge(),
}


class Told(Losses):
    """Takes down what cannot be read."""

    def __init__(self) -> None:
        super().__init__("S", fail_on_gap=False, fail_on_damage=True)
        self.gone_seqs: list[int] = []

    def gone(self, seqs: SequenceSet) -> None:
        self.gone_seqs += seqs


@pytest.mark.parametrize("size_max", [150, 10_000])
@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("envelope", ["none-none", "zstd-none"])
def test_a_change_between_any_two_reads_takes_only_what_it_removes(
    envelope: str, action: Callable[[FileStore], object], size_max: int
) -> None:
    for read in range(200):
        stream = Stream(ENVELOPES[envelope], files=RacedFiles())
        stream.view.refresh()
        reads = iter(range(1000))
        stream.files.meanwhile = lambda read=read, stream=stream, reads=reads: (
            action(stream.store) if next(reads) == read else None
        )
        told = Told()
        reader = PieceReader(["seq"], Selection(), told, KEYS, stream.files)
        pieces = plan(stream.view, Selection(first_seq=2), size_max).pieces
        found = [seq for piece in pieces for _, batch in reader.read(piece) for seq in batch["seq"].to_pylist()]
        stream.files.meanwhile = None
        left = {seq for seq in range(2, 41) if stream.store.catalog.is_live(seq)}
        assert left <= set(found) and sorted(found) == found
        assert set(range(2, 41)) - set(found) <= set(told.gone_seqs)
        if next(reads) <= read:
            break
    else:
        raise AssertionError("more reads than were tried")


# Blocks of other streams


def put_foreign_block(stream: Stream, name: str) -> None:
    other = Stream()
    for suffix in ("blk", "idx"):
        stream.files.remove(f"s/{name}.{suffix}")
        with stream.files.open(f"s/{name}.{suffix}", create=True) as file:
            file.pwrite(0, other.files.read(f"s/{name}.{suffix}"))


@pytest.mark.damages
def test_a_block_of_another_stream_is_damage_when_a_read_is_planned() -> None:
    stream = Stream()
    before = stream.store.catalog.blocks[1]
    put_foreign_block(stream, "000002")
    stream.view.refresh()
    found = plan(stream.view, Selection(), 10_000)
    assert list(found.damaged.ranges()) == [(before.first_seq, before.last_seq)]
    assert stream.seqs(found.pieces) == [seq for seq in range(1, 41) if not before.first_seq <= seq <= before.last_seq]


@pytest.mark.damages
def test_a_block_of_another_stream_is_damage_when_it_comes_after_the_plan() -> None:
    stream = Stream()
    pieces, before = stream.pieces(), stream.store.catalog.blocks[1]
    put_foreign_block(stream, "000002")
    with pytest.raises(MessagesDamaged, match="another block"):
        stream.seqs(pieces)
    assert before.first_seq not in stream.seqs(pieces, fail=False)

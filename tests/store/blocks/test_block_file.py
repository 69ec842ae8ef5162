"""A block's file: header and body, in plain and in frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.errors import CorruptBlock, WrongKey
from jetlake.store.blocks.block_file import (
    FRAME_SIZE_TARGET,
    BlockFile,
    encode_frame,
    envelope_of,
    frame_at,
    frame_cuts,
    open_frame,
    read_header,
)
from jetlake.store.blocks.envelope import Cipher, Compression, Envelope, KeySource, block_key, key_check
from jetlake.store.format import (
    BLOCK_MAGIC,
    BODY_SIZE_MAX,
    FRAME_HEAD,
    FRAME_HEAD_SIZE,
    FRAME_MAGIC,
    FRAME_TAIL_SIZE,
    HEADER_SIZE,
    BlockHeader,
    hash64,
)
from jetlake.testing.memfiles import MemFiles

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
SEED = 42
PATH = "/s/000001.blk"
HEADER = BlockHeader(0, 0, 1, 0, 1, 1, 0, SEED)
PIECES = [b"first piece, ", b"second", b" and the third " * 20, b"."]
BODY = b"".join(PIECES)

ALL = [Envelope(compression, cipher, KEY if cipher else None) for compression in Compression for cipher in Cipher]
PLAIN, FRAMED = ALL[0], ALL[1:]


def name(envelope: object) -> str | None:
    if not isinstance(envelope, Envelope):
        return None
    return f"{envelope.compression.name}-{envelope.cipher.name}".lower()


every_envelope = pytest.mark.parametrize("envelope", ALL, ids=name)
every_framed = pytest.mark.parametrize("envelope", FRAMED, ids=name)


def new_file(envelope: Envelope) -> tuple[BlockFile, MemFiles]:
    files = MemFiles()
    files.make_dirs("/s")
    file = BlockFile(files, PATH, HEADER, envelope)
    file.create()
    return file, files


def append(file: BlockFile, *pieces: bytes, at: int = 0, last_seq: int = 9) -> None:
    """Append pieces in one write, each in a frame of its own."""
    ends = [at + len(b"".join(pieces[: count + 1])) for count in range(len(pieces))]
    file.append([memoryview(piece) for piece in pieces], at, ends, last_seq)


def filled(envelope: Envelope) -> tuple[BlockFile, MemFiles]:
    """A file with the four pieces, in two writes."""
    file, files = new_file(envelope)
    append(file, *PIECES[:2])
    append(file, *PIECES[2:], at=len(PIECES[0] + PIECES[1]))
    return file, files


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def encrypted(key: bytes = KEY) -> BlockHeader:
    """The header of a block that is encrypted with a key."""
    salt = bytes(range(16))
    return HEADER._replace(cipher=Cipher.AES_256_GCM, block_salt=salt, key_check=key_check(block_key(key, salt)))


# Reading and writing


@every_envelope
@given(start=st.integers(0, len(BODY)), size=st.integers(0, len(BODY)))
def test_any_range_is_read(envelope: Envelope, start: int, size: int) -> None:
    file, _ = filled(envelope)
    end = min(start + size, len(BODY))
    assert file.read(start, end) == BODY[start:end]


@every_envelope
def test_a_file_begins_with_its_header(envelope: Envelope) -> None:
    file, files = filled(envelope)
    assert files.read(PATH)[:HEADER_SIZE] == HEADER.encode()
    assert file.file_size == files.size(PATH)
    assert read_header(files, PATH) == HEADER


def test_a_plain_body_is_a_row_of_bytes() -> None:
    file, files = filled(PLAIN)
    assert (files.read(PATH)[HEADER_SIZE:], file.frames) == (BODY, [])


@every_framed
def test_each_cut_ends_a_frame(envelope: Envelope) -> None:
    file, _ = filled(envelope)
    assert [frame.plain_size for frame in file.frames] == [len(piece) for piece in PIECES]
    assert [frame.plain_offset for frame in file.frames] == [0, 13, 19, 19 + 300]
    assert [frame.file_offset for frame in file.frames] == [
        HEADER_SIZE,
        *(frame.file_end for frame in file.frames[:-1]),
    ]
    assert file.frames[-1].file_end == file.file_size


@every_framed
def test_the_frames_of_a_file_are_its_pieces(envelope: Envelope) -> None:
    _, files = filled(envelope)
    data, pieces, start = files.read(PATH), [], HEADER_SIZE
    while start < len(data):
        found = open_frame(envelope, data, start, SEED)
        assert not isinstance(found, str)
        pieces.append(found[1])
        start = found[0].file_end
    assert pieces == PIECES


@every_envelope
def test_a_file_that_was_released_is_opened_again(envelope: Envelope) -> None:
    file, _ = filled(envelope)
    file.release()
    append(file, b"more", at=len(BODY))
    assert file.read(0, len(BODY) + 4) == BODY + b"more"


@every_framed
def test_more_frames_than_are_kept_in_memory_are_read_again(envelope: Envelope) -> None:
    file, _ = new_file(envelope)
    pieces = [bytes((number,)) * 50 for number in range(20)]
    append(file, *pieces)
    for number in (*range(20), 3, 0, 19):
        assert file.read(50 * number, 50 * number + 50) == pieces[number]


def test_a_file_that_exists_is_not_made_again() -> None:
    _, files = filled(PLAIN)
    with pytest.raises(FileExistsError):
        BlockFile(files, PATH, HEADER, PLAIN).create()


# Damage


@every_envelope
@pytest.mark.parametrize(("start", "end"), [(len(BODY), len(BODY) + 5), (10_000, 10_001)])
def test_bytes_of_which_none_is_there_are_a_corrupt_block(envelope: Envelope, start: int, end: int) -> None:
    with pytest.raises(CorruptBlock, match=PATH):
        filled(envelope)[0].read(start, end)


@every_envelope
def test_bytes_that_reach_beyond_the_end_are_read_up_to_it(envelope: Envelope) -> None:
    assert filled(envelope)[0].read(5, len(BODY) + 100) == BODY[5:]


@every_framed
def test_a_damaged_frame_is_a_corrupt_block_that_names_the_file(envelope: Envelope) -> None:
    file, files = filled(envelope)
    frame = file.frames[1]
    for bit in range(8 * frame.file_offset, 8 * frame.file_end):
        files.flip(PATH, bit)
        file.release()
        with pytest.raises(CorruptBlock, match=f"{PATH}: at offset {frame.file_offset}: "):
            file.read(frame.plain_offset, frame.plain_offset + 1)
        files.flip(PATH, bit)


@every_framed
def test_a_damaged_frame_costs_no_byte_of_another(envelope: Envelope) -> None:
    file, files = filled(envelope)
    files.flip(PATH, 8 * file.frames[1].file_offset + 300)
    assert file.read(0, len(PIECES[0])) == PIECES[0]
    assert file.read(19, len(BODY)) == BODY[19:]


@every_framed
def test_bytes_are_read_up_to_a_damaged_frame(envelope: Envelope) -> None:
    file, files = filled(envelope)
    files.flip(PATH, 8 * file.frames[1].file_offset + 300)
    assert file.read(3, len(BODY)) == PIECES[0][3:]


@every_framed
def test_a_file_cut_off_inside_a_frame_is_a_corrupt_block(envelope: Envelope) -> None:
    file, _ = filled(envelope)
    file.file.truncate(file.file_size - 1)
    assert file.read(0, len(BODY)) == BODY[: 19 + 300]
    with pytest.raises(CorruptBlock, match=PATH):
        file.read(19 + 300, len(BODY))


# Frames


@every_framed
@given(plain=st.binary(max_size=400), offset=st.integers(0, 2**31), before=st.binary(max_size=9))
def test_a_frame_that_was_encoded_is_opened_wherever_it_lies(
    envelope: Envelope, plain: bytes, offset: int, before: bytes
) -> None:
    data = encode_frame(envelope, plain, offset, 5, SEED)
    found = open_frame(envelope, before + data + b"after", len(before), SEED)
    assert not isinstance(found, str)
    frame, opened = found
    assert (opened, frame.plain_offset, frame.plain_size) == (plain, offset, len(plain))
    assert (frame.file_offset, frame.file_end) == (len(before), len(before) + len(data))


def test_a_frame_ends_with_the_last_sequence_twice_and_its_hash() -> None:
    data = encode_frame(FRAMED[0], b"plain", 0, 1234, SEED)
    tail = data[-FRAME_TAIL_SIZE:]
    numbers = [int.from_bytes(tail[start : start + 8], "little") for start in (0, 8, 16)]
    assert numbers == [1234, 1234 ^ SEED, hash64(data[:-8], SEED)]


@every_framed
def test_a_frame_cut_at_any_byte_is_refused(envelope: Envelope) -> None:
    data = encode_frame(envelope, b"plain", 0, 1, SEED)
    for size in range(len(data)):
        problem = open_frame(envelope, data[:size], 0, SEED)
        text = "frame header is damaged" if size < FRAME_HEAD_SIZE else f"{len(data)} bytes, {size} remain"
        assert isinstance(problem, str) and text in problem


@every_framed
def test_every_flipped_bit_of_a_frame_is_detected(envelope: Envelope) -> None:
    data = encode_frame(envelope, b"plain", 7, 1, SEED)
    for bit in range(8 * len(data)):
        assert isinstance(open_frame(envelope, flipped(data, bit), 0, SEED), str)


def test_a_frame_of_another_block_is_refused() -> None:
    data = encode_frame(FRAMED[0], b"plain", 0, 1, SEED)
    assert open_frame(FRAMED[0], data, 0, SEED + 1) == "frame header is damaged"


@pytest.mark.parametrize("cipher", [Cipher.CHACHA20_POLY1305, Cipher.AES_256_GCM])
def test_a_frame_under_another_key_does_not_authenticate(cipher: Cipher) -> None:
    data = encode_frame(Envelope(Compression.NONE, cipher, OTHER_KEY), b"plain", 0, 1, SEED)
    problem = open_frame(Envelope(Compression.NONE, cipher, KEY), data, 0, SEED)
    assert isinstance(problem, str) and "does not authenticate" in problem


@pytest.mark.parametrize("cipher", [Cipher.CHACHA20_POLY1305, Cipher.AES_256_GCM])
def test_an_encrypted_frame_moved_to_another_place_does_not_authenticate(cipher: Cipher) -> None:
    envelope = Envelope(Compression.NONE, cipher, KEY)
    data = encode_frame(envelope, b"plain", 0, 1, SEED)
    head = FRAME_HEAD.pack(FRAME_MAGIC, 100, 5, len(data) - FRAME_HEAD_SIZE - FRAME_TAIL_SIZE)
    moved = head + hash64(head, SEED).to_bytes(8, "little") + data[FRAME_HEAD_SIZE:-8]
    problem = open_frame(envelope, moved + hash64(moved, SEED).to_bytes(8, "little"), 0, SEED)
    assert isinstance(problem, str) and "does not authenticate" in problem


def test_a_frame_that_claims_to_end_beyond_any_body_is_refused() -> None:
    for plain_offset, plain_size, sound in ((BODY_SIZE_MAX - 9, 9, True), (BODY_SIZE_MAX - 9, 10, False)):
        head = FRAME_HEAD.pack(FRAME_MAGIC, plain_offset, plain_size, 0)
        assert (frame_at(head + hash64(head, SEED).to_bytes(8, "little"), 0, SEED) is not None) is sound


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_no_frame(data: bytes) -> None:
    assert frame_at(data, 0, SEED) is None
    assert isinstance(open_frame(FRAMED[0], data, 0, SEED), str)


# Where frames end


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[int], int]:
    """The offsets of records of any size, and where the last one ends."""
    size = st.integers(1, 1000) | st.integers(1, 2 * FRAME_SIZE_TARGET) | st.just(FRAME_SIZE_TARGET)
    offsets, end = [], 0
    for record_size in draw(st.lists(size, max_size=20)):
        offsets.append(end)
        end += record_size
    return offsets, end


def frames_of(offsets: list[int], end: int) -> list[tuple[int, int]]:
    cuts = frame_cuts(offsets, len(offsets), 0, end)
    return list(zip([0, *cuts], cuts, strict=False))


@given(rows())
def test_frames_end_between_records_and_cover_them_all(row: tuple[list[int], int]) -> None:
    offsets, end = row
    frames = frames_of(offsets, end)
    assert all(start < stop for start, stop in frames)
    assert {stop for _, stop in frames} <= {*offsets, end}
    assert (frames[-1][1] if frames else 0) == end


@given(rows())
def test_a_frame_is_larger_than_the_target_only_if_it_is_one_record(row: tuple[list[int], int]) -> None:
    offsets, end = row
    for start, stop in frames_of(offsets, end):
        records = [offset for offset in offsets if start <= offset < stop]
        assert stop - start <= FRAME_SIZE_TARGET or len(records) == 1


@given(rows())
def test_a_frame_ends_only_where_the_next_record_would_not_fit(row: tuple[list[int], int]) -> None:
    offsets, end = row
    for start, stop in frames_of(offsets, end)[:-1]:
        after = min(offset for offset in [*offsets, end] if offset > stop)
        assert after - start > FRAME_SIZE_TARGET


@given(rows(), st.data())
def test_frames_of_any_part_of_a_body_end_between_records(row: tuple[list[int], int], data: st.DataObject) -> None:
    offsets, end = row
    start = data.draw(st.sampled_from([*offsets, end]))
    cuts = frame_cuts(offsets, len(offsets), start, end)
    assert cuts == sorted(set(cuts)) and set(cuts) <= {*offsets, end}
    assert (cuts[-1] if cuts else start) == end


def test_the_room_to_grow_of_an_index_is_not_looked_at() -> None:
    assert frame_cuts([0, 10, 0, 0, 0], 2, 0, 20) == [20]
    assert frame_cuts([0, FRAME_SIZE_TARGET, 0, 0], 2, 0, FRAME_SIZE_TARGET + 9) == [
        FRAME_SIZE_TARGET,
        FRAME_SIZE_TARGET + 9,
    ]


def test_records_that_are_not_messages_go_with_what_is_before_them() -> None:
    assert frame_cuts([0, 100], 2, 0, 300) == [300]
    assert frame_cuts([], 0, 0, 300) == [300]
    assert frame_cuts([0, 100], 2, 200, 300) == [300]


def test_there_is_no_frame_of_nothing() -> None:
    assert frame_cuts([0, 100], 2, 200, 200) == []


# Headers and keys


def test_a_header_with_both_copies_damaged_is_not_read() -> None:
    _, files = filled(PLAIN)
    files.flip(PATH, 100)
    assert read_header(files, PATH) == HEADER
    files.flip(PATH, 1024 + 100)
    assert read_header(files, PATH) is None


def test_a_block_of_a_newer_version_is_refused_by_name() -> None:
    head = BLOCK_MAGIC + b"\3\0" + HEADER.encode()[10:120]
    files = MemFiles.from_snapshot({PATH: (head + hash64(head, 0).to_bytes(8, "little")) * 2})
    with pytest.raises(CorruptBlock, match=f"{PATH}.*version 3 is newer"):
        read_header(files, PATH)


def test_a_block_without_a_cipher_needs_no_key() -> None:
    assert envelope_of(HEADER, (), PATH).is_plain
    assert envelope_of(HEADER._replace(compression=2), (), PATH).compression is Compression.ZSTD


def test_the_right_one_of_several_keys_is_found() -> None:
    envelope = envelope_of(encrypted(), [KeySource.key(OTHER_KEY), KeySource.key(KEY)], PATH)
    frame = encode_frame(
        Envelope(Compression.NONE, Cipher.AES_256_GCM, block_key(KEY, bytes(range(16)))), b"x", 0, 1, 1
    )
    assert not isinstance(open_frame(envelope, frame, 0, 1), str)


@pytest.mark.parametrize(
    ("keys", "problem"), [([], "no key was given"), ([KeySource.key(OTHER_KEY)], "is encrypted with another key")]
)
def test_without_the_right_key_a_block_is_refused_by_name(keys: list[KeySource], problem: str) -> None:
    with pytest.raises(WrongKey, match=f"{PATH}.*{problem}"):
        envelope_of(encrypted(), keys, PATH)


@pytest.mark.parametrize("change", [{"compression": 3}, {"cipher": 3}])
def test_a_block_of_an_unknown_kind_is_refused_by_name(change: dict[str, int]) -> None:
    with pytest.raises(CorruptBlock, match=PATH):
        envelope_of(HEADER._replace(**change), [KeySource.key(KEY)], PATH)

"""The layout of block files: the specification's own example and tables, headers, and file names."""

from __future__ import annotations

import importlib
import os
import re
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store import format
from jetlake.store.format import (
    BLOCK_MAGIC,
    FRAME_HEAD_SIZE,
    FRAME_TAIL_SIZE,
    HEADER_COPY_SIZE,
    HEADER_SIZE,
    NO_STREAM,
    NOT_MESSAGE,
    RECORD_SIZE_MIN,
    TRAILER,
    VERSION,
    BlockHeader,
    block_name,
    decode_header,
    hash64,
    parse_block_name,
    sidecar_name,
)
from jetlake.store.records._record_py import Record

U32, U64, I64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)
SALT = st.binary(min_size=16, max_size=16)
HEADER = BlockHeader(
    2, 1, 3, 4, 5, 6, 7, 8, bytes(range(16)), bytes(range(16, 32)), bytes(range(32, 40)), bytes(range(40, 56))
)

headers = st.builds(
    BlockHeader,
    compression=st.integers(0, 255),
    cipher=st.integers(0, 255),
    block_id=U32,
    generation=U32,
    first_seq=U64,
    floor_seq=U64,
    last_time_ns=I64,
    hash_seed=U64,
    store_salt=SALT,
    block_salt=SALT,
    key_check=st.binary(min_size=8, max_size=8),
    stream_id=SALT,
)


def flipped(data: bytes, *bits: int) -> bytes:
    damaged = bytearray(data)
    for bit in bits:
        damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def table_rows(title: str) -> list[tuple[int, int, str]]:
    """Offset, size and name of each field in a table of the specification whose offsets are all numbers."""
    table = format.__doc__.partition(title)[2].partition("\n\n")[0]
    rows = re.findall(r"^ +(\d+) +(\d+)  (\w+)", table, re.MULTILINE)
    return [(int(offset), int(size), name) for offset, size, name in rows]


# The specification


@pytest.mark.parametrize("suffix", ["py", "c"])
def test_the_example_of_the_specification_is_what_its_sentence_says(suffix: str) -> None:
    if suffix == "c" and os.environ.get("JETLAKE_NO_KERNELS"):
        pytest.skip("JETLAKE_NO_KERNELS is set")
    twin: ModuleType = importlib.import_module(f"jetlake.store.records._record_{suffix}")
    said = re.search(
        r'Example: the message "(.+)" on "(.+)" with sequence (\d+) at time (\d+) in a block whose hash_seed is (\d+)'
        r"\n\n +([0-9a-f ]+)",
        format.__doc__,
    )
    assert said is not None
    payload, subject, seq, time_ns, seed, text = said.groups()
    record, data = Record(0, subject.encode(), b"", payload.encode(), int(seq), int(time_ns)), bytes.fromhex(text)
    assert data.hex() == twin.encode(record, int(seed)).hex()
    assert twin.decode(data, 0, len(data), int(seed)) == (record, len(data))


def test_the_fields_of_the_header_follow_each_other_without_a_gap() -> None:
    rows = table_rows("Header, 128 bytes")
    ends = [offset + size for offset, size, _ in rows]
    assert [offset for offset, _, _ in rows] == [0, *ends[:-1]]
    assert ends[-1] == HEADER_COPY_SIZE


def test_the_fields_of_the_header_lie_where_the_specification_says() -> None:
    data = HEADER.encode()
    places = {name: data[offset : offset + size] for offset, size, name in table_rows("Header, 128 bytes")}
    numbers = {name: int.from_bytes(places[name], "little") for name in HEADER._fields[:8]}
    assert numbers == dict(zip(HEADER._fields[:8], HEADER[:8], strict=True))
    assert [places[name] for name in HEADER._fields[8:]] == list(HEADER[8:])
    assert (places["magic"], places["version"]) == (BLOCK_MAGIC, b"\2\0")
    assert int.from_bytes(places["hash"], "little") == hash64(data[:120], 0)


def test_the_sizes_are_those_of_version_1() -> None:
    assert (VERSION, HEADER_COPY_SIZE, HEADER_SIZE, len(HEADER.encode())) == (2, 128, 256, 256)
    assert (FRAME_HEAD_SIZE, FRAME_TAIL_SIZE, TRAILER.size, RECORD_SIZE_MIN) == (24, 24, 24, 30)


def test_the_flags_are_those_of_version_1() -> None:
    flags = (format.TOMBSTONE, format.SKIP, format.ERASED, format.FLOOR, format.EXPIRES, format.MSG_ID)
    assert flags == (1, 2, 4, 8, 16, 32)
    assert (NOT_MESSAGE, format.MORE, format.REST, format.IN_BATCH) == (15, 64, 128, 192)


# Headers


@given(headers)
def test_a_header_that_was_encoded_is_decoded(header: BlockHeader) -> None:
    assert decode_header(header.encode()) == header


def test_a_header_is_written_twice() -> None:
    data = HEADER.encode()
    assert data[:HEADER_COPY_SIZE] == data[HEADER_COPY_SIZE:]


@pytest.mark.parametrize("copy_start", [0, 8 * HEADER_COPY_SIZE], ids=["first", "second"])
def test_a_header_with_one_damaged_bit_is_read_from_the_other_copy(copy_start: int) -> None:
    data = HEADER.encode()
    for bit in range(8 * HEADER_COPY_SIZE):
        assert decode_header(flipped(data, copy_start + bit)) == HEADER


def test_a_header_with_both_copies_damaged_is_not_read() -> None:
    data = HEADER.encode()
    for bit in range(8 * HEADER_COPY_SIZE):
        assert decode_header(flipped(data, bit, 8 * HEADER_COPY_SIZE + 8 * HEADER_COPY_SIZE - 1 - bit)) is None


def test_a_header_that_is_cut_off_in_its_second_copy_is_read() -> None:
    data = HEADER.encode()
    assert {decode_header(data[:size]) for size in range(HEADER_COPY_SIZE, HEADER_SIZE)} == {HEADER}


def test_a_header_that_is_cut_off_in_its_first_copy_is_not_read() -> None:
    data = HEADER.encode()
    assert {decode_header(data[:size]) for size in range(HEADER_COPY_SIZE)} == {None}


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_no_header(data: bytes) -> None:
    assert decode_header(data) is None
    assert decode_header(data + BLOCK_MAGIC) is None


def test_a_header_of_a_newer_version_is_refused() -> None:
    head = BLOCK_MAGIC + b"\3\0" + HEADER.encode()[10:120]
    with pytest.raises(ValueError, match="block version 3 is newer than 2"):
        decode_header((head + hash64(head, 0).to_bytes(8, "little")) * 2)


def test_a_header_without_a_stream_is_written_as_version_1() -> None:
    header = HEADER._replace(stream_id=NO_STREAM)
    assert header.encode()[8:10] == b"\1\0" and decode_header(header.encode()) == header


# File names


@given(U32)
def test_the_name_of_a_block_gives_its_id_back(block_id: int) -> None:
    assert parse_block_name(block_name(block_id)) == block_id


@given(U32, U32)
def test_the_names_of_blocks_and_sidecars_are_all_different(one: int, other: int) -> None:
    names = {block_name(one), block_name(other), sidecar_name(one), sidecar_name(other)}
    assert len(names) == (4 if one != other else 2)


def test_small_ids_have_six_digits_so_that_a_listing_is_in_order() -> None:
    assert (block_name(1), sidecar_name(1), block_name(1_234_567)) == ("000001.blk", "000001.idx", "1234567.blk")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".blk",
        "1.blk",
        "00001.blk",
        "000001",
        "000001.",
        "000001.idx",
        "000001.BLK",
        "000001.blk.new",
        "000001.blk.shred",
        "000001.blk.damaged",
        "000001.blk.0123456789abcdef.tmp",
        " 00001.blk",
        "+00001.blk",
        "-00001.blk",
        "0_0001.blk",
        "00000a.blk",
        "００００01.blk",
        "000001.blk ",
        "stream.state",
        "stream.lock",
    ],
)
def test_other_names_are_no_block(name: str) -> None:
    assert parse_block_name(name) is None


@given(st.from_regex(r"[0-9]{1,12}\.blk", fullmatch=True))
def test_a_name_is_that_of_a_block_only_if_we_would_give_it(name: str) -> None:
    block_id = parse_block_name(name)
    assert block_id is None or block_name(block_id) == name

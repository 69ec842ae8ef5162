"""The format of a log's files."""

from __future__ import annotations

import re

import pytest

from jetlake.store.log import segment
from jetlake.store.log.segment import (
    HEADER_SIZE,
    SegmentHeader,
    decode_header,
    encode_record,
    parse_segment_name,
    scan,
    segment_name,
)

SEED = 0x9122334455667788
HEADER = SegmentHeader(1, 5, SEED, 7, b"the boot that is")
BODIES = [b"one", b"", b"the third of them", b"four"]


def _segment(bodies: list[bytes], zeros: int = 64) -> bytes:
    data = bytearray(HEADER.encode())
    for number, body in enumerate(bodies):
        data += encode_record(body, 7 + number, len(data), SEED)
    return bytes(data) + bytes(zeros)


DATA = _segment(BODIES)
END = len(DATA) - 64


def test_the_worked_example_is_what_is_written() -> None:
    assert segment.__doc__ is not None
    lines = re.findall(r"^    ((?:[0-9a-f]{2} +)+[0-9a-f]{2})$", segment.__doc__, re.MULTILINE)
    example = bytes.fromhex("".join(lines))
    assert encode_record(b"hi", 7, 4096, 0x1122334455667788) == example


def test_what_was_written_is_read() -> None:
    found = scan(DATA, HEADER)
    assert [(record.seq, record.body) for record in found.records] == list(enumerate(BODIES, 7))
    assert (found.end, found.damage, found.tail) == (END, [], "")
    assert decode_header(DATA) == HEADER


def test_any_truncation_leaves_a_prefix_of_whole_records() -> None:
    ends = [len(_segment(BODIES[:count], 0)) for count in range(1, 5)]
    for size in range(HEADER_SIZE, END):
        for zeros in (0, 512):
            found = scan(DATA[:size] + bytes(zeros), HEADER)
            bodies = [record.body for record in found.records]
            assert bodies == BODIES[: len(bodies)] and not found.damage
            assert len(bodies) >= sum(end <= size for end in ends)


def test_every_flipped_bit_of_a_record_is_noticed() -> None:
    whole = [(record.seq, record.body) for record in scan(DATA, HEADER).records]
    for bit in range(8 * HEADER_SIZE, 8 * END):
        data = bytearray(DATA)
        data[bit // 8] ^= 1 << bit % 8
        found = scan(bytes(data), HEADER)
        records = [(record.seq, record.body) for record in found.records]
        if found.damage or found.tail:
            assert len(records) == 3 and set(records) < set(whole)
            assert ("damaged" in found.tail) == (whole[-1] not in records)
        else:
            assert records == whole  # in the end mark or the zeros behind it, which nothing depends on


def test_every_flipped_bit_of_a_header_is_mended_by_its_copy() -> None:
    for bit in range(8 * 600):
        data = bytearray(DATA[:HEADER_SIZE])
        data[bit // 8] ^= 1 << bit % 8
        assert decode_header(bytes(data)) == HEADER
    assert decode_header(bytes(HEADER_SIZE)) is None


def test_records_of_another_segment_are_not_taken_for_its_own() -> None:
    other = HEADER._replace(seed=SEED + 1)
    found = scan(other.encode() + DATA[HEADER_SIZE:], other)
    assert found.records == [] and found.end == HEADER_SIZE


def test_a_version_of_the_future_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "VERSION", 2)
    data = HEADER.encode()
    monkeypatch.undo()
    with pytest.raises(ValueError, match="newer"):
        decode_header(data)


def test_names_lead_to_numbers_and_back() -> None:
    assert parse_segment_name(segment_name(12)) == 12
    assert [parse_segment_name(name) for name in ("12.log", "00000012.blk", "0000001².log", "")] == [None] * 4

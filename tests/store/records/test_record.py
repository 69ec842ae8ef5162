"""One record, to bytes and back: every test on both twins, then the twins against each other."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from jetlake.errors import MessageTooLarge
from jetlake.store.format import (
    ERASED,
    EXPIRES,
    FLOOR,
    HEADERS_SIZE_MAX,
    IN_BATCH,
    MSG_ID,
    NEVER_NS,
    NOT_MESSAGE,
    PAYLOAD_SIZE_MAX,
    RECORD_SIZE_MIN,
    SKIP,
    SUBJECT_SIZE_MAX,
    TOMBSTONE,
    Buffer,
)
from jetlake.store.records import _record_py
from jetlake.store.records._record_py import BadRecord, Record, measure

NO_KERNELS = bool(os.environ.get("JETLAKE_NO_KERNELS"))
needs_kernels = pytest.mark.skipif(NO_KERNELS, reason="JETLAKE_NO_KERNELS is set")
SEED = 0x0123_4567_89AB_CDEF
SMALL = Record(EXPIRES | MSG_ID, b"a.b", b"NATS/1.0\r\n\r\n", b"hi", 7, 1, 2)

U64, I64 = st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)
PARTS = st.binary(max_size=300)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any record: every combination of flags, any bytes, and an expiry just where the flag says so."""
    flags = draw(st.integers(0, 255).filter(lambda flags: not (flags & IN_BATCH and flags & NOT_MESSAGE)))
    expires_ns = draw(I64) if flags & EXPIRES else 0
    return Record(flags, draw(PARTS), draw(PARTS), draw(PARTS), draw(U64), draw(I64), expires_ns)


@st.composite
def damaged_records(draw: st.DrawFn) -> bytes:
    """The bytes of a record with a few bytes changed, and perhaps cut off or followed by more."""
    data = bytearray(_record_py.encode(draw(records()), SEED))
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))]) + draw(st.binary(max_size=40))


def load_twin(suffix: str) -> ModuleType:
    return importlib.import_module(f"jetlake.store.records._record_{suffix}")


@pytest.fixture(scope="module", params=["py", "c"])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "c" and NO_KERNELS:
        pytest.skip("JETLAKE_NO_KERNELS is set")
    return load_twin(request.param)


def round_trip(twin: ModuleType, record: Record) -> Record:
    data = twin.encode(record, SEED)
    found, end = twin.decode(data, 0, len(data), SEED)
    assert end == len(data)
    return found


def outcome(twin: ModuleType, data: Buffer, start: int, end: int, seed: int) -> tuple[Record, int] | str:
    """What decoding gives, or the words with which it fails."""
    try:
        return twin.decode(data, start, end, seed)
    except BadRecord as error:
        return str(error)


# Round trips


@given(record=records())
def test_what_is_encoded_is_decoded(twin: ModuleType, record: Record) -> None:
    assert round_trip(twin, record) == record


@pytest.mark.parametrize("flags", [0, EXPIRES, MSG_ID, TOMBSTONE, SKIP, ERASED, FLOOR])
def test_a_record_of_each_kind_with_nothing_in_it_is_decoded(twin: ModuleType, flags: int) -> None:
    record = Record(flags, b"", b"", b"", 1, 2)
    assert round_trip(twin, record) == record


@pytest.mark.parametrize(("seq", "time_ns"), [(0, -(2**63)), (2**64 - 1, 2**63 - 1)])
@pytest.mark.parametrize("expires_ns", [-(2**63), 0, NEVER_NS])
def test_the_ends_of_every_number_are_decoded(twin: ModuleType, seq: int, time_ns: int, expires_ns: int) -> None:
    record = Record(EXPIRES, b"a", b"", b"", seq, time_ns, expires_ns)
    assert round_trip(twin, record) == record


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 65535])
@pytest.mark.parametrize("part", ["subject", "headers", "payload"])
def test_parts_whose_lengths_take_one_two_and_three_bytes_are_decoded(twin: ModuleType, part: str, size: int) -> None:
    record = SMALL._replace(**{part: b"x" * size})
    assert round_trip(twin, record) == record


@pytest.mark.parametrize(("size", "length"), [(127, "7f"), (128, "8001"), (16383, "ff7f"), (16384, "808001")])
def test_a_length_is_written_in_its_shortest_form(twin: ModuleType, size: int, length: str) -> None:
    data = twin.encode(Record(0, b"", b"", b"x" * size, 1, 1), SEED)
    assert data[:3] + bytes.fromhex(length) == data[: 3 + len(length) // 2]


def test_a_payload_of_64_mib_is_decoded(twin: ModuleType) -> None:
    record = SMALL._replace(payload=bytes(range(256)) * (64 * 1024 * 4))
    assert round_trip(twin, record) == record


def test_the_smallest_record_has_the_size_that_the_format_says(twin: ModuleType) -> None:
    assert len(twin.encode(Record(0, b"", b"", b"", 0, 0), SEED)) == RECORD_SIZE_MIN


@given(record=records(), before=st.binary(max_size=40), after=st.binary(max_size=40))
def test_a_record_is_decoded_wherever_it_lies(twin: ModuleType, record: Record, before: bytes, after: bytes) -> None:
    data = twin.encode(record, SEED)
    start, end = len(before), len(before) + len(data)
    assert twin.decode(before + data + after, start, end + len(after), SEED) == (record, end)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(b"x" + data)[1:]])
def test_any_buffer_can_be_decoded(twin: ModuleType, kind: type) -> None:
    data = kind(twin.encode(SMALL, SEED))
    found, _ = twin.decode(data, 0, len(data), SEED)
    assert found == SMALL
    assert {type(part) for part in found[1:4]} == {bytes}


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_buffer_can_be_encoded(twin: ModuleType, kind: type) -> None:
    parts = {part: kind(getattr(SMALL, part)) for part in ("subject", "headers", "payload")}
    assert twin.encode(SMALL._replace(**parts), SEED) == twin.encode(SMALL, SEED)


@given(record=records())
def test_measuring_finds_the_same_end_and_parts(twin: ModuleType, record: Record) -> None:
    data = b"..." + twin.encode(record, SEED) + b"..."
    at = measure(data, 3, len(data), SEED)
    assert at.end == twin.decode(data, 3, len(data), SEED)[1]
    assert data[at.subject_start : at.headers_start] == record.subject
    assert data[at.headers_start : at.payload_start] == record.headers
    assert data[at.payload_start : at.payload_end] == record.payload


def test_the_hash_is_that_of_the_xxhash_package(twin: ModuleType) -> None:
    for size in range(201):
        data = twin.encode(Record(0, b"", b"", bytes(range(size)), 1, 1), SEED)
        assert int.from_bytes(data[-8:], "little") == xxhash.xxh64_intdigest(data[:-8], SEED)


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_every_seed_of_64_bits_will_do(twin: ModuleType, seed: int) -> None:
    data = twin.encode(SMALL, seed)
    assert int.from_bytes(data[-8:], "little") == xxhash.xxh64_intdigest(data[:-8], seed)
    assert twin.decode(data, 0, len(data), seed) == (SMALL, len(data))


# What is refused


def test_every_flipped_bit_is_detected(twin: ModuleType) -> None:
    data = twin.encode(SMALL, SEED)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadRecord):
            twin.decode(damaged, 0, len(damaged), SEED)


def test_a_record_cut_at_any_byte_is_refused(twin: ModuleType) -> None:
    data = twin.encode(SMALL, SEED)
    for end in range(len(data)):
        with pytest.raises(BadRecord):
            twin.decode(data[:end], 0, end, SEED)


def test_nothing_is_read_past_the_end(twin: ModuleType) -> None:
    data = twin.encode(SMALL, SEED)
    for end in range(len(data)):
        with pytest.raises(BadRecord):
            twin.decode(data, 0, end, SEED)


def test_a_record_of_another_seed_is_refused(twin: ModuleType) -> None:
    data = twin.encode(SMALL, SEED)
    with pytest.raises(BadRecord, match="sizes do not match their check"):
        twin.decode(data, 0, len(data), SEED + 1)


@pytest.mark.parametrize("flag", [0x41, 0x82, 0x84, 0xC8])
def test_only_a_message_is_in_a_batch(twin: ModuleType, flag: int) -> None:
    data = twin.encode(Record(flag, b"a", b"", b"", 1, 1), SEED)
    with pytest.raises(BadRecord, match=f"flags 0x{flag:02x} contradict each other"):
        twin.decode(data, 0, len(data), SEED)


@given(data=st.binary(max_size=200) | damaged_records(), seed=U64)
def test_any_bytes_decode_or_are_a_bad_record(twin: ModuleType, data: bytes, seed: int) -> None:
    outcome(twin, data, 0, len(data), seed)


@pytest.mark.parametrize(("start", "end"), [(-1, 4), (0, 5), (3, 2), (5, 5)])
def test_a_range_outside_the_buffer_is_refused(twin: ModuleType, start: int, end: int) -> None:
    with pytest.raises(IndexError, match=rf"record range {start}\.\.{end} of 4 bytes"):
        twin.decode(b"\0\0\0\0", start, end, SEED)


@pytest.mark.parametrize(
    ("part", "size_max"),
    [("subject", SUBJECT_SIZE_MAX), ("headers", HEADERS_SIZE_MAX), ("payload", PAYLOAD_SIZE_MAX)],
)
def test_a_part_that_is_too_large_cannot_be_encoded(twin: ModuleType, part: str, size_max: int) -> None:
    with pytest.raises(MessageTooLarge, match=f"{part} of {size_max + 1} bytes exceeds {size_max}"):
        twin.encode(SMALL._replace(**{part: bytes(size_max + 1)}), SEED)


def test_the_longest_subject_is_decoded(twin: ModuleType) -> None:
    record = SMALL._replace(subject=b"x" * SUBJECT_SIZE_MAX)
    assert round_trip(twin, record) == record


@pytest.mark.parametrize("change", [{"seq": -1}, {"seq": 2**64}, {"time_ns": 2**63}, {"expires_ns": -(2**63) - 1}])
def test_a_number_that_does_not_fit_cannot_be_encoded(twin: ModuleType, change: dict[str, int]) -> None:
    with pytest.raises(OverflowError):
        twin.encode(SMALL._replace(**change), SEED)


# The twins


@needs_kernels
@given(record=records(), seed=U64)
def test_the_twins_encode_to_the_same_bytes(record: Record, seed: int) -> None:
    assert load_twin("c").encode(record, seed) == load_twin("py").encode(record, seed)


@needs_kernels
@given(data=st.binary(max_size=200) | damaged_records(), cut=st.integers(0, 30))
def test_the_twins_agree_on_any_bytes_down_to_the_words(data: bytes, cut: int) -> None:
    start = min(cut, len(data))
    assert outcome(load_twin("c"), data, start, len(data), SEED) == outcome(
        load_twin("py"), data, start, len(data), SEED
    )


@pytest.mark.skipif(bool(os.environ.get("JETLAKE_NO_KERNELS")), reason="JETLAKE_NO_KERNELS is set")
def test_the_numbers_in_record_h_are_those_of_the_format() -> None:
    from jetlake.store import format
    from jetlake.store.records import _record_c

    expected = {name: getattr(format, name) for name in _record_c.NUMBERS if hasattr(format, name)}
    expected |= {"TRAILER_SIZE": format.TRAILER.size}
    assert expected == _record_c.NUMBERS

"""Walking the records of a nats-server block: every test on both twins, then the twins against each other."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.ops import OP_MSG_ID, OP_SPECIAL, OP_WORDS
from jetlake.store.nats import walk as face
from jetlake.store.nats._walk_py import Walked, hash64
from jetlake.store.nats.format import ERASED_BIT, HEAD, HEADERS_BIT, IS_TOMBSTONE, TOMBSTONE_BIT, block_key
from tests.twins import both_twins, load_twin, load_twins, needs_kernels

KEY = block_key("V", 1)
# A block that nats-server wrote: 1 "hi", 2 erased, 3 tombstoned below, 4 with headers, 5 empty, tombstones of 3 and 2.
REAL = bytes.fromhex(
    "230000000100000000000000820b11a55f4de8180300762e6168697a0c134397524b3c"
    "3800000002000000000000800000000000000000000084fd8093d17f25f0210fbc377401632892d050ee2d10a80e8c3f8d9ec93bcc1f5e7e"
    "260000000300000000000000acabbea75f4de8180300762e617468726565d0b70a8b4499cf47"
    "3f0000800400000000000000b20ac7a75f4de8180300762e631a0000004e4154532f312e300d0a4e6174732d54544c3a2031680d0a0d0a"
    "f6c2ba80cfddbbbf"
    "2100000005000000000000003b24cba75f4de8180300762e6494ee0b9daed76c7c"
    "1e0000000300000000000040acabbea75f4de8180000e245e26ce3ba1ca0"
    "1e0000000200000000000040a679b1a75f4de8180000412b7e52fc0b245c"
)


def record(word: int, subject: bytes = b"a", payload: bytes = b"", headers: bytes = b"", time_ns: int = 7) -> bytes:
    size = 30 + len(subject) + len(payload) + (4 + len(headers) if headers else 0)
    head = HEAD.pack(size | (HEADERS_BIT if headers else 0), word, time_ns, len(subject))
    middle = len(headers).to_bytes(4, "little") + headers if headers else b""
    digest = hash64(KEY, head[4:20] + subject + headers + payload)
    return head + subject + middle + payload + digest.to_bytes(8, "little")


def walk(
    twin: ModuleType,
    data: bytes,
    *,
    is_strict: bool = False,
    first: int = 1,
    last: int = 2**62 - 1,
    gone: tuple[tuple[int, int], ...] = (),
    room: int = 100,
    start: int = 0,
    prev_seq: int = 0,
) -> tuple[Walked, list[tuple[int, int, bytes, bytes, bytes, int]]]:
    ops, seqs, times = array("I", bytes(4 * OP_WORDS * room)), array("Q", bytes(8 * room)), array("q", bytes(8 * room))
    starts, ends = array("Q", (low for low, _ in gone)), array("Q", (high for _, high in gone))
    found = twin.walk(data, start, len(data), KEY, is_strict, prev_seq, first, last, starts, ends, ops, seqs, times)
    entries = []
    for place in range(found.entries):
        op = ops[place * OP_WORDS : (place + 1) * OP_WORDS]
        parts = [data[at : at + size] for at, size in (op[0:2], op[4:6], op[6:8])]
        entries.append((seqs[place], times[place], *parts, op[9]))
    return found, entries


@both_twins
def test_real_block_is_walked_message_by_message(kind: str) -> None:
    found, entries = walk(load_twin("jetlake.store.nats._walk", kind), REAL)
    assert [(seq, subject, payload) for seq, _, subject, _, payload, _ in entries] == [
        (1, b"v.a", b"hi"),
        (3, b"v.a", b"three"),
        (4, b"v.c", b""),
        (5, b"v.d", b""),
    ]
    assert entries[2][3] == b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n" and entries[2][5] == OP_SPECIAL
    assert found == Walked(len(REAL), 5, 4, False, 0)


@both_twins
def test_strict_walk_tells_tombstones(kind: str) -> None:
    _, entries = walk(load_twin("jetlake.store.nats._walk", kind), REAL, is_strict=True)
    assert [seq for seq, *_, flags in entries if flags & IS_TOMBSTONE] == [3, 2]


@both_twins
@pytest.mark.parametrize(
    ("size", "digest"),
    [(0, "536ec222de567a90"), (1, "78ddcdc7aa43ab7e"), (2, "623db5b09a56d0b8"), (3, "803d468aabef6b5c")],
)
def test_hash_is_highwayhash(kind: str, size: int, digest: str) -> None:
    twin = load_twin("jetlake.store.nats._walk", kind)
    assert twin.hash64(bytes(range(32)), bytes(range(size))).to_bytes(8, "little").hex() == digest


@both_twins
def test_damaged_record_is_stepped_over_or_ends_a_strict_walk(kind: str) -> None:
    twin, data = load_twin("jetlake.store.nats._walk", kind), bytearray(record(1) + record(2) + record(3))
    data[40] ^= 1
    found, entries = walk(twin, bytes(data))
    assert [seq for seq, *_ in entries] == [1, 3] and found.bad_records == 1
    found, entries = walk(twin, bytes(data), is_strict=True)
    assert [seq for seq, *_ in entries] == [1] and found.is_bad and found.end == len(record(1))


@both_twins
def test_impossible_length_ends_every_walk(kind: str) -> None:
    data = record(1) + b"\xff\xff\xff\x7f" + record(2)[4:]
    found, entries = walk(load_twin("jetlake.store.nats._walk", kind), data)
    assert [seq for seq, *_ in entries] == [1] and found.is_bad


@both_twins
def test_range_and_gone_sequences_are_left_out(kind: str) -> None:
    data = b"".join(map(record, range(1, 10)))
    _, entries = walk(load_twin("jetlake.store.nats._walk", kind), data, first=2, last=8, gone=((3, 4), (7, 7)))
    assert [seq for seq, *_ in entries] == [2, 5, 6, 8]


@both_twins
def test_sequence_that_does_not_rise_is_ignored(kind: str) -> None:
    data = record(5, payload=b"first") + record(5, payload=b"second") + record(4) + record(6 | ERASED_BIT) + record(6)
    _, entries = walk(load_twin("jetlake.store.nats._walk", kind), data)
    assert [(seq, payload) for seq, _, _, _, payload, _ in entries] == [(5, b"first")]


@both_twins
def test_walk_goes_on_where_the_arrays_were_full(kind: str) -> None:
    twin, data = load_twin("jetlake.store.nats._walk", kind), b"".join(map(record, range(1, 6)))
    found, entries = walk(twin, data, room=2)
    assert [seq for seq, *_ in entries] == [1, 2] and not found.is_bad
    _, entries = walk(twin, data, start=found.end, prev_seq=found.prev_seq)
    assert [seq for seq, *_ in entries] == [3, 4, 5]


@both_twins
def test_message_id_is_noticed(kind: str) -> None:
    data = record(1, headers=b"NATS/1.0\r\nA: Nats-TTL: 1\r\nNats-Msg-Id: x\r\n\r\n")
    _, entries = walk(load_twin("jetlake.store.nats._walk", kind), data)
    assert entries[0][5] == OP_MSG_ID


@both_twins
def test_bad_arguments_are_refused(kind: str) -> None:
    twin, none = load_twin("jetlake.store.nats._walk", kind), array("Q")
    with pytest.raises(IndexError):
        twin.walk(b"", 0, 1, KEY, False, 0, 1, 1, none, none, array("I"), none, array("q"))
    with pytest.raises(ValueError, match="32 bytes"):
        twin.walk(b"", 0, 0, b"short", False, 0, 1, 1, none, none, array("I"), none, array("q"))


@needs_kernels
@given(data=st.binary(max_size=300), key=st.binary(min_size=32, max_size=32))
def test_twins_hash_alike(data: bytes, key: bytes) -> None:
    twins = load_twins("jetlake.store.nats._walk")
    assert len({twin.hash64(key, data, is_plain) for twin in twins for is_plain in (True, False)}) == 1


WORDS = st.builds(lambda seq, bit: seq | bit, st.integers(0, 12), st.sampled_from([0, 0, 0, ERASED_BIT, TOMBSTONE_BIT]))
RECORDS = st.builds(record, WORDS, st.binary(max_size=5), st.binary(max_size=40), st.binary(max_size=30))


@needs_kernels
@given(
    records=st.lists(RECORDS, max_size=8),
    flips=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2),
    cut=st.integers(0, 30),
    is_strict=st.booleans(),
    room=st.integers(0, 10),
)
def test_twins_agree_on_any_bytes(
    records: list[bytes], flips: list[tuple[int, int]], cut: int, is_strict: bool, room: int
) -> None:
    data = bytearray(b"".join(records))
    for place, byte in flips:
        if place < len(data):
            data[place] = byte
    whole = bytes(data[: len(data) - cut] if cut < len(data) else data)
    results = [
        walk(twin, whole, is_strict=is_strict, room=room, gone=((4, 5),))
        for twin in load_twins("jetlake.store.nats._walk")
    ]
    assert results[0] == results[1]


@needs_kernels
def test_compiled_twin_is_loaded() -> None:
    assert face.COMPILED

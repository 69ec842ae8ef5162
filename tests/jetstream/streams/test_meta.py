"""meta.json: what is written is read, and nothing else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jetlake.errors import CorruptBlock
from jetlake.jetstream.streams.config import ConsumerLimits, StreamConfig, StreamSource
from jetlake.jetstream.streams.meta import (
    StreamMeta,
    account_directory,
    decode_meta,
    encode_meta,
    is_tomb,
    name_of,
    read_meta,
    stream_directory,
    tomb_directory,
    write_meta,
)
from jetlake.testing.memfiles import MemFiles, PowerCut
from jetlake.wire.go_time import ZonedTime

META = StreamMeta(
    created_ns=1_700_000_000_123_456_789,
    config=StreamConfig(
        name="S",
        subjects=("a.>", "ü"),
        metadata={"k": "v"},
        consumer_limits=ConsumerLimits(max_ack_pending=3),
        sources=(StreamSource(name="X"),),
    ),
)
DATA = encode_meta(META)


def test_what_is_written_is_read() -> None:
    assert decode_meta(DATA, "meta.json") == META


def test_a_source_may_begin_at_a_time_of_another_zone() -> None:
    source = StreamSource(name="X", opt_start_time=ZonedTime.at(1_700_000_000_000_000_000, 7200))
    meta = replace(META, config=replace(META.config, sources=(source,)))
    found = decode_meta(encode_meta(meta), "meta.json")
    assert found.config.sources[0].opt_start_time == 1_700_000_000_000_000_000


@given(st.integers(0, len(DATA) - 1), st.integers(0, 7))
def test_every_flipped_bit_is_noticed(offset: int, bit: int) -> None:
    data = bytearray(DATA)
    data[offset] ^= 1 << bit
    with pytest.raises(CorruptBlock):
        decode_meta(bytes(data), "meta.json")


@given(st.integers(0, len(DATA) - 1))
def test_every_cut_is_noticed(size: int) -> None:
    with pytest.raises(CorruptBlock):
        decode_meta(DATA[:size], "meta.json")


@pytest.mark.parametrize("data", [DATA + b"\n", b" " + DATA, b"", b"{}", b'{"checksum":"","meta":{}}\n'])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptBlock):
        decode_meta(data, "meta.json")


def test_a_newer_version_is_refused() -> None:
    newer = encode_meta(StreamMeta(version=2, created_ns=1, config=StreamConfig(name="S")))
    with pytest.raises(CorruptBlock, match="version is 2"):
        decode_meta(newer, "meta.json")


def test_a_power_cut_leaves_the_old_or_the_new_one() -> None:
    old = replace(META, created_ns=1)
    start = MemFiles()
    start.make_dirs("/s")
    write_meta(start, "/s", old)
    for op_number in range(start.op_count + 1, start.op_count + 10):
        files = start.copy()
        files.cut(op_number - start.op_count)
        with suppress(PowerCut):
            write_meta(files, "/s", META)
        assert read_meta(files.after_cut(), "/s") in (old, META)
    write_meta(start, "/s", META)
    assert read_meta(start.after_cut(), "/s") == META


@pytest.mark.parametrize("name", ["../x", "a/b", ".", "..", "~0123456789abcdef", "a\0b", "x" * 300])
def test_names_stay_in_their_directory(name: str) -> None:
    path = stream_directory(account_directory("/data", name), name)
    parts = path.split("/")
    assert path.startswith("/data/") and len(parts) == 5 and not {"", ".", ".."} & set(parts[2:])
    assert not is_tomb(parts[-1])


def test_tombs_are_told_from_streams() -> None:
    assert is_tomb(tomb_directory("/a/streams").rsplit("/", 1)[1])
    assert name_of(stream_directory("/a", "x y$z").rsplit("/", 1)[1]) == "x y$z"

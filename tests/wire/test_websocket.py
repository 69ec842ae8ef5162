"""Frames in, plain bytes out, and back: with and without compression, however the bytes are cut."""

from __future__ import annotations

import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.wire import websocket
from jetlake.wire.websocket import Close, FrameReader
from tests.compat.ws_peer import BINARY, CLOSE, COMPRESSED, CONTINUATION, FINAL, PING, PONG, TEXT, deflated, masked

PIECE = 50


def read(data: bytes, reader: FrameReader, cuts: tuple[int, ...] = ()) -> bytes:
    """All plain bytes, when the frames arrive cut there."""
    plain = b""
    for start, end in pairwise((0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data))):
        buffer = memoryview(bytearray(data[start:end] + b"room"))
        if not reader.has_compression:
            plain += bytes(buffer[: reader.receive(buffer, end - start)])
            continue
        reader.add(buffer, end - start)
        view = memoryview(bytearray(PIECE))
        while size := reader.read_into(view):
            plain += bytes(view[:size])
    return plain


def inflating(size_max: int = 10_000) -> FrameReader:
    return FrameReader(inflated_max=size_max)


FRAMES = [
    (masked(b"PING\r\n"), b"PING\r\n"),
    (masked(b"a", TEXT) + masked(b"b", CONTINUATION) + masked(b"c", FINAL), b"abc"),
    (masked(b"x" * 300) + masked(b"", BINARY) + masked(b"y" * 70_000, FINAL), b"x" * 300 + b"y" * 70_000),
    (masked(b"a", BINARY) + masked(b"hi", FINAL | PING) + masked(b"b", FINAL), b"ab"),
]
DEFLATED = [
    (masked(deflated(b"PING\r\n"), FINAL | COMPRESSED | BINARY), b"PING\r\n"),
    (masked(deflated(b"ab" * 3000), FINAL | COMPRESSED | TEXT) + masked(b"plain"), b"ab" * 3000 + b"plain"),
    (
        masked(deflated(b"abcdefgh" * 9)[:5], COMPRESSED | BINARY)
        + masked(b"", FINAL | PING)
        + masked(b"", CONTINUATION)
        + masked(deflated(b"abcdefgh" * 9)[5:], FINAL)
        + masked(deflated(b"2"), FINAL | COMPRESSED | BINARY),
        b"abcdefgh" * 9 + b"2",
    ),
    (masked(b"", FINAL | COMPRESSED | BINARY) + masked(b"x"), b"x"),
    (masked(deflated(b"") , COMPRESSED | BINARY) + masked(b"", FINAL) + masked(b"x"), b"x"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "plain"), FRAMES)
@pytest.mark.parametrize("make", [FrameReader, inflating])
def test_whole_and_byte_by_byte(data: bytes, plain: bytes, make: type[FrameReader]) -> None:
    assert read(data, make()) == plain
    if len(data) < 1000:
        assert read(data, make(), tuple(range(len(data)))) == plain


@pytest.mark.parametrize(("data", "plain"), DEFLATED)
def test_compressed_messages(data: bytes, plain: bytes) -> None:
    assert read(data, inflating()) == plain
    assert read(data, inflating(), tuple(range(len(data)))) == plain


@given(st.lists(st.tuples(st.binary(max_size=400), st.booleans()), max_size=6), st.lists(st.integers(0, 5000)))
def test_any_messages_cut_anywhere(messages: list[tuple[bytes, bool]], cuts: list[int]) -> None:
    data = b"".join(
        masked(deflated(payload), FINAL | COMPRESSED | BINARY) if is_compressed else masked(payload)
        for payload, is_compressed in messages
    )
    assert read(data, inflating(), tuple(cuts)) == b"".join(payload for payload, _ in messages)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)), st.booleans())
def test_any_bytes_give_the_same_however_they_are_cut(data: bytes, cuts: list[int], has_compression: bool) -> None:
    def outcome(cuts: tuple[int, ...]) -> tuple[bytes, list[bytes], Close | None]:
        reader = inflating() if has_compression else FrameReader()
        plain = read(b"\x82\x80\0\0\0\0" + data, reader, cuts)
        return plain, reader.pongs, reader.close

    assert outcome(()) == outcome(tuple(cuts))


def test_pings_are_answered_with_what_they_carry() -> None:
    reader = FrameReader()
    assert (
        read(masked(b"", FINAL | PING) + masked(b"\0" * 125, FINAL | PING) + masked(b"x", FINAL | PONG), reader) == b""
    )
    assert reader.pongs == [b"", b"\0" * 125] and reader.close is None


BAD = [
    (masked(b"x", FINAL | 0x20 | BINARY), "RSV2 and RSV3 must be clear"),
    (masked(b"x", FINAL | 0x10 | BINARY), "RSV2 and RSV3 must be clear"),
    (masked(b"x", is_masked=False), "mask bit missing"),
    (masked(b"x" * 126, FINAL | PING), "control frame length bigger than maximum allowed of 125 bytes"),
    (masked(b"x", PING), "control frame does not have final bit set"),
    (masked(b"x", BINARY) + masked(b"x"), "new message started before final frame for previous message was received"),
    (masked(b"x", FINAL | CONTINUATION), "invalid continuation frame"),
    (masked(b"x", FINAL | 3), "unknown opcode 3"),
    (masked(b"x", FINAL | 11), "unknown opcode 11"),
    (masked(b"x", size=1 << 63), "invalid 64-bit payload length"),
    (masked(b"x", size=(1 << 64) - 1), "invalid 64-bit payload length"),
    (masked(b"\x03", FINAL | CLOSE), "close frame payload cannot be 1 byte"),
    (masked((999).to_bytes(2, "big"), FINAL | CLOSE), "invalid close status code 999"),
    (masked((1005).to_bytes(2, "big"), FINAL | CLOSE), "invalid close status code 1005"),
    (masked((2999).to_bytes(2, "big"), FINAL | CLOSE), "invalid close status code 2999"),
    (masked((5000).to_bytes(2, "big"), FINAL | CLOSE), "invalid close status code 5000"),
]


@pytest.mark.parametrize(("data", "problem"), BAD)
@pytest.mark.parametrize("make", [FrameReader, inflating])
def test_wrong_frames_end_it_behind_what_came_before(data: bytes, problem: str, make: type[FrameReader]) -> None:
    for cuts in ((), tuple(range(200))):
        reader = make()
        assert read(masked(b"before") + data + masked(b"behind"), reader, cuts).startswith(b"before")
        assert reader.close == Close(1002, problem, problem)


def test_compressed_frames_that_were_not_agreed_on() -> None:
    reader = FrameReader()
    assert read(masked(b"x", FINAL | COMPRESSED | BINARY), reader) == b""
    assert reader.close is not None and "without negotiated" in reader.close.problem
    for data in (masked(b"", FINAL | COMPRESSED | PING), masked(b"x", BINARY) + masked(b"x", FINAL | COMPRESSED)):
        reader = inflating()
        read(data, reader)
        assert reader.close is not None and reader.close.code == 1002


@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        (b"", Close(1005)),
        (b"\x03\xe8", Close(1000)),
        (b"\x03\xe8bye", Close(1000, "bye")),
        (b"\x0b\xb8mine", Close(3000, "mine")),
        (b"\x03\xe8\xff", Close(1007, "invalid utf8 body in close frame")),
    ],
)
def test_a_close_is_answered_and_ends_it(payload: bytes, answer: Close) -> None:
    reader = FrameReader()
    assert read(masked(b"a") + masked(payload, FINAL | CLOSE) + masked(b"b"), reader) == b"a"
    assert reader.close == answer


def test_a_message_inflates_to_what_it_may_and_no_further() -> None:
    for size, is_whole in ((9_999, True), (10_000, True), (10_001, False), (50_000_000, False)):
        reader = inflating()
        plain = read(masked(deflated(b"\0" * size), FINAL | COMPRESSED | BINARY), reader)
        assert plain == b"\0" * min(size, 10_000)
        assert reader.close == (None if is_whole else Close(1001, "Read Error", "maximum payload exceeded"))


def test_each_message_has_its_own_limit() -> None:
    reader = inflating()
    assert read(masked(deflated(b"\0" * 9_000), FINAL | COMPRESSED | BINARY) * 5, reader) == b"\0" * 45_000
    assert reader.close is None


def test_what_is_not_deflated_ends_it() -> None:
    reader = inflating()
    assert read(masked(b"\xff" * 50, FINAL | COMPRESSED | BINARY), reader) == b""
    assert reader.close is not None and reader.close.code == 1001 and reader.close.problem


def test_what_lies_behind_the_last_block_is_ignored() -> None:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    ended = compressor.compress(b"abc") + compressor.flush()
    reader = inflating()
    data = masked(ended + b"garbage", COMPRESSED | BINARY) + masked(b"more", FINAL) + masked(b"d")
    assert read(data, reader) == b"abcd" and reader.close is None


def unmasked(frames: bytes) -> list[tuple[int, bytes]]:
    """The frames of a server: first byte and payload."""
    found = []
    while frames:
        size, at = frames[1], 2
        if size >= 126:
            at = 4 if size == 126 else 10
            size = int.from_bytes(frames[2:at], "big")
        found.append((frames[0], frames[at : at + size]))
        frames = frames[at + size :]
    return found


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, 1_000_000])
def test_a_frame_holds_a_message_of_any_size(size: int) -> None:
    assert unmasked(websocket.frame(b"x" * size)) == [(0x82, b"x" * size)]


@pytest.mark.parametrize(
    ("size", "firsts"), [(1, [0xC2]), (4096, [0xC2]), (4097, [0x42, 0x80]), (9000, [0x42, 0, 0x80])]
)
def test_browsers_get_small_frames(size: int, firsts: list[int]) -> None:
    payload = (bytes(range(250)) * 40)[:size]
    for is_compressed, expected in ((False, [0x82] * len(firsts)), (True, firsts)):
        frames = unmasked(websocket.small_frames(payload, is_compressed=is_compressed))
        assert [first for first, _ in frames] == expected
        assert b"".join(piece for _, piece in frames) == payload and all(len(piece) <= 4096 for _, piece in frames)


def test_what_is_deflated_inflates_by_itself() -> None:
    payload = b"MSG a 1 5\r\nhello\r\n" * 100
    assert zlib.decompressobj(-15).decompress(websocket.deflate(payload)) == payload


def test_the_text_of_a_close_frame_fits() -> None:
    assert unmasked(websocket.close_frame(1005)) == [(0x88, b"")]
    assert unmasked(websocket.close_frame(1001, "Server Shutdown")) == [(0x88, b"\x03\xe9Server Shutdown")]
    ((_, payload),) = unmasked(websocket.close_frame(1002, "x" * 200))
    assert payload == b"\x03\xea" + b"x" * 120 + b"..."

"""Taking WebSocket frames apart: every test on both twins, then the twins against each other."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.wire import unframe as face
from jetlake.wire.websocket_format import KEY, MESSAGE, NO_MESSAGE, PLAIN, REMAINING, SIZE_MAX
from tests.compat.ws_peer import BINARY, CONTINUATION, FINAL, PING, TEXT, masked
from tests.twins import both_twins, load_twin, load_twins, needs_kernels

Unframe = Callable[..., tuple[int, int]]


@pytest.fixture
def unframe(kind: str) -> Unframe:
    twin: Unframe = load_twin("jetlake.wire._unframe", kind).unframe
    return twin


def state(remaining: int = 0, key: int = 0, message: int = NO_MESSAGE, is_masked: bool = True) -> array[int]:
    return array("Q", (remaining, key, message, is_masked))


def take(unframe: Unframe, data: bytes, kept: array[int] | None = None) -> tuple[bytes, bytes]:
    """What the frames carry, and what is left."""
    buffer = bytearray(data)
    offset, out = unframe(buffer, 0, len(data), 0, state() if kept is None else kept)
    return bytes(buffer[:out]), bytes(buffer[offset:])


@needs_kernels
def test_the_compiled_twin_is_loaded() -> None:
    assert face.COMPILED and type(face.unframe).__name__ == "cython_function_or_method"


@both_twins
def test_the_example_of_the_format(unframe: Unframe) -> None:
    example = bytes.fromhex("81 85 37 fa 21 3d 7f 9f 4d 51 58")
    assert take(unframe, example) == (b"Hello", b"")


@both_twins
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 125, 126, 127, 65535, 65536, 70_001])
def test_frames_of_any_size_in_a_row(unframe: Unframe, size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    frames = masked(payload[:size]) + masked(b"next", FINAL | TEXT)
    assert take(unframe, frames) == (payload[:size] + b"next", b"")


@both_twins
def test_pieces_of_one_byte(unframe: Unframe) -> None:
    kept, plain, left = state(), b"", b""
    for byte in masked(b"one") + masked(b"two" * 100):
        got, left = take(unframe, left + bytes((byte,)), kept)
        plain += got
    assert plain == b"one" + b"two" * 100 and left == b""


@both_twins
def test_fragments_are_one_stream(unframe: Unframe) -> None:
    kept = state()
    assert take(unframe, masked(b"a", BINARY) + masked(b"b", CONTINUATION), kept) == (b"ab", b"")
    assert kept[MESSAGE] == PLAIN
    assert take(unframe, masked(b"c", FINAL | CONTINUATION) + masked(b"d"), kept) == (b"cd", b"")


@both_twins
@pytest.mark.parametrize(
    "frame",
    [
        masked(b"x", FINAL | PING),
        masked(b"x", FINAL | 3),
        masked(b"x", FINAL | CONTINUATION),
        masked(b"x", FINAL | 0x40 | BINARY),
        masked(b"x", FINAL | 0x20 | BINARY),
        masked(b"x", FINAL | 0x10 | BINARY),
        masked(b"x", is_masked=False),
        masked(b"x", size=SIZE_MAX + 1),
    ],
)
def test_other_frames_are_left(unframe: Unframe, frame: bytes) -> None:
    kept = state()
    assert take(unframe, masked(b"a") + frame, kept) == (b"a", frame)
    assert kept[REMAINING] == 0 and kept[MESSAGE] == NO_MESSAGE


@both_twins
def test_a_second_message_within_one_is_left(unframe: Unframe) -> None:
    second = masked(b"b")
    assert take(unframe, masked(b"a", BINARY) + second) == (b"a", second)


@both_twins
def test_without_masks_nothing_is_unmasked(unframe: Unframe) -> None:
    frames = masked(b"plain", is_masked=False) * 2
    assert take(unframe, frames, state(is_masked=False)) == (b"plainplain", b"")


@both_twins
def test_a_frame_of_the_largest_size_is_not_waited_for(unframe: Unframe) -> None:
    kept = state()
    assert take(unframe, masked(b"abc", size=SIZE_MAX), kept) == (b"abc", b"")
    assert kept[REMAINING] == SIZE_MAX - 3


@both_twins
def test_what_is_moved_goes_where_it_is_wanted(unframe: Unframe) -> None:
    buffer = bytearray(b"keep...." + masked(b"plain"))
    assert unframe(buffer, 8, len(buffer), 4, state()) == (len(buffer), 9)
    assert buffer[:9] == b"keepplain"


@both_twins
@pytest.mark.parametrize("places", [(1, 0, 0), (0, 9, 0), (1, 4, 2), (-1, 4, -1), (0, 4, -1)])
def test_places_outside_of_the_buffer_are_refused(unframe: Unframe, places: tuple[int, int, int]) -> None:
    offset, end, out = places
    with pytest.raises(IndexError):
        unframe(bytearray(8), offset, end, out, state())


@both_twins
def test_a_state_of_another_size_is_refused(unframe: Unframe) -> None:
    with pytest.raises(IndexError):
        unframe(bytearray(8), 0, 8, 0, array("Q", (0, 0, 0)))


@needs_kernels
@given(
    st.lists(
        st.binary(max_size=40)
        | st.builds(masked, st.binary(max_size=300), st.sampled_from([0, 1, 2, 0x80, 0x81, 0x82, 0x89, 0xC2]))
    ),
    st.integers(0, SIZE_MAX),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2),
    st.booleans(),
)
def test_the_twins_agree_on_any_bytes(
    pieces: list[bytes], remaining: int, key: int, message: int, is_masked: bool
) -> None:
    data, outcomes = b"".join(pieces), []
    for twin in load_twins("jetlake.wire._unframe"):
        buffer, kept = bytearray(data), state(remaining % 100, key, message, is_masked)
        found = twin.unframe(buffer, 0, len(buffer), 0, kept)
        outcomes.append((found, bytes(buffer[: found[1]]), kept))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][2][KEY] < 2**32

"""Give publishes other subjects, in Python: the reference of `_map_subjects_c.pyx`. `map_subjects.py` says how."""

from __future__ import annotations

from array import array

from jetlake.ops import OP_WORDS, check_ops

Choices = tuple[tuple[int, bytes | None], ...]
Found = dict[bytes, bytes | Choices | None]
WEIGHTS = 100
_WORD = (1 << 64) - 1


def map_subjects(
    data: bytes | bytearray,
    ops: array[int],
    first: int,
    stop: int,
    found: Found,
    heads: frozenset[bytes] | None,
    base: int,
    seed: int,
) -> tuple[int, int, bytes]:
    """Map the subjects of operations first..stop-1 as far as they are known; see `map_subjects.py`."""
    check_ops(len(data), len(ops), first, stop)
    mapped, dropped, state = bytearray(), 0, seed | 1
    for number in range(first, stop):
        at = number * OP_WORDS
        subject = bytes(data[ops[at] : ops[at] + ops[at + 1]])
        if heads is not None and subject.partition(b".")[0] not in heads:
            continue
        if subject not in found:
            return number, dropped, bytes(mapped)
        choice = found[subject]
        if isinstance(choice, tuple):
            state ^= state << 13 & _WORD
            state ^= state >> 7
            state ^= state << 17 & _WORD
            drawn = (state >> 32) * WEIGHTS >> 32
            choice = next((subject for weight, subject in choice if drawn < weight), b"")
            dropped += choice == b""
        if choice is not None:
            ops[at], ops[at + 1] = base + len(mapped), len(choice)
            mapped += choice
    return stop, dropped, bytes(mapped)

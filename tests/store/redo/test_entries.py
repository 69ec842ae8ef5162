"""What a redo log says."""

from __future__ import annotations

import pytest

from jetlake.store.redo.entries import (
    Entry,
    Remove,
    Rename,
    Replace,
    Void,
    Write,
    decode_entries,
    effective,
    encode_entries,
)

EACH: list[Entry] = [
    Write("root/A/streams/S/msgs/000001.blk", 2**64 - 1, 3, 96, [b"bytes"], is_new=True),
    Replace("root/A/streams/S/meta.json", b"{}"),
    Remove("root/A/streams/S/consumers/c.1"),
    Rename("root/A/streams/S", "root/A/streams/~0123456789abcdef"),
    Void("root/A/streams/S"),
]


def test_what_was_encoded_is_decoded() -> None:
    assert decode_entries(encode_entries(EACH, "root"), "root") == EACH
    moved = decode_entries(encode_entries(EACH, "root"), "elsewhere")
    assert [entry.path.removeprefix("elsewhere/") for entry in moved] == [entry.path[5:] for entry in EACH]


def test_parts_are_written_as_one() -> None:
    entry = Write("root/a", 1, 0, 0, [b"one", memoryview(b"two")])
    assert decode_entries(encode_entries([entry], "root"), "root") == [entry._replace(parts=[b"onetwo"])]


def test_no_truncation_passes_as_whole() -> None:
    for entry in EACH:
        body = encode_entries([entry], "root")
        for size in range(1, len(body)):
            with pytest.raises(ValueError, match=r"remain|kind"):
                decode_entries(body[:size], "root")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="kind 9"):
        decode_entries(b"\x09\x00\x00", "root")


def test_of_several_replacements_the_last_one_counts() -> None:
    entries: list[Entry] = [Replace("r/a", b"1"), Replace("r/b", b"2"), Replace("r/a", b"3")]
    assert effective(entries) == entries[1:]


def test_what_is_void_is_not_made_again() -> None:
    old, new = Write("r/s/a", 1, 0, 0, [b""]), Write("r/s/a", 2, 0, 0, [b""])
    other = Replace("r/ss", b"")
    assert effective([old, other, Void("r/s"), new]) == [other, new]


def test_what_was_removed_is_not_made_before() -> None:
    assert effective([Replace("r/a", b""), Remove("r/a")]) == [Remove("r/a")]
    assert effective([Remove("r/a"), Replace("r/a", b"new")]) == [Replace("r/a", b"new")]


def test_a_renamed_directory_takes_its_entries_along() -> None:
    inside, after, rename = Replace("r/s/meta", b"old"), Replace("r/s/meta", b"new"), Rename("r/s", "r/~1")
    assert effective([inside, rename]) == [rename]
    # Once the directory with the new name is on its way out, the old name may be another directory's.
    assert effective([inside, rename, Void("r/~1"), after]) == [after]

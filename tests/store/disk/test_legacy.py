"""Opening a store of the old kind: everything comes over once, or nothing is touched."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jetlake.errors import MigrationError
from jetlake.store import Cipher, Compression, FileOptions, FileStore, KeySource, StoredMsg, StreamLimits
from jetlake.store.api import Discard
from jetlake.store.disk import legacy
from jetlake.store.disk.files import OS_FILES, Files, atomic_write
from jetlake.store.disk.legacy import LEGACY_NAME
from jetlake.store.format import CHECKPOINT_NAME, LOCK_NAME, MARKER_NAME
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles, PowerCut

DAY_NS = 24 * 3600 * 10**9
NOW_NS = FakeClock()()
HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"
MESSAGES = [
    StoredMsg(1, "orders.eu", b"", b"one", NOW_NS - 9 * DAY_NS),
    StoredMsg(2, "orders.us", HEADERS, b"", NOW_NS - 3 * DAY_NS),
    StoredMsg(5, "orders.eu", b"", bytes(range(256)), NOW_NS - 2 * DAY_NS),
    StoredMsg(6, "größe", HEADERS, b"six", NOW_NS - DAY_NS),
    StoredMsg(9, "orders.eu", b"", b"nine", NOW_NS),
]
SMALL_BLOCKS = FileOptions(block_size_max=100)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def fields(message: StoredMsg) -> dict[str, Any]:
    return {
        "sequence": message.seq,
        "subject": message.subject,
        "headers": base64_of(message.headers) if message.headers else None,
        "payload": base64_of(message.payload),
        "timestamp": message.time_ns,
    }


def line(message: StoredMsg, **changed: Any) -> bytes:
    return json.dumps(fields(message) | changed).encode()


def jsonl(*messages: StoredMsg) -> bytes:
    return b"".join(line(message) + b"\n" for message in messages)


class Home:
    """A stream's directory, on a disk or in memory."""

    def __init__(self, files: Files, directory: str) -> None:
        self.files, self.directory = files, directory
        files.make_dirs(directory)

    def write(self, name: str, data: bytes) -> None:
        atomic_write(self.files, f"{self.directory}/{name}", [data])

    def open(self, limits: StreamLimits | None = None, options: FileOptions | None = None, **more: Any) -> FileStore:
        return FileStore(
            self.directory,
            limits or StreamLimits(),
            options or FileOptions(),
            files=self.files,
            clock=FakeClock(),
            **more,
        )

    def names(self) -> list[str]:
        return self.files.list(self.directory)

    def snapshot(self) -> dict[str, bytes]:
        """Every file but the lock."""
        return {name: self.files.read(f"{self.directory}/{name}") for name in self.names() if name != LOCK_NAME}


def in_memory(content: bytes, files: MemFiles | None = None) -> Home:
    home = Home(files or MemFiles(), "/s")
    home.write(LEGACY_NAME, content)
    return home


@pytest.fixture(params=["disk", "memory"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """A directory with an old store in it."""
    files, directory = (OS_FILES, str(tmp_path / "s")) if request.param == "disk" else (MemFiles(), "/s")
    home = Home(files, directory)
    home.write(LEGACY_NAME, jsonl(*MESSAGES))
    return home


def contents(store: FileStore) -> list[StoredMsg]:
    found, seq = [], 0
    while (message := store.load_next(seq)) is not None:
        found.append(message)
        seq = message.seq + 1
    return found


def opened(home: Home, *args: Any, **more: Any) -> list[StoredMsg]:
    """The messages of a store that is opened and closed again."""
    with home.open(*args, **more) as store:
        return contents(store)


# What comes over


def test_every_message_comes_over_as_it_was(home: Home) -> None:
    assert opened(home) == MESSAGES


def test_the_messages_are_still_there_when_it_is_opened_again(home: Home) -> None:
    opened(home)
    assert opened(home) == MESSAGES


def test_the_old_file_and_the_marker_are_gone_once_the_blocks_are_there(home: Home) -> None:
    home.open()
    assert home.names() == ["000001.blk", LOCK_NAME, CHECKPOINT_NAME]


def test_gaps_in_the_sequences_stay(home: Home) -> None:
    with home.open() as store:
        state = store.state()
        assert (state.msgs, state.first_seq, state.last_seq, state.num_subjects) == (5, 1, 9, 3)
        assert (state.deleted, state.lost) == (SequenceSet([(3, 4), (7, 8)]), SequenceSet())


def test_the_next_message_goes_on_after_the_last(home: Home) -> None:
    with home.open() as store:
        assert store.append("orders.eu", b"ten") == 10


def test_a_store_whose_first_message_is_not_the_first_sequence_keeps_it() -> None:
    with in_memory(jsonl(*MESSAGES[2:])).open() as store:
        state = store.state()
        assert (state.first_seq, state.num_deleted, contents(store)) == (5, 2, MESSAGES[2:])


def test_a_far_gap_in_the_sequences_stays() -> None:
    far = MESSAGES[0]._replace(seq=2**40)
    home = in_memory(jsonl(MESSAGES[0], far))
    assert opened(home) == opened(home) == [MESSAGES[0], far]


def test_times_out_of_order_stay() -> None:
    messages = [MESSAGES[0]._replace(seq=seq, time_ns=time_ns) for seq, time_ns in ((1, 500), (2, 100), (3, -7))]
    home = in_memory(jsonl(*messages))
    assert opened(home) == opened(home) == messages


@pytest.mark.parametrize("absent", ["headers", "payload"])
def test_a_part_that_is_absent_is_empty(absent: str) -> None:
    message = StoredMsg(1, "a", b"", b"", 1)
    some = {name: value for name, value in fields(message).items() if name != absent}
    assert opened(in_memory(json.dumps(some).encode())) == [message]


@pytest.mark.parametrize(
    "edit",
    [
        lambda content: content.rstrip(b"\n"),
        lambda content: b"\n  \n" + content.replace(b"\n", b"\n\n"),
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: content.replace(b'{"', b'{"newer": [1, {}], "'),
    ],
    ids=["no last newline", "blank lines", "crlf", "other fields"],
)
def test_how_the_lines_are_written_does_not_matter(edit: Callable[[bytes], bytes]) -> None:
    assert opened(in_memory(edit(jsonl(*MESSAGES)))) == MESSAGES


def test_an_empty_old_store_becomes_an_empty_store() -> None:
    home = in_memory(b"")
    with home.open() as store:
        assert (store.state().msgs, store.append("a", b"")) == (0, 1)
    assert LEGACY_NAME not in home.names()


def test_messages_come_over_into_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "_COMMIT_COUNT", 2)
    home = in_memory(jsonl(*MESSAGES))
    assert opened(home, options=SMALL_BLOCKS) == opened(home, options=SMALL_BLOCKS) == MESSAGES
    assert len([name for name in home.names() if name.endswith(".blk")]) > 2


def test_messages_come_over_into_an_encrypted_store() -> None:
    home = in_memory(jsonl(*MESSAGES))
    keys = (KeySource.key(bytes(range(32))),)
    options = FileOptions(compression=Compression.ZSTD, cipher=Cipher.AES_256_GCM, keys=keys)
    assert opened(home, options=options) == opened(home, options=options) == MESSAGES
    assert not any(b"orders" in data for data in home.snapshot().values())


# Limits


@pytest.mark.parametrize("discard", Discard)
def test_limits_are_applied_to_what_came_over(home: Home, discard: Discard) -> None:
    kept = MESSAGES if discard is Discard.NEW else MESSAGES[-2:]
    assert opened(home, StreamLimits(max_msgs=2, discard=discard)) == kept
    assert opened(home) == kept


def test_a_limit_per_subject_is_applied_to_what_came_over() -> None:
    assert opened(in_memory(jsonl(*MESSAGES)), StreamLimits(max_msgs_per_subject=1)) == [
        MESSAGES[1],
        MESSAGES[3],
        MESSAGES[4],
    ]


def test_what_came_over_and_is_too_old_goes() -> None:
    assert opened(in_memory(jsonl(*MESSAGES)), StreamLimits(max_age_ns=2 * DAY_NS + 1)) == MESSAGES[2:]


def test_the_store_has_its_own_limits_and_commits_afterwards(home: Home) -> None:
    limits = StreamLimits(max_msgs=100)
    with home.open(limits) as store:
        assert (store.limits, store.autocommit) == (limits, True)


# Bad lines

BAD_LINES = {
    "not JSON": (b"{", ""),
    "not an object": (b"[1]", ""),
    "not UTF-8": (line(MESSAGES[2]).replace(b"orders", b"\xff\xfe"), ""),
    "two objects": (line(MESSAGES[2]) + line(MESSAGES[3]), ""),
    "cut off": (line(MESSAGES[2])[:-10], ""),
    "no sequence": (line(MESSAGES[2]).replace(b"sequence", b"sequences"), "sequence"),
    "no subject": (line(MESSAGES[2]).replace(b"subject", b"subjects"), "subject"),
    "no timestamp": (line(MESSAGES[2]).replace(b"timestamp", b"timestamps"), "timestamp"),
    "sequence is text": (line(MESSAGES[2], sequence="5"), "sequence"),
    "sequence is a fraction": (line(MESSAGES[2], sequence=5.5), "sequence"),
    "subject is null": (line(MESSAGES[2], subject=None), "subject"),
    "payload is bad base64": (line(MESSAGES[2], payload="*"), ""),
    "payload is not ASCII": (line(MESSAGES[2], payload="é"), "ASCII"),
    "payload is cut off": (line(MESSAGES[2], payload="YQ"), "padding"),
    "headers are bad base64": (line(MESSAGES[2], headers="a"), ""),
    "sequence again": (line(MESSAGES[2], sequence=2), "sequence 2 does not follow 2"),
    "sequence before": (line(MESSAGES[2], sequence=1), "sequence 1 does not follow 2"),
    "sequence 0": (line(MESSAGES[2], sequence=0), "sequence 0"),
    "sequence below 0": (line(MESSAGES[2], sequence=-1), "sequence -1"),
    "sequence too large": (line(MESSAGES[2], sequence=2**64), "18446744073709551616"),
    "last sequence of 64 bits": (line(MESSAGES[2], sequence=2**64 - 1), "18446744073709551615"),
    "empty subject": (line(MESSAGES[2], subject=""), "is empty"),
    "subject with a space": (line(MESSAGES[2], subject="a b"), "contains ' '"),
    "subject with an empty token": (line(MESSAGES[2], subject="a..b"), "empty token"),
    "subject with a wildcard": (line(MESSAGES[2], subject="a.*"), "wildcard"),
    "subject too long": (line(MESSAGES[2], subject="x" * 65536), "65536 bytes"),
    "subject too long in UTF-8": (line(MESSAGES[2], subject="é" * 40000), "80000 bytes"),
    "timestamp too large": (line(MESSAGES[2], timestamp=2**63), "timestamp 9223372036854775808"),
    "timestamp too small": (line(MESSAGES[2], timestamp=-(2**63) - 1), "timestamp -9223372036854775809"),
    "timestamp is text": (line(MESSAGES[2], timestamp="now"), "timestamp"),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_bad_line_stops_with_its_number_and_changes_nothing(home: Home, kind: str) -> None:
    bad, problem = BAD_LINES[kind]
    home.write(LEGACY_NAME, jsonl(*MESSAGES[:2]) + b"\n" + bad + b"\n" + jsonl(*MESSAGES[3:]))
    before = home.snapshot()
    with pytest.raises(MigrationError) as caught:
        home.open()
    assert (caught.value.path, caught.value.line) == (f"{home.directory}/{LEGACY_NAME}", 4)
    assert f"{LEGACY_NAME}: line 4: " in str(caught.value) and problem in str(caught.value)
    assert home.snapshot() == before


def test_a_directory_with_a_bad_line_opens_once_the_line_is_mended(home: Home) -> None:
    home.write(LEGACY_NAME, jsonl(*MESSAGES) + b"{")
    with pytest.raises(MigrationError):
        home.open()
    home.write(LEGACY_NAME, jsonl(*MESSAGES))
    assert opened(home) == MESSAGES


# Blocks that are there already


def test_blocks_beside_an_old_store_are_refused_and_nothing_changes(home: Home) -> None:
    opened(home)
    home.write(LEGACY_NAME, jsonl(*MESSAGES))
    before = home.snapshot()
    with pytest.raises(MigrationError, match="the directory holds blocks as well"):
        home.open()
    assert home.snapshot() == before


def test_blocks_beside_an_old_store_and_a_marker_are_made_anew(home: Home) -> None:
    home.files.remove(f"{home.directory}/{LEGACY_NAME}")
    with home.open(options=SMALL_BLOCKS) as store:
        for number in range(20):
            store.append("half.done", b"%d" % number)
    home.write(MARKER_NAME, b"")
    home.write(LEGACY_NAME, jsonl(*MESSAGES))
    assert opened(home) == opened(home) == MESSAGES
    assert [name for name in home.names() if name.endswith(".blk")] == ["000001.blk"]


def test_a_marker_without_an_old_store_is_removed(home: Home) -> None:
    opened(home)
    home.write(MARKER_NAME, b"")
    assert opened(home) == MESSAGES
    assert MARKER_NAME not in home.names()


def test_an_empty_store_beside_an_old_one_is_no_obstacle(home: Home) -> None:
    home.files.remove(f"{home.directory}/{LEGACY_NAME}")
    opened(home)
    home.write(LEGACY_NAME, jsonl(*MESSAGES))
    assert opened(home) == MESSAGES


def test_a_first_sequence_is_for_new_streams_only(home: Home) -> None:
    assert opened(home, first_seq=100) == MESSAGES


# Power cuts

OPTIONS = {
    "one block": FileOptions(),
    "small blocks": SMALL_BLOCKS,
    "no syncs": FileOptions(block_size_max=100, sync="never"),
    "encrypted": FileOptions(
        block_size_max=100, compression=Compression.ZSTD, cipher=Cipher.AES_256_GCM, keys=(KeySource.key(bytes(32)),)
    ),
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


@pytest.fixture(autouse=True)
def _small_commits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a migration commit more than once, where the power is cut."""
    if "power" in request.node.name:
        monkeypatch.setattr(legacy, "_COMMIT_COUNT", 2)


def op_range(options: FileOptions) -> range:
    """The operations that opening an old store takes."""
    home = in_memory(jsonl(*MESSAGES))
    assert isinstance(home.files, MemFiles)
    before = home.files.op_count
    home.open(options=options)
    return range(before + 1, home.files.op_count + 1)


def cut_at(op_number: int, options: FileOptions, files: MemFiles | None = None) -> MemFiles:
    """The file system of an old store whose opening was cut short."""
    files = files or MemFiles()
    home = in_memory(jsonl(*MESSAGES), files)
    files.cut(op_number)
    with pytest.raises(PowerCut):
        home.open(options=options)
    return files


def assert_all_there(files: MemFiles, options: FileOptions) -> None:
    """Every message is there exactly once, now and when it is opened again, and the old store is gone."""
    home = Home(files, "/s")
    assert opened(home, options=options) == MESSAGES
    assert opened(home, options=options) == MESSAGES
    assert not {LEGACY_NAME, MARKER_NAME} & set(home.names())
    assert not [name for name in home.names() if name.endswith(".tmp")]


@every_option
@pytest.mark.parametrize("keep", ["none", "all"])
def test_a_power_cut_at_any_operation_costs_and_doubles_no_message(options: FileOptions, keep: str) -> None:
    for op_number in op_range(options):
        assert_all_there(cut_at(op_number, options).after_cut(keep=keep), options)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_power_cut_that_keeps_just_some_changes_costs_and_doubles_no_message(options: FileOptions) -> None:
    for op_number in op_range(options):
        files = cut_at(op_number, options)
        for seed in range(5):
            rng = random.Random(seed)
            assert_all_there(files.after_cut(keep="random", rng=rng, torn_bytes=rng.randint(0, 50)), options)


@pytest.mark.parametrize("keep", ["none", "all"])
def test_a_second_power_cut_costs_and_doubles_no_message(keep: str) -> None:
    options = FileOptions()
    for op_number in op_range(options):
        once = cut_at(op_number, options).after_cut(keep=keep)
        done = once.copy()
        Home(done, "/s").open(options=options)
        for second in range(1, done.op_count + 1):
            files = once.copy()
            files.cut(second)
            with pytest.raises(PowerCut):
                Home(files, "/s").open(options=options)
            assert_all_there(files.after_cut(keep=keep), options)


@every_option
def test_a_power_cut_after_the_store_was_opened_costs_no_message(options: FileOptions) -> None:
    home = in_memory(jsonl(*MESSAGES))
    home.open(options=options)
    assert isinstance(home.files, MemFiles)
    assert_all_there(home.files.after_cut(), options)

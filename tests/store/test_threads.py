"""Several threads use one store: each call has it alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jetlake.store import FileOptions, FileStore, MemStore, StreamLimits
from jetlake.store.verify.check import check_store

THREADS, COUNT = 4, 300


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    """Threads take turns so often that what is not locked fails."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileStore | MemStore]:
    limits = StreamLimits(max_msgs_per_subject=100)
    made: FileStore | MemStore
    if request.param == "memory":
        made = MemStore(limits, block_size_max=5000)
    else:
        made = FileStore(tmp_path / "s", limits, FileOptions(block_size_max=5000, sync="never"))
    yield made
    made.stop()
    assert request.param == "memory" or check_store(str(tmp_path / "s")).problems == []


def run(*works: Callable[[], object]) -> None:
    """Do all at once; raise what one of them raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_many_writers_store_every_message_once(store: FileStore | MemStore) -> None:
    stored: list[tuple[int, bytes]] = []

    def write(number: int) -> None:
        for count in range(COUNT):
            payload = b"%d of %d" % (count, number)
            stored.append((store.append(f"a.{number}.{count % 5}", payload), payload))

    run(*[lambda number=number: write(number) for number in range(THREADS)])  # type: ignore[misc]
    assert sorted(seq for seq, _ in stored) == list(range(1, THREADS * COUNT + 1))
    assert all(store.load(seq).payload == payload for seq, payload in stored)
    assert store.state().msgs == THREADS * COUNT


def test_readers_see_whole_messages_while_others_write_and_remove(store: FileStore | MemStore) -> None:
    is_done = threading.Event()

    def write() -> None:
        try:
            for count in range(COUNT * 2):
                seq = store.append(f"a.{count % 3}", b"payload %d" % (store.state().last_seq + 1))
                if count % 3 == 0:
                    store.remove(max(seq - 7, 1))
        finally:
            is_done.set()

    def read() -> None:
        while not is_done.is_set():
            state = store.fast_state()
            assert sum(store.subjects_totals().values()) >= 0
            for message in store.messages(max(state.last_seq - 10, 1)):
                assert message.payload == b"payload %d" % message.seq

    run(write, read, read)
    assert sum(store.subjects_totals().values()) == store.state().msgs

"""Writes into a directory: all rows or none, in order, and once, whatever dies in between."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType  # noqa: E402

from jetlake.errors import CorruptBlock, StoreError  # noqa: E402
from jetlake.jetstream.streams.meta import read_meta, write_meta  # noqa: E402
from jetlake.spark import store_writer  # noqa: E402
from jetlake.spark.batches import RowMaker  # noqa: E402
from jetlake.spark.errors import SparkError  # noqa: E402
from jetlake.spark.ledger import Entry, Ledger  # noqa: E402
from jetlake.spark.staging import BlockStager  # noqa: E402
from jetlake.spark.store_writer import Staged, StoreWriter  # noqa: E402
from jetlake.spark.writers import stream_writer  # noqa: E402
from jetlake.store import FileStore  # noqa: E402
from jetlake.store.disk.files import OS_FILES, OsFiles  # noqa: E402
from jetlake.store.verify.check import check_store  # noqa: E402
from jetlake.table.errors import BadOption  # noqa: E402
from jetlake.table.options import parse_options  # noqa: E402
from tests.spark.versions import at_most, forget_last_commit  # noqa: E402
from tests.table.streams import START_NS  # noqa: E402

SCHEMA = StructType().add("subject", "string").add("payload", "binary")
TIMED = StructType().add("subject", "string").add("payload", "binary").add("time_ns", "long")


def rows(task: int, count: int = 20, *, timed: bool = False) -> Any:
    columns = {"subject": [f"w.{task}"] * count, "payload": [b"%d/%d" % (task, number) for number in range(count)]}
    return pa.RecordBatch.from_pydict(columns | ({"time_ns": [START_NS + n for n in range(count)]} if timed else {}))


def writer(path: Path, *, overwrite: bool = False, timed: bool = False, **options: Any) -> StoreWriter:
    given = {"path": str(path), "blockSize": 200, **options}
    return StoreWriter(parse_options(given), TIMED if timed else SCHEMA, overwrite=overwrite)


def stage(
    target: StoreWriter, batch: int = 0, tasks: int = 3, query: str = "q", *, timed: bool = False
) -> list[Staged]:
    """What the tasks of a batch do, without Spark."""
    results = []
    for task in range(tasks):
        directory = f"{target._target.draft(query)}/{target._run}/{task}-0"
        OS_FILES.make_dirs(directory)
        stager, maker = BlockStager(directory, target._options.block_size), RowMaker("", target._filters)
        stager.add(maker.rows(rows(10 * batch + task, timed=timed)))
        stager.close()
        results.append(Staged(query, batch, task, stager.blocks, stager.count, maker.subjects))
    return results[::-1]  # Spark may hand them over in any order


def write(path: Path, batch: int = 0, **more: Any) -> None:
    target = writer(path, **more)
    target.finish(stage(target, batch, timed=more.get("timed", False)))


def payloads(directory: Path) -> list[bytes]:
    assert check_store(str(directory)).ok
    with FileStore(directory) as store:
        return [message.payload for message in store.messages()]


def expected(*batches: int, tasks: int = 3, count: int = 20) -> list[bytes]:
    return [b"%d/%d" % (10 * batch + task, n) for batch in batches for task in range(tasks) for n in range(count)]


def test_a_new_store_holds_all_tasks_rows_in_order(tmp_path: Path) -> None:
    write(tmp_path / "S")
    assert payloads(tmp_path / "S") == expected(0)
    assert OS_FILES.list(str(tmp_path)) == ["S"], "nothing is left of the draft"


def test_every_block_of_a_new_store_has_its_sidecar(tmp_path: Path) -> None:
    write(tmp_path / "S")
    names = OS_FILES.list(str(tmp_path / "S"))
    blocks = [name[:-4] for name in names if name.endswith(".blk")]
    assert [name[:-4] for name in names if name.endswith(".idx")] == blocks
    assert payloads(tmp_path / "S") == expected(0)


def test_a_row_larger_than_a_block_gets_a_block_of_its_own(tmp_path: Path) -> None:
    OS_FILES.make_dirs(str(tmp_path / "t"))
    stager = BlockStager(str(tmp_path / "t"), 100)
    sizes = [10, 5000, 20, 300]
    batch = pa.RecordBatch.from_pydict({"subject": ["a"] * 4, "payload": [b"x" * size for size in sizes]})
    stager.add(RowMaker().rows(batch))
    stager.flush()
    assert stager.count == 4 and sum(block.msgs for block in stager.blocks) == 4
    assert max(block.body_size for block in stager.blocks) > 5000


def test_a_stream_of_a_store_directory_gets_a_config(tmp_path: Path) -> None:
    write(tmp_path, stream="ORDERS")
    directory = tmp_path / "jetstream" / "%24G" / "streams" / "ORDERS"
    meta = read_meta(OS_FILES, str(directory))
    assert (meta.config.name, list(meta.config.subjects)) == ("ORDERS", ["w.>"])
    assert payloads(directory / "msgs") == expected(0)
    write(tmp_path / "other", stream="OTHER", subjects="w.*,y")
    other = tmp_path / "other" / "jetstream" / "%24G" / "streams" / "OTHER"
    assert list(read_meta(OS_FILES, str(other)).config.subjects) == ["w.*", "y"]


def test_batches_are_appended_and_a_repeated_one_is_not(tmp_path: Path) -> None:
    for batch in (0, 0, 1, 2, 1, 2):
        write(tmp_path / "S", batch)
    assert payloads(tmp_path / "S") == expected(0, 1, 2)


def test_two_queries_write_to_one_stream(tmp_path: Path) -> None:
    write(tmp_path / "S", 0)
    target = writer(tmp_path / "S")
    target.finish(stage(target, 0, query="another"))
    assert payloads(tmp_path / "S") == expected(0, 0)


def test_times_are_kept_where_they_are_given(tmp_path: Path) -> None:
    write(tmp_path / "S", 0, timed=True)
    write(tmp_path / "S", 1, timed=True)
    with FileStore(tmp_path / "S") as store:
        times = [message.time_ns - START_NS for message in store.messages()]
    assert times == [*range(20)] * 6


def test_overwrite_replaces_a_store(tmp_path: Path) -> None:
    write(tmp_path / "S", 5)
    write(tmp_path / "S", 7, overwrite=True)
    assert payloads(tmp_path / "S") == expected(7)
    assert OS_FILES.list(str(tmp_path)) == ["S"]


def test_a_driver_that_dies_while_it_overwrites_leaves_the_old_store_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "start", 5)
    found, operation, has_died = [], 0, True
    while has_died:
        operation += 1
        path = Path(shutil.copytree(tmp_path / "start", tmp_path / f"S{operation}"))
        target = writer(path, overwrite=True)
        staged = stage(target, 7)
        with monkeypatch.context() as patch:
            has_died = False
            crashing(patch, operation)
            try:
                target.finish(staged)
            except Crash:
                has_died = True
        found.append(payloads(path))
    assert all(one in (expected(5), expected(7)) for one in found) and found[0] != found[-1]


def test_overwrite_leaves_a_store_alone_that_is_open(tmp_path: Path) -> None:
    write(tmp_path / "S", 5)
    with FileStore(tmp_path / "S"), pytest.raises(SparkError, match=r"somebody else has .* open"):
        write(tmp_path / "S", 7, overwrite=True)
    assert payloads(tmp_path / "S") == expected(5)


def test_overwrite_keeps_the_configuration_of_a_stream(tmp_path: Path) -> None:
    write(tmp_path, stream="S", subjects="w.*")
    directory = str(tmp_path / "jetstream" / "%24G" / "streams" / "S")
    meta = read_meta(OS_FILES, directory)
    write_meta(OS_FILES, directory, replace(meta, config=replace(meta.config, max_msgs=1000, description="kept")))
    write(tmp_path, batch=7, stream="S", overwrite=True)
    config = read_meta(OS_FILES, directory).config
    assert (config.max_msgs, config.description, config.subjects) == (1000, "kept", ("w.*",))
    write(tmp_path, batch=8, stream="S", overwrite=True, subjects="w.>")
    assert read_meta(OS_FILES, directory).config.subjects == ("w.>",)
    assert payloads(Path(directory) / "msgs") == expected(8)


def test_rows_of_other_subjects_than_the_streams_are_refused(tmp_path: Path) -> None:
    write(tmp_path, stream="S", subjects="w.0,w.1,w.2")
    with pytest.raises(BadOption, match=r"subject 'w.10' is none of the stream's, w.0, w.1, w.2"):
        write(tmp_path, batch=1, stream="S")
    with pytest.raises(BadOption, match=r"subject 'w.0' is none of the stream's, x"):
        write(tmp_path, stream="T", subjects="x")


def test_a_stream_whose_subjects_another_one_has_is_not_made(tmp_path: Path) -> None:
    write(tmp_path, stream="S")
    with pytest.raises(SparkError, match=r"overlap with those of the stream S, w.>: option subjects"):
        write(tmp_path, stream="T")
    assert not OS_FILES.exists(str(tmp_path / "jetstream" / "%24G" / "streams" / "T"))


@pytest.mark.parametrize("subjects", [["$JS.API.x"], [f"t{number}.a" for number in range(65)]])
def test_a_stream_that_a_server_would_refuse_is_not_made(tmp_path: Path, subjects: list[str]) -> None:
    target = writer(tmp_path, stream="S")
    results = stage(target, tasks=1)
    maker = RowMaker()
    maker.rows(pa.RecordBatch.from_pydict({"subject": subjects, "payload": [b""] * len(subjects)}))
    results[0].subjects = maker.subjects
    with pytest.raises(SparkError, match=r"no-ack|very many first tokens"):
        target.finish(results)


def test_giving_up_leaves_nothing(tmp_path: Path) -> None:
    target = writer(tmp_path / "S")
    target.give_up([*stage(target), None])
    assert OS_FILES.list(str(tmp_path)) == []


@pytest.mark.parametrize("is_cut", [False, True], ids=["changed", "cut off"])
@pytest.mark.parametrize("task", range(3))
def test_what_was_damaged_before_the_commit_is_not_committed(tmp_path: Path, task: int, is_cut: bool) -> None:
    target = writer(tmp_path / "S")
    results = stage(target)
    path = Path(next(staged for staged in results if staged.partition == task).blocks[0].path)
    data = path.read_bytes()
    path.write_bytes(data[:-9] if is_cut else data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    with pytest.raises(CorruptBlock, match=r"\.blk: at offset"):
        target.finish(results)
    target.give_up(results)
    assert OS_FILES.list(str(tmp_path)) == []


class Crash(BaseException):
    """The driver dies."""


def crashing(monkeypatch: pytest.MonkeyPatch, operation: int, error: BaseException | None = None) -> list[int]:
    """Let the n-th change of the file system fail; how many there were."""
    done = [0]

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: OsFiles, *arguments: Any, **more: Any) -> Any:
            if method.__name__ != "open" or more.get("create"):
                done[0] += 1
                if done[0] == operation:
                    raise error or Crash
            return method(self, *arguments, **more)

        return wrapped

    for name in ("open", "rename", "make_dirs", "remove_tree", "sync_dir", "remove"):
        monkeypatch.setattr(OsFiles, name, wrap(getattr(OsFiles, name)))
    return done


@pytest.mark.parametrize("batch", [0, 1], ids=["new store", "append"])
def test_a_driver_that_dies_anywhere_and_repeats_the_batch_writes_it_once(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if batch:
        write(tmp_path / "start", 0)
    operation = 0
    while True:
        operation += 1
        path = tmp_path / f"S{operation}"
        if batch:
            shutil.copytree(tmp_path / "start", path)
        target = writer(path)
        staged = stage(target, batch)
        with monkeypatch.context() as patch:
            done = crashing(patch, operation)
            with suppress(
                Crash, AssertionError, StoreError
            ):  # nobody would close the store: it is right to object to that
                target.finish(staged)
        write(path, batch)
        assert payloads(path) == expected(*range(batch + 1)), f"crash at operation {operation}"
        if done[0] < operation:
            break
    assert operation > 10


def test_a_full_disk_fails_the_write_and_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = 0
    for operation in range(1, 8):
        path = tmp_path / f"S{operation}"
        write(path, 0)
        target = writer(path)
        staged = stage(target, 1)
        with monkeypatch.context() as patch:
            crashing(patch, operation, OSError(errno.ENOSPC, "No space left on device"))
            try:
                target.finish(staged)  # which may do without what did not fit
            except (OSError, StoreError) as error:
                assert "No space left" in str(error)
                failed += 1
                target.give_up(staged)
                assert payloads(path) == expected(0)
        write(path, 1)
        assert payloads(path) == expected(0, 1)
    assert failed > 3


def test_a_disk_that_fills_up_under_a_task_fails_it_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **more: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = writer(tmp_path / "S")
    task = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 7)
    monkeypatch.setattr(store_writer.TaskContext, "get", lambda: task)
    with monkeypatch.context() as patch:
        patch.setattr(OsFiles, "open", full)
        with pytest.raises(OSError, match="No space left"):
            target.stage(iter([rows(0)]), target._writer, 0)
    target.give_up([None])
    assert OS_FILES.list(str(tmp_path)) == []


def test_what_others_wrote_is_never_taken_back(tmp_path: Path) -> None:
    write(tmp_path / "S", 0)
    Ledger(str(tmp_path / "S")).set("q", Entry(1, "begun", 61, 10))
    with FileStore(tmp_path / "S") as store:
        for number in range(20):
            store.append("other", b"%d" % number)
    with pytest.raises(StoreError, match="others have written since, up to 80"):
        write(tmp_path / "S", 1)


def test_a_running_server_is_not_written_behind_its_back(tmp_path: Path) -> None:
    OS_FILES.make_dirs(str(tmp_path / "jetstream"))
    with OS_FILES.lock(str(tmp_path / "jetstream" / "jetlake.lock")), pytest.raises(SparkError, match="is running on"):
        write(tmp_path, stream="S")


@pytest.mark.parametrize(
    ("schema", "options", "problem"),
    [
        ("subject string", {}, "column payload is missing"),
        ("payload binary", {}, "column subject is missing"),
        ("payload binary", {"subject": "a.*"}, "has wildcards"),
        ("subject string, payload binary, extra int", {}, "column extra cannot be written"),
        ("subject string, payload int", {}, "column payload is int"),
        ("subject string, payload binary, headers map<string,int>", {}, "must be a map of string to string"),
        ("subject string, payload binary, time timestamp, time_ns long", {}, "time and time_ns are both"),
        ("subject string, payload binary", {"stream": "a b"}, "is not a name for a stream"),
    ],
)
def test_rows_that_are_no_messages_are_refused(
    spark: Any, tmp_path: Path, schema: str, options: dict[str, str], problem: str
) -> None:
    frame = spark.createDataFrame([], schema)
    with pytest.raises(BadOption, match=problem):
        StoreWriter(parse_options({"path": str(tmp_path), **options}), frame.schema)


@pytest.fixture
def frame(spark: Any) -> Any:
    return spark.range(0, 1000, 1, 4).selectExpr(
        "concat('n.', id % 3) subject", "cast(id as string) payload", "map('Id', array(cast(id as string))) headers"
    )


def test_a_frame_is_written_and_read_back(spark: Any, frame: Any, tmp_path: Path) -> None:
    frame.write.format("jetstream").mode("append").save(str(tmp_path / "S"))
    back = spark.read.format("jetstream").option("payload", "string").load(str(tmp_path / "S")).orderBy("seq").collect()
    assert [int(row.payload) for row in back] == list(range(1000))
    assert [row.seq for row in back] == list(range(1, 1001))
    assert (back[7].subject, back[7].headers) == ("n.1", {"Id": ["7"]})
    frame.write.format("jetstream").mode("append").save(str(tmp_path / "S"))
    assert spark.read.format("jetstream").load(str(tmp_path / "S")).count() == 2000
    frame.write.format("jetstream").mode("overwrite").save(str(tmp_path / "S"))
    assert spark.read.format("jetstream").load(str(tmp_path / "S")).count() == 1000


def test_a_write_without_a_mode_says_which_there_are(frame: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"cannot be written in .* use either .*Append.* or .*Overwrite"):
        frame.write.format("jetstream").save(str(tmp_path / "S"))
    assert OS_FILES.list(str(tmp_path)) == []


def test_a_job_with_an_id_writes_once(spark: Any, frame: Any, tmp_path: Path) -> None:
    for _ in range(2):
        frame.write.format("jetstream").mode("append").option("jobId", "nightly-1").save(str(tmp_path / "S"))
    assert spark.read.format("jetstream").load(str(tmp_path / "S")).count() == 1000


def test_a_task_that_fails_leaves_nothing_behind(spark: Any, frame: Any, tmp_path: Path) -> None:
    broken = frame.selectExpr("if(payload = '700', raise_error('boom'), subject) subject", "payload")
    with pytest.raises(Exception, match="boom"):
        broken.write.format("jetstream").mode("append").save(str(tmp_path / "S"))
    assert OS_FILES.list(str(tmp_path)) == []


def test_a_streaming_query_writes_each_batch_once(spark: Any, frame: Any, tmp_path: Path) -> None:
    frame.write.format("jetstream").mode("append").save(str(tmp_path / "IN"))

    def run() -> None:
        stream = spark.readStream.format("jetstream").options(**at_most(400)).load(str(tmp_path / "IN"))
        query = (
            stream.select("subject", "payload")
            .writeStream.format("jetstream")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "OUT"))
        )
        query.awaitTermination(120)

    run()
    forget_last_commit(tmp_path / "checkpoint")
    run()
    back = (
        spark.read.format("jetstream").option("payload", "string").load(str(tmp_path / "OUT")).orderBy("seq").collect()
    )
    assert [int(row.payload) for row in back] == list(range(1000))
    assert OS_FILES.list(str(tmp_path)) == ["IN", "OUT", "checkpoint"], "nothing is left of what tasks wrote"


def test_a_query_in_complete_mode_is_refused() -> None:
    for place in ({"path": "/nowhere"}, {"url": "nats://127.0.0.1:1", "stream": "S"}):
        with pytest.raises(BadOption, match="output mode complete"):
            stream_writer(parse_options(place), SCHEMA, True)


def test_the_default_mode_is_refused_with_a_hint(frame: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"(?i)append|ErrorIfExists"):
        frame.write.format("jetstream").save(str(tmp_path / "S"))

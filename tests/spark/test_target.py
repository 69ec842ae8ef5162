"""Where a write may go: to a store or to nothing yet, never over anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from jetlake.spark.target import Target, find_target, swap_in
from jetlake.store import FileStore
from jetlake.table.errors import BadOption, NoStream
from jetlake.table.locate import find_streams
from jetlake.table.options import parse_options
from tests.spark.test_store_writer import write


def target(path: Path, **options: str) -> Target:
    return find_target(parse_options({"path": str(path), **options}))


def test_a_bare_store_and_an_empty_directory_are_written_to(tmp_path: Path) -> None:
    assert target(tmp_path).store == target(tmp_path / "new").directory.removesuffix("/new") == str(tmp_path)
    with FileStore(tmp_path) as store:
        store.append("a", b"1")
    assert target(tmp_path).store == str(tmp_path)


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("mine")
    with pytest.raises(BadOption, match=r"holds file.txt, which is no part of a store"):
        target(tmp_path)


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("", "option stream is missing"),
        ("jetstream", "is no part of a store"),
        ("jetstream/%24G", "is no part of a store"),
        ("jetstream/%24G/streams", "is no part of a store"),
        ("jetstream/%24G/streams/S", "option stream is missing"),
        ("jetstream/%24G/streams/S/msgs", "is part of a stream"),
    ],
)
def test_a_part_of_a_servers_directory_is_refused(tmp_path: Path, place: str, problem: str) -> None:
    write(tmp_path, stream="S")
    with pytest.raises(BadOption, match=problem):
        target(tmp_path / place)


def test_a_stream_is_not_made_inside_of_another(tmp_path: Path) -> None:
    write(tmp_path / "bare")
    write(tmp_path / "server", stream="S")
    for path in (tmp_path / "bare", tmp_path / "server/jetstream/%24G/streams/S"):
        with pytest.raises(BadOption, match="is one stream's own directory, and cannot hold the stream T"):
            target(path, stream="T")


def test_what_is_replaced_is_found_again(tmp_path: Path) -> None:
    for name in ("new", "place"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    old = swap_in(str(tmp_path / "new"), str(tmp_path / "place"), str(tmp_path / "old"))
    assert (tmp_path / "place" / "new").exists() and (Path(old) / "place").exists()


def test_a_streams_own_directory_is_the_stream_that_is_meant_or_refused(tmp_path: Path) -> None:
    write(tmp_path / "bare")
    write(tmp_path / "server", stream="S")
    own = tmp_path / "server/jetstream/%24G/streams/S"
    for path, name in ((own, "S"), (tmp_path / "bare", "bare")):
        assert [stream.name for pattern in ("", name, "*") for stream in find_streams(str(path), pattern)] == 3 * [name]
        with pytest.raises(NoStream, match=f"no stream OTHER; there is {name}"):
            find_streams(str(path), "OTHER")
        with pytest.raises(BadOption, match="option account is for a server's directory"):
            find_streams(str(path), account="A")

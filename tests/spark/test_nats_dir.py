"""A nats-server's store directory as a Spark table."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from jetlake.spark import read
from tests.store.nats.real_store import RealStore, fill_everything, write_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RealStore:
    return write_store(tmp_path_factory.mktemp("real"), lambda peer: fill_everything(peer, "s2"))


def test_directory_of_a_nats_server_is_read_in_place(spark: Any, store: RealStore) -> None:
    found = {row.seq: row for row in read(spark, path=store.path, stream="PLAIN").collect()}
    assert found.keys() == store.messages["PLAIN"].keys()
    assert all(bytes(found[seq].payload) == seen.payload for seq, seen in store.messages["PLAIN"].items())


def test_data_source_reads_it_too(spark: Any, store: RealStore) -> None:
    frame = spark.read.format("jetstream").options(stream="*").load(store.path)
    counts = {row.stream: row["count"] for row in frame.groupBy("stream").count().collect()}
    assert counts == {name: len(found) for name, found in store.messages.items() if found}

"""A stream to Parquet, each run from where the last one ended: `python examples/export_to_parquet.py`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import nats

from jetlake.spark import session
from jetlake.spark.jobs.export import export
from jetlake.testing.server import run_server


async def publish(url: str, first: int, last: int) -> None:
    client = await nats.connect(url)
    js = client.jetstream()
    await js.add_stream(name="EVENTS", subjects=["events.>"])
    for number in range(first, last):
        await js.publish(f"events.{('login', 'order')[number % 2]}.{number}", b'{"number": %d}' % number)
    await client.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, run_server(Path(directory, "data")) as url:
        spark, lake = session(), f"{directory}/lake/events"
        source = {"path": f"{directory}/data", "stream": "EVENTS", "subject_tokens": "events.{kind}.{number}"}
        for first, last in ((0, 60), (60, 100)):
            asyncio.run(publish(url, first, last))
            # On the command line: jetlake export data lake/events -s EVENTS --tokens … --partition-by kind,date
            done = export(spark, source, lake, partition_by=("kind", "date"))
            print(f"{done.messages} messages exported, up to sequence {done.offsets['EVENTS']['seq']}")
        spark.read.parquet(lake).groupBy("kind").count().orderBy("kind").show()


if __name__ == "__main__":
    main()

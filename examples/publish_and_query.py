"""Publish with any NATS client, query the same messages with SQL: `python examples/publish_and_query.py`."""

from __future__ import annotations

import asyncio
import tempfile

import nats

from jetlake.spark import read, session
from jetlake.testing.server import run_server

QUERY = """
SELECT region, count(*) AS orders, round(sum(amount), 2) AS revenue
FROM orders GROUP BY region ORDER BY revenue DESC
"""


async def publish(url: str) -> None:
    """A hundred orders, each on the disk of the server when it is acknowledged."""
    client = await nats.connect(url)
    js = client.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    for number in range(100):
        region = ("eu", "us", "apac")[number % 3]
        await js.publish(f"orders.{region}.{number}", b'{"amount": %d.5}' % number)
    await client.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as data, run_server(data) as url:
        asyncio.run(publish(url))
        spark = session()
        # The files of the running server are the table. `url=url` would read over the network instead.
        orders = read(spark, path=data, stream="ORDERS", subject_tokens="orders.{region}.{id}", payload="json")
        orders.createOrReplaceTempView("orders")
        spark.sql(QUERY).show()
        # Conditions on sequence, time, subject and its tokens rule out blocks before anything is read.
        newest = read(spark, "seq > 97", path=data, stream="ORDERS", columns="seq,subject,size")
        newest.show()


if __name__ == "__main__":
    main()

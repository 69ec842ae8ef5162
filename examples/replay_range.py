"""Yesterday's messages once more, for a new version of a service: `python examples/replay_range.py`."""

from __future__ import annotations

import asyncio
import tempfile

import nats

from jetlake.spark import session
from jetlake.spark.jobs.replay import replay
from jetlake.testing.server import run_server


async def publish(url: str) -> None:
    client = await nats.connect(url)
    js = client.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    await js.add_stream(name="REHEARSAL", subjects=["rehearsal.>"])
    for number in range(50):
        await js.publish(f"orders.{('eu', 'us')[number % 2]}.{number}", b"order %d" % number)
    await client.close()


async def consume(url: str) -> None:
    """The service under test hears the old messages on subjects of their own."""
    client = await nats.connect(url)
    consumer = await client.jetstream().pull_subscribe("rehearsal.orders.eu.>", durable="v2")
    for message in await consumer.fetch(100, timeout=2):
        print(message.subject, message.data.decode())
        await message.ack()
    await client.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as data, run_server(data) as url:
        asyncio.run(publish(url))
        # In order, at most 100 a second; a time range is a condition too: time >= '2026-03-01' AND time < '2026-03-02'.
        source, target = {"path": data, "stream": "ORDERS"}, {"url": url, "stream": "REHEARSAL"}
        where = "seq BETWEEN 11 AND 20 AND subject LIKE 'orders.eu.%'"
        count = replay(session(), source, target, where=where, to="rehearsal.{subject}", rate=100)
        print(f"{count} messages replayed")
        asyncio.run(consume(url))


if __name__ == "__main__":
    main()

"""A streaming query in a process of its own, for `test_kill.py` to kill.

    python kill_query.py SOURCE WORK TARGET [FLAG]

It copies the stream SOURCE, a few messages in each batch, to TARGET: a directory, or the url of a server. With FLAG,
the worker that comes to message 700 kills itself once: the file says that it did.
"""

from __future__ import annotations

import os
import signal
import sys

from pyspark.sql import functions as F

from jetlake.spark.spark_session import session


def main(source: str, work: str, target: str, flag: str = "") -> None:
    """Run until everything is copied."""
    spark = session("kill", master="local[2,4]", conf={"spark.sql.execution.arrow.maxRecordsPerBatch": "50"})

    def deadly(payload: str) -> str:
        if flag and payload == "700" and not os.path.exists(flag):
            with open(flag, "w"):
                os.kill(os.getpid(), signal.SIGKILL)
        return payload

    stream = spark.readStream.format("jetstream").option("payload", "string").option("maxRowsPerTrigger", 400)
    rows = stream.option("partitionRows", 150).load(source)
    rows = rows.select("subject", F.udf(deadly, "string", useArrow=False)("payload").alias("payload"))
    writer = rows.writeStream.format("jetstream").option("checkpointLocation", f"{work}/checkpoint")
    if target.startswith("nats://"):
        writer = writer.option("url", target).option("stream", "COPY").option("rate", 2000).option("window", 8)
    else:
        writer = writer.option("path", target)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

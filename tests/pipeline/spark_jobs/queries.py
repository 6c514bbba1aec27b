"""
Streaming queries of a user that read Kafka, of every kind that a checkpoint can tell apart.

    spark-submit queries.py BOOTSTRAP CHECKPOINTS first|second

It prints one JSON object a line: what Spark itself says of the progress of each query. `first` ends in a batch, to
be killed there; `second` restarts that query. It runs on every PySpark from 3.3 on, with nothing else but the Kafka connector.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

PATIENCE_S = 90.0


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


class Listened:
    """The progress of all queries: `recentProgress` keeps some only."""

    def __init__(self, spark: Any, bootstrap: str, root: str) -> None:
        self.spark, self.bootstrap, self.root = spark, bootstrap, root

    def kafka(self, topics: str = "orders", *, by: str = "subscribe", **options: Any) -> Any:
        stream = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        stream = stream.option(by, topics).option("startingOffsets", "earliest")
        for name, value in options.items():
            stream = stream.option(name, value)
        return stream.load()

    def start(self, name: str, frame: Any, *, trigger: dict[str, Any], sink: Any = None, **options: str) -> Any:
        writer = (
            frame.writeStream.queryName(name).option("checkpointLocation", f"{self.root}/{name}").trigger(**trigger)
        )
        for option, value in options.items():
            writer = writer.option(option, value)
        return (writer.format("noop") if sink is None else writer.foreachBatch(sink)).start()

    def until(self, query: Any, batches: int) -> None:
        """Wait for the progress of some batches, and stop."""
        until = time.monotonic() + PATIENCE_S
        while len(told(query)) < batches and query.isActive:
            assert time.monotonic() < until, query.status
            time.sleep(0.05)
        # Spark tells of a batch after its commit. A query that is stopped meanwhile may have planned another one.
        query.stop()
        self.say(query)

    def all_read(self, query: Any) -> None:
        query.processAllAvailable()
        query.stop()
        self.say(query)

    def say(self, query: Any) -> None:
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        for progress in told(query):
            say(query=query.name, progress=progress)


def told(query: Any) -> list[dict[str, Any]]:
    """The progress of finished batches, as all releases have it."""
    found = [json.loads(one.json) if hasattr(one, "json") else one for one in query.recentProgress]
    return [one for one in found if one["numInputRows"] or one["batchId"] == 0]


def first(queries: Listened) -> None:
    fast = {"processingTime": "0 seconds"}
    queries.all_read(queries.start("fast", queries.kafka(), trigger=fast))
    queries.until(queries.start("limited", queries.kafka(maxOffsetsPerTrigger=40), trigger=fast), 3)
    now = queries.start("now", queries.kafka(maxOffsetsPerTrigger=70), trigger={"availableNow": True})
    now.awaitTermination(PATIENCE_S)
    queries.say(now)
    several = queries.kafka(maxOffsetsPerTrigger=50).select("value").union(queries.kafka("refunds").select("value"))
    rate = queries.spark.readStream.format("rate").load().selectExpr("cast(cast(value as string) as binary) as value")
    queries.until(queries.start("several", several.union(rate), trigger=fast), 2)
    queries.all_read(queries.start("pattern", queries.kafka("re.*", by="subscribePattern"), trigger=fast))
    queries.all_read(queries.start("state", queries.kafka().dropDuplicates(["partition"]), trigger=fast))
    tracked = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "500"}
    queries.until(queries.start("async", queries.kafka(maxOffsetsPerTrigger=40), trigger=fast, **tracked), 4)

    def hang(frame: Any, number: int) -> None:
        frame.count()
        if number == 2:
            say(query="killed", hangs=number)
            time.sleep(600)

    hanging = queries.start("killed", queries.kafka(maxOffsetsPerTrigger=60), trigger=fast, sink=hang)
    hanging.awaitTermination()


def second(queries: Listened) -> None:
    fast = {"processingTime": "0 seconds"}
    # Not with availableNow: 3.4 and 4.0 then refuse a topic that got partitions after the batch was planned.
    killed = queries.kafka(maxOffsetsPerTrigger=60)
    queries.all_read(queries.start("killed", killed, trigger=fast, sink=lambda frame, _: frame.count()))
    queries.all_read(queries.start("fast", queries.kafka(), trigger=fast))


if __name__ == "__main__":
    import pyspark

    say(pyspark=pyspark.__version__, file=Path(__file__).name)
    session = SparkSession.builder.getOrCreate()
    {"first": first, "second": second}[sys.argv[3]](Listened(session, *sys.argv[1:3]))
    say(done=sys.argv[3])

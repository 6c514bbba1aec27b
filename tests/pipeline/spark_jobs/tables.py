"""
A job of a user: the tables of the library from one read, by format and by `read`, and what a stream gives.

    spark-submit tables.py LOGS CHECKPOINT

It prints one JSON object a line. It runs on every PySpark from 3.5 on, with nothing else but what platforms have.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from kohort.pipeline import library as kohort

AT_MS = 1_900_000_000_000
"""After the last record of all logs."""
TABLES: dict[str, Callable[[Any, Any], Any]] = {
    "offsets": lambda records, _: kohort.offsets(records),
    "commits": lambda records, _: kohort.commits(records),
    "commit_frequency": lambda records, _: kohort.commit_frequency(kohort.commits(records)),
    "rebalances": lambda records, _: kohort.rebalances(records),
    "members": lambda records, _: kohort.members(records),
    "assignments": lambda records, _: kohort.assignments(records),
    "partition_flapping": lambda records, _: kohort.partition_flapping(kohort.assignments(records)),
    "transactions": lambda records, _: kohort.transactions(records),
    "open_transactions": lambda records, _: kohort.open_transactions(records, at_ms=AT_MS),
    "share_state": lambda records, _: kohort.share_state(records),
    "lag": lambda records, batches: kohort.lag(kohort.offsets(records), batches, at_ms=AT_MS),
    "blocking_transactions": lambda records, batches: kohort.blocking_transactions(
        batches, kohort.transactions(records), at_ms=AT_MS
    ),
}
PLACE = ("kind", "log_topic", "log_partition", "log_offset")
BATCHES = {"topics": "*", "kinds": "batch,segment"}


def told(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in an order of their own."""
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


def main(logs: str, checkpoint: str) -> None:
    import pyspark
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    records, batches = kohort.read(spark, logs).persist(), kohort.read(spark, logs, BATCHES).persist()
    where = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("kohort").__file__).collect()
    print(json.dumps({"pyspark": pyspark.__version__, "kohort": where[0]}))
    for name, table in TABLES.items():
        rows = [row.asDict(recursive=True) for row in table(records, batches).collect()]
        print(json.dumps({"table": name, "rows": told(rows)}))
    frames = {"read": records.select(*PLACE)}
    if not pyspark.__version__.startswith("3."):
        frames["format"] = spark.read.format("kohort").load(logs).select(*PLACE)
        stream = spark.readStream.format("kohort").load(logs).select(*PLACE).writeStream.trigger(availableNow=True)
        stream.format("memory").queryName("rows").option("checkpointLocation", checkpoint).start().awaitTermination()
        frames["stream"] = spark.table("rows")
    for name, frame in frames.items():
        print(json.dumps({"table": name, "rows": told([row.asDict() for row in frame.collect()])}))


if __name__ == "__main__":
    main(*sys.argv[1:])

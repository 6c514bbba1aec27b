"""
A Spark job over coordinator logs: groups with lag that have not committed for a while.

    spark-submit --master 'local[2]' examples/stuck_groups.py /var/lib/kafka /srv/stuck --minutes 10

As a cron job. A run that fails needs no repair, because the next one replaces its output:

    */15 * * * *  spark-submit --master 'local[2]' stuck_groups.py /var/lib/kafka /srv/stuck 2>>/var/log/stuck.log

On a Spark cluster, Kohort must be installed in the Python environment of the workers, and the workers must be able to read the
logs: `kafka://HOST:PORT`, an object store, or a shared directory.
"""

import argparse
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from kohort.pipeline import lag, offsets

MINUTE_MS = 60_000


def stuck(spark: SparkSession, source: str, *, minutes: int) -> Any:
    """Select partitions with lag whose last commit is at least `minutes` older than the newest coordinator record."""
    records = spark.read.format("kohort").load(source).persist()
    at_ms = int(records.agg(fn.max("timestamp_ms")).first()[0])
    latest = offsets(records)
    topics = sorted(row["topic"] for row in latest.select("topic").distinct().collect())
    # Segments tell the end of a log that has no batch any more.
    logs = spark.read.format("kohort").option("topics", ",".join(topics)).option("kinds", "batch,segment")
    batches = logs.load(source)
    behind = lag(latest, batches, at_ms=at_ms)
    return behind.where((fn.col("lag") > 0) & (fn.col("commit_timestamp_ms") <= at_ms - minutes * MINUTE_MS))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write groups that are stuck as Parquet.")
    parser.add_argument("source", help="data directory of a broker, or kafka://HOST:PORT")
    parser.add_argument("target", help="directory of the Parquet files")
    parser.add_argument("--minutes", type=int, default=10)
    options = parser.parse_args()
    spark = SparkSession.builder.appName("stuck-groups").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    stuck(spark, options.source, minutes=options.minutes).write.mode("overwrite").parquet(options.target)
    print(f"{spark.read.parquet(options.target).count()} stuck")
    spark.stop()


if __name__ == "__main__":
    main()

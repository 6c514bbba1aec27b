"""
A Spark job of one's own over the logs of coordinators: groups that have not moved for a while, though something waits for them.

    spark-submit --master 'local[2]' examples/stuck_groups.py /var/lib/kafka /srv/stuck --minutes 10

The same as a cron job, which needs nothing but this line, for a run that dies is made up for by the next one:

    */15 * * * *  spark-submit --master 'local[2]' stuck_groups.py /var/lib/kafka /srv/stuck 2>>/var/log/stuck.log

On a cluster, Kohort has to be installed where Python runs on its workers, and the logs have to be where they can read them:
`kafka://HOST:PORT`, an object store, or a shared directory.
"""

import argparse
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from kohort.pipeline import lag, offsets

MINUTE_MS = 60_000


def stuck(spark: SparkSession, source: str, *, minutes: int) -> Any:
    """Partitions of groups with a lag whose last commit is so many minutes older than the last record of a coordinator."""
    records = spark.read.format("kohort").load(source).persist()
    at_ms = int(records.agg(fn.max("timestamp_ms")).first()[0])
    latest = offsets(records)
    topics = sorted(row["topic"] for row in latest.select("topic").distinct().collect())
    batches = spark.read.format("kohort").option("topics", ",".join(topics)).option("kinds", "batch").load(source)
    behind = lag(latest, batches, at_ms=at_ms)
    return behind.where((fn.col("lag") > 0) & (fn.col("commit_timestamp_ms") <= at_ms - minutes * MINUTE_MS))


def main() -> None:
    parser = argparse.ArgumentParser(description="Groups that are stuck, as Parquet.")
    parser.add_argument("source", help="data directory of a broker, or kafka://HOST:PORT")
    parser.add_argument("target", help="directory of the Parquet files")
    parser.add_argument("--minutes", type=int, default=10)
    asked = parser.parse_args()
    spark = SparkSession.builder.appName("stuck-groups").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    stuck(spark, asked.source, minutes=asked.minutes).write.mode("overwrite").parquet(asked.target)
    print(f"{spark.read.parquet(asked.target).count()} stuck")
    spark.stop()


if __name__ == "__main__":
    main()

"""
Spark's own connector for Kafka, in a process of its own: its jars have to be there when the virtual machine starts.

Usage: python -m tests.clients.frameworks.spark_job JARS ADDRESS TOPIC DIRECTORY. Prints one object of JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

BATCH = 20
Options = dict[str, str]


class Job:
    """The reads and writes of a topic with two partitions."""

    def __init__(self, spark: SparkSession, address: str, topic: str, directory: Path) -> None:
        self._spark = spark
        self._topic = topic
        self._copy = f"{topic}-copy"
        self._directory = directory
        self._broker = {"kafka.bootstrap.servers": address}

    def run(self) -> dict[str, Any]:
        self.write(0, BATCH)
        first = self.read({"subscribe": self._topic, "includeHeaders": "true"})
        by_offset = json.dumps({self._topic: {"0": 5, "1": 8}})
        found: dict[str, Any] = {
            "rows": sorted([row.partition, row.offset, row.key.decode(), row.value.decode()] for row in first),
            "headers": sorted({(header.key, header.value.decode()) for row in first for header in row.headers}),
            "from offset": len(self.read({"subscribe": self._topic, "startingOffsets": by_offset})),
            "of a partition": len(self.read({"assign": json.dumps({self._topic: [1]})})),
            "split": len(self.read({"subscribe": self._topic, "minPartitions": "6"})),
            "of the future": self._of_the_future(),
            "copied": [self.copy()],
        }
        self.write(BATCH, 2 * BATCH)
        found["copied"].append(self.copy())
        found["copies"] = sorted(row.value.decode() for row in self.read({"subscribePattern": f"{self._topic}-c.*"}))
        return found

    def write(self, first: int, last: int) -> None:
        rows = [
            Row(
                partition=number % 2,
                key=f"k{number}".encode(),
                value=f"v{number}".encode(),
                headers=[Row(key="from", value=b"spark")],
            )
            for number in range(first, last)
        ]
        schema = "partition int, key binary, value binary, headers array<struct<key: string, value: binary>>"
        frame = self._spark.createDataFrame(rows, schema).coalesce(1)
        frame.write.format("kafka").options(**self._broker, topic=self._topic).save()

    def read(self, options: Options) -> list[Row]:
        return list(self._spark.read.format("kafka").options(**self._broker, **options).load().collect())

    def _of_the_future(self) -> str:
        """Offsets of a timestamp after the last record: an error, or the latest offsets where the option says so."""
        future = {"subscribe": self._topic, "startingTimestamp": "9999999999999"}
        try:
            self.read(future)
        except PySparkException:
            return f"refused, then {len(self.read({**future, 'startingOffsetsByTimestampStrategy': 'latest'}))} rows"
        return "read"

    def copy(self) -> int:
        """Run a stream over what is new, from its checkpoint; return the rows of its micro-batches."""
        source: DataFrame = (
            self._spark.readStream.format("kafka")
            .options(**self._broker, subscribe=self._topic, startingOffsets="earliest", maxOffsetsPerTrigger="15")
            .load()
        )
        query = (
            source.selectExpr("key", "value")
            .writeStream.format("kafka")
            .options(**self._broker, topic=self._copy, checkpointLocation=str(self._directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(int(progress.numInputRows) for progress in query.recentProgress)


def main(jars: str, address: str, topic: str, directory: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    found = Job(spark, address, topic, Path(directory)).run()
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

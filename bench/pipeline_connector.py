"""
`python -m bench.pipeline_connector`: the pipeline beside a plain Spark job. Prints JSON on standard output.

The same commits are in files and in a topic of a broker. `offsets` reads the files with each engine. A plain job reads the
topic by the connector of Spark, on as many cores. It counts the records, or decodes them with a function in Python as a user
writes one; one that only starts reads nothing. Each has its wall time, the processor time of all its processes, and the maximum
of their memory, without those of the broker. `above` has the processor time of the Spark engine without that of a job which
starts or counts, divided by that of the local engine. The jars of the connector come from Maven.
"""

import argparse
import json
import os
import random
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Producer

from bench.pipeline import BYTES_PER_RECORD
from bench.pipeline_commands import Figures, watched
from bench.pipeline_logs import pair, write_logs
from kohort.testing.kafka import ROOT, maven_jars
from kohort.testing.served import ServedKohort

TOPIC: Final = "commits"
PARTITIONS: Final = 4
CORES: Final = 2
POM: Final = ROOT / "tests" / "clients" / "frameworks" / "spark.xml"
CONNECTOR: Final = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
"""The jars that PySpark does not bring."""
KINDS: Final = ("start", "count", "decode")
POOL: Final = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_connector", description="Beside a plain Spark job.")
    parser.add_argument("--millions", type=float, default=10, help="commits")
    parser.add_argument("--directory", metavar="DIR", help="where logs and the broker's data are written for a while")
    parser.add_argument("--job", nargs=3, metavar=("JARS", "ADDRESS", "KIND"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        job(*arguments.job)
        return
    jars = sorted(
        one for one in maven_jars(POM, ROOT / "build" / "spark").glob("*.jar") if one.name.startswith(CONNECTOR)
    )
    with tempfile.TemporaryDirectory(prefix="kohort-bench-", dir=arguments.directory) as name:
        logs = Path(name) / "logs"
        records = write_logs(logs, size_bytes=round(arguments.millions * 1e6 * BYTES_PER_RECORD), partitions=PARTITIONS)
        told: Figures = {"records": records, "cores": CORES}
        options = {"local": ["--engine", "local"], "spark": ["--master", f"local[{CORES}]"]}
        for engine, chosen in options.items():
            told[f"offsets, {engine}"] = watched(["offsets", str(logs), "--out", f"{name}/{engine}", *chosen])
        with ServedKohort(Path(name) / "broker", {"num.partitions": str(PARTITIONS)}, flush="os") as broker:
            fill(broker.bootstrap, records)
            for kind in KINDS:
                command = (
                    sys.executable,
                    "-m",
                    "bench.pipeline_connector",
                    "--job",
                    ",".join(map(str, jars)),
                    broker.bootstrap,
                )
                told[f"connector, {kind}"] = watched([kind], command=command)
    told["above"] = {
        kind: round(
            (told["offsets, spark"]["cpu_s"] - told[f"connector, {kind}"]["cpu_s"]) / told["offsets, local"]["cpu_s"], 2
        )
        for kind in KINDS[:2]
    }
    print(json.dumps(told, indent=2))


def fill(address: str, records: int) -> None:
    """Produce commits as in the files."""
    chance = random.Random(1)
    pool = [pair("v4", chance, range(1500)) for _ in range(POOL)]
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(records):
        key, value = pool[number % POOL]
        while True:
            try:
                producer.produce(TOPIC, key=key, value=value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def job(jars: str, address: str, kind: str) -> None:
    """Read the topic with the connector, in a process of its own."""
    from pyspark.sql import SparkSession

    # Workers run `python3` of the PATH otherwise, which may lack pyarrow.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    frame = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", TOPIC).load()
    if kind == "decode":
        columns = "group string, topic string, partition int, offset bigint, timestamp_ms bigint"
        rows = frame.select("key", "value").mapInArrow(decoded, columns)
        latest = rows.groupBy("group", "topic", "partition").max("offset", "timestamp_ms")
        latest.write.format("noop").mode("overwrite").save()
    elif kind == "count":
        frame.count()
    else:
        spark.range(1).count()
    spark.stop()


def decoded(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode commits one at a time."""
    for part in parts:
        rows = []
        for key, value in zip(part.column(0).to_pylist(), part.column(1).to_pylist(), strict=True):
            if struct.unpack_from(">h", key)[0] > 1 or value is None:
                continue
            group, at = string(key, 2)
            topic, at = string(key, at)
            (partition,) = struct.unpack_from(">i", key, at)
            _, offset, _ = struct.unpack_from(">hqi", value)
            size = value[14] - 1
            (at_ms,) = struct.unpack_from(">q", value, 15 + size)
            rows.append((group, topic, partition, offset, at_ms))
        columns: list[Any] = list(zip(*rows, strict=True)) or [[]] * 5
        types = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64())
        names = ("group", "topic", "partition", "offset", "timestamp_ms")
        yield pa.RecordBatch.from_arrays([pa.array(one, kind) for one, kind in zip(columns, types, strict=True)], names)


def string(raw: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", raw, at)
    return raw[at + 2 : at + 2 + size].decode(), at + 2 + size


if __name__ == "__main__":
    main()

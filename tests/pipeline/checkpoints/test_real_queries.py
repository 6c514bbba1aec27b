"""
Queries of PySpark with Spark's own Kafka connector: what their checkpoints say is what Spark says itself, and the lag is that
of the topic. `make spark-versions` does the same with other releases.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewPartitions

from kohort.pipeline.checkpoints.named import Named
from kohort.pipeline.engines.local.session import LocalSession
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.testing.kafka import KafkaNode, UnavailableKafkaError
from kohort.testing.served import ServedKohort
from tests.clients.kohort_command import kohort
from tests.conftest import NIGHTLY
from tests.pipeline.platforms import Platform, installed_python, kafka_jars, own_python
from tests.pipeline.spark_jobs import queries as job

pytestmark = [pytest.mark.spark, pytest.mark.clients, pytest.mark.timeout(900), NIGHTLY]

OWN = "own"
VERSIONS = os.environ.get("KOHORT_SPARK_VERSIONS", OWN).split()
WORK = Path(__file__).parents[3] / "build" / "pyspark"
RECORDS = 240
KAFKA, KOHORT = "kafka", "kohort"


class Queries:
    """The job, and what it has said."""

    def __init__(self, platform: Platform, bootstrap: str, root: Path) -> None:
        self.platform, self.bootstrap, self.root = platform, bootstrap, root
        self.said: list[dict[str, Any]] = []

    def run(self, phase: str) -> "subprocess.Popen[str]":
        command = [str(self.platform.spark_home / "bin" / "spark-submit"), "--master", "local[2]"]
        chosen = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.log.level": "ERROR"}
        chosen |= {"spark.jars": ",".join(map(str, kafka_jars(self.platform, WORK))), "spark.driver.memory": "700m"}
        # Listed in the progress of a query, which is as long as that.
        chosen |= {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
        command += [word for name, value in chosen.items() for word in ("--conf", f"{name}={value}")]
        with (self.root / f"{phase}.log").open("wb") as log:
            return subprocess.Popen(
                [*command, job.__file__, self.bootstrap, str(self.root / "lake"), phase],
                env=self.platform.environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def read(self, running: "subprocess.Popen[str]", *, last: str) -> None:
        """Take what it says, up to a line with some name."""
        assert running.stdout is not None
        others = []
        for line in running.stdout:
            if not line.startswith("{"):
                others.append(line)
            else:
                self.said.append(json.loads(line))
                if last in self.said[-1]:
                    return
        # spark-submit merges what the program says on both streams.
        raise AssertionError("".join(others))

    def progress(self, name: str) -> dict[int, dict[str, Any]]:
        """What Spark said of the batches of a query."""
        found = (one["progress"] for one in self.said if one.get("query") == name and "progress" in one)
        return {one["batchId"]: one for one in found}


def ends_of(progress: dict[str, Any]) -> dict[tuple[str, int], int]:
    """The end offsets of a batch, the smallest of several sources."""
    found: dict[tuple[str, int], int] = {}
    for source in progress["sources"]:
        if source["description"].startswith("KafkaV2"):
            told = source["endOffset"]
            for topic, parts in (json.loads(told) if isinstance(told, str) else told).items():
                for partition, offset in parts.items():
                    place = topic, int(partition)
                    found[place] = min(offset, found.get(place, offset))
    return found


def behind_of(progress: dict[str, Any]) -> int:
    """`maxOffsetsBehindLatest` of the sources."""
    return max(int(one["metrics"]["maxOffsetsBehindLatest"]) for one in progress["sources"] if one.get("metrics"))


def produce(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(records):
        producer.send(topic, b"%d" % number, partition=number % partitions)
    producer.close()


def log_ends(bootstrap: str, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    found = consumer.end_offsets([TopicPartition(*place) for place in places])
    consumer.close()
    return {(place.topic, place.partition): end for place, end in found.items()}


def tables_of(bootstrap: str, lake: Path) -> dict[str, list[dict[str, Any]]]:
    with LocalSession() as session:
        tables = Tables(Reading(session, f"kafka://{bootstrap}", checkpoints=[Named(None, str(lake))]))
        names = ("offset_commits", "lag", "spark_queries")
        found = {name: getattr(tables, name).toArrow().to_pylist() for name in names}
        assert tables.reading.queries.problems == []
        return found


def check(found: dict[str, list[dict[str, Any]]], queries: Queries, names: list[str]) -> int:
    """Compare tables with what Spark said and with the topic; return the number of compared values."""
    compared = 0
    by_batch: dict[tuple[str, int], dict[tuple[str, int], int]] = {}
    for row in found["offset_commits"]:
        of_batch = by_batch.setdefault((row["group"], row["log_offset"] - 1), {})
        of_batch[row["topic"], row["partition"]] = row["offset"]
    states = {row["group"]: row for row in found["spark_queries"]}
    for name in names:
        told = queries.progress(name)
        for batch, progress in told.items():
            # Asynchronous progress tracking leaves batches out.
            if name != "async" or (name, batch) in by_batch:
                assert by_batch[name, batch] == ends_of(progress), (name, batch)
                compared += len(ends_of(progress))
        rows = {(row["topic"], row["partition"]): row for row in found["lag"] if row["group"] == name}
        ends = log_ends(queries.bootstrap, list(rows))
        assert {place: row["lag"] for place, row in rows.items()} == {
            place: ends[place] - row["offset"] for place, row in rows.items()
        }
        compared += len(rows)
        last = max(told)
        if states[name]["batch"] == last:
            assert {place: row["offset"] for place, row in rows.items()} == ends_of(told[last]), name
            if name != "several":
                # A partition that two sources read counts once.
                assert max(row["lag"] for row in rows.values()) == behind_of(told[last]), name
            compared += len(rows) + 1
        else:
            # A batch that had finished before Spark told of it.
            assert name != "fast"
            assert states[name]["batch"] > last or name == "async", name
    return compared


@contextmanager
def started(broker: str, directory: Path) -> Iterator[str]:
    """A broker; its address."""
    try:
        node = KafkaNode(directory) if broker == KAFKA else ServedKohort(directory)
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    with node:
        yield node.bootstrap


@pytest.mark.parametrize(("version", "broker"), [*((version, KOHORT) for version in VERSIONS), (VERSIONS[-1], KAFKA)])
def test_checkpoints_say_what_spark_says(version: str, broker: str, tmp_path: Path, record_property: Any) -> None:
    platform = own_python() if version == OWN else installed_python(version, WORK)
    with started(broker, tmp_path / "broker") as bootstrap:
        for topic, partitions in (("orders", 3), ("refunds", 2)):
            kohort("topics", "create", topic, "--partitions", str(partitions), bootstrap=bootstrap)
            produce(bootstrap, topic, partitions, RECORDS)
        queries = Queries(platform, bootstrap, tmp_path)
        running = queries.run("first")
        try:
            queries.read(running, last="hangs")
            names = ["fast", "limited", "now", "several", "pattern", "state", "async"]
            found = tables_of(bootstrap, tmp_path / "lake")
            compared = check(found, queries, names)
            (killed,) = [row for row in found["spark_queries"] if row["group"] == "killed"]
            assert (killed["batch"], killed["open_batch"], killed["replayed"]) == (1, 2, 60)
            assert killed["lag"] == RECORDS - 120
            (several,) = [row for row in found["spark_queries"] if row["group"] == "several"]
            assert several["topics"] == ["orders", "refunds"]
            assert several["other_sources"] == ["source 2 (numbers, as of rate or socket)"]
        finally:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        # Partitions that the queries have not seen yet, and more records.
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_partitions({"orders": NewPartitions(4)})
        admin.close()
        produce(bootstrap, "orders", 4, RECORDS)
        found = tables_of(bootstrap, tmp_path / "lake")
        lag = {(row["group"], row["partition"]): row["lag"] for row in found["lag"] if row["topic"] == "orders"}
        assert [lag["fast", partition] for partition in range(4)] == [60, 60, 60, 60]
        again = queries.run("second")
        queries.read(again, last="done")
        assert again.wait(60) == 0
        found = tables_of(bootstrap, tmp_path / "lake")
        compared += check(found, queries, ["fast", "killed"])
        lag = {(row["group"], row["partition"]): row["lag"] for row in found["lag"] if row["topic"] == "orders"}
        assert [lag[name, partition] for name in ("fast", "killed") for partition in range(4)] == [0] * 8
        assert compared > 60
        record_property("compared", compared)
        print(f"\n{version}, {broker}: {compared} values compared, 0 different")

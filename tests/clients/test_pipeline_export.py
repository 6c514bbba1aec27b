"""Offsets that the pipeline exports are restored by `kohort groups import` and by Apache Kafka's own tool."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from typer.testing import CliRunner

from kohort.cli.pipeline.commands import app
from kohort.pipeline.jobs import published
from tests.clients.conftest import Broker
from tests.clients.java_tools import CONSUMER_GROUPS, JavaTools
from tests.clients.kohort_command import kohort
from tests.clients.waiting import PATIENCE_S

Offsets = dict[tuple[str, int], int]
COMMITTED_MS = 1_780_000_000_000


def exported(
    directory: Path, offsets: dict[str, Offsets], *options: str, metadata: str = "", leader_epoch: int = 0
) -> Path:
    """What `export-offsets` prints of published tables, in a file."""
    rows = [
        {"group": group, "topic": topic, "partition": partition, "offset": offset}
        | {"leader_epoch": leader_epoch, "metadata": metadata, "commit_timestamp_ms": COMMITTED_MS}
        for group, places in offsets.items()
        for (topic, partition), offset in places.items()
    ]

    def write(path: Path) -> None:
        (path / "offsets").mkdir()
        pq.write_table(pa.Table.from_pylist(rows), path / "offsets" / "part-0.parquet")

    published.publish(directory / "published", "/a/source", write, made_of={})
    told = CliRunner().invoke(app, ["export-offsets", str(directory / "published"), *options])
    assert told.exit_code == 0
    file = directory / "offsets.csv"
    file.write_text(told.output)
    return file


def positions(broker: Broker, group: str) -> Offsets:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    told = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(PATIENCE_S)
    return {(one.topic, one.partition): one.offset for one in told.topic_partitions}


def filled(broker: Broker, topic: str, records: int) -> str:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(2 * records):
        producer.produce(topic, b"value", partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    return topic


def test_our_import_restores_them(broker: Broker, make_topic: Callable[..., str], group: str, tmp_path: Path) -> None:
    topic, other = filled(broker, make_topic(2), 9), f"{group}-other"
    offsets: dict[str, Offsets] = {group: {(topic, 0): 3, (topic, 1): 8}, other: {(topic, 1): 5}}
    kohort("groups", "import", str(exported(tmp_path, offsets)), "--execute", bootstrap=broker.bootstrap)
    assert {name: positions(broker, name) for name in offsets} == offsets


def test_our_import_restores_metadata_and_leader_epochs_too(
    broker: Broker, make_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = filled(broker, make_topic(2), 9)
    file = exported(tmp_path, {group: {(topic, 0): 3}}, "--json", metadata="m\u00e9ta", leader_epoch=0)
    kohort("groups", "import", str(file), "--execute", bootstrap=broker.bootstrap)
    # Not with librdkafka's admin client, which reads metadata beyond its end.
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    (told,) = admin.list_group_offsets({group: None})[group].values()
    admin.close()
    assert (told.offset, told.metadata, told.leader_epoch) == (3, "m\u00e9ta", 0)


def test_nothing_to_export_is_no_success(tmp_path: Path) -> None:
    """Whoever restores an empty file later has lost the offsets."""
    exported(tmp_path, {"g": {("t", 0): 3}})
    done = CliRunner().invoke(app, ["export-offsets", str(tmp_path / "published"), "--group", "typo"])
    assert (done.exit_code, done.stdout) == (2, "")


def test_kafkas_tool_restores_them(
    broker: Broker, java: JavaTools, make_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, other = filled(broker, make_topic(2), 9), f"{group}-other"
    offsets: dict[str, Offsets] = {group: {(topic, 0): 3, (topic, 1): 8}, other: {(topic, 1): 5}}
    tool = ("--bootstrap-server", broker.bootstrap, "--reset-offsets", "--execute", "--from-file")
    one = exported(tmp_path, offsets, "--group", group)
    java.run(CONSUMER_GROUPS, *tool, str(one), "--group", group)
    assert positions(broker, group) == offsets[group]
    # Of several groups the tool tries the format of one group first, and prints why that is not it.
    every = exported(tmp_path, offsets)
    java.run(CONSUMER_GROUPS, *tool, str(every), "--group", group, "--group", other, codes=(0, 1))
    assert positions(broker, other) == offsets[other]

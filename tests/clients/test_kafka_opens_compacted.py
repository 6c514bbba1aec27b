"""Apache Kafka 4.2.1 starts on a partition that Kohort has compacted, and reads in it what Kohort does."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kohort.model import ids
from kohort.storage.durability.checkpoint_formats import (
    CLEAN_SHUTDOWN,
    RECOVERY_POINTS,
    offsets_to_text,
    read_offsets,
    read_partition_metadata,
    write_partition_metadata,
)
from kohort.testing.kafka import QUICK_START, KafkaNode, UnavailableKafkaError, java, kafka_jars
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.storage.compacted import CONFIG, clean, end_transaction, open_log, put, records, roll
from tests.storage.owner import Owner

pytestmark = [pytest.mark.java, pytest.mark.maven]

TOPIC = "orders"


def fill(directory: Path) -> tuple[list[tuple[int, bytes | None, bytes | None]], int]:
    """A log cleaned twice, with what a reader of everything gets, and where it ends."""
    owner = Owner()
    store = owner.disk(directory)
    log = open_log(store, msgspec.structs.replace(CONFIG, delete_retention_ms=0))
    sequence = 0
    for turn in range(3):
        for number in range(40):
            put(log, (f"k{number % 9}", f"{turn}.{number}"), (f"j{number % 4}", None if number % 3 else "j"))
            put(
                log,
                (f"t{number % 5}", f"{turn}"),
                producer_id=5,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            sequence += 1
            if number % 6 == 5:
                end_transaction(log, 5, committed=turn % 2 == 0)
        end_transaction(log, 5, committed=False)
        roll(log)
        put(log, ("active", f"{turn}"))
        clean(owner, store)
    found, end_offset = records(log), log.end_offset
    assert len(found) < 60
    store.close()
    return found, end_offset


def dump(*arguments: str) -> str:
    done = subprocess.run(
        (java(), *QUICK_START, "-cp", f"{kafka_jars()}/*", "kafka.tools.DumpLogSegments", *arguments),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return done.stdout + done.stderr


def read(bootstrap: str, end_offset: int) -> list[tuple[int, bytes | None, bytes | None]]:
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_uncommitted"}
    consumer = Consumer({**config, "enable.partition.eof": True, "check.crcs": True})
    try:
        partition = TopicPartition(TOPIC, 0, 0)
        wait_until(lambda: end_of(consumer, partition) == end_offset, what="a leader")
        consumer.assign([partition])
        found = []
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            offset = message.offset()
            assert offset is not None
            found.append((offset, message.key(), message.value()))
        return found
    finally:
        consumer.close()


def end_of(consumer: Consumer, partition: TopicPartition) -> Any:
    """None as long as the node does not lead the partition yet."""
    try:
        _, end_offset = consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)
    except KafkaException:
        return None
    return end_offset


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "recovered"])
def test_kafka_opens_what_kohort_compacted(tmp_path: Path, is_clean: bool) -> None:
    found, end_offset = fill(tmp_path / "ours")
    ours = tmp_path / "ours" / f"{TOPIC}-0"
    try:
        node = KafkaNode(tmp_path / "kafka")
    except UnavailableKafkaError as error:
        pytest.skip(str(error))
    files = [
        str(path) for path in sorted(ours.iterdir()) if path.suffix in (".log", ".index", ".timeindex", ".txnindex")
    ]
    told = dump("--deep-iteration", "--files", ",".join(files))
    # Of timestamps it complains where an emptied batch has the largest one, in Apache Kafka's own segments, too.
    assert "isvalid: false" not in told
    assert "Mismatches" not in told
    with node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])[TOPIC].result(PATIENCE_S)
    data = node.directory / "data"
    theirs = data / f"{TOPIC}-0"
    topic_id = read_partition_metadata(theirs)
    shutil.rmtree(theirs)
    shutil.copytree(ours, theirs)
    write_partition_metadata(theirs, topic_id)
    points = read_offsets(data / RECOVERY_POINTS)
    points[ids.TopicPartition(TOPIC, 0)] = end_offset if is_clean else 0
    (data / RECOVERY_POINTS).write_text(offsets_to_text(points))
    if not is_clean:
        (data / CLEAN_SHUTDOWN).unlink()
    with node:
        assert read(node.bootstrap, end_offset) == found
    for path in sorted(ours.glob("*.log")):
        assert (theirs / path.name).read_bytes() == path.read_bytes()
    assert not [line for line in node.log_tail().splitlines() if f"{TOPIC}-" in line and "orrupt" in line]

"""Apache Kafka 4.2.1 starts on partitions that Kohort wrote, and finds them as its own."""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kohort.model import ids
from kohort.storage.durability.checkpoint_formats import (
    CLEAN_SHUTDOWN,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    offsets_to_text,
    read_offsets,
    read_partition_metadata,
    write_partition_metadata,
)
from kohort.storage.log import Log, LogConfig
from kohort.storage.producers import ProducerStateEntry
from kohort.storage.snapshots import find_snapshots, snapshot_from_bytes
from kohort.testing.kafka import KafkaNode, UnavailableKafkaError
from kohort.wire.batches import BatchRecord, build_batch, control_batch, read_header
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.storage.owner import TOPIC_ID, Owner

pytestmark = [pytest.mark.java, pytest.mark.maven]

TOPIC = "ours"
CONFIG = LogConfig(segment_bytes=6000, index_interval_bytes=500, retention_ms=-1)
SETTINGS = {"segment.bytes": "1048576", "index.interval.bytes": "500", "retention.ms": "-1"}
NOW_MS = 1_790_000_000_000


def sent(producer_id: int, sequence: int, *, transactional: bool, codec: int) -> bytes:
    records = [BatchRecord(b"k", f"{producer_id}-{sequence + n}".encode() * 4) for n in range(5)]
    return build_batch(
        records,
        timestamp_ms=NOW_MS + sequence,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=transactional,
        compression=codec,
    )


def fill(log: Log) -> None:
    """Two producers with transactions and one without, over many segments; the last transaction is left open."""
    for turn in range(60):
        for producer_id in (1, 2, 3):
            codec = (turn + producer_id) % 5
            log.append(sent(producer_id, 5 * turn, transactional=producer_id < 3, codec=codec), leader_epoch=0)
        if turn % 4 == 3:
            for producer_id in (1, 2) if turn < 59 else (1,):
                log.append(
                    control_batch(
                        producer_id=producer_id,
                        producer_epoch=0,
                        committed=(turn // 4 + producer_id) % 2 == 0,
                        coordinator_epoch=0,
                        timestamp_ms=NOW_MS + turn,
                    ),
                    leader_epoch=0,
                )


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory of Kohort's: one partition whole, one whose first records were deleted."""
    directory, owner = tmp_path_factory.mktemp("ours"), Owner()
    store = owner.disk(directory)
    for index in range(2):
        fill(store.open(ids.TopicPartition(TOPIC, index), TOPIC_ID, CONFIG))
    store.flush()
    trimmed = store.get(ids.TopicPartition(TOPIC, 1))
    assert trimmed is not None
    trimmed.delete_before(333)
    store.close()
    assert len(list((directory / f"{TOPIC}-0").glob("*.log"))) > 3
    return directory


@pytest.fixture(scope="module")
def node(ours: Path, tmp_path_factory: pytest.TempPathFactory) -> KafkaNode:
    """A node that has the topic, stopped, with our files in the place of its own."""
    try:
        node = KafkaNode(tmp_path_factory.mktemp("kafka"))
    except UnavailableKafkaError as error:
        pytest.skip(str(error))
    with node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1, config=SETTINGS)])[TOPIC].result(PATIENCE_S)
    return node


def put(ours: Path, node: KafkaNode, *, is_clean: bool) -> None:
    data = node.directory / "data"
    points = read_offsets(data / RECOVERY_POINTS) | read_offsets(ours / RECOVERY_POINTS)
    for index in range(2):
        partition = data / f"{TOPIC}-{index}"
        topic_id = read_partition_metadata(partition)
        shutil.rmtree(partition)
        shutil.copytree(ours / partition.name, partition)
        write_partition_metadata(partition, topic_id)
        if not is_clean:
            del points[ids.TopicPartition(TOPIC, index)]
    (data / RECOVERY_POINTS).write_text(offsets_to_text(points))
    (data / LOG_START_OFFSETS).write_text((ours / LOG_START_OFFSETS).read_text())
    if not is_clean:
        (data / CLEAN_SHUTDOWN).unlink()


def values(bootstrap: str, partition: int, isolation: str, until: int) -> list[tuple[int, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    try:
        low, high = wait_until(lambda: watermarks(consumer, partition), what="a leader") or (
            -1,
            -1,
        )
        assert high == until
        consumer.assign([TopicPartition(TOPIC, partition, low)])
        found: list[tuple[int, bytes]] = []
        told: list[str] = []
        while (message := consumer.poll(PATIENCE_S)) is not None:
            error = message.error()
            if error is None:
                found.append((message.offset(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:  # what passes, such as a node that has only just learnt that it leads
                told.append(str(error))
                assert error.code() != KafkaError._AUTO_OFFSET_RESET, told
        raise AssertionError(f"no end of the partition came, but {told or 'nothing'}")
    finally:
        consumer.close()


def watermarks(consumer: Consumer, partition: int) -> tuple[int, int] | None:
    """None as long as the node does not lead the partition yet."""
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=PATIENCE_S)
    except KafkaException:
        return None
    return low, high


def visible(log: Log) -> set[int]:
    """Offsets of what a reader of committed data gets, by the aborted transactions that the log names."""
    offset, found = log.log_start_offset, set()
    while offset < log.last_stable_offset and (data := log.read(offset, bytes_max=1)):
        header = read_header(data)
        is_aborted = header.is_transactional and any(
            aborted.producer_id == header.producer_id
            and aborted.first_offset <= header.base_offset < aborted.last_offset
            for aborted in log.aborted_transactions(offset, data)
        )
        if not header.is_control and not is_aborted:
            found |= set(range(header.base_offset, header.next_offset))
        offset = header.next_offset
    return found


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "recovered"])
def test_kafka_opens_what_kohort_wrote(ours: Path, node: KafkaNode, tmp_path: Path, is_clean: bool) -> None:
    put(ours, node, is_clean=is_clean)
    copy = Owner().disk(Path(shutil.copytree(ours, tmp_path / "copy")))
    with node:
        for index in range(2):
            log = copy.get(ids.TopicPartition(TOPIC, index))
            assert log is not None
            plain = values(node.bootstrap, index, "read_uncommitted", log.end_offset)
            assert plain[0][0] == log.log_start_offset == (0, 333)[index]
            committed = values(node.bootstrap, index, "read_committed", log.last_stable_offset)
            assert committed == [pair for pair in plain if pair[0] in visible(log)]
    copy.close()
    data = node.directory / "data"
    for index in range(2):
        for path in sorted((ours / f"{TOPIC}-{index}").iterdir()):
            theirs = data / f"{TOPIC}-{index}" / path.name
            if path.suffix == ".txnindex" and index == 1 and not is_clean:
                continue  # its recovery forgets where transactions began before the log start
            if path.suffix in (".log", ".index", ".timeindex", ".txnindex"):
                assert theirs.read_bytes() == path.read_bytes(), path.name
        newest = find_snapshots(ours / f"{TOPIC}-{index}")[-1]
        name = f"{TOPIC}-{index}/{newest:020d}.snapshot"
        assert by_id(data / name) == by_id(ours / name)
    assert not [line for line in node.log_tail().splitlines() if f"{TOPIC}-" in line and "orrupt" in line]


def by_id(path: Path) -> list[ProducerStateEntry]:
    return sorted(snapshot_from_bytes(path.read_bytes()), key=lambda state: state.producer_id)

"""
Apache Kafka 4.4.0 starts on partitions that Kohort wrote, and reads the same records.

One node opens all of them at a time: two plain partitions and a compacted one, after a clean shutdown and after a crash.
"""

import shutil
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kohort.model import ids
from kohort.storage.files.checkpoint_formats import (
    CLEAN_SHUTDOWN,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    offsets_to_text,
    read_offsets,
    read_partition_metadata,
    write_partition_metadata,
)
from kohort.storage.log import Log, LogConfig
from kohort.storage.producer_states import ProducerStateEntry
from kohort.storage.segments.snapshots import find_snapshots, snapshot_from_bytes
from kohort.testing.kafka import KafkaNode, UnavailableKafkaError
from kohort.wire.batches import BatchRecord, build_batch, read_header
from tests.clients.java_tools import DUMP, JavaTools
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.storage import compacted
from tests.storage.owner import TOPIC_ID, Owner
from tests.wire.control_batches import control_batch

pytestmark = [pytest.mark.java, pytest.mark.maven]

TOPIC = "ours"
COMPACTED = "orders"
PARTITIONS = (f"{TOPIC}-0", f"{TOPIC}-1", f"{COMPACTED}-0")
CONFIG = LogConfig(segment_bytes=6000, index_interval_bytes=500, retention_ms=-1)
PLAIN_SETTINGS = {"segment.bytes": "1048576", "index.interval.bytes": "500", "retention.ms": "-1"}
COMPACTED_SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
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


def fill_compacted(directory: Path) -> tuple[list[tuple[int, bytes | None, bytes | None]], int]:
    """Write a log and clean it twice. Return the records that a read_uncommitted consumer gets, and the end offset."""
    owner = Owner()
    store = owner.disk(directory)
    log = compacted.open_log(store, msgspec.structs.replace(compacted.CONFIG, delete_retention_ms=0))
    sequence = 0
    for turn in range(3):
        for number in range(40):
            compacted.put(log, (f"k{number % 9}", f"{turn}.{number}"), (f"j{number % 4}", None if number % 3 else "j"))
            compacted.put(
                log,
                (f"t{number % 5}", f"{turn}"),
                producer_id=5,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            sequence += 1
            if number % 6 == 5:
                compacted.end_transaction(log, 5, committed=turn % 2 == 0)
        compacted.end_transaction(log, 5, committed=False)
        compacted.roll(log)
        compacted.put(log, ("active", f"{turn}"))
        compacted.clean(owner, store)
    found, end_offset = compacted.records(log), log.end_offset
    assert len(found) < 60
    store.close()
    return found, end_offset


class Ours:
    """
    Data directories of Kohort.

    Attributes:
        plain: one partition whole, one whose first records were deleted.
        compacted: one partition.
        records, end_offset: of the compacted partition.
    """

    def __init__(self, plain: Path, compacted_logs: Path) -> None:
        self.plain = plain
        self.compacted = compacted_logs
        self.records, self.end_offset = fill_compacted(compacted_logs)

    def directory(self, partition: str) -> Path:
        return (self.compacted if partition.startswith(COMPACTED) else self.plain) / partition

    def recovery_points(self) -> dict[ids.TopicPartition, int]:
        return {**read_offsets(self.plain / RECOVERY_POINTS), ids.TopicPartition(COMPACTED, 0): self.end_offset}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Ours:
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
    return Ours(directory, tmp_path_factory.mktemp("compacted"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> KafkaNode:
    """A stopped node that has the topics."""
    try:
        node = KafkaNode(tmp_path_factory.mktemp("kafka"))
    except UnavailableKafkaError as error:
        pytest.skip(str(error))
    with node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        topics = [NewTopic(TOPIC, 2, 1, config=PLAIN_SETTINGS), NewTopic(COMPACTED, 1, 1, config=COMPACTED_SETTINGS)]
        for future in admin.create_topics(topics).values():
            future.result(PATIENCE_S)
    return node


def put(ours: Ours, node: KafkaNode, *, is_clean: bool) -> None:
    """Replace the node's partitions by Kohort's files."""
    data = node.directory / "data"
    points = read_offsets(data / RECOVERY_POINTS) | ours.recovery_points()
    for partition in PARTITIONS:
        theirs = data / partition
        topic_id = read_partition_metadata(theirs)
        shutil.rmtree(theirs)
        shutil.copytree(ours.directory(partition), theirs)
        write_partition_metadata(theirs, topic_id, "the id of Kohort's directory")
        if not is_clean:
            topic, _, index = partition.rpartition("-")
            del points[ids.TopicPartition(topic, int(index))]
    (data / RECOVERY_POINTS).write_text(offsets_to_text(points))
    (data / LOG_START_OFFSETS).write_text((ours.plain / LOG_START_OFFSETS).read_text())
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
        low, high = wait_until(lambda: watermarks(consumer, TopicPartition(TOPIC, partition)), what="a leader") or (
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


def watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int] | None:
    """Log start and end; None until the node leads the partition."""
    try:
        low, high = consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)
    except KafkaException:
        return None
    return low, high


def compacted_records(bootstrap: str, end_offset: int) -> list[tuple[int, bytes | None, bytes | None]]:
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_uncommitted"}
    consumer = Consumer({**config, "enable.partition.eof": True, "check.crcs": True})
    try:
        partition = TopicPartition(COMPACTED, 0, 0)
        wait_until(lambda: (watermarks(consumer, partition) or (0, -1))[1] == end_offset, what="a leader")
        consumer.assign([partition])
        found = []
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            offset = message.offset()
            assert offset is not None
            found.append((offset, message.key(), message.value()))
        return found
    finally:
        consumer.close()


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
def test_kafka_opens_what_kohort_wrote(ours: Ours, node: KafkaNode, tmp_path: Path, is_clean: bool) -> None:
    put(ours, node, is_clean=is_clean)
    copy = Owner().disk(Path(shutil.copytree(ours.plain, tmp_path / "copy")))
    with node:
        for index in range(2):
            log = copy.get(ids.TopicPartition(TOPIC, index))
            assert log is not None
            plain = values(node.bootstrap, index, "read_uncommitted", log.end_offset)
            assert plain[0][0] == log.log_start_offset == (0, 333)[index]
            committed = values(node.bootstrap, index, "read_committed", log.last_stable_offset)
            assert committed == [pair for pair in plain if pair[0] in visible(log)]
        assert compacted_records(node.bootstrap, ours.end_offset) == ours.records
    copy.close()
    data = node.directory / "data"
    for index in range(2):
        for path in sorted(ours.directory(f"{TOPIC}-{index}").iterdir()):
            theirs = data / f"{TOPIC}-{index}" / path.name
            if path.suffix == ".txnindex" and index == 1 and not is_clean:
                continue  # its recovery forgets where transactions began before the log start
            if path.suffix in (".log", ".index", ".timeindex", ".txnindex"):
                assert theirs.read_bytes() == path.read_bytes(), path.name
        newest = find_snapshots(ours.directory(f"{TOPIC}-{index}"))[-1]
        name = f"{TOPIC}-{index}/{newest:020d}.snapshot"
        assert by_id(data / name) == by_id(ours.plain / name)
    for path in sorted(ours.directory(f"{COMPACTED}-0").glob("*.log")):
        assert (data / f"{COMPACTED}-0" / path.name).read_bytes() == path.read_bytes()
    log_lines = node.log_tail().splitlines()
    assert not [line for line in log_lines if any(each in line for each in PARTITIONS) and "orrupt" in line]


def test_the_dump_tool_finds_no_fault_in_a_compacted_partition(ours: Ours, java: JavaTools) -> None:
    suffixes = (".log", ".index", ".timeindex", ".txnindex")
    files = [str(path) for path in sorted(ours.directory(f"{COMPACTED}-0").iterdir()) if path.suffix in suffixes]
    done = java.runner.run(DUMP, ("--deep-iteration", "--files", ",".join(files)))
    assert done.code == 0, done
    # A warning about timestamps is normal where an emptied batch had the largest one, also in segments of Apache Kafka.
    assert "isvalid: false" not in done.out + done.err
    assert "Mismatches" not in done.out + done.err


def by_id(path: Path) -> list[ProducerStateEntry]:
    return sorted(snapshot_from_bytes(path.read_bytes()), key=lambda state: state.producer_id)

"""
Records what Apache Kafka's cleaner makes of a log: `python -m tests.storage.record_compaction` writes tests/data/compaction.

Two topics, one whose tombstones may go at once and one where they stay, each with a partition of plain and one of compressed
batches. In every round some is written, the sealed segments are copied, the topic is made cleanable until the cleaner's
checkpoint has come to the active segment, and they are copied again.
"""

import io
import json
import tarfile
import tempfile
import time
from pathlib import Path

from confluent_kafka import IsolationLevel, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from kohort.model.ids import TopicPartition
from kohort.storage.cleaning.cleaner import CLEANER_OFFSETS
from kohort.storage.files.checkpoint_formats import read_offsets
from kohort.testing.kafka import KafkaNode
from tests.clients.waiting import wait_until

HERE = Path(__file__).parents[1] / "data" / "compaction"
TOPICS = {"short": "0", "long": "86400000"}
CODECS = ("none", "zstd", "gzip", "snappy", "lz4")
SEGMENT_MS = 60_000
ROUNDS = 4
TIMEOUT_S = 30


class Writer:
    """Writes to one partition, in its own time: `roll` makes the next record begin a segment."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        self.bootstrap, self.topic, self.partition = bootstrap, topic, partition
        self.now_ms = int(time.time() * 1000)
        self.producers: dict[str, Producer] = {}
        self.turn = 0

    def producer(self, name: str) -> Producer:
        if name not in self.producers:
            self.turn += 1
            config = {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": name != "plain",
                "linger.ms": 100,
                "compression.type": CODECS[self.turn % 5] if self.partition else "none",
            }
            if name.startswith("t"):
                config["transactional.id"] = f"{self.topic}-{self.partition}-{name}"
            self.producers[name] = Producer(config)
            if name.startswith("t"):
                self.producers[name].init_transactions(TIMEOUT_S)
        return self.producers[name]

    def send(self, name: str, *pairs: tuple[str, str | None]) -> None:
        """One batch."""
        producer = self.producer(name)
        for key, value in pairs:
            self.now_ms += 10
            producer.produce(
                self.topic,
                None if value is None else value.encode(),
                key.encode(),
                self.partition,
                timestamp=self.now_ms,
                headers=[("h", b"x"), ("n", None)] if value == "headed" else None,
            )
        assert producer.flush(TIMEOUT_S) == 0

    def transact(self, name: str, *pairs: tuple[str, str | None], commits: bool = True) -> None:
        self.producer(name).begin_transaction()
        self.send(name, *pairs)
        self.end(name, commits=commits)

    def end(self, name: str, *, commits: bool) -> None:
        if commits:
            self.producer(name).commit_transaction(TIMEOUT_S)
        else:
            self.producer(name).abort_transaction(TIMEOUT_S)

    def roll(self) -> None:
        self.now_ms += SEGMENT_MS + 1
        self.send("plain", ("roller", f"{self.now_ms}"))


def write(writer: Writer, number: int) -> None:
    """One round. Keys come again, are deleted, and are written by transactions that end well or not, early or late."""
    values = [(f"k{key}", f"value {number}.{key} " * 3) for key in range(12)]
    writer.send("plain", *values)
    writer.send("i1", *((f"k{key}", "headed" if key % 2 else f"once {number}") for key in range(3, 9)))
    writer.transact("t1", *((f"k{key}", f"committed {number}") for key in range(5, 10)), (f"only{number}", "kept"))
    writer.transact("t2", *((f"k{key}", f"aborted {number}") for key in range(12)), commits=False)
    writer.send("plain", ("k1", None), (f"only{number - 1}", None), ("k2", f"lives {number}"))
    writer.roll()
    writer.producer("t3").begin_transaction()
    writer.send("t3", *((f"late{key}", f"late {number}") for key in range(4)))
    writer.transact("t1", ("k3", None), (f"gone{number}", "soon"))
    writer.roll()
    writer.send("t3", ("late1", None), ("k4", f"late {number}"))
    writer.send(f"i{number + 2}", ("k5", "the only batch of its producer"))
    writer.end("t3", commits=number % 2 == 0)
    writer.transact("t2", ("k6", f"then committed {number}"), ("k7", None))
    writer.roll()
    writer.send("plain", ("k5", f"again {number}"), (f"gone{number}", None), ("k6", None), ("k6", f"back {number}"))
    writer.transact(f"t{number + 4}", ("k8", "aborted, its producer's last"), commits=False)
    writer.roll()
    if number == ROUNDS - 2:  # not decided until the last round
        writer.producer("t9").begin_transaction()
        writer.send("t9", ("k0", "undecided"), ("k9", "undecided"))
    if number == ROUNDS - 1:
        writer.end("t9", commits=False)
    writer.roll()
    writer.roll()


def alter(node: KafkaNode, ratio: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    entry = ConfigEntry("min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET)
    for topic in TOPICS:
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def sealed(partition: Path) -> list[Path]:
    """The files of the segments that are not appended to; of the active one the batches alone."""
    logs = sorted(partition.glob("*.log"))
    files = [path for log in logs[:-1] for path in sorted(partition.glob(f"{log.stem}.*index"))]
    return [*logs, *files]


def is_clean(admin: AdminClient, data: Path) -> bool:
    """Whether the cleaner has come to the active segment of each partition, or to that of the first open transaction."""
    path = data / CLEANER_OFFSETS
    reached = read_offsets(path) if path.exists() else {}
    partitions = [TopicPartition(topic, partition) for topic in TOPICS for partition in range(2)]
    asked = {Place(*each): OffsetSpec.latest() for each in partitions}
    stable = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
    ends = {TopicPartition(place.topic, place.partition): found.result().offset for place, found in stable.items()}
    return all(
        reached.get(each, -1) >= max(base for base in bases(data / str(each)) if base <= ends[each])
        for each in partitions
    )


def bases(partition: Path) -> list[int]:
    """The base offsets of the segments."""
    return [int(log.stem) for log in partition.glob("*.log")]


def record(node: KafkaNode, archive: tarfile.TarFile) -> None:
    data = node.directory / "data"

    def copy(name: str) -> None:
        for topic in TOPICS:
            for partition in range(2):
                for path in sealed(data / f"{topic}-{partition}"):
                    archive.add(path, f"{name}/{topic}-{partition}/{path.name}")

    writers = [Writer(node.bootstrap, topic, partition) for topic in TOPICS for partition in range(2)]
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    offsets = {}
    for number in range(ROUNDS):
        for writer in writers:
            write(writer, number)
        copy(f"{number}-before")
        alter(node, "0.0")
        wait_until(lambda: is_clean(admin, data), what="the cleaner", timeout_s=60)
        alter(node, "1.0")
        copy(f"{number}-after")
        found = read_offsets(data / CLEANER_OFFSETS)
        offsets[number] = {str(key): found[key] for key in sorted(found) if key.topic in TOPICS}
        print(f"round {number}: {offsets[number]}")
    text = json.dumps({"offsets": offsets, "segment_ms": SEGMENT_MS, "delete_retention_ms": TOPICS}).encode()
    entry = tarfile.TarInfo("recording.json")
    entry.size = len(text)
    archive.addfile(entry, io.BytesIO(text))


def main() -> None:
    HERE.mkdir(parents=True, exist_ok=True)
    settings = {"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "3600000"}
    with tempfile.TemporaryDirectory() as directory, KafkaNode(Path(directory), settings, release="4.4.0") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for topic, retention_ms in TOPICS.items():
            config = {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "1.0",
                "delete.retention.ms": retention_ms,
                "segment.ms": str(SEGMENT_MS),
                "index.interval.bytes": "300",
            }
            admin.create_topics([NewTopic(topic, 2, 1, config=config)])[topic].result(TIMEOUT_S)
        with tarfile.open(HERE / "recorded.tar.xz", "w:xz") as archive:
            record(node, archive)


if __name__ == "__main__":
    main()

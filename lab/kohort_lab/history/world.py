"""
The shared state of a history: a clock, topics, and the logs of one partition of each internal topic.

All random choices use one generator.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from kohort.model.ids import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, uuid_text
from kohort.wire.compression import Codec
from kohort_lab.history.logs import Batch, Log, Record

START_MS = 1_790_000_000_000


@dataclass(slots=True)
class World:
    """
    The part of a cluster that one seed uses.

    Attributes:
        name: the prefix of its groups, topics and producers.
        partition: its partition of each internal topic.
        topics: the number of partitions by topic.
    """

    seed: int
    partition: int
    rng: Random = field(init=False)
    now_ms: int = START_MS
    topics: dict[str, int] = field(default_factory=dict)
    logs: dict[tuple[str, int], Log] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE):
            self.logs[topic, self.partition] = Log(topic, self.partition)
        for index in range(2):
            topic = f"{self.name}t{index}"
            self.topics[topic] = self.rng.randint(1, 3)
            for partition in range(self.topics[topic]):
                self.logs[topic, partition] = Log(topic, partition)

    @property
    def name(self) -> str:
        return f"s{self.seed}-"

    @property
    def topic_partitions(self) -> list[tuple[str, int]]:
        return [(topic, partition) for topic, count in self.topics.items() for partition in range(count)]

    def log(self, topic: str) -> Log:
        """The log of an internal topic."""
        return self.logs[topic, self.partition]

    def topic_id(self, topic: str) -> str:
        raw = f"{self.seed:08}{topic:>8}".encode()[-16:]
        return uuid_text(UUID(bytes=raw))

    def new_id(self, what: str) -> str:
        return f"{self.name}{what}-{self.rng.getrandbits(48):012x}"

    def pass_time(self) -> None:
        """Advance the clock, mostly by a little, sometimes not at all or by a lot."""
        self.now_ms += self.rng.choice((0, 1, 7, 40, 300, 900, 2_500, 12_000, 40_000))

    def write(self, topic: str, records: Iterable[Record]) -> Batch:
        """Append records of a coordinator as one batch."""
        return self.log(topic).append(records, self.now_ms, codec=self.codec())

    def codec(self) -> Codec:
        return self.rng.choice((Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD))

    def produce(self, topic: str, partition: int) -> None:
        """Produce some records."""
        count = self.rng.randint(1, 5)
        records = [Record(None, b"x" * self.rng.randint(1, 30)) for _ in range(count)]
        self.logs[topic, partition].append(records, self.now_ms, codec=self.codec(), open_ms=count)

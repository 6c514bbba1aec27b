"""
What the people of a history share: a clock that only chance moves, the logs of one log partition of each coordinator, and
topics.

Everything a seed draws is drawn here, from one source of chance.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from kohort.model.ids import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, uuid_text
from kohort.testing.history.logs import Batch, Log, Record
from kohort.wire.compression import Codec

START_MS = 1_790_000_000_000


@dataclass(slots=True)
class World:
    """
    One seed's part of a cluster.

    Attributes:
        name: what the names of its groups, topics and producers begin with.
        partition: the log partition of each coordinator that it has for itself.
        topics: the numbers of their partitions.
    """

    seed: int
    partition: int
    chance: Random = field(init=False)
    now_ms: int = START_MS
    topics: dict[str, int] = field(default_factory=dict)
    logs: dict[tuple[str, int], Log] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE):
            self.logs[topic, self.partition] = Log(topic, self.partition)
        for index in range(2):
            topic = f"{self.name}t{index}"
            self.topics[topic] = self.chance.randint(1, 3)
            for partition in range(self.topics[topic]):
                self.logs[topic, partition] = Log(topic, partition)

    @property
    def name(self) -> str:
        return f"s{self.seed}-"

    @property
    def places(self) -> list[tuple[str, int]]:
        return [(topic, partition) for topic, count in self.topics.items() for partition in range(count)]

    def log(self, topic: str) -> Log:
        """The log of a coordinator."""
        return self.logs[topic, self.partition]

    def topic_id(self, topic: str) -> str:
        raw = f"{self.seed:08}{topic:>8}".encode()[-16:]
        return uuid_text(UUID(bytes=raw))

    def new_id(self, what: str) -> str:
        return f"{self.name}{what}-{self.chance.getrandbits(48):012x}"

    def pass_time(self) -> None:
        """Most often a little, sometimes nothing, now and then long."""
        self.now_ms += self.chance.choice((0, 1, 7, 40, 300, 900, 2_500, 12_000, 40_000))

    def write(self, topic: str, records: Iterable[Record]) -> Batch:
        """A coordinator appends what belongs together."""
        return self.log(topic).append(records, self.now_ms, codec=self.codec())

    def codec(self) -> Codec:
        return self.chance.choice((Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD))

    def produce(self, topic: str, partition: int) -> None:
        """Somebody produces some records."""
        count = self.chance.randint(1, 5)
        records = [Record(None, b"x" * self.chance.randint(1, 30)) for _ in range(count)]
        self.logs[topic, partition].append(records, self.now_ms, codec=self.codec(), open_ms=count)

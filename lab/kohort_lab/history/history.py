"""
A history of a cluster's groups and transactions from a seed, as segment files.

The events are random: groups of all kinds whose members join, leave, fence each other and change their subscription; commits
that go forward, repeat, go back and are deleted; transactions that are committed, aborted, fenced, timed out, left open or
hang; data with timestamps. Then the logs can be compacted, cut by retention and torn at the end. `expected_tables` computes the
rows that the pipeline's tables must have for the remaining records.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from kohort_lab.history import values
from kohort_lab.history.classic import ClassicGroup
from kohort_lab.history.commits import Committer
from kohort_lab.history.logs import Log
from kohort_lab.history.modern import ModernGroup
from kohort_lab.history.producers import TransactionalProducer
from kohort_lab.history.shares import SharePartition
from kohort_lab.history.world import World

Row = dict[str, Any]

_KINDS = ("produce",) * 2 + ("group",) * 3 + ("commit",) * 2 + ("transaction",) * 2 + ("share",)
"""The kinds of events; a kind that is listed twice is twice as likely."""


@dataclass(slots=True)
class History:
    """
    Attributes:
        seed: of all random choices.
        partition: the partition of each internal topic; histories with different partitions can share a directory.
        steps: the number of events.
    """

    seed: int
    partition: int = 0
    steps: int = 120
    world: World = field(init=False)
    groups: list[ClassicGroup | ModernGroup] = field(default_factory=list)
    producers: list[TransactionalProducer] = field(default_factory=list)
    shares: list[SharePartition] = field(default_factory=list)
    committers: list[Committer] = field(default_factory=list)
    is_cleaned: bool = False
    torn: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        world = self.world = World(self.seed, self.partition)
        name = world.name
        self.groups = [ClassicGroup(world, f"{name}classic")]
        self.groups += [ModernGroup(world, f"{name}{kind}", kind) for kind in ("consumer", "share", "streams")]
        ids = range(2)
        self.producers = [TransactionalProducer(world, f"{name}tx{n}", self.seed * 100 + n, n % 3) for n in ids]
        self.shares = [SharePartition(world, f"{name}share", topic, at) for topic, at in world.topic_partitions]
        self.committers = [Committer(world, group.group) for group in self.groups[:2]] + [
            Committer(world, f"{name}simple")
        ]
        self._run()

    @property
    def logs(self) -> list[Log]:
        return list(self.world.logs.values())

    @property
    def now_ms(self) -> int:
        return self.world.now_ms

    def _run(self) -> None:
        world = self.world
        for topic, partition in world.topic_partitions:
            world.produce(topic, partition)
        # The first record of each share partition names the topic of its topic id.
        for one in self.shares:
            one.act()
        for _ in range(self.steps):
            world.pass_time()
            self._step()

    def _step(self) -> None:
        rng = self.world.rng
        kind = rng.choice(
            ("produce", "produce", "group", "group", "group", "commit", "commit", "transaction", "transaction", "share")
        )
        if kind == "produce":
            self.world.produce(*rng.choice(self.world.topic_partitions))
        elif kind == "group":
            rng.choice(self.groups).act()
        elif kind == "commit":
            self._commit(rng.choice(self.committers))
        elif kind == "transaction":
            self._transact(rng.choice(self.producers))
        else:
            rng.choice(self.shares).act()

    def _commit(self, committer: Committer) -> None:
        owners = {group.group: group.owned_partitions() for group in self.groups}
        committer.act(owners.get(committer.group, self.world.topic_partitions))

    def _transact(self, producer: TransactionalProducer) -> None:
        if producer.epoch >= 0 and producer.state != "Ongoing" and self.world.rng.random() < 0.04:
            producer.hang()
        else:
            producer.act()

    def clean(self, *, share: float, drop_tombstones: bool = False) -> None:
        """Compact the logs of groups and transactions up to a share of their batches."""
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            log = self.world.log(topic)
            if log.batches:
                at = log.batches[min(int(len(log.batches) * share), len(log.batches) - 1)]
                log.clean(at.base_offset, drop_tombstones=drop_tombstones)
        self.is_cleaned = True

    def expire_data(self, *, share: float) -> None:
        """Delete the begin of the topics' logs, as retention does."""
        for topic_partition in self.world.topic_partitions:
            log = self.world.logs[topic_partition]
            limit = min(int(log.next_offset * share), log.last_stable_offset())
            log.drop_before(limit)

    def write(self, directory: Path, *, torn: bool = False) -> None:
        """
        Write all logs as segment files.

        Args:
            torn: the log of the group coordinator ends in an incomplete batch, as after a power failure.
        """
        for log in self.logs:
            if torn and log is self.world.log(CONSUMER_OFFSETS):
                self._tear(log, directory)
            else:
                log.write(directory, batches_per_segment=self.world.rng.randint(3, 20))

    def _tear(self, log: Log, directory: Path) -> None:
        """Write the log with the first bytes of one more commit, which does not count."""
        topic, partition = self.world.topic_partitions[0]
        record = values.offset_commit(f"{self.world.name}simple", topic, partition, 0, at_ms=self.now_ms)
        last = len(log.append([record], self.now_ms).encoded())
        cut = self.world.rng.randint(1, last - 1)
        path = log.write(directory, batches_per_segment=len(log.batches), torn_bytes=cut)
        log.batches.pop()
        log.next_offset -= 1
        self.torn = (path.stat().st_size - (last - cut), last - cut)

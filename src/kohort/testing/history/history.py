"""
A history of a cluster's groups and transactions from a seed: real segments on disk, and everything that was true of it.

What happens is drawn from the seed: groups of all kinds whose members join, leave, fence each other and change their mind;
commits that go forward, stand still, go back and are deleted; transactions that are committed, aborted, fenced, timed out,
left open or hang; data with the times it was produced. Then the logs may be cleaned, cut by retention and torn at the end,
and `truth` tells what tables must say of what is left.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from kohort.testing.history import values
from kohort.testing.history.classic import ClassicGroup
from kohort.testing.history.commits import Committer
from kohort.testing.history.logs import Log
from kohort.testing.history.modern import ModernGroup
from kohort.testing.history.producers import TransactionalProducer
from kohort.testing.history.shares import SharePartition
from kohort.testing.history.world import World

Row = dict[str, Any]

_KINDS = ("produce",) * 2 + ("group",) * 3 + ("commit",) * 2 + ("transaction",) * 2 + ("share",)
"""What happens, as often as it is named."""


@dataclass(slots=True)
class History:
    """
    Attributes:
        seed: of everything that is drawn.
        partition: the log partition of each coordinator; histories with different ones may share a directory.
        steps: how much happens.
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
        self.shares = [SharePartition(world, f"{name}share", topic, at) for topic, at in world.places]
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
        for topic, partition in world.places:
            world.produce(topic, partition)
        # Every topic is named with its id once, so that its name is known.
        for one in self.shares:
            one.act()
        for _ in range(self.steps):
            world.pass_time()
            self._step()

    def _step(self) -> None:
        chance = self.world.chance
        kind = chance.choice(
            ("produce", "produce", "group", "group", "group", "commit", "commit", "transaction", "transaction", "share")
        )
        if kind == "produce":
            self.world.produce(*chance.choice(self.world.places))
        elif kind == "group":
            chance.choice(self.groups).act()
        elif kind == "commit":
            self._commit(chance.choice(self.committers))
        elif kind == "transaction":
            self._transact(chance.choice(self.producers))
        else:
            chance.choice(self.shares).act()

    def _commit(self, committer: Committer) -> None:
        owners = {group.group: group.owned_places() for group in self.groups}
        committer.act(owners.get(committer.group, self.world.places))

    def _transact(self, producer: TransactionalProducer) -> None:
        if producer.epoch >= 0 and producer.state != "Ongoing" and self.world.chance.random() < 0.04:
            producer.hang()
        else:
            producer.act()

    def clean(self, *, share: float, drop_tombstones: bool = False) -> None:
        """Compact the logs of groups and transactions up to a place: the share of their batches that lies before it."""
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            log = self.world.log(topic)
            if log.batches:
                at = log.batches[min(int(len(log.batches) * share), len(log.batches) - 1)]
                log.clean(at.base_offset, drop_tombstones=drop_tombstones)
        self.is_cleaned = True

    def expire_data(self, *, share: float) -> None:
        """Retention takes the beginning of the topics' logs."""
        for place in self.world.places:
            log = self.world.logs[place]
            limit = min(int(log.next_offset * share), log.last_stable_offset())
            log.drop_before(limit)

    def write(self, directory: Path, *, torn: bool = False) -> None:
        """
        All logs as segments.

        Args:
            torn: the group coordinator's log ends in half a batch, as when the machine dies.
        """
        for log in self.logs:
            if torn and log is self.world.log(CONSUMER_OFFSETS):
                self._tear(log, directory)
            else:
                log.write(directory, batches_per_segment=self.world.chance.randint(3, 20))

    def _tear(self, log: Log, directory: Path) -> None:
        """One more commit was under way when the machine died; it never counted."""
        topic, partition = self.world.places[0]
        record = values.offset_commit(f"{self.world.name}simple", topic, partition, 0, at_ms=self.now_ms)
        last = len(log.append([record], self.now_ms).encoded())
        cut = self.world.chance.randint(1, last - 1)
        path = log.write(directory, batches_per_segment=len(log.batches), torn_bytes=cut)
        log.batches.pop()
        log.next_offset -= 1
        self.torn = (path.stat().st_size - (last - cut), last - cut)

"""
A transactional producer and its coordinator: transactions that are committed, aborted, fenced, timed out, left open, or
hang.

Keeps the rows that the pipeline must tell, from what happened.

Source: Kafka TransactionCoordinator, TransactionMetadata; KIP-98, KIP-890, KIP-664.
"""

from dataclasses import dataclass, field
from typing import Any

from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from kohort.testing.history import values
from kohort.testing.history.logs import ABORT, COMMIT, Record
from kohort.testing.history.world import World

Row = dict[str, Any]
Place = tuple[str, int]

TIMEOUT_MS = 60_000
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


@dataclass(slots=True)
class TransactionalProducer:
    """
    Attributes:
        version: the transaction version that it speaks; from 2 on every end raises the epoch.
        transactions: rows of `transactions`.
        open_in: where it has written since the last marker there: place to first offset, first and last time.
    """

    world: World
    transactional_id: str
    producer_id: int
    version: int
    epoch: int = -1
    state: str = "Empty"
    transactions: list[Row] = field(default_factory=list)
    open_in: dict[Place, Row] = field(default_factory=dict)
    _places: set[Place] = field(default_factory=set)
    _deciding: tuple[str, int] | None = None

    def act(self) -> None:
        """The next thing in its life."""
        chance = self.world.chance
        if self._deciding is not None:
            self._complete()
        elif self.epoch < 0 or (self.state != "Ongoing" and chance.random() < 0.1):
            self._init()
        elif self.state != "Ongoing":
            self._begin()
        elif self.world.now_ms - self._row["start_ms"] > TIMEOUT_MS:
            self._end("Abort", by="timeout", raised=True)
        else:
            self._go_on()

    def hang(self) -> None:
        """Data that its coordinator was never told of, as before KIP-890: nobody will end it."""
        place = self.world.chance.choice(self.world.places)
        self._write(place)

    @property
    def _row(self) -> Row:
        return self.transactions[-1]

    def _go_on(self) -> None:
        chance = self.world.chance
        act = chance.choice(("add", "produce", "produce", "offsets", "offsets", "commit", "commit", "abort", "fence"))
        if act == "add":
            self._add(chance.choice(self.world.places))
        elif act == "produce" and self._data_places():
            self._write(chance.choice(self._data_places()))
        elif act == "offsets":
            self._commit_offsets()
        elif act in ("commit", "abort"):
            by = "client" if act == "commit" or self.version < 2 else None
            self._end(act.capitalize(), by=by, raised=self.version >= 2)
        elif act == "fence":
            self._end("Abort", by="fence" if self.version < 2 else None, raised=True)

    def _data_places(self) -> list[Place]:
        return sorted(place for place in self._places if place[0] != CONSUMER_OFFSETS)

    def _init(self) -> None:
        self.epoch += 1
        self.state = "Empty"
        self._log("Empty", start_ms=-1)

    def _begin(self) -> None:
        self.state = "Ongoing"
        self.transactions.append(
            {
                "log_partition": self.world.partition,
                "transactional_id": self.transactional_id,
                "producer_id": self.producer_id,
                "producer_epoch": self.epoch,
                "transaction_version": self.version,
                "timeout_ms": TIMEOUT_MS,
                "start_ms": self.world.now_ms,
                **dict.fromkeys(("prepared_at_ms", "completed_at_ms", "duration_ms", "markers_ms")),
                "state": "Ongoing",
                "outcome": "open",
                "ended_by": None,
                "first_log_offset": self.world.log(TRANSACTION_STATE).next_offset,
            }
        )
        self._add(self.world.chance.choice(self.world.places))

    def _add(self, place: Place) -> None:
        if place not in self._places:
            self._places.add(place)
            self._log("Ongoing")

    def _write(self, place: Place) -> None:
        records = [Record(None, b"t" * 9) for _ in range(self.world.chance.randint(1, 3))]
        log = self.world.logs[place]
        producer, codec, open_ms = (self.producer_id, self.epoch), self.world.codec(), len(records)
        batch = log.append(
            records, self.world.now_ms, producer=producer, transactional=True, codec=codec, open_ms=open_ms
        )
        self._wrote(place, batch.base_offset)

    def _wrote(self, place: Place, offset: int) -> None:
        told = self.open_in.setdefault(place, {"start_offset": offset, "start_ms": self.world.now_ms})
        told |= {"last_timestamp_ms": self.world.now_ms, "producer_epoch": self.epoch}

    def _commit_offsets(self) -> None:
        world = self.world
        here = (CONSUMER_OFFSETS, world.partition)
        self._add(here)
        topic, partition = world.chance.choice(world.places)
        end = world.logs[topic, partition].next_offset
        group = f"{world.name}{world.chance.choice(('simple', 'eos'))}"
        record = values.offset_commit(group, topic, partition, world.chance.randint(0, end), at_ms=world.now_ms)
        producer = (self.producer_id, self.epoch)
        batch = world.log(CONSUMER_OFFSETS).append([record], world.now_ms, producer=producer, transactional=True)
        self._wrote(here, batch.base_offset)

    def _end(self, outcome: str, *, by: str | None, raised: bool) -> None:
        self.epoch += 1 if raised else 0
        self.state = f"Prepare{outcome}"
        self._row.update(prepared_at_ms=self.world.now_ms, ended_by=by)
        self._row["outcome"] = "committed" if outcome == "Commit" else "aborted"
        self._log(self.state)
        self._deciding = (outcome, self.epoch)

    def _complete(self) -> None:
        """Markers to all partitions, then the record of completion; the coordinator takes its time between."""
        assert self._deciding is not None
        outcome, epoch = self._deciding
        for place in sorted(self._places):
            kind = COMMIT if outcome == "Commit" else ABORT
            self.world.logs[place].mark(kind, self.world.now_ms, producer=(self.producer_id, epoch))
            self.open_in.pop(place, None)
        row = self._row
        row["completed_at_ms"] = self.world.now_ms
        row["duration_ms"] = self.world.now_ms - row["start_ms"]
        row["markers_ms"] = self.world.now_ms - row["prepared_at_ms"]
        self.state = f"Complete{outcome}"
        self._places = set()
        self._deciding = None
        self._log(self.state)

    def _log(self, state: str, *, start_ms: int | None = None) -> None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self._places):
            by_topic.setdefault(topic, []).append(partition)
        partitions = [{"topic": topic, "partitionIds": found} for topic, found in by_topic.items()]
        value = {
            "producerId": self.producer_id,
            "producerEpoch": self.epoch,
            "transactionTimeoutMs": TIMEOUT_MS,
            "transactionStatus": _STATES.index(state),
            "transactionPartitions": partitions,
            "transactionLastUpdateTimestampMs": self.world.now_ms,
            "transactionStartTimestampMs": self._row["start_ms"] if start_ms is None else start_ms,
        }
        value |= {"clientTransactionVersion": self.version} if self.version else {}
        key = {"transactionalId": self.transactional_id}
        record = values.record("TransactionLog", key, value, version=1 if self.version else 0)
        batch = self.world.write(TRANSACTION_STATE, [record])
        if state != "Empty":
            self._row.update(state=state, last_log_offset=batch.base_offset)
            if self._places:
                self._row["partitions"] = [{"topic": one, "partition": at} for one, at in sorted(self._places)]

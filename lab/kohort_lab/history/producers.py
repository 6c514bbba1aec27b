"""
A transactional producer and its coordinator: transactions that are committed, aborted, fenced, timed out, left open, or hang.

The producer keeps the expected rows of the pipeline's tables, derived from the events.

Source: Kafka TransactionCoordinator, TransactionMetadata; KIP-98, KIP-890, KIP-664.
"""

from dataclasses import dataclass, field
from typing import Any

from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from kohort_lab.history import values
from kohort_lab.history.logs import ABORT, COMMIT, Record
from kohort_lab.history.world import World

Row = dict[str, Any]
Partition = tuple[str, int]

TIMEOUT_MS = 60_000
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


@dataclass(slots=True)
class TransactionalProducer:
    """
    Attributes:
        version: the client's transaction version; from 2 on every end of a transaction raises the epoch.
        transactions: rows of `transactions`.
        open_in: by partition, the first offset and the first and last timestamp since the last marker there.
    """

    world: World
    transactional_id: str
    producer_id: int
    version: int
    epoch: int = -1
    state: str = "Empty"
    transactions: list[Row] = field(default_factory=list)
    open_in: dict[Partition, Row] = field(default_factory=dict)
    _partitions: set[Partition] = field(default_factory=set)
    _deciding: tuple[str, int] | None = None

    def act(self) -> None:
        """Run the next event."""
        rng = self.world.rng
        if self._deciding is not None:
            self._complete()
        elif self.epoch < 0 or (self.state != "Ongoing" and rng.random() < 0.1):
            self._init()
        elif self.state != "Ongoing":
            self._begin()
        elif self.world.now_ms - self._row["start_ms"] > TIMEOUT_MS:
            self._end("Abort", by="timeout", raised=True)
        else:
            self._go_on()

    def hang(self) -> None:
        """Write records of a transaction that the coordinator does not know, as before KIP-890: a hanging transaction."""
        topic_partition = self.world.rng.choice(self.world.topic_partitions)
        self._write(topic_partition)

    @property
    def _row(self) -> Row:
        return self.transactions[-1]

    def _go_on(self) -> None:
        rng = self.world.rng
        act = rng.choice(("add", "produce", "produce", "offsets", "offsets", "commit", "commit", "abort", "fence"))
        if act == "add":
            self._add(rng.choice(self.world.topic_partitions))
        elif act == "produce" and self._data_partitions():
            self._write(rng.choice(self._data_partitions()))
        elif act == "offsets":
            self._commit_offsets()
        elif act in ("commit", "abort"):
            by = "client" if act == "commit" or self.version < 2 else None
            self._end(act.capitalize(), by=by, raised=self.version >= 2)
        elif act == "fence":
            self._end("Abort", by="fence" if self.version < 2 else None, raised=True)

    def _data_partitions(self) -> list[Partition]:
        return sorted(topic_partition for topic_partition in self._partitions if topic_partition[0] != CONSUMER_OFFSETS)

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
        self._add(self.world.rng.choice(self.world.topic_partitions))

    def _add(self, topic_partition: Partition) -> None:
        if topic_partition not in self._partitions:
            self._partitions.add(topic_partition)
            self._log("Ongoing")

    def _write(self, topic_partition: Partition) -> None:
        records = [Record(None, b"t" * 9) for _ in range(self.world.rng.randint(1, 3))]
        log = self.world.logs[topic_partition]
        producer, codec, open_ms = (self.producer_id, self.epoch), self.world.codec(), len(records)
        batch = log.append(
            records, self.world.now_ms, producer=producer, transactional=True, codec=codec, open_ms=open_ms
        )
        self._wrote(topic_partition, batch.base_offset)

    def _wrote(self, topic_partition: Partition, offset: int) -> None:
        fields = self.open_in.setdefault(topic_partition, {"start_offset": offset, "start_ms": self.world.now_ms})
        fields |= {"last_timestamp_ms": self.world.now_ms, "producer_epoch": self.epoch}

    def _commit_offsets(self) -> None:
        world = self.world
        here = (CONSUMER_OFFSETS, world.partition)
        self._add(here)
        topic, partition = world.rng.choice(world.topic_partitions)
        end = world.logs[topic, partition].next_offset
        group = f"{world.name}{world.rng.choice(('simple', 'eos'))}"
        record = values.offset_commit(group, topic, partition, world.rng.randint(0, end), at_ms=world.now_ms)
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
        """Write markers to all partitions, then the record of completion."""
        assert self._deciding is not None
        outcome, epoch = self._deciding
        for topic_partition in sorted(self._partitions):
            kind = COMMIT if outcome == "Commit" else ABORT
            self.world.logs[topic_partition].mark(kind, self.world.now_ms, producer=(self.producer_id, epoch))
            self.open_in.pop(topic_partition, None)
        row = self._row
        row["completed_at_ms"] = self.world.now_ms
        row["duration_ms"] = self.world.now_ms - row["start_ms"]
        row["markers_ms"] = self.world.now_ms - row["prepared_at_ms"]
        self.state = f"Complete{outcome}"
        self._partitions = set()
        self._deciding = None
        self._log(self.state)

    def _log(self, state: str, *, start_ms: int | None = None) -> None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self._partitions):
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
            if self._partitions:
                self._row["partitions"] = [{"topic": one, "partition": at} for one, at in sorted(self._partitions)]

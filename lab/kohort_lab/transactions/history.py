"""The history of a log: each write with the outcome of its transaction, by a plain pass over all batches."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kohort.group.records import GroupRecordSerde
from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from kohort.records.values import OffsetCommit
from kohort.wire.batches import read_marker, read_records
from kohort_lab.transactions.ledger import Outcome, TransactionGuaranteeError
from kohort_lab.transactions.store import SimulatedLog


class Write(msgspec.Struct):
    """
    One record.

    Attributes:
        value: the name of the transaction, a space, and a number.
        outcome: None while the transaction is open.
        commit: the offset, if the record commits one.
    """

    value: str
    outcome: Outcome | None
    commit: OffsetCommit | None = None

    @property
    def transaction(self) -> str:
        return self.value.split(" ")[0]


def read_history(log: SimulatedLog) -> list[Write]:
    """
    Read all writes of a log of data or offsets, in its order; none of another log.

    Raises:
        TransactionGuaranteeError: the producer epoch of a producer id falls.
    """
    topic = log.topic_partition.topic
    if topic == TRANSACTION_STATE:
        return []
    writes: list[Write] = []
    pending: dict[int, list[Write]] = {}
    epochs: dict[int, int] = {}
    serde = GroupRecordSerde()
    for header, batch in log.batches():
        producer_id, epoch = header.producer_id, header.producer_epoch
        if producer_id >= 0:
            if epoch < epochs.get(producer_id, epoch):
                raise TransactionGuaranteeError(f"epoch {epoch} of producer {producer_id} after {epochs[producer_id]}")
            epochs[producer_id] = epoch
        for record in read_records(batch):
            if header.is_control:
                marker = read_marker(record)
                if marker is not None:
                    for write in pending.pop(producer_id, ()):
                        write.outcome = Outcome.COMMITTED if marker.committed else Outcome.ABORTED
                continue
            commit = None
            value = (record.value or b"").decode(errors="replace")
            if topic == CONSUMER_OFFSETS:
                decoded = serde.decode(bytes(record.key or b""), record.value)
                if not isinstance(decoded, OffsetCommit):
                    continue
                commit, value = decoded, decoded.metadata
            write = Write(value, None if header.is_transactional else Outcome.COMMITTED, commit)
            writes.append(write)
            if header.is_transactional:
                pending.setdefault(producer_id, []).append(write)
    return writes


def committed_offsets(writes: Iterable[Write]) -> dict[tuple[str, int], tuple[int, str, int]]:
    """By group and partition, the offset that was committed last: offset, metadata, error code 0."""
    found: dict[tuple[str, int], tuple[int, str, int]] = {}
    for write in writes:
        commit = write.commit
        if commit is not None and write.outcome is Outcome.COMMITTED:
            found[commit.group_id, commit.partition] = commit.offset, commit.metadata, 0
    return found

"""The records of transactional ids in `__transaction_state`."""

from typing import Any

from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from kohort.records.values import TransactionLog, TransactionLogTombstone
from kohort_lab.conformance.brokers.coordinator_log import LogFormat
from kohort_lab.conformance.canon import Names

STATES = {
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
}


def _canonical(record: TransactionLog | TransactionLogTombstone, version: int, names: Names) -> dict[str, Any]:
    if isinstance(record, TransactionLogTombstone):
        return {"record": "tombstone"}
    return {
        "record": STATES.get(record.transaction_status, str(record.transaction_status)),
        "value_version": version,
        "producer_id": _producer(record.producer_id, names),
        "producer_epoch": record.producer_epoch,
        "timeout_ms": record.transaction_timeout_ms,
        "partitions": _partitions(record, names),
        "updated": names.number(record.transaction_last_update_timestamp_ms),
        "started": names.number(record.transaction_start_timestamp_ms),
        "previous_producer_id": _producer(record.previous_producer_id, names),
        "next_producer_id": _producer(record.next_producer_id, names),
        "client_transaction_version": record.client_transaction_version,
        "next_producer_epoch": record.next_producer_epoch,
    }


def _producer(producer_id: int, names: Names) -> int | str:
    return producer_id if producer_id < 0 else names.name("producer", producer_id)


def _partitions(record: TransactionLog, names: Names) -> dict[str, Any] | None:
    """Partitions by topic. The partition of a group depends on the group's random name, so only its topic counts."""
    if record.transaction_partitions is None:
        return None
    return {
        names.text(each.topic): "<any>" if each.topic == CONSUMER_OFFSETS else sorted(each.partition_ids)
        for each in sorted(record.transaction_partitions, key=lambda each: each.topic)
    }


TRANSACTION_LOG = LogFormat(TRANSACTION_STATE, "transactional_id", _canonical)

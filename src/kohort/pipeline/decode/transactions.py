"""
TransactionLog records of `__transaction_state` in columns: the state of a transactional id after each change.

Source: Apache Kafka 4.2.1, TransactionLogKey.json, TransactionLogValue.json, TransactionState.
"""

from typing import Any

KEY_TYPE = 0
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Names of the states by id, as Kafka's tools print them."""
_ABSENT = -1


def columns(key: dict[str, Any], value: dict[str, Any] | None) -> dict[str, Any]:
    """The columns of one record, from its JSON form; `transaction` is null in a tombstone."""
    return {"transactional_id": key["transactionalId"], "transaction": None if value is None else _transaction(value)}


def _transaction(value: dict[str, Any]) -> dict[str, Any]:
    status = value["transactionStatus"]
    return {
        "state": STATES[status] if 0 <= status < len(STATES) else f"Unknown({status})",
        "producer_id": value["producerId"],
        "producer_epoch": value["producerEpoch"],
        "timeout_ms": value["transactionTimeoutMs"],
        "partitions": [
            {"topic": topic["topic"], "partition": partition}
            for topic in value["transactionPartitions"] or ()
            for partition in topic["partitionIds"] or ()
        ],
        "last_update_ms": value["transactionLastUpdateTimestampMs"],
        "start_ms": value["transactionStartTimestampMs"],
        "previous_producer_id": value.get("previousProducerId", _ABSENT),
        "next_producer_id": value.get("nextProducerId", _ABSENT),
        "client_transaction_version": value.get("clientTransactionVersion", 0),
    }

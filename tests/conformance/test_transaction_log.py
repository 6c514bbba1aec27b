"""The records that a scenario leaves in `__transaction_state`."""

from typing import Any

from kohort.records.serde import encode_record
from kohort.records.values import TransactionLog, TransactionLogPartitionsSchema, TransactionLogTombstone
from kohort.wire.batches import BatchRecord, build_batch
from kohort_lab.conformance.brokers.coordinator_log import UNREADABLE, ScenarioRecords
from kohort_lab.conformance.brokers.transaction_log import TRANSACTION_LOG
from kohort_lab.conformance.canon import Names
from kohort_lab.conformance.compare import TRANSACTIONS, compare
from kohort_lab.conformance.outcome import Outcome
from kohort_lab.conformance.scenarios.scenario import Scenario

PREFIX = "kc-1-"
ONGOING: dict[str, Any] = {
    "transactional_id": f"{PREFIX}tx",
    "producer_id": 1000,
    "producer_epoch": 3,
    "transaction_timeout_ms": 60_000,
    "transaction_status": 1,
    "transaction_partitions": (
        TransactionLogPartitionsSchema(f"{PREFIX}t", (1, 0)),
        TransactionLogPartitionsSchema("__consumer_offsets", (3,)),
    ),
    "transaction_last_update_timestamp_ms": 1_500_000_000_000,
    "transaction_start_timestamp_ms": 1_400_000_000_000,
    "client_transaction_version": 2,
}


def records_of(*records: Any, version: int = 1) -> dict[str, list[dict[str, Any]]]:
    found = ScenarioRecords(TRANSACTION_LOG, {PREFIX: {0: 9}})
    pairs = [each if isinstance(each, BatchRecord) else BatchRecord(*encode_record(each, version)) for each in records]
    found.add(0, build_batch(pairs, timestamp_ms=0))
    return found.of(Names(PREFIX))


def test_a_record_with_all_that_counts() -> None:
    assert records_of(TransactionLog(**ONGOING)) == {
        "@tx": [
            {
                "record": "Ongoing",
                "value_version": 1,
                "producer_id": "<producer 1>",
                "producer_epoch": 3,
                "timeout_ms": 60_000,
                "partitions": {"__consumer_offsets": "<any>", "@t": [0, 1]},
                "updated": 1_500_000_000_000,
                "started": 1_400_000_000_000,
                "previous_producer_id": -1,
                "next_producer_id": -1,
                "client_transaction_version": 2,
                "next_producer_epoch": -1,
            }
        ]
    }


def test_producer_ids_are_identities() -> None:
    rotated = TransactionLog(**ONGOING | {"producer_id": 2000, "previous_producer_id": 1000})
    _, second = records_of(TransactionLog(**ONGOING), rotated)["@tx"]
    assert (second["producer_id"], second["previous_producer_id"]) == ("<producer 2>", "<producer 1>")


def test_no_partitions_and_null_are_different() -> None:
    empty = TransactionLog(**ONGOING | {"transaction_partitions": None, "transaction_status": 0})
    complete = TransactionLog(**ONGOING | {"transaction_partitions": (), "transaction_status": 4})
    found = records_of(empty, complete)["@tx"]
    assert [(each["record"], each["partitions"]) for each in found] == [("Empty", None), ("CompleteCommit", {})]


def test_the_version_of_the_value_counts() -> None:
    (record,) = records_of(TransactionLog(**ONGOING | {"client_transaction_version": 0}), version=0)["@tx"]
    assert record["value_version"] == 0


def test_a_tombstone() -> None:
    assert records_of(TransactionLogTombstone(f"{PREFIX}tx")) == {"@tx": [{"record": "tombstone"}]}


def test_records_are_compared_and_unreadable_ones_are_errors() -> None:
    scenario = Scenario(name="test/0", about="x", steps=(), topics={}, versions={}, values={})
    ours = Outcome(transactions=records_of(TransactionLog(**ONGOING)))
    theirs = Outcome(transactions=records_of(TransactionLog(**ONGOING | {"producer_epoch": 4})))
    (difference,) = compare(scenario, ours, theirs).differences
    assert (difference.step, difference.field) == (TRANSACTIONS, "@tx.0.producer_epoch")
    damaged = Outcome(transactions=records_of(BatchRecord(b"\x00\x63id", b"\x00\x00")))
    assert [each.field for each in compare(scenario, damaged, damaged).differences] == [UNREADABLE]

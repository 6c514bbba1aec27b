"""
The records of `__transaction_state` that Apache Kafka 4.2.1 and 4.4.0 wrote: this coordinator loads them and describes the
state that Kafka described.

The runs: `main` under level 2, `tv1` under level 1, `legacy` with records of older versions and prepared transactions that
Kafka completed, `unclean` after SIGKILL; and those of `kafka_logs`, with producer ids that were rotated.
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kohort.wire.batches import BatchRecord, build_batch
from tests.records import kafka_logs
from tests.transaction.bench import Bench, Topic

STATES = Path(__file__).parents[1] / "data" / "transaction" / "states.json.gz"
PARTITIONS = 4


@cache
def runs() -> dict[str, Any]:
    """By run: the records of each partition as time, key and value in hex, and the transactions as Kafka described them."""
    found: dict[str, Any] = json.loads(gzip.decompress(STATES.read_bytes()))
    return found | {run: _newer(run) for run in kafka_logs.RUNS}


def _newer(run: str) -> dict[str, Any]:
    partitions = {
        str(number): [
            (record["timestamp"], record["key"], record["value"]) for batch in batches for record in batch["records"]
        ]
        for number, batches in kafka_logs.batches(run, "__transaction_state").items()
    }
    return {"partitions": partitions, "transactions": kafka_logs.broker(run)["transactions"]}


ANSWERED_AFTER_MS = {"unclean-4.4.0": 65_000}
"""The recovering broker was asked when the time of a transaction, a minute, had run out; the other runs at their end."""


def loaded(run: dict[str, Any]) -> Bench:
    """A coordinator that has loaded the records of a run, at the time of the last one."""
    bench = Bench(partition_count=PARTITIONS)
    bench.runtime.close()
    for number, records in run["partitions"].items():
        log = bench.logs[int(number)]
        for time_ms, key, value in records:
            record = BatchRecord(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
            log.append(build_batch([record], timestamp_ms=time_ms), leader_epoch=0)
        log.commit()
    for transaction in run["transactions"].values():
        for partition in transaction["partitions"]:
            topic = partition.rpartition("-")[0]
            bench.image[topic] = Topic(topic, 8)
    last_ms = max(time_ms for records in run["partitions"].values() for time_ms, *_ in records)
    bench.node.advance(last_ms - bench.node.clock.now_ms())
    bench.start(leader_epoch=1)
    return bench


def described(bench: Bench, transactional_id: str) -> dict[str, Any]:
    found = bench.describe(transactional_id)
    assert found.error_code == 0
    return {
        "state": found.transaction_state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "start_ms": found.transaction_start_time_ms,
        "partitions": sorted(f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions),
    }


@pytest.mark.parametrize("name", sorted(runs()))
def test_the_state_is_that_which_kafka_described(name: str) -> None:
    run = runs()[name]
    bench = loaded(run)
    bench.advance(ANSWERED_AFTER_MS.get(name, 0))
    expected = {
        each: fields | {"partitions": sorted(fields["partitions"])} for each, fields in run["transactions"].items()
    }
    assert {each: described(bench, each) for each in expected} == expected
    listed = {each.transactional_id: each.transaction_state for each in bench.listed().transaction_states}
    assert listed == {each: fields["state"] for each, fields in expected.items()}

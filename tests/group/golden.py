"""Logs of `__consumer_offsets` that Apache Kafka wrote, what its classes read there, and what it said of its groups."""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tests.records import kafka_logs

DATA = Path(__file__).parents[1] / "data" / "group"


class GoldenRecord(msgspec.Struct, frozen=True):
    """
    One record of a log.

    Attributes:
        run: `main` is a broker's whole life, `legacy` has values in versions of older releases; those of 4.4.0 are told by
            `kafka_logs`.
        decoded: for key types 0 to 2, what Kafka read; None for the others.
    """

    run: str
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int
    control: bool
    key: str
    value: str | None
    key_type: int | None = None
    decoded: dict[str, Any] | None = None

    @property
    def key_bytes(self) -> bytes:
        return bytes.fromhex(self.key)

    @property
    def value_bytes(self) -> bytes | None:
        return None if self.value is None else bytes.fromhex(self.value)


@cache
def golden_records() -> tuple[GoldenRecord, ...]:
    with gzip.open(DATA / "records.jsonl.gz", "rb") as lines:
        older = [msgspec.json.decode(line, type=GoldenRecord) for line in lines]
    return (*older, *(record for run in kafka_logs.RUNS for record in _records_of(run)))


def _records_of(run: str) -> Iterator[GoldenRecord]:
    for partition, batches in kafka_logs.batches(run, "__consumer_offsets").items():
        for batch in batches:
            for record in batch["records"]:
                decoded = record.get("decoded") or {}
                key_type = decoded.get("key_type")
                yield GoldenRecord(
                    run,
                    partition,
                    record["offset"],
                    batch["producer_id"],
                    batch["producer_epoch"],
                    batch["control"],
                    record["key"],
                    record["value"],
                    key_type,
                    decoded if key_type in (0, 1, 2) else None,
                )


@cache
def batches_of_4_4_0() -> tuple[tuple[str, bytes], ...]:
    """
    Log and bytes of batches of `__consumer_offsets` that Apache Kafka 4.4.0 wrote: offsets and markers of transactions of one
    run, and the commits of groups that read a topic which is deleted and created again, with the tombstones of its offsets.
    """
    with gzip.open(DATA / "batches-4.4.0.jsonl.gz", "rb") as lines:
        rows = [json.loads(line) for line in lines]
    return tuple((f"__consumer_offsets-{row['partition']}", bytes.fromhex(row["batch"])) for row in rows)


@cache
def golden_groups() -> dict[str, dict[str, Any]]:
    """What the broker said of every group just before it stopped, by run and group id."""
    with gzip.open(DATA / "groups.json.gz", "rb") as file:
        found: dict[str, dict[str, Any]] = json.load(file)
    return found | {run: kafka_logs.broker(run)["groups"] for run in kafka_logs.RUNS}

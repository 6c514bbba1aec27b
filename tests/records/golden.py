"""
Coordinator records that Apache Kafka wrote, with what Kafka's own classes read in them, and the schemas of its classes.

`records.jsonl.gz` has every distinct record of the internal topics of five runs of a broker of 4.2.1, with key and value in
hex; those of three runs of 4.4.0 are in the logs of `kafka_logs`.
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tests.records import kafka_logs

DATA = Path(__file__).parents[1] / "data" / "records"


class GoldenRecord(msgspec.Struct, frozen=True):
    """
    One record.

    Attributes:
        decoded: key type, key, value version and value as Kafka's JSON converters print them; the key type alone for an
            unknown type.
    """

    topic: str
    key: str
    value: str | None
    decoded: dict[str, Any]

    @property
    def key_bytes(self) -> bytes:
        return bytes.fromhex(self.key)

    @property
    def value_bytes(self) -> bytes | None:
        return None if self.value is None else bytes.fromhex(self.value)

    @property
    def is_known(self) -> bool:
        return "key" in self.decoded


@cache
def golden_records() -> tuple[GoldenRecord, ...]:
    lines = gzip.decompress((DATA / "records.jsonl.gz").read_bytes()).splitlines()
    return (*(msgspec.json.decode(line, type=GoldenRecord) for line in lines), *records_of_4_4())


@cache
def records_of_4_4() -> tuple[GoldenRecord, ...]:
    """Every distinct record that a broker of 4.4.0 wrote."""
    found = {
        (topic, record["key"], record["value"]): GoldenRecord(topic, record["key"], record["value"], record["decoded"])
        for run in kafka_logs.RUNS
        for topic in kafka_logs.TOPICS
        for batches in kafka_logs.batches(run, topic).values()
        for batch in batches
        if not batch["control"]
        for record in batch["records"]
    }
    return tuple(found.values())


@cache
def kafka_schemas() -> dict[str, Any]:
    """The key and value schemas that were read off Kafka's classes, by class name."""
    found: dict[str, Any] = json.loads((DATA / "schemas-4.4.0.json").read_text())
    return found

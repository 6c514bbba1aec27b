"""
Coordinator records that Apache Kafka wrote, with what Kafka's own classes read in them, and the schemas of its classes.

`records.jsonl.gz` has every distinct record of the internal topics of five runs of a broker of 4.2.1, with key and value in
hex, `records-4.4.0.jsonl.gz` some of those with fields that 4.4.0 writes first.
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

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
    files = (gzip.decompress((DATA / name).read_bytes()) for name in ("records.jsonl.gz", "records-4.4.0.jsonl.gz"))
    return tuple(msgspec.json.decode(line, type=GoldenRecord) for file in files for line in file.splitlines())


@cache
def kafka_schemas() -> dict[str, Any]:
    """The key and value schemas that were read off Kafka's classes, by class name."""
    found: dict[str, Any] = json.loads((DATA / "schemas-4.4.0.json").read_text())
    return found

"""Logs of `__consumer_offsets` that Apache Kafka 4.2.1 wrote, what its classes read there, and what it said of its groups."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

DATA = Path(__file__).parents[1] / "data" / "group"


class GoldenRecord(msgspec.Struct, frozen=True):
    """
    One record of a log.

    Attributes:
        run: `main` is a broker's whole life, `legacy` has values in versions of older releases.
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
        return tuple(msgspec.json.decode(line, type=GoldenRecord) for line in lines)


@cache
def golden_groups() -> dict[str, dict[str, Any]]:
    """What the broker said of every group just before it stopped, by run and group id."""
    with gzip.open(DATA / "groups.json.gz", "rb") as file:
        found: dict[str, dict[str, Any]] = json.load(file)
    return found

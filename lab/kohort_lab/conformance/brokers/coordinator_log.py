"""The records that scenarios left in the log of a coordinator, decoded, in the order of the log, without their batches."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from kohort.model.errors import CorruptError, UnknownRecordTypeError
from kohort.records.serde import CoordinatorRecordSerde
from kohort.wire.batches import iter_batches, read_records
from kohort_lab.conformance.canon import Names

UNREADABLE = "(unreadable)"
"""
The name under which records are listed that have an unknown type or are damaged. They name no scenario, so they belong to every
scenario that ended after them, and fail it (`kohort_lab.conformance.compare`).
"""

Ends: TypeAlias = Mapping[str, Mapping[int, int]]
"""By topic, the end offset of each partition."""

Records: TypeAlias = Sequence[tuple[Any, int]]
"""Decoded records, each with the version of its value."""


class LogFormat(msgspec.Struct, frozen=True):
    """
    Attributes:
        topic: the internal topic.
        key: the field of a record with the name that it belongs to.
        canonical: the plain form of a record and the version of its value; -1 without a value.
        arranged: the records of one key, those in the order of a hash table in a fixed one.
    """

    topic: str
    key: str
    canonical: Callable[[Any, int, Names], dict[str, Any]]
    arranged: Callable[[Records, Names], Records] = lambda records, _: records


class ScenarioRecords:
    """
    Collects records by the prefix of their scenario, up to the end of that scenario.

    Args:
        ends: by prefix of a scenario, the end offset of each partition when the scenario was over.
    """

    def __init__(self, log_format: LogFormat, ends: Mapping[str, Mapping[int, int]]) -> None:
        self._format = log_format
        self._serde = CoordinatorRecordSerde(log_format.topic)
        self._ends = ends
        self._by_prefix: dict[str, dict[str, list[tuple[Any, int]]]] = {prefix: {} for prefix in ends}
        self._prefix_length = max(map(len, self._by_prefix), default=0)
        self._unreadable: list[tuple[int, int, str]] = []

    def add(self, partition: int, batches: bytes) -> None:
        """Collect the records of a fetch response."""
        for position, header in iter_batches(batches):
            if header.is_control or not header.record_count:
                continue
            for record in read_records(batches[position : position + header.size_bytes]):
                self._add(partition, record.offset, record.key or b"", record.value)

    def of(self, names: Names) -> dict[str, list[dict[str, Any]]]:
        """The records of one scenario by group or transactional id, with the scenario's names for identities."""
        owned = self._by_prefix.get(names.prefix, {})
        found = {
            names.text(key): [
                self._format.canonical(record, version, names)
                for record, version in self._format.arranged(owned[key], names)
            ]
            for key in sorted(owned)
        }
        ends = self._ends.get(names.prefix, {})
        unreadable = [text for partition, offset, text in self._unreadable if offset < ends.get(partition, 0)]
        return found | ({UNREADABLE: [{"record": text} for text in unreadable]} if unreadable else {})

    def _add(self, partition: int, offset: int, key: bytes, value: bytes | None) -> None:
        try:
            record = self._serde.decode(key, value)
        except (CorruptError, UnknownRecordTypeError) as error:
            self._unreadable.append((partition, offset, f"partition {partition}, offset {offset}: {error}"))
            return
        name = getattr(record, self._format.key)
        prefix = name[: self._prefix_length]
        of_scenario = self._by_prefix.get(prefix)
        if of_scenario is not None and offset < self._ends[prefix].get(partition, 0):
            version = -1 if value is None else int.from_bytes(value[:2], "big")
            of_scenario.setdefault(name, []).append((record, version))

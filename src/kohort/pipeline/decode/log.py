"""A segment, or any bytes of a log, as Arrow record batches of the one schema."""

import json
import mmap
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from kohort.pipeline.decode import coordinator_records, groups, markers, offsets, schemas, transactions
from kohort.pipeline.decode.batches import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    Damage,
    Headers,
    Scan,
    scan,
)
from kohort.pipeline.decode.records import WINDOW_BYTES, Records, Window, lay_out, windows
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.vectors import Ints, big_endian, integers

_EMPTY_KEY_TYPE = -1
_WITH_READER = frozenset({*offsets.KEY_TYPES, groups.KEY_TYPE})
_JSON_SEPARATORS = (",", ":")
_KEY_COLUMNS = {"groupId": "group", "memberId": "member_id", "topicId": "topic_id", "partition": "partition"}


@dataclass(frozen=True, slots=True)
class Decoder:
    """
    What to give out of segments.

    Attributes:
        kinds: of rows, see `schemas`. Records are read out of the topics of coordinators alone.
        schema: the columns, a subset of `schemas.SCHEMA`.
    """

    kinds: Collection[str] = schemas.DEFAULT_KINDS
    schema: pa.Schema = schemas.SCHEMA
    window_bytes: int = WINDOW_BYTES

    def decode_file(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        """The rows of one segment file. A file that has gone since it was listed holds nothing."""
        try:
            with Path(segment.path).open("rb") as file:
                # An empty file cannot be mapped.
                size = file.seek(0, 2)
                data = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) if size else b""
        except FileNotFoundError:
            return
        yield from self.decode(data, segment)

    def decode(self, data: Any, segment: Segment) -> Iterator[pa.RecordBatch]:
        """The rows of a segment's bytes, in batches of about `window_bytes` of log."""
        found = scan(data)
        damage = list(found.damage)
        if schemas.BATCH in self.kinds and len(found.positions):
            yield self._batches(found, segment)
        if segment.topic in INTERNAL_TOPICS and not schemas.RECORD_KINDS.isdisjoint(self.kinds):
            for window in windows(found, window_bytes=self.window_bytes):
                yield from self._records(window, segment, damage)
        if schemas.SEGMENT in self.kinds:
            yield self._segment(found, segment)
        if schemas.DAMAGE in self.kinds and damage:
            yield self._damage(damage, segment)

    def _records(self, window: Window, segment: Segment, damage: list[Damage]) -> Iterator[pa.RecordBatch]:
        records = lay_out(window)
        damage += records.damage
        control = (window.headers["attributes"] & ATTRIBUTE_CONTROL)[records.batch] != 0
        key_types = np.where(
            ~control & (records.key_bytes >= 2), big_endian(window.data, records.key_at, "i2"), _EMPTY_KEY_TYPE
        )
        if segment.topic == CONSUMER_OFFSETS:
            yield from self._group_records(records, key_types, segment, damage)
        yield from self._other_records(records, key_types, segment, damage)
        if schemas.MARKER in self.kinds and control.any():
            some = records.select(control)
            yield self._few(schemas.MARKER, some, markers.decode(some), segment)

    def _group_records(
        self, records: Records, key_types: Ints, segment: Segment, damage: list[Damage]
    ) -> Iterator[pa.RecordBatch]:
        if schemas.OFFSET_COMMIT in self.kinds:
            chosen = np.isin(key_types, offsets.KEY_TYPES)
            if chosen.any():
                some = records if chosen.all() else records.select(chosen)
                some, columns, problems = offsets.decode(some)
                damage += problems
                yield self._rows(schemas.OFFSET_COMMIT, some, columns, segment)
        if schemas.GROUP_METADATA in self.kinds and (chosen := key_types == groups.KEY_TYPE).any():
            some = records.select(chosen)
            rows, problems = groups.decode(some)
            damage += problems
            yield self._few(schemas.GROUP_METADATA, some, rows, segment)

    def _other_records(
        self, records: Records, key_types: Ints, segment: Segment, damage: list[Damage]
    ) -> Iterator[pa.RecordBatch]:
        """Records of all types that have no reader of their own, a batch for each type."""
        own = _WITH_READER if segment.topic == CONSUMER_OFFSETS else ()
        for key_type in np.unique(key_types).tolist():
            is_transaction = (segment.topic, key_type) == (TRANSACTION_STATE, transactions.KEY_TYPE)
            kind = schemas.TRANSACTION if is_transaction else schemas.COORDINATOR
            if key_type == _EMPTY_KEY_TYPE or key_type in own or kind not in self.kinds:
                continue
            some = records.select(key_types == key_type)
            rows, problems = coordinator_records.decode(segment.topic, key_type, some)
            damage += problems
            yield self._few(kind, some, [_in_columns(row, is_transaction=is_transaction) for row in rows], segment)

    def _few(self, kind: str, records: Records, rows: list[dict[str, Any]], segment: Segment) -> pa.RecordBatch:
        """Rows that were read one at a time."""
        mask = np.zeros(len(records), np.bool_)
        mask[[row["row"] for row in rows]] = True
        columns: dict[str, Callable[[], Any]] = {
            field.name: partial(pa.array, [row.get(field.name) for row in rows], type=field.type)
            for field in self.schema
            if any(field.name in row for row in rows)
        }
        return self._rows(kind, records.select(mask), columns, segment)

    def _rows(
        self, kind: str, records: Records, columns: dict[str, Callable[[], Any]], segment: Segment
    ) -> pa.RecordBatch:
        headers, batch, count = records.window.headers, records.batch, len(records)
        placed = {
            **_place(kind, segment, count),
            **_producer(headers, batch),
            "log_offset": lambda: pa.array(records.offset),
            "timestamp_ms": lambda: pa.array(records.timestamp_ms),
        }
        return schemas.record_batch(self.schema, count, {**placed, **columns})

    def _batches(self, found: Scan, segment: Segment) -> pa.RecordBatch:
        headers, count = found.headers, len(found.headers)
        columns = {
            **_place(schemas.BATCH, segment, count),
            **_producer(headers, np.arange(count)),
            "log_offset": lambda: integers(headers["base_offset"].astype(np.int64), pa.int64()),
            "timestamp_ms": lambda: integers(headers["max_timestamp"].astype(np.int64), pa.int64()),
            "leader_epoch": lambda: integers(headers["leader_epoch"].astype(np.int32), pa.int32()),
            "next_offset": lambda: pa.array(found.next_offsets),
            "is_control": lambda: pa.array((headers["attributes"] & ATTRIBUTE_CONTROL) != 0),
            "position": lambda: pa.array(found.positions),
            "size_bytes": lambda: pa.array(found.ends - found.positions),
        }
        return schemas.record_batch(self.schema, count, columns)

    def _segment(self, found: Scan, segment: Segment) -> pa.RecordBatch:
        """A segment without a batch still says where its log goes on: its name is the next offset."""
        next_offsets, timestamps = found.next_offsets, found.headers["max_timestamp"]
        row = {
            "log_offset": segment.base_offset,
            "next_offset": int(next_offsets[-1]) if len(next_offsets) else segment.base_offset,
            "timestamp_ms": int(timestamps.max()) if len(timestamps) else None,
            "position": 0,
            "size_bytes": len(found.data),
        }
        return self._built(schemas.SEGMENT, [row], segment)

    def _damage(self, damage: Iterable[Damage], segment: Segment) -> pa.RecordBatch:
        rows = [
            {
                "log_offset": one.log_offset,
                "position": one.position,
                "size_bytes": one.size_bytes,
                "problem": one.problem,
            }
            for one in damage
        ]
        return self._built(schemas.DAMAGE, rows, segment)

    def _built(self, kind: str, rows: list[dict[str, Any]], segment: Segment) -> pa.RecordBatch:
        place = {
            "kind": kind,
            "log_topic": segment.topic,
            "log_partition": segment.partition,
            "segment": Path(segment.path).name,
        }
        return schemas.from_rows(self.schema, [{**place, **row} for row in rows])


def _in_columns(row: dict[str, Any], *, is_transaction: bool) -> dict[str, Any]:
    """A decoded record with JSON for what was read, and what its key names in columns of their own."""
    if "record_type" not in row:
        return row
    key, value = row["key"], row["value"]
    found = {
        **row,
        "key": json.dumps(key, separators=_JSON_SEPARATORS, ensure_ascii=False),
        "value": None if value is None else json.dumps(value, separators=_JSON_SEPARATORS, ensure_ascii=False),
    }
    found |= {column: key[name] for name, column in _KEY_COLUMNS.items() if name in key}
    return {**found, **transactions.columns(key, value)} if is_transaction else found


def _place(kind: str, segment: Segment, count: int) -> dict[str, Callable[[], Any]]:
    """The columns that are the same in every row."""
    return {
        "kind": lambda: pa.repeat(pa.scalar(kind), count),
        "log_topic": lambda: pa.repeat(pa.scalar(segment.topic), count),
        "log_partition": lambda: pa.repeat(pa.scalar(segment.partition, pa.int32()), count),
        "segment": lambda: pa.repeat(pa.scalar(Path(segment.path).name), count),
    }


def _producer(headers: Headers, batch: Ints) -> dict[str, Callable[[], Any]]:
    """What the header of its batch says of a row; `batch` is an index into `headers` for each."""
    transactional = (headers["attributes"] & ATTRIBUTE_TRANSACTIONAL) != 0
    return {
        "producer_id": lambda: integers(headers["producer_id"].astype(np.int64)[batch], pa.int64()),
        "producer_epoch": lambda: integers(headers["producer_epoch"].astype(np.int16)[batch], pa.int16()),
        "transactional": lambda: pa.array(transactional[batch]),
    }


def decode_directory(segments: Iterable[Segment], decoder: Decoder) -> pa.Table:
    """Everything that some segments hold, as one table; for what is small, and for use without Spark."""
    batches = [batch for segment in segments for batch in decoder.decode_file(segment)]
    return pa.Table.from_batches(batches, schema=decoder.schema)

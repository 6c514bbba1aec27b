"""Segments, or any bytes of a log, as Arrow record batches of one schema."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from kohort.pipeline.decode import batch_rows, coordinator_records, offsets, schemas
from kohort.pipeline.decode.batches import Corruption, Headers, Scan, scans
from kohort.pipeline.decode.compact import LatestByKey
from kohort.pipeline.decode.coordinator_records import GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE, transaction_columns
from kohort.pipeline.decode.records import WINDOW_BYTES, Records, parse, windows
from kohort.pipeline.decode.segment_ends import SegmentEnd, segment_end
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.slices import Slice, scan_slice
from kohort.pipeline.decode.storage import mapped
from kohort.pipeline.decode.vectors import integers
from kohort.records.offset_columns import KEY_TYPES
from kohort.wire.batch_header import CONTROL, TRANSACTIONAL
from kohort.wire.columnar.vectors import Bools, Ints, big_endian

_EMPTY_KEY_TYPE = -1
_WITH_READER = frozenset({*KEY_TYPES, GROUP_KEY_TYPE})
_BY_JSON = frozenset({schemas.TRANSACTION, schemas.COORDINATOR})
_OF_VALUE = frozenset({"value", "transaction"})
"""Columns that are made from the JSON form of a value, which takes longer than to decode it."""
_JSON_SEPARATORS = (",", ":")
_KEY_COLUMNS = {"groupId": "group", "memberId": "member_id", "topicId": "topic_id", "partition": "partition"}


@dataclass(frozen=True, slots=True)
class Decoder:
    """
    Decodes segments into rows.

    Attributes:
        kinds: of rows, see `schemas`. Records are read from internal topics only.
        schema: the columns, a subset of `schemas.SCHEMA`.
        from_ms, to_ms: limits of the timestamp, the upper one exclusive. Segment and damage rows are not limited.
        fold: if given, only the last offset commit outside transactions of each key becomes a row, by `rest`.
    """

    kinds: Collection[str] = schemas.DEFAULT_KINDS
    schema: pa.Schema = schemas.SCHEMA
    window_bytes: int = WINDOW_BYTES
    from_ms: int | None = None
    to_ms: int | None = None
    fold: LatestByKey | None = None

    @property
    def _wanted(self) -> frozenset[str]:
        """The names of the columns."""
        return frozenset(self.schema.names)

    def decode_file(self, segment: Segment, stretch: Slice | None = None) -> Iterator[pa.RecordBatch]:
        """
        The rows of one segment file.

        Raises:
            FileNotFoundError: the file was removed after it was listed.
        """
        data = mapped(segment.path)
        if stretch is None and set(self.kinds) == {schemas.SEGMENT}:
            yield from self.segment_row(segment, data)
            return
        yield from self.decode(data, segment, stretch)

    def decode(self, data: Any, segment: Segment, stretch: Slice | None = None) -> Iterator[pa.RecordBatch]:
        """
        The rows of a segment's bytes, in batches of about `window_bytes` of log.

        Args:
            stretch: if given, only the rows of this slice, and no segment row.
        """
        end = SegmentEnd(segment.base_offset, None)
        is_internal = segment.topic in INTERNAL_TOPICS
        # Not if only the headers of topics' batches are needed.
        is_checked = is_internal or schemas.DAMAGE in self.kinds
        has_records = is_internal and not schemas.RECORD_KINDS.isdisjoint(self.kinds)
        whole = scans(data, check_crc=is_checked)
        for found in whole if stretch is None else scan_slice(data, stretch, check_crc=is_checked):
            damage = list(found.damage)
            end = end.behind(found)
            if schemas.BATCH in self.kinds and (batches := self._batches_in_time(found)):
                yield self._batches(batches, segment)
            for records in self._laid_out(found) if has_records else ():
                yield from self._window(records, segment, damage)
            yield from self.damage_rows(damage, segment)
        if schemas.SEGMENT in self.kinds and stretch is None:
            yield self._segment(end, len(data), segment)

    def segment_row(self, segment: Segment, data: Any | None = None) -> Iterator[pa.RecordBatch]:
        """
        The row of kind segment of a file, if this kind is wanted.

        Args:
            data: the bytes of the segment, if they are at hand.
        """
        if schemas.SEGMENT in self.kinds:
            size_bytes = segment.size_bytes if data is None else len(data)
            yield self._segment(segment_end(segment, data), size_bytes, segment)

    def damage_rows(self, damage: Sequence[Corruption], segment: Segment) -> Iterator[pa.RecordBatch]:
        """Rows of kind damage, if this kind is wanted."""
        if schemas.DAMAGE in self.kinds and damage:
            yield schemas.from_rows(self.schema, [damage_row(one, segment) for one in damage])

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The rows of the commits that the fold kept; to be called after all segments."""
        if self.fold is not None:
            yield from self._folded(self.fold.rest())

    def decode_records(self, records: Records, segment: Segment) -> Iterator[pa.RecordBatch]:
        """The rows of records that do not come from a segment."""
        damage: list[Corruption] = []
        yield from self._records(records, segment, damage)
        yield from self.damage_rows(damage, segment)

    def _batches_in_time(self, found: Scan) -> Scan | None:
        """The batches whose largest timestamp is within the limits."""
        chosen = self._in_time(found.headers["max_timestamp"].astype(np.int64))
        if chosen is not None:
            found = Scan(found.data, found.positions[chosen], found.headers[chosen])
        return found if len(found.positions) else None

    def _laid_out(self, found: Scan) -> Iterator[Records]:
        """The records of a segment within the limits of the timestamp, window by window."""
        if self.from_ms is not None:
            late = found.headers["max_timestamp"].astype(np.int64) >= self.from_ms
            found = Scan(found.data, found.positions[late], found.headers[late], mapped=found.mapped)
        for window in windows(found, window_bytes=self.window_bytes):
            records = parse(window)
            chosen = self._in_time(records.timestamp_ms)
            yield records if chosen is None else records.select(chosen)

    def _in_time(self, timestamp_ms: Ints) -> Bools | None:
        """The timestamps that are within the limits; None for all."""
        if self.from_ms is None and self.to_ms is None:
            return None
        chosen = np.ones(len(timestamp_ms), np.bool_)
        if self.from_ms is not None:
            chosen &= timestamp_ms >= self.from_ms
        if self.to_ms is not None:
            chosen &= timestamp_ms < self.to_ms
        return chosen

    def _window(self, records: Records, segment: Segment, damage: list[Corruption]) -> Iterator[pa.RecordBatch]:
        """The rows of a window, without the commits that the fold keeps."""
        if self.fold is not None and segment.topic == CONSUMER_OFFSETS:
            records, given = self.fold.take(records, segment)
            yield from self._folded(given)
        for piece in records.pieces():
            yield from self._records(piece, segment, damage)

    def _folded(self, given: Iterable[tuple[Segment, Records]]) -> Iterator[pa.RecordBatch]:
        for segment, records in given:
            for piece in records.pieces():
                yield from self.decode_records(piece, segment)

    def _records(self, records: Records, segment: Segment, damage: list[Corruption]) -> Iterator[pa.RecordBatch]:
        window = records.window
        damage += records.damage
        control = (window.headers["attributes"] & CONTROL)[records.batch] != 0
        key_types = np.where(
            ~control & (records.key_bytes >= 2), big_endian(window.data, records.key_at, "i2"), _EMPTY_KEY_TYPE
        )
        if segment.topic == CONSUMER_OFFSETS:
            yield from self._group_records(records, key_types, segment, damage)
        yield from self._other_records(records, key_types, segment, damage)
        if schemas.MARKER in self.kinds and control.any():
            some = records.select(control)
            yield self._few(schemas.MARKER, some, batch_rows.markers(some), segment)

    def _group_records(
        self, records: Records, key_types: Ints, segment: Segment, damage: list[Corruption]
    ) -> Iterator[pa.RecordBatch]:
        if schemas.OFFSET_COMMIT in self.kinds:
            chosen = np.isin(key_types, KEY_TYPES)
            if chosen.any():
                some = records if chosen.all() else records.select(chosen)
                some, columns, problems = offsets.decode(some)
                damage += problems
                yield self._rows(schemas.OFFSET_COMMIT, some, columns, segment)
        if schemas.GROUP_METADATA in self.kinds and (chosen := key_types == GROUP_KEY_TYPE).any():
            some = records.select(chosen)
            has_members = "members" in self._wanted
            rows, problems = coordinator_records.decode(segment.topic, GROUP_KEY_TYPE, some, has_value=has_members)
            damage += problems
            yield self._few(schemas.GROUP_METADATA, some, rows, segment)

    def _other_records(
        self, records: Records, key_types: Ints, segment: Segment, damage: list[Corruption]
    ) -> Iterator[pa.RecordBatch]:
        """Records of all types without a columnar reader, one record batch for each type."""
        if _BY_JSON.isdisjoint(self.kinds):
            return
        own = _WITH_READER if segment.topic == CONSUMER_OFFSETS else ()
        for key_type in np.unique(key_types).tolist():
            is_transaction = (segment.topic, key_type) == (TRANSACTION_STATE, TRANSACTION_KEY_TYPE)
            kind = schemas.TRANSACTION if is_transaction else schemas.COORDINATOR
            if key_type == _EMPTY_KEY_TYPE or key_type in own or kind not in self.kinds:
                continue
            some = records.select(key_types == key_type)
            has_value = not _OF_VALUE.isdisjoint(self._wanted)
            rows, problems = coordinator_records.decode(segment.topic, key_type, some, has_value=has_value)
            damage += problems
            in_columns = [_in_columns(row, self._wanted, is_transaction=is_transaction) for row in rows]
            yield self._few(kind, some, in_columns, segment)

    def _few(self, kind: str, records: Records, rows: list[dict[str, Any]], segment: Segment) -> pa.RecordBatch:
        """Rows of records that were decoded one at a time."""
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
            **_places(kind, segment, count),
            **_producer(headers, batch),
            "log_offset": lambda: pa.array(records.offset),
            "timestamp_ms": lambda: pa.array(records.timestamp_ms),
        }
        return schemas.record_batch(self.schema, count, {**placed, **columns})

    def _batches(self, found: Scan, segment: Segment) -> pa.RecordBatch:
        headers, count = found.headers, len(found.headers)
        columns = {
            **_places(schemas.BATCH, segment, count),
            **_producer(headers, np.arange(count)),
            "log_offset": lambda: integers(headers["base_offset"].astype(np.int64), pa.int64()),
            "timestamp_ms": lambda: integers(headers["max_timestamp"].astype(np.int64), pa.int64()),
            "leader_epoch": lambda: integers(headers["leader_epoch"].astype(np.int32), pa.int32()),
            "next_offset": lambda: pa.array(found.next_offsets),
            "is_control": lambda: pa.array((headers["attributes"] & CONTROL) != 0),
            "position": lambda: pa.array(found.positions),
            "size_bytes": lambda: pa.array(found.ends - found.positions),
            "control": lambda: batch_rows.controls(found),
            "first_timestamp_ms": lambda: batch_rows.first_timestamps_ms(found),
            "record_count": lambda: integers(headers["count"].astype(np.int32), pa.int32()),
        }
        return schemas.record_batch(self.schema, count, columns)

    def _segment(self, end: SegmentEnd, size_bytes: int, segment: Segment) -> pa.RecordBatch:
        row = {
            **_place(schemas.SEGMENT, segment),
            "log_offset": segment.base_offset,
            "next_offset": end.next_offset,
            "timestamp_ms": end.timestamp_ms,
            "position": 0,
            "size_bytes": size_bytes,
        }
        return schemas.from_rows(self.schema, [row])


def damage_row(damage: Corruption, segment: Segment) -> dict[str, Any]:
    """A damage row."""
    return {
        **_place(schemas.DAMAGE, segment),
        "log_offset": damage.log_offset,
        "position": damage.position,
        "size_bytes": damage.size_bytes,
        "problem": damage.problem,
    }


def _place(kind: str, segment: Segment) -> dict[str, Any]:
    """The columns with one value in all rows of a segment."""
    return {"kind": kind, "log_topic": segment.topic, "log_partition": segment.partition, "segment": segment.name}


def _places(kind: str, segment: Segment, count: int) -> dict[str, Callable[[], Any]]:
    return {
        name: partial(pa.repeat, pa.scalar(value, schemas.SCHEMA.field(name).type), count)
        for name, value in _place(kind, segment).items()
    }


def _in_columns(row: dict[str, Any], wanted: Collection[str], *, is_transaction: bool) -> dict[str, Any]:
    """A decoded record with key and value as JSON if they are wanted, and fields of the key in columns."""
    if "record_type" not in row:
        return row
    key, value = row["key"], row["value"]
    found = row | {name: _json(row[name]) for name in ("key", "value") if name in wanted}
    found |= {column: key[name] for name, column in _KEY_COLUMNS.items() if name in key}
    return found | transaction_columns(key, value) if is_transaction else found


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, separators=_JSON_SEPARATORS, ensure_ascii=False)


def _producer(headers: Headers, batch: Ints) -> dict[str, Callable[[], Any]]:
    """Columns from the headers of the batches; `batch` is an index into `headers` for each row."""
    transactional = (headers["attributes"] & TRANSACTIONAL) != 0
    return {
        "producer_id": lambda: integers(headers["producer_id"].astype(np.int64)[batch], pa.int64()),
        "producer_epoch": lambda: integers(headers["producer_epoch"].astype(np.int16)[batch], pa.int16()),
        "transactional": lambda: pa.array(transactional[batch]),
    }

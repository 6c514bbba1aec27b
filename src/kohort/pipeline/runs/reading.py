"""The frames of all tables out of the rows that runs have kept, in place of logs."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa

from kohort.model.ids import INTERNAL_TOPICS
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.schemas import BATCH, DAMAGE, MARKER, SEGMENT
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.runs.bronze import Bronze
from kohort.pipeline.runs.state import RunState


class BronzeReading(Reading):
    """As `Reading`; the ends of logs are those of the state, not of what lies there meanwhile."""

    def __init__(
        self,
        spark: Any,
        source: str,
        bronze: Bronze,
        state: RunState,
        *,
        now_ms: int | None = None,
        connection: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            now_ms: the time, for a source that is a running cluster.
            connection: how to connect to it.
        """
        super().__init__(spark, source, as_of_ms=state.wanted.as_of_ms, connection=connection)
        self._bronze = bronze
        self._state = state
        self._now_ms = now_ms

    @cached_property
    def at_ms(self) -> int:
        if self.as_of_ms is not None:
            return self.as_of_ms
        if self._now_ms is not None:
            return self._now_ms
        written = self._read([BATCH], ["timestamp_ms"], INTERNAL_TOPICS)
        return int(written.agg({"timestamp_ms": "max"}).first()[0] or 0)

    def _of_group(self, records: Any) -> Any:
        groups = self._state.wanted.groups
        if groups is None:
            return records
        return records.where(records["kind"].isin(MARKER, DAMAGE) | records["group"].isin(*groups))

    def _load(
        self, kinds: Sequence[str], columns: Sequence[str], topics: Collection[str] | None, *, newest: bool
    ) -> Any:
        if newest:
            return self._rows(self._ends(topics), columns)
        found = self._bronze.read(self._spark, self._state.parts)
        found = found.where(found["kind"].isin(*kinds))
        if topics is not None:
            found = found.where(found["log_topic"].isin(*topics))
        frames = [found.select(*columns)]
        if DAMAGE in kinds and self._state.tails:
            tails = [one for one in self._state.tails if topics is None or one["log_topic"] in topics]
            frames.append(self._rows(tails, columns))
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _ends(self, topics: Collection[str] | None) -> list[dict[str, Any]]:
        return [
            {"kind": SEGMENT, "log_topic": topic, "log_partition": partition, "next_offset": offset}
            for (topic, partition), offset in self._state.positions.items()
            if topics is None or topic in topics
        ]

    def _rows(self, rows: Sequence[Any], columns: Sequence[str]) -> Any:
        schema = schemas.subset(columns)
        full = [{name: row.get(name) for name in schema.names} for row in rows]
        return self._spark.createDataFrame(pa.Table.from_pylist(full, schema))

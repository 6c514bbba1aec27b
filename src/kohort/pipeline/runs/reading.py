"""A reading of kept rows, instead of logs: the frames of all tables."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa

from kohort.model.ids import TRANSACTION_STATE
from kohort.pipeline.checkpoints.checkpoint import Checkpoint
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.schemas import (
    BATCH,
    COORDINATOR,
    DAMAGE,
    GROUP_METADATA,
    OFFSET_COMMIT,
    SEGMENT,
    TRANSACTION,
)
from kohort.pipeline.engines.dispatch import kept
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.runs.affected import VALUES_MAX, Affected
from kohort.pipeline.runs.bronze import Bronze
from kohort.pipeline.runs.state import RunState
from kohort.pipeline.sources.live import is_live
from kohort.pipeline.sources.positions import is_complete
from kohort.pipeline.tables.incarnations import INCARNATION, since
from kohort.pipeline.tables.transactions import blocking_transactions

_KEYS = {OFFSET_COMMIT: "group", GROUP_METADATA: "group", COORDINATOR: "group", TRANSACTION: "transactional_id"}
"""The key columns by which unaffected rows of these kinds are skipped."""


class BronzeReading(Reading):
    """
    A `Reading` of the kept rows. The ends of logs are those of the run's state, not of the directory as it is now. With
    `affected`, only the rows of these groups and transactional ids are read, and rows that belong to no group.
    """

    def __init__(
        self,
        spark: Any,
        source: str,
        bronze: Bronze,
        state: RunState,
        *,
        at_ms: int,
        connection: Mapping[str, str] | None = None,
        affected: Affected | None = None,
        before: Path | None = None,
        checkpoints: Sequence[Checkpoint] = (),
    ) -> None:
        """
        Args:
            state: `known.names` has the topic names of earlier runs.
            at_ms: the instant of the tables.
            connection: how to connect to a cluster.
            before: with `affected`, the tables of the previous version.
            checkpoints: of Spark queries, whose rows are kept.
        """
        super().__init__(spark, source, as_of_ms=state.request.as_of_ms, connection=connection)
        self.groups = state.request.groups
        self._bronze = bronze
        self._state = state
        self._at_ms = at_ms
        self._affected = affected
        self._before = before
        self._checkpoints = checkpoints
        # Push filters down to the dictionaries of Parquet for any number of groups.
        spark.conf.set("spark.sql.parquet.pushdown.inFilterThreshold", VALUES_MAX)

    @cached_property
    def at_ms(self) -> int:
        return self._at_ms

    @cached_property
    def checkpoints(self) -> Sequence[Checkpoint]:
        return self._checkpoints

    @cached_property
    def topic_names(self) -> Any:
        found = super().topic_names
        names = {} if self._state.known is None else self._state.known.names
        if not names:
            return found
        before = self._spark.createDataFrame(sorted(names.items()), "topic_id string, topic string")
        return kept(found.unionByName(before.join(found, on="topic_id", how="left_anti")))

    @cached_property
    def all_batches(self) -> Any:
        topics = None if self._affected is None else self._affected.topics
        found = self._read([BATCH], blocking_transactions.INPUT_COLUMNS, topics)
        return since(found, self.log_begins(topics))

    def unread(self, offsets: Any) -> None:
        """Kept rows may tell of batches that the source no longer has."""

    def log_begins(self, topics: Collection[str] | None) -> Any:
        if self.as_of_ms is not None:
            return None
        begins = self._state.begins
        return self._begins({one: begins[one] for one in begins if topics is None or one[0] in topics})

    @cached_property
    def has_all_transactions(self) -> bool:
        known = {*self._state.positions, *self._unwritten}
        logs = (partition for topic, partition in known if topic == TRANSACTION_STATE)
        return is_live(self.directory) or is_complete(logs)

    @property
    def all_transactions(self) -> Any:
        if self._affected is None or self._before is None:
            return self.transactions
        before = self._spark.read.parquet(str(self._before / "transactions"))
        rest = before.where(~before["transactional_id"].isin(*self._affected.transactional_ids))
        return self.transactions.unionByName(rest)

    def _load(
        self, kinds: Sequence[str], columns: Sequence[str], topics: Collection[str] | None, *, newest: bool
    ) -> Any:
        if newest:
            return self._rows(self._ends(topics), columns)
        if BATCH in kinds and self._state.incarnations:
            columns = (*columns, INCARNATION)
        frames = [found.select(*columns) for found in self._kept(kinds, topics)]
        if DAMAGE in kinds and self._state.tails:
            tails = [one for one in self._state.tails if topics is None or one["log_topic"] in topics]
            frames.append(self._rows(tails, columns))
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _kept(self, kinds: Sequence[str], topics: Collection[str] | None) -> Iterator[Any]:
        """Yield the rows of some kinds, a frame for each key column, so that Parquet can skip unaffected rows."""
        rows = self._bronze.read(self._spark, self._state.parts)
        if topics is not None:
            rows = rows.where(rows["log_topic"].isin(*topics))
        keys = {kind: None if self._affected is None else _KEYS.get(kind) for kind in kinds}
        for key in dict.fromkeys(keys.values()):
            found = rows.where(rows["kind"].isin(*(kind for kind in kinds if keys[kind] == key)))
            if key is not None and self._affected is not None:
                found = found.where(found[key].isin(*self._affected.of(key)))
            yield found

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

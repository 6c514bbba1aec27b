"""
One run: read the new part of the logs, keep its rows, make the tables from all kept rows, publish them.

    DIR/
      .lock                    held by the current run
      current.json             the pointer: the current version, and the state that it was made from
      bronze/run=<number>/     the rows that this run read (or merged)
      versions/<number>/       the tables

Rows are written first, then tables, then `current.json`; unreferenced files are deleted at the end. Rows and tables are written
beside the current ones, and flushed before the pointer names them. After a kill or a power cut the previous version is still
current; the next run deletes the rest and continues from the positions in the pointer.

Tables are made again only for the groups and transactional ids that new rows affect (`affected`). All other rows of the
previous version are carried over (`carried_over`). If most groups are affected, or the request changed, all tables are made
again.
"""

import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from kohort.model.errors import ConfigError
from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS
from kohort.pipeline.checkpoints.checkpoint import Checkpoint, Extent
from kohort.pipeline.checkpoints.named import Named, read_named
from kohort.pipeline.decode.schemas import BATCH, OFFSET_COMMIT
from kohort.pipeline.jobs import published
from kohort.pipeline.jobs.pointer import Published
from kohort.pipeline.runs import bronze
from kohort.pipeline.runs.affected import READ, Affected, commits_in, find_affected, first_ms, latest_ms
from kohort.pipeline.runs.carried_over import KEYS, carry_over
from kohort.pipeline.runs.incarnations import (
    EndedIncarnation,
    changed_topics,
    find_ended,
    first_rows,
    limited,
    resumed,
)
from kohort.pipeline.runs.lock import locked
from kohort.pipeline.runs.queries import following as following_queries
from kohort.pipeline.runs.queries import new_rows
from kohort.pipeline.runs.state import Known, Part, RunRequest, RunState, lost_records
from kohort.pipeline.sources import progress
from kohort.pipeline.sources.directory import DirectoryLogs
from kohort.pipeline.sources.instants import end_of_logs, newest_reads, proofs_in, right_topics
from kohort.pipeline.sources.live import is_live
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import TopicPartition
from kohort.pipeline.sources.ranges import Logs
from kohort.pipeline.sources.sparse_index import ScannedSegment
from kohort.pipeline.sources.streams.offsets import StreamPosition
from kohort.pipeline.sources.topic_ids import topic_ids

TASK_BYTES = 64 << 20
AFFECTED_SHARE_MAX = 0.5
"""With a larger share of affected groups than this, all tables are made again: that is cheaper."""
WRITERS = 4
"""Tables that are written concurrently: most are small and wait for Spark's scheduler."""

Sessions = Callable[[int], AbstractContextManager[Any]]
"""Starts Spark when it is needed, sized for a number of bytes of log."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a run: a path as the data source takes it, its options (`kafka.*`), and checkpoints of Spark queries."""

    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    checkpoints: tuple[Named, ...] = ()

    def reading(self, **more: str) -> SourceOptions:
        """Return the options for all rows that runs keep. Records deleted before they were read do not fail a run."""
        given = {"topics": "*", "kinds": ",".join(bronze.KINDS), "failOnDataLoss": "false", **more}
        return SourceOptions.parse({**self.options, **given, "path": self.path, "bytesPerTask": str(TASK_BYTES)})

    def logs(self) -> Logs:
        from kohort.pipeline.sources.plan import open_logs

        return open_logs(self.reading())

    def topic_ids(self) -> dict[str, str]:
        """Return the topic ids by topic, as far as the source has them."""
        return {topic: topic_id for topic_id, topic in topic_ids(self.path, self.reading().security).items()}


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """
    The result of a run.

    Attributes:
        is_new: a new version was published.
        lost: sentences about records that were deleted before they were read.
        ended: logs that were deleted and created again, or truncated, since the run before.
        damage: rows of table damage.
        problems: sentences about checkpoints that cannot be read.
        affected: what was made again; None if all tables were.
    """

    version: int
    is_new: bool
    rows_read: int = 0
    read: progress.Progress = progress.NOTHING
    lost: Sequence[str] = ()
    ended: Sequence[EndedIncarnation] = ()
    damage: Sequence[Mapping[str, Any]] = ()
    problems: Sequence[str] = ()
    affected: Affected | None = None


@dataclass(slots=True)
class Run:
    """
    Runs into one directory, one after the other. `planned_bytes` and `progress` belong to the current one.

    Attributes:
        is_anew: the next run forgets what was read before.
        on_step: called with the name of each completed step.
    """

    source: Source
    out: Path
    request: RunRequest
    sessions: Sessions
    is_anew: bool = False
    on_step: Tell = lambda _: None
    affected_share_max: float = AFFECTED_SHARE_MAX
    planned_bytes: int = 0
    _notes: str | None = None
    _read: progress.Progress = progress.NOTHING
    _logs: Logs | None = None
    _queries: Sequence[Checkpoint] = ()

    def progress(self) -> progress.Progress:
        """Return how much the current run has read so far, or the last run in all."""
        return self._read if self._notes is None else progress.total(self._notes)

    def once(self, until: StreamPosition | None = None) -> RunOutcome:
        """
        Publish a new version if anything is new.

        Args:
            until: the end of what is read; None for the end of the logs. What was read before is not read again.

        Raises:
            ConfigError: the source cannot be read, is another one than before, or another run holds the directory.
        """
        with locked(self.out), ExitStack() as stack:
            before = self._before()
            state = self._state(before)
            # A killed run may have left parts.
            bronze.Bronze(self.out).keep(self._named(before))
            # Before the ends of logs, so that no position is beyond one.
            queries = read_named(self.source.checkpoints, None)
            self._queries = queries.checkpoints
            bounds, ids = self._bounds(state)
            self._check(bounds)
            if until is not None:
                bounds, ids = limited(bounds, ids, state, until)
            ended = find_ended(state, bounds, ids)
            state = resumed(state, ended)
            lost = lost_records(state.positions, bounds)
            ends = {**state.positions, **{place: end for place, (_, end) in bounds.items()}}
            following = replace(
                state,
                positions=ends,
                request=self.request,
                tails=self._tails(),
                scanned=self._scanned(),
                begins={place: first for place, (first, _) in bounds.items() if place[0] not in INTERNAL_TOPICS},
                topic_ids={**state.topic_ids, **ids},
                queries=following_queries(self._queries, state.queries),
            )
            is_current = before is not None and published.is_of_this_release(before, self.request.tables)
            if before is not None and is_current and not self.is_anew and not ended and following == state:
                return RunOutcome(before.version, is_new=False, problems=tuple(queries.problems))
            version = 1 if before is None else before.version + 1
            outcome = self._publish(stack, before, version, state, following, ended)
            return replace(outcome, lost=lost, ended=ended, problems=tuple(queries.problems))

    @property
    def logs(self) -> Logs:
        if self._logs is None:
            self._logs = self.source.logs()
        return self._logs

    def has_news(self) -> bool:
        """Tell whether a run would read anything."""
        before = self._before()
        if before is None:
            return True
        state = RunState.of(before)
        bounds, ids = self._bounds(state)
        has_grown = any(state.positions.get(place) != end for place, (_, end) in bounds.items())
        if has_grown or changed_topics(state, ids):
            return True
        queries = read_named(self.source.checkpoints, None, Extent.LAST).checkpoints
        return following_queries(queries, state.queries) != state.queries

    def _bounds(self, state: RunState) -> tuple[Mapping[TopicPartition, tuple[int, int]], Mapping[str, str]]:
        """Return the bounds of all logs, and the ids of their topics."""
        ids = self.source.topic_ids()
        while True:
            if isinstance(self.logs, DirectoryLogs) and (changed := changed_topics(state, ids)):
                self.logs.forget(changed)
            before, bounds = ids, self.logs.state().bounds
            # A topic created again between the two calls would have the id of one log and the bounds of the other.
            if (ids := self.source.topic_ids()) == before:
                return bounds, ids

    def _before(self) -> Published | None:
        if not published.is_published(self.out):
            return None
        before = published.current(self.out)
        if before.source != self.source.path and not self.is_anew:
            raise ConfigError(
                f"{self.out} holds tables of {before.source}; name another directory, or begin anew with --anew"
            )
        return before

    def _state(self, before: Published | None) -> RunState:
        state = RunState() if before is None or self.is_anew else RunState.of(before)
        if isinstance(self.logs, DirectoryLogs):
            self.logs.remember(state.scanned)
        return state

    def _named(self, before: Published | None) -> Sequence[Part]:
        """Return the parts that the current version was made from. They stay until the next version is current."""
        try:
            return () if before is None else RunState.of(before).parts
        except ConfigError:
            return ()

    def _check(self, bounds: Collection[tuple[str, int]]) -> None:
        from kohort.pipeline.jobs.reading import no_log

        if CONSUMER_OFFSETS not in {topic for topic, _ in bounds} and not self._queries:
            raise no_log(self.source.path, CONSUMER_OFFSETS)

    def _tails(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.logs.tails()) if isinstance(self.logs, DirectoryLogs) else ()

    def _scanned(self) -> tuple[ScannedSegment, ...]:
        return tuple(self.logs.scanned()) if isinstance(self.logs, DirectoryLogs) else ()

    def _publish(
        self,
        stack: ExitStack,
        before: Published | None,
        version: int,
        state: RunState,
        following: RunState,
        ended: Sequence[EndedIncarnation],
    ) -> RunOutcome:
        has_news = following.positions != state.positions or following.queries != state.queries
        tasks = self.logs.tasks(state.positions, following.positions) if has_news else ()
        self.planned_bytes = sum(task.size_bytes for task in tasks)
        self._notes = stack.enter_context(tempfile.TemporaryDirectory(prefix="kohort-progress-"))
        spark = stack.enter_context(self.sessions(self.planned_bytes))
        files = bronze.Bronze(self.out)
        parts, new = state.parts, None
        if has_news or ended:
            reading = self.source.reading(progressDir=self._notes)
            written = files.write_tasks(spark, reading, tasks, str(version), following.incarnations)
            rows_of_queries = new_rows(self._queries, state.queries, following.queries)
            written = files.add_batches(written, OFFSET_COMMIT, rows_of_queries)
            new = files.path(written.name)
            known = self._known(files, state, new)
            written = files.add(written, BATCH, first_rows(ended, state, self._began_ms(state, known, new, ended)))
            self.on_step("rows")
            parts = files.merged(spark, (*parts, written), f"{version}.1")
            published.sync(files.root)
            self.on_step("merged")
        else:
            known = self._known(files, state, None)
        following = replace(following, parts=parts, known=known)
        changed = None if before is None else self._affected(before, state, following, new)
        tables = self._tables(spark, files, following, changed, before)
        names = {row["topic_id"]: row["topic"] for row in tables.reading.topic_names.collect()}
        assert following.known is not None
        following = replace(following, known=replace(following.known, names=names))
        made = published.publish(
            self.out,
            self.source.path,
            partial(self._write, tables, changed, before),
            made_of=following.to_json(),
            on_step=self.on_step,
        )
        files.keep(parts)
        self.is_anew = False
        damage = tables.damage.toArrow().to_pylist()
        spark.catalog.clearCache()
        self._read, self._notes = self.progress(), None
        rows = sum(part.rows for part in parts) - sum(part.rows for part in state.parts)
        return RunOutcome(made.version, True, rows, self._read, damage=damage, affected=changed)

    def _began_ms(self, state: RunState, known: Known, new: Path, ended: Sequence[EndedIncarnation]) -> dict[str, int]:
        """
        Return when the logs of topics began again: with their first record, but not before the last record read of the old
        ones, nor after the end of all logs. The logs do not record when a topic was deleted.
        """
        end_ms = self._end_ms(known.latest_ms, known.proofs)
        first = first_ms(new, {one.topic for one in ended})
        was = {} if state.known is None else state.known.latest_ms
        return {one.topic: min(max(first.get(one.topic, end_ms), was.get(one.topic, 0)), end_ms) for one in ended}

    def _known(self, files: bronze.Bronze, state: RunState, new: Path | None) -> Known:
        """Return what is known with the new rows, except topic names, which come from a frame."""
        known = state.known
        read = [] if new is None else [new]
        if known is None:
            known, read = Known(), [*(files.path(part.name) for part in state.parts), *read]
        latest = latest_ms(read, known.latest_ms)
        proved = {**known.proofs, **self._proofs(read)}
        at_ms = self._end_ms(latest, proved) if self.request.as_of_ms is None else self.request.as_of_ms
        return replace(known, latest_ms=latest, at_ms=at_ms, proofs=proved)

    def _proofs(self, read: Sequence[Path]) -> dict[TopicPartition, bool]:
        """Return whether the commits in some parts prove the timestamps of their topics right, see `sources.instants`."""
        if is_live(self.source.path):
            return {}
        return proofs_in(self.source.path, newest_reads(commits_in(read)))

    def _end_ms(self, latest_ms: Mapping[str, int], proved: Mapping[TopicPartition, bool]) -> int:
        """Return the end of all logs; that of a running cluster is now."""
        return (
            int(time.time() * 1000)
            if is_live(self.source.path)
            else end_of_logs(latest_ms, right_topics(proved), max((one.latest_ms for one in self._queries), default=0))
        )

    def _affected(self, before: Published, state: RunState, following: RunState, new: Path | None) -> Affected | None:
        """Return what the new rows affect; None if all tables have to be made again."""
        was, known = state.known, following.known
        if not published.is_of_this_release(before, self.request.tables):
            return None
        is_same_request = state.request == self.request and self.request.as_of_ms is None
        if was is None or known is None or not is_same_request or not set(READ) <= set(self.request.tables):
            return None
        grown = {place[0] for place, end in following.positions.items() if state.positions.get(place) != end}
        grown |= {place[0] for place, begin in following.begins.items() if state.begins.get(place) != begin}
        passed = {topic for topic, latest in known.latest_ms.items() if latest > was.at_ms}
        found = find_affected(
            before.path,
            new,
            topics=grown | passed,
            was_ms=was.at_ms,
            at_ms=known.at_ms,
            share_max=self.affected_share_max,
        )
        # What a query is doing changes without a record of it.
        queries = {one.group for one in self._queries}
        return None if found is None else replace(found, groups=found.groups | queries)

    def _tables(
        self,
        spark: Any,
        files: bronze.Bronze,
        state: RunState,
        changed: Affected | None,
        before: Published | None,
    ) -> Any:
        from kohort.pipeline.jobs.tables import Tables
        from kohort.pipeline.runs.reading import BronzeReading

        assert state.known is not None
        reading = BronzeReading(
            spark,
            self.source.path,
            files,
            state,
            at_ms=state.known.at_ms,
            connection=self.source.options,
            affected=changed,
            before=None if before is None else before.path,
            checkpoints=self._queries,
        )
        return Tables(reading)

    def _write(self, tables: Any, changed: Affected | None, before: Published | None, directory: Path) -> None:
        from kohort.pipeline.jobs.publish import write_parquet

        def write(name: str) -> None:
            write_parquet(getattr(tables, name), directory, name)
            if changed is not None and before is not None and name in KEYS:
                of = changed.of(KEYS[name])
                carry_over(name, before.path / name, directory / name, of, at_ms=tables.reading.at_ms)
            self.on_step(name)

        with ThreadPoolExecutor(WRITERS) as writers:
            for writing in [writers.submit(write, name) for name in self.request.tables]:
                writing.result()

"""
A checkpoint as it stands: what its query has finished, what it has begun, and since when.

Spark writes `offsets/N` when batch N is planned, which is after the batch before it has finished, and `commits/N` when batch N
has finished. So the newest plan tells the position: its own end offsets if its commit is there, otherwise those of the plan
before it, from which a restart reads again. That holds for asynchronous progress tracking, too, which leaves plans and commits
out: the batches between two plans count with the second one. A query without a finished batch stands where its sources began.

A batch has finished when its commit was written, by the time of the file, but not before it began and not after the next one
began: a copied file has the time of the copy.

Source: Spark MicroBatchExecution.populateStartOffsets, AsyncProgressTrackingMicroBatchExecution, HDFSMetadataLog.getLatest.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from statistics import median
from typing import Final

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.limits import CHECKPOINT_COMMITS_MAX
from kohort.pipeline.checkpoints.files import Content, Files
from kohort.pipeline.checkpoints.formats import (
    Plan,
    UnknownVersionError,
    check_commit,
    parse_plan,
    parse_query_id,
    parse_start,
    parse_times,
)

RECENT: Final = 100
"""Batches that a history always has; Spark keeps as many by default (`spark.sql.streaming.minBatchesToRetain`)."""
START: Final = -1
"""The number of a batch for where a query began."""
_ATTEMPTS: Final = 5
_METADATA, _OFFSETS, _COMMITS, _SOURCES = "metadata", "offsets", "commits", "sources"
_SOURCES_MAX: Final = 32
"""Sources of a query whose begin is looked for."""


class Extent(IntEnum):
    """The batches of a checkpoint that are read: each more than the one before."""

    LAST = 0
    """The last finished batch."""
    TIMES = 1
    """And the times of the recent ones."""
    RECENT = 2
    """The recent ones, as `RECENT` says."""
    ALL = 3
    """All, or, of more than `CHECKPOINT_COMMITS_MAX` rows, the recent ones and evenly spaced ones before them."""


@dataclass(slots=True)
class Commits:
    """Offsets of finished batches, in columns: one row for a partition and a batch."""

    topics: list[str] = field(default_factory=list)
    partitions: "array[int]" = field(default_factory=lambda: array("i"))
    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    batches: "array[int]" = field(default_factory=lambda: array("q"))
    times_ms: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, batch: int, at_ms: int, offsets: Mapping[TopicPartition, int]) -> None:
        self.topics += (place.topic for place in offsets)
        self.partitions.extend(place.partition for place in offsets)
        self.offsets.extend(offsets.values())
        self.batches.extend([batch] * len(offsets))
        self.times_ms.extend([at_ms] * len(offsets))


@dataclass(slots=True)
class Checkpoint:
    """
    One checkpoint.

    Attributes:
        group: the name that it has as a group.
        query_id: None if the file that holds it is damaged or not there.
        batch: the last finished batch; None if there is none.
        finished_ms: when it finished; without a finished batch, when the sources began.
        position: the next offset that the query reads after a restart, by partition.
        open_batch: a batch that was planned and has not finished.
        open_since_ms: when it began.
        replayed: records that a restart reads again.
        began_ms, took_ms: when the last batches began, and how long the finished ones among them took, the oldest first.
        retained: finished batches that the checkpoint still has.
        earlier: when the first of the last batches finished, and its position.
        commits: the rows of the batches that were read.
        problems: what could not be read, in words.
    """

    group: str
    path: str
    query_id: str | None = None
    batch: int | None = None
    finished_ms: int | None = None
    position: Mapping[TopicPartition, int] = field(default_factory=dict)
    open_batch: int | None = None
    open_since_ms: int | None = None
    replayed: int = 0
    watermark_ms: int | None = None
    others: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    began_ms: Sequence[int] = ()
    took_ms: Sequence[int] = ()
    retained: int = 0
    earlier: tuple[int, Mapping[TopicPartition, int]] | None = None
    commits: Commits = field(default_factory=Commits)
    problems: list[str] = field(default_factory=list)

    @property
    def latest_ms(self) -> int:
        """The last time that the query wrote, as far as its files tell; 0 if they do not."""
        return max(self.finished_ms or 0, self.open_since_ms or 0)

    @property
    def interval_ms(self) -> int | None:
        """The usual time from the begin of a batch to that of the next one."""
        return _median([later - one for one, later in zip(self.began_ms, self.began_ms[1:], strict=False)])

    @property
    def duration_ms(self) -> int | None:
        """The usual time of a batch."""
        return _median(self.took_ms)


def read_checkpoint(files: Files, group: str, path: str, extent: Extent = Extent.ALL) -> Checkpoint:
    """
    Read a checkpoint. Its query may be running.

    Args:
        extent: the batches that have rows in `Checkpoint.commits`.

    Raises:
        ConfigError: it is no checkpoint, it cannot be read, or Spark changes it too quickly.
        UnknownVersionError: a newer Spark wrote it.
    """
    path = path.rstrip("/")
    for _ in range(_ATTEMPTS):
        # A plan is written before its commit: commits first, so that each has its plan.
        commits, plans = _numbers(files, _at(path, _COMMITS)), _numbers(files, _at(path, _OFFSETS))
        found = Checkpoint(group, path)
        if _is_read(files, found, plans, commits, extent):
            return found
    raise ConfigError(f"{path} changes while it is read: batches are deleted within moments")


def _is_read(files: Files, found: Checkpoint, plans: Sequence[int], commits: Sequence[int], extent: Extent) -> bool:
    """Read the files of a listing; False if Spark has deleted those that count meanwhile."""
    about = files.read(found.path, [_METADATA]).get(_METADATA)
    if about is None and not plans and not commits:
        raise ConfigError(f"{found.path} is no checkpoint of Spark: it has neither offsets nor metadata")
    found.query_id = None if about is None else parse_query_id(about.data)
    if found.query_id is None:
        found.problems.append("metadata is missing or damaged, so the query's id is unknown")
    log = _Log(files, found, commits)
    known: list[tuple[int, Plan | None]] = []
    for number in plans[-2:]:
        content = log.content(number)
        if content is None:
            return False
        known.append((number, log.plan(number, content)))
    _stand(files, found, log, known, plans)
    if found.batch is None:
        found.commits.add(START, found.finished_ms or 0, found.position)
    if extent > Extent.LAST:
        wanted = _wanted(plans, partitions=len(found.position), has_older=extent is Extent.ALL)
    else:
        wanted = plans[-2:]
        if found.batch is not None and found.batch not in wanted:
            wanted = [found.batch, *wanted]
    log.walk(wanted, has_rows=extent > Extent.TIMES)
    return True


class _Log:
    """The plans and commits of one listing."""

    def __init__(self, files: Files, found: Checkpoint, commits: Sequence[int]) -> None:
        self._files, self._found, self.commits = files, found, commits
        self._damaged: set[str] = set()

    def content(self, number: int) -> Content | None:
        return self._files.read(_at(self._found.path, _OFFSETS), [str(number)]).get(str(number))

    def plan(self, number: int, content: Content, *, has_offsets: bool = True) -> Plan | None:
        """Return a plan, or its times only; None if it is damaged."""
        name = f"{_OFFSETS}/{number}"
        try:
            return parse_plan(content.data) if has_offsets else parse_times(content.data)
        except UnknownVersionError as exc:
            raise UnknownVersionError(f"{self._found.path}/{name}: {exc}") from exc
        except (ValueError, RecursionError) as exc:
            self.damaged(name, exc)
            return None

    def has_finished(self, number: int) -> bool:
        """Tell whether the commit of the newest plan is there and whole."""
        if not _is_among(number, self.commits):
            return False
        name = f"{_COMMITS}/{number}"
        content = self._files.read(_at(self._found.path, _COMMITS), [str(number)]).get(str(number))
        try:
            if content is not None:
                check_commit(content.data)
        except UnknownVersionError as exc:
            raise UnknownVersionError(f"{self._found.path}/{name}: {exc}") from exc
        except (ValueError, RecursionError) as exc:
            self.damaged(name, exc)
            return False
        return True

    def damaged(self, name: str, exc: Exception) -> None:
        if name not in self._damaged:
            self._damaged.add(name)
            self._found.problems.append(f"{name} is damaged ({exc})")

    def walk(self, wanted: Sequence[int], *, has_rows: bool) -> None:
        """Read plans in order, and keep times of those that have finished, and their rows, or only those of the last one."""
        found, last, recent = self._found, self._found.batch, set(wanted[-RECENT:])
        began: list[int] = []
        took: list[int] = []
        before: tuple[int, Plan, int | None] | None = None

        def finish(upto_ms: int | None) -> None:
            if before is None:
                return
            number, plan, written_ms = before
            if last is None or number > last:
                return
            at_ms = _finished_ms(plan.began_ms, written_ms, upto_ms)
            took.append(at_ms - plan.began_ms)
            if found.earlier is None and number in recent:
                found.earlier = at_ms, plan.offsets
            if number == last:
                found.finished_ms = at_ms
            if has_rows or number == last:
                found.commits.add(number, at_ms, found.position if number == last else plan.offsets)

        for number, content, written_ms in self._contents(wanted):
            # The first one tells the earlier position, and those of the last two are known.
            has_offsets = has_rows or before is None
            plan = None if content is None else self.plan(number, content, has_offsets=has_offsets)
            if plan is None:
                continue
            finish(plan.began_ms)
            began.append(plan.began_ms)
            before = number, plan, written_ms
        finish(None)
        found.began_ms, found.took_ms = began[-RECENT:], took[-RECENT:]

    def _contents(self, wanted: Sequence[int]) -> Iterator[tuple[int, Content | None, int | None]]:
        """Yield plans and when their commits were written; None where a file is missing."""
        path = self._found.path
        for first in range(0, len(wanted), RECENT):
            names = [str(number) for number in wanted[first : first + RECENT]]
            plans = self._files.read(_at(path, _OFFSETS), names)
            commits = self._files.read(_at(path, _COMMITS), [one for one in names if _is_among(int(one), self.commits)])
            for name in names:
                yield int(name), plans.get(name), commits[name].modified_ms if name in commits else None


def _stand(
    files: Files, found: Checkpoint, log: _Log, known: Sequence[tuple[int, Plan | None]], plans: Sequence[int]
) -> None:
    """Find position and open batch from the last two plans."""
    if not known:
        found.position = _start(files, found)
        return
    newest, plan = known[-1]
    is_finished = log.has_finished(newest)
    found.retained = len(plans) - (not is_finished)
    if plan is not None:
        found.watermark_ms, found.others, found.settings = plan.watermark_ms or None, plan.others, plan.settings
    if is_finished and plan is not None:
        found.batch, found.position = newest, plan.offsets
        return
    if not is_finished:
        found.open_batch, found.open_since_ms = newest, None if plan is None else plan.began_ms or None
    found.batch, found.position = _before(log, known, plans)
    if found.batch is None:
        found.position = _start(files, found)
    if is_finished:
        told = "where it began" if found.batch is None else f"batch {found.batch}"
        found.problems.append(f"so the position is that of {told}, and batch {newest} has finished since")
    elif plan is not None:
        starts = found.position
        # A partition that was added is read from its begin; a query that does not tell where it began is not guessed at.
        found.replayed = sum(max(end - starts.get(place, 0), 0) for place, end in plan.offsets.items() if starts)


def _before(
    log: _Log, known: Sequence[tuple[int, Plan | None]], plans: Sequence[int]
) -> tuple[int | None, Mapping[TopicPartition, int]]:
    """Return the last plan before the newest one that can be read, and its offsets."""
    for number, plan in known[:-1]:
        if plan is not None:
            return number, plan.offsets
    for number in reversed(plans[: -len(known)][-RECENT:]):
        content = log.content(number)
        plan = None if content is None else log.plan(number, content)
        if plan is not None:
            return number, plan.offsets
    return None, {}


def _start(files: Files, found: Checkpoint) -> dict[TopicPartition, int]:
    """Return where the sources of a query began, which they write before the first batch."""
    start: dict[TopicPartition, int] = {}
    for number in range(_SOURCES_MAX):
        content = files.read(f"{_at(found.path, _SOURCES)}/{number}", ["0"]).get("0")
        if content is None:
            break
        try:
            offsets = parse_start(content.data)
        except UnknownVersionError as exc:
            raise UnknownVersionError(f"{found.path}/{_SOURCES}/{number}/0: {exc}") from exc
        except (ValueError, RecursionError) as exc:
            found.problems.append(f"{_SOURCES}/{number}/0 is damaged ({exc})")
            continue
        start |= {place: min(at, start.get(place, at)) for place, at in offsets.items()}
        found.finished_ms = max(found.finished_ms or 0, content.modified_ms)
    return start


def _wanted(plans: Sequence[int], *, partitions: int, has_older: bool) -> Sequence[int]:
    """Return the plans to read: the recent ones, and of older ones as many as there is room for."""
    older, recent = plans[:-RECENT], plans[-RECENT:]
    room = CHECKPOINT_COMMITS_MAX // max(partitions, 1) - len(recent) if has_older else 0
    if room <= 0:
        return recent
    step = -(-len(older) // room)
    return [*older[:: max(step, 1)], *recent]


def _finished_ms(began_ms: int, written_ms: int | None, upto_ms: int | None) -> int:
    """Return when a batch finished, see the module."""
    at_ms = (upto_ms if upto_ms is not None else began_ms) if written_ms is None else written_ms
    if upto_ms:
        at_ms = min(at_ms, upto_ms)
    return max(at_ms, began_ms)


def _numbers(files: Files, directory: str) -> "array[int]":
    """Return the sorted numbers of the files in a log; temporary files and checksums are no numbers."""
    names = files.names(directory)
    return array("q", sorted(int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 19))


def _is_among(number: int, numbers: Sequence[int]) -> bool:
    at = bisect_left(numbers, number)
    return at < len(numbers) and numbers[at] == number


def _at(path: str, name: str) -> str:
    base, mark, query = path.partition("?")
    return f"{base.rstrip('/')}/{name}{mark}{query}"


def _median(values: Sequence[int]) -> int | None:
    return round(median(values)) if values else None

"""
A topic is deleted and created again under its name, or a log is truncated: runs go on, and the tables tell of both
incarnations.

The coordinator deletes the offsets of a deleted topic by tombstones; later commits of a group belong to the new topic. The
cases are topics of one data directory, so that they share the runs.
"""

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ConfigError
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.pipeline.jobs import published
from kohort.pipeline.runs.affected import READ
from kohort.pipeline.runs.incarnations import find_ended
from kohort.pipeline.runs.run import Run, RunOutcome, Source
from kohort.pipeline.runs.state import RunRequest, RunState
from kohort_lab.history.logs import Log, Record
from kohort_lab.history.values import offset_commit
from kohort_lab.history.world import START_MS
from tests.conftest import LONG, NIGHTLY

pytestmark = NIGHTLY

TABLES = ("time_lag", "lag_over_time", "time_lag_over_time", "status", "blocking_transactions", "commit_frequency")
ALL_TABLES = tuple(dict.fromkeys((*TABLES, *(READ if LONG else ()))))
"""With all of `READ` a run makes only the rows again that the new log affects."""
PRODUCER = (7, 0)

Row = dict[str, Any]


class Broker:
    """A data directory that is written step by step."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._offsets = Log(CONSUMER_OFFSETS, 0)

    def commit(self, at_s: int, *commits: tuple[str, str, int, int | None]) -> None:
        """Append commits: group, topic, partition, offset (None writes a tombstone)."""
        at_ms = START_MS + at_s * 1000
        records = [offset_commit(group, topic, number, offset, at_ms=at_ms) for group, topic, number, offset in commits]
        self._offsets.append(records, at_ms)
        self.write(self._offsets)

    def write(self, log: Log, topic_id: str | None = None) -> None:
        """Write all batches of a log; an existing file grows."""
        name = f"{log.topic}-{log.partition}"
        log.write(self.root / "beside", batches_per_segment=100)
        directory = self.root / name
        directory.mkdir(exist_ok=True)
        for file in (self.root / "beside" / name).iterdir():
            (directory / file.name).write_bytes(file.read_bytes())
        shutil.rmtree(self.root / "beside")
        if topic_id is not None:
            (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")

    def delete(self, *partitions: str) -> None:
        for partition in partitions:
            shutil.rmtree(self.root / partition)


def topic_id(topic: str, incarnation: int) -> str:
    """As Kafka prints one: 22 characters of base64."""
    return f"{topic}{incarnation}".ljust(21, "A") + "Q"


def log_of(topic: str, partition: int, *at_s: int) -> Log:
    """A log with a batch of ten records at each of these seconds."""
    log = Log(topic, partition)
    for at in at_s:
        log.append([Record(None, b"x")] * 10, START_MS + at * 1000)
    return log


@dataclass(frozen=True, slots=True)
class Step:
    """A run: its outcome and the rows it published."""

    outcome: RunOutcome
    rows: dict[str, list[Row]]
    incarnations: dict[str, dict[str, int]]

    def lags(self, topic: str) -> list[tuple[Any, ...]]:
        """Partition, end offset, lag, time lag."""
        names = ("partition", "end_offset", "lag", "time_lag_ms")
        return [tuple(row[name] for name in names) for row in self.rows["time_lag"] if row["topic"] == topic]

    def lag_steps(self, group: str) -> list[tuple[float, int]]:
        rows = [row for row in self.rows["lag_over_time"] if row["group"] == group]
        return [((row["timestamp_ms"] - START_MS) / 1000, row["lag"]) for row in rows]

    def waits(self, group: str) -> list[tuple[float, float | None, float]]:
        """Instant, begin of the wait, greatest time lag before; in seconds."""
        rows = [row for row in self.rows["time_lag_over_time"] if row["group"] == group]
        return [
            (
                _seconds(row["timestamp_ms"]),
                None if row["waiting_since_ms"] is None else _seconds(row["waiting_since_ms"]),
                row["time_lag_max_ms"] / 1000,
            )
            for row in rows
        ]

    def ended(self, topic: str) -> list[str]:
        return [str(one) for one in self.outcome.ended if one.topic == topic]


def _seconds(at_ms: int) -> float:
    return (at_ms - START_MS) / 1000


def first_incarnations(broker: Broker) -> None:
    """Topics that are all created again later, except `rest`; a transaction is open in `both`."""
    both = log_of("both", 0, 10, 20, 30)
    both.append([Record(None, b"x")] * 5, START_MS + 40_000, producer=PRODUCER, transactional=True)
    broker.write(both, topic_id("both", 0))
    broker.write(log_of("both", 1, 10), topic_id("both", 0))
    broker.write(log_of("rest", 0, 10), topic_id("rest", 0))
    broker.write(log_of("thrice", 0, 10, 20), topic_id("thrice", 0))
    broker.write(log_of("cut", 0, 10, 20, 30), topic_id("cut", 0))
    broker.write(log_of("cut", 1, 10), topic_id("cut", 0))
    for partition in (0, 1):
        broker.write(log_of("nameless", partition, 10, 20))
    broker.commit(15, ("g-thrice", "thrice", 0, 10))
    broker.commit(25, ("g-nameless", "nameless", 0, 10), ("g-nameless", "nameless", 1, 10))
    broker.commit(35, ("g-both", "both", 0, 20), ("g-both", "both", 1, 4), ("h", "rest", 0, 8))
    broker.commit(35, ("g-cut", "cut", 0, 10), ("g-cut", "cut", 1, 10))


def second_incarnations(broker: Broker) -> Log:
    broker.delete("both-0", "both-1", "thrice-0", "cut-0", "nameless-0", "nameless-1")
    broker.commit(50, ("g-both", "both", 0, None), ("g-both", "both", 1, None))
    # More offsets than were read of the old log: the end offset alone does not tell the logs apart. It has one partition less.
    broker.write(log_of("both", 0, 60, 70, 80, 90, 100), topic_id("both", 1))
    broker.write(thrice := log_of("thrice", 0, 30), topic_id("thrice", 1))
    broker.write(log_of("cut", 0, 10, 20), topic_id("cut", 0))
    broker.write(log_of("nameless", 0, 30))
    broker.write(log_of("nameless", 1, 30, 31, 32))
    broker.commit(52, ("g-nameless", "nameless", 0, 10), ("g-nameless", "nameless", 1, 10))
    broker.commit(95, ("g-both", "both", 0, 30))
    return thrice


@pytest.fixture(scope="module")
def steps(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Step]]:
    root = tmp_path_factory.mktemp("incarnations")
    broker, out = Broker(root / "logs"), root / "out"

    def run(*tables: str, as_of_s: int | None = None) -> Step:
        request = RunRequest(tables=tables, as_of_ms=None if as_of_s is None else START_MS + as_of_s * 1000)
        outcome = Run(Source(str(broker.root)), out, request, lambda _: nullcontext(spark)).once()
        rows = {name: published.rows(out, name) for name in tables}
        return Step(outcome, rows, published.current(out).fingerprint["lives"])

    first_incarnations(broker)
    found = {"first": run(*ALL_TABLES)}
    thrice = second_incarnations(broker)
    found["second"] = run(*ALL_TABLES)
    found["nothing new"] = run(*ALL_TABLES)
    for as_of_s in (45, 95):
        found[f"as of {as_of_s}"] = run("time_lag", as_of_s=as_of_s)
    thrice.append([Record(None, b"x")] * 5, START_MS + 40_000)
    broker.write(thrice)
    found["grown"] = run("time_lag")
    broker.delete("thrice-0")
    broker.write(Log("thrice", 0), topic_id("thrice", 2))
    found["third, empty"] = run("time_lag")
    broker.write(log_of("thrice", 0, 50, 60))
    found["third"] = run("time_lag")
    yield found
    spark.catalog.clearCache()


@pytest.mark.spark
def test_the_tables_tell_of_both_incarnations(steps: dict[str, Step]) -> None:
    """The first one has two partitions, the second one has one. Another topic and another group go on."""
    first, second = steps["first"], steps["second"]
    assert first.lags("both") == [(0, 35, 15, 10_000), (1, 10, 6, 30_000)]
    assert len(first.rows["blocking_transactions"]) == 1
    assert second.ended("both") == [
        "both-0 was created again, and ends at 50; the previous log was read to offset 35",
        "both-1 no longer exists since its topic was created again; it was read to offset 10",
    ]
    assert second.outcome.lost == []
    assert second.ended("rest") == []
    assert second.lags("both") == [(0, 50, 20, 10_000)]
    assert second.lags("rest") == [(0, 10, 2, 90_000)]
    # Behind by 15 and 6 in the first one until the tombstones.
    assert second.lag_steps("g-both") == [
        *[(35, 16), (40, 21), (50, 0), (60, 0), (70, 0), (80, 0), (90, 0), (95, 10), (100, 20)],
    ]
    # The record of 10 s waits in the partition that no longer exists, until the tombstone; that of 90 s since the last commit.
    assert [row for row in second.waits("g-both") if row[0] in (35, 95)] == [(35, 10, 25), (95, 90, 5)]
    assert max(row[2] for row in second.waits("g-both")) == 40
    # The open transaction of the first one blocks no reader any more.
    assert second.rows["blocking_transactions"] == []
    assert {row["rewinds"] for row in second.rows["commit_frequency"]} == {0}
    # The group is silent for longer than its window of one commit. It is not STOP: at 80 s the end was 30, in this incarnation.
    rows = [row for row in second.rows["status"] if row["group"] == "g-both"]
    assert [(row["partition"], row["status"]) for row in rows] == [(0, "STALL")]
    assert steps["nothing new"].outcome == RunOutcome(version=2, is_new=False)


@pytest.mark.spark
def test_as_of_an_instant_of_either_incarnation(steps: dict[str, Step]) -> None:
    assert steps["as of 45"].lags("both") == [(0, 35, 15, 15_000), (1, 10, 6, 35_000)]
    assert steps["as of 95"].lags("both") == [(0, 40, 10, 5_000)]


@pytest.mark.spark
def test_incarnations_are_counted_from_run_to_run(steps: dict[str, Step]) -> None:
    """The second log grows; the third one is empty at first: a group with an offset of the second one has no lag."""
    assert len(steps["second"].ended("thrice")) == 1
    assert steps["second"].lags("thrice") == [(0, 10, 0, 0)]
    assert (steps["grown"].outcome.ended, steps["grown"].outcome.rows_read) == ([], 1)
    assert steps["grown"].lags("thrice") == [(0, 15, 5, 60_000)]
    assert [one.topic for one in steps["third, empty"].outcome.ended] == ["thrice"]
    assert steps["third, empty"].lags("thrice") == [(0, 0, 0, 0)]
    assert steps["third, empty"].incarnations["thrice"] == {"0": 2}
    assert steps["third"].lags("thrice") == [(0, 20, 10, 40_000)]


@pytest.mark.spark
def test_a_log_that_was_truncated_is_read_again(steps: dict[str, Step]) -> None:
    """The same topic id, and fewer offsets than were read: an unclean election, or a restored disk."""
    assert steps["second"].ended("cut") == [
        "cut-0 ends at 20, and was read to offset 30 before: it was truncated, and is read again"
    ]
    assert steps["second"].lags("cut") == [(0, 20, 10, 80_000), (1, 10, 0, 0)]


@pytest.mark.spark
def test_without_topic_ids_the_end_offsets_decide(steps: dict[str, Step]) -> None:
    """Copied segments: if one log of a topic ends too early, all logs of the topic are new."""
    assert len(steps["second"].ended("nameless")) == 2
    assert steps["second"].lags("nameless") == [(0, 10, 0, 0), (1, 30, 20, 69_000)]


@pytest.mark.parametrize(("ids", "end"), [({CONSUMER_OFFSETS: "new"}, 20), ({}, 9)])
def test_the_log_of_a_coordinator_cannot_begin_again(ids: dict[str, str], end: int) -> None:
    place = (CONSUMER_OFFSETS, 0)
    state = RunState(positions={place: 10}, topic_ids={CONSUMER_OFFSETS: "old"} if ids else {})
    assert find_ended(state, {place: (0, 10)}, state.topic_ids) == []
    with pytest.raises(ConfigError, match=r"__consumer_offsets-0 ends at offset .* is another log now; begin anew"):
        find_ended(state, {place: (0, end)}, ids)

"""
A topic is deleted and made again under its name: a run goes on, and both lives are told as they were.

The coordinator forgets the offsets of a topic that is deleted (it writes tombstones); what a group commits afterwards belongs
to the new one.
"""

import shutil
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ConfigError
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.pipeline.jobs import published
from kohort.pipeline.runs.affected import READ
from kohort.pipeline.runs.run import Outcome, Run, Source
from kohort.pipeline.runs.state import RunRequest
from kohort.testing.history.logs import Log, Record
from kohort.testing.history.values import offset_commit
from kohort.testing.history.world import START_MS
from tests.conftest import LONG

pytestmark = pytest.mark.spark

TOLD = ("time_lag", "lag_over_time", "status", "blocking_transactions", "commit_frequency")
TABLES = tuple(dict.fromkeys((*TOLD, *(READ if LONG else ()))))
"""With all of `READ` what the new log touches is made again alone."""
WAITING = ("time_lag",)
OLD, NEW = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
PRODUCER = (7, 0)


class Broker:
    """A data directory that is written step by step."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._offsets = Log(CONSUMER_OFFSETS, 0)

    def commits(self, at_s: int, *told: tuple[str, str, int, int | None]) -> None:
        """Group, topic, partition, offset (None deletes it)."""
        at_ms = START_MS + at_s * 1000
        records = [offset_commit(group, topic, number, offset, at_ms=at_ms) for group, topic, number, offset in told]
        self._offsets.append(records, at_ms)
        self.write(self._offsets)

    def write(self, log: Log, topic_id: str | None = None) -> None:
        """All of a log; the file that is there grows."""
        name = f"{log.topic}-{log.partition}"
        log.write(self.root / "beside", batches_per_segment=100)
        place = self.root / name
        place.mkdir(exist_ok=True)
        for file in (self.root / "beside" / name).iterdir():
            (place / file.name).write_bytes(file.read_bytes())
        shutil.rmtree(self.root / "beside")
        if topic_id is not None:
            (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")

    def deletes(self, *places: str) -> None:
        for place in places:
            shutil.rmtree(self.root / place)


def log_of(topic: str, partition: int, *at_s: int, records: int = 10) -> Log:
    """So many records at each of these seconds."""
    log = Log(topic, partition)
    for at in at_s:
        log.append([Record(None, b"x")] * records, START_MS + at * 1000)
    return log


def lags(out: Path) -> list[tuple[Any, ...]]:
    rows = published.rows(out, "time_lag")
    return [
        (*(row[name] for name in ("group", "topic", "partition", "end_offset", "lag", "time_lag_ms")),) for row in rows
    ]


def lag_steps(out: Path, group: str) -> list[tuple[float, int]]:
    rows = published.rows(out, "lag_over_time")
    return [((row["timestamp_ms"] - START_MS) / 1000, row["lag"]) for row in rows if row["group"] == group]


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "logs")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def once(spark: Any, broker: Broker, out: Path, *, tables: Iterable[str] = WAITING, **wanted: Any) -> Outcome:
    wish = RunRequest(tables=tuple(tables), **wanted)
    return Run(Source(str(broker.root)), out, wish, lambda _: nullcontext(spark)).once()


def test_both_lives_are_told(interpreted: Any, broker: Broker, out: Path) -> None:
    """
    The first topic has two partitions, the second one; another topic and another group go on meanwhile. A transaction was open
    in the first one, which holds nobody back any more.
    """
    old = log_of("t", 0, 10, 20, 30)
    old.append([Record(None, b"x")] * 5, START_MS + 40_000, producer=PRODUCER, transactional=True)
    broker.write(old, OLD)
    broker.write(log_of("t", 1, 10), OLD)
    rest = log_of("rest", 0, 10)
    broker.write(rest, "AAAAAAAAAAAAAAAAAAAABw")
    broker.commits(35, ("g", "t", 0, 20), ("g", "t", 1, 4), ("h", "rest", 0, 8))
    once(interpreted, broker, out, tables=TABLES)
    assert lags(out)[:2] == [("g", "t", 0, 35, 15, 10_000), ("g", "t", 1, 10, 6, 30_000)]
    assert len(published.rows(out, "blocking_transactions")) == 1

    broker.deletes("t-0", "t-1")
    broker.commits(50, ("g", "t", 0, None), ("g", "t", 1, None))
    # As many offsets as were read of the old one, and more: their number alone tells nothing.
    broker.write(log_of("t", 0, 60, 70, 80, 90, 100), NEW)
    broker.commits(95, ("g", "t", 0, 30))
    told = once(interpreted, broker, out, tables=TABLES)
    assert [(one.topic, one.partition, one.position) for one in told.over] == [("t", 0, 35), ("t", 1, 10)]
    assert [str(one) for one in told.over] == [
        "t-0 was made again, and ends at 50; the one before was read to offset 35",
        "t-1 is gone since its topic was made again; it was read to offset 10",
    ]
    assert told.lost == []
    assert lags(out) == [("g", "t", 0, 50, 20, 10_000), ("h", "rest", 0, 10, 2, 90_000)]
    # Behind by 15 and 6 in the old one until its offsets went.
    assert lag_steps(out, "g") == [
        *[(35, 16), (40, 21), (50, 0), (60, 0), (70, 0), (80, 0), (90, 0), (95, 10), (100, 20)],
    ]
    assert published.rows(out, "blocking_transactions") == []
    assert [row["rewinds"] for row in published.rows(out, "commit_frequency")] == [0, 0, 0]
    # Silent for longer than its window of one commit; but an end that Burrow has stored was 30, at 80 s: of this life.
    statuses = [(row["partition"], row["status"]) for row in published.rows(out, "status") if row["group"] == "g"]
    assert statuses == [(0, "STALL")]
    assert once(interpreted, broker, out, tables=TABLES) == Outcome(version=2, is_new=False)
    # As of an instant of the first life, and of the second.
    once(interpreted, broker, out, tables=WAITING, as_of_ms=START_MS + 45_000)
    assert lags(out)[:2] == [("g", "t", 0, 35, 15, 15_000), ("g", "t", 1, 10, 6, 35_000)]
    once(interpreted, broker, out, tables=WAITING, as_of_ms=START_MS + 95_000)
    assert lags(out)[0] == ("g", "t", 0, 40, 10, 5_000)


def test_it_goes_on_from_run_to_run(interpreted: Any, broker: Broker, out: Path) -> None:
    """The new log grows, and the topic is made a third time, empty at first; who still stands in the old one is not behind."""
    broker.write(log_of("t", 0, 10, 20), OLD)
    broker.commits(15, ("g", "t", 0, 10))
    once(interpreted, broker, out)
    broker.deletes("t-0")
    broker.write(second := log_of("t", 0, 30), NEW)
    assert len(once(interpreted, broker, out).over) == 1
    assert lags(out) == [("g", "t", 0, 10, 0, 0)]
    second.append([Record(None, b"x")] * 5, START_MS + 40_000)
    broker.write(second)
    told = once(interpreted, broker, out)
    assert (told.over, told.rows_read) == ([], 1)
    assert lags(out) == [("g", "t", 0, 15, 5, 0)]
    broker.deletes("t-0")
    broker.write(Log("t", 0), "AAAAAAAAAAAAAAAAAAAABw")
    assert len(once(interpreted, broker, out).over) == 1
    assert lags(out) == [("g", "t", 0, 0, 0, 0)]
    assert published.current(out).fingerprint["lives"] == {"t": {"0": 2}}
    broker.write(log_of("t", 0, 50, 60))
    once(interpreted, broker, out)
    assert lags(out) == [("g", "t", 0, 20, 10, 0)]


def test_a_log_that_was_cut_off_is_read_again(interpreted: Any, broker: Broker, out: Path) -> None:
    """The same topic, and less in it than was read: an unclean election, or a disk that was restored."""
    broker.write(log_of("t", 0, 10, 20, 30), OLD)
    broker.write(log_of("t", 1, 10), OLD)
    broker.commits(35, ("g", "t", 0, 10), ("g", "t", 1, 10))
    once(interpreted, broker, out)
    broker.deletes("t-0")
    broker.write(log_of("t", 0, 10, 20), OLD)
    told = once(interpreted, broker, out)
    assert [str(one) for one in told.over] == [
        "t-0 ends at 20, and was read to offset 30 before: it was cut off, and is read again"
    ]
    assert lags(out) == [("g", "t", 0, 20, 10, 15_000), ("g", "t", 1, 10, 0, 0)]


def test_without_ids_the_ends_tell(interpreted: Any, broker: Broker, out: Path) -> None:
    """Copied segments: when one log of a topic ends too early, all of them are other ones."""
    for partition in (0, 1):
        broker.write(log_of("t", partition, 10, 20))
    broker.commits(25, ("g", "t", 0, 10), ("g", "t", 1, 10))
    once(interpreted, broker, out)
    broker.deletes("t-0", "t-1")
    broker.write(log_of("t", 0, 30))
    broker.write(log_of("t", 1, 30, 31, 32))
    broker.commits(35, ("g", "t", 0, 10), ("g", "t", 1, 10))
    assert len(once(interpreted, broker, out).over) == 2
    assert lags(out) == [("g", "t", 0, 10, 0, 0), ("g", "t", 1, 30, 20, 4_000)]


@pytest.mark.parametrize("is_named", [True, False])
def test_of_a_coordinator_nothing_is_left_to_go_on_with(spark: Any, broker: Broker, out: Path, is_named: bool) -> None:
    broker.write(log_of(CONSUMER_OFFSETS, 0, 10), OLD if is_named else None)
    once(spark, broker, out, tables=("offsets",))
    broker.deletes(f"{CONSUMER_OFFSETS}-0")
    broker.write(log_of(CONSUMER_OFFSETS, 0, *((1, 2) if is_named else ())), NEW if is_named else None)
    with pytest.raises(ConfigError, match=r"__consumer_offsets-0 ends at offset .* is another log now; begin anew"):
        once(spark, broker, out, tables=("offsets",))

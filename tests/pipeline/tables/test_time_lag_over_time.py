"""How long the oldest unread record of a group has waited, at every moment."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kohort.pipeline.decode import schemas
from kohort.pipeline.tables.incarnations import BATCH_COLUMNS, INCARNATION
from kohort.pipeline.tables.lag.time_lag_over_time import time_lag_over_time
from tests.pipeline import frames
from tests.pipeline.tables.test_lag import COMMITS, commit
from tests.pipeline.tables.test_time_lag import abort, batch, data

NOW_MS = 1000
STARTS = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("begin_offset", pa.int64())])
BATCHES = schemas.subset(BATCH_COLUMNS).append(pa.field(INCARNATION, pa.int32()))

Series = list[tuple[int, int | None, int, int]]


def one(base: int, at_ms: int, **other: Any) -> frames.Row:
    """A batch of ten records that were produced at once."""
    return batch(base, base + 10, at_ms, at_ms, log_partition=0) | other


def series(
    engine: Any,
    commits: list[frames.Row],
    batches: list[frames.Row],
    *,
    points: int = 2000,
    starts: dict[int, int] | None = None,
    at_ms: int = NOW_MS,
) -> dict[str, Series]:
    """The rows of each group. With enough points every millisecond is an interval."""
    found = time_lag_over_time(
        frames.of_schema(engine, COMMITS, commits),
        _batches(engine, batches),
        at_ms=at_ms,
        begins=None if starts is None else frames.of_schema(engine, STARTS, _starts(starts)),
        points=points,
    )
    rows: dict[str, Series] = {}
    for group, *row in frames.tuples(found, "group", *_COLUMNS):
        rows.setdefault(group, []).append(tuple(row))
    return rows


_COLUMNS = ("timestamp_ms", "waiting_since_ms", "time_lag_ms", "time_lag_max_ms")


def _batches(engine: Any, batches: list[frames.Row]) -> Any:
    has_incarnations = any(INCARNATION in row for row in batches)
    schema = BATCHES if has_incarnations else schemas.subset(BATCH_COLUMNS)
    return frames.of_schema(
        engine, schema, ({INCARNATION: 0} | row for row in batches) if has_incarnations else batches
    )


def _starts(starts: dict[int, int]) -> list[frames.Row]:
    return [{"topic": "t", "partition": number, "begin_offset": at} for number, at in starts.items()]


LOG = [one(0, 100), one(10, 200), one(20, 300), one(30, 400)]

# fmt: off
CASES: list[tuple[str, list[frames.Row], list[frames.Row], Series]] = [
    ("grows until the commit, and from the next record on",
     [commit(250, 0, 0), commit(350, 1, 20), commit(360, 2, 30)], LOG,
     [(250, 100, 150, 150), (350, 300, 50, 250), (360, None, 0, 60), (400, 400, 0, 0)]),
    ("all is read before it is produced, by the clocks",
     [commit(50, 0, 40)], LOG,
     [(50, None, 0, 0)]),
    ("a record waits after the last commit",
     [commit(150, 0, 10)], LOG,
     [(150, None, 0, 0), (200, 200, 0, 0)]),
    ("inside a batch its greatest timestamp counts",
     [commit(500, 0, 3)], [batch(0, 10, 100, 130, log_partition=0)],
     [(500, 130, 370, 370)]),
    ("a tombstone ends it",
     [commit(250, 0, 0), commit(300, 1, None), commit(310, 2, 10)], LOG,
     [(250, 100, 150, 150), (300, None, 0, 200), (310, 200, 110, 110)]),
    ("a commit that changes nothing is none",
     [commit(250, 0, 0), commit(260, 1, 0), commit(300, 2, 10), commit(999, 3, 10)], LOG,
     [(250, 100, 150, 150), (300, 200, 100, 200)]),
    ("a group goes back",
     [commit(250, 0, 10), commit(300, 1, 0)], LOG,
     [(250, 200, 50, 50), (300, 100, 200, 200)]),
    ("of commits at one instant the last one counts",
     [commit(250, 0, 10), commit(300, 1, 0), commit(300, 2, 20), commit(400, 3, 30)], LOG,
     [(250, 200, 50, 50), (300, 300, 0, 100), (400, 400, 0, 100)]),
    ("an older transaction completes later",
     [commit(400, 0, 0, fate="committed"), commit(250, 1, 10), commit(500, 2, 20)], LOG,
     [(250, 200, 50, 50), (500, 300, 200, 300)]),
    ("commits that took no effect",
     [commit(250, 0, 10), commit(300, 1, 30, fate="aborted", visible_at_ms=None),
      commit(300, 2, 30, fate="pending", visible_at_ms=None)], LOG,
     [(250, 200, 50, 50)]),
    ("aborted records wait for nobody",
     [commit(150, 0, 0), commit(500, 1, 11)],
     [data(0, 10, 100) | {"log_partition": 0}, abort(10, 110) | {"log_partition": 0}, one(11, 300)],
     [(150, None, 0, 0), (300, 300, 0, 0), (500, 300, 200, 200)]),
    ("the oldest record of two partitions",
     [commit(250, 0, 0), commit(250, 1, 0, partition=1), commit(300, 2, 40), commit(350, 3, 10, partition=1)],
     [*LOG, one(0, 150, log_partition=1)],
     [(250, 100, 150, 150), (300, 150, 150, 200), (350, None, 0, 200)]),
    ("a record of a clock that is ahead waits from now on",
     [commit(250, 0, 40)], [*LOG, one(40, NOW_MS + 1)],
     [(250, None, 0, 0), (NOW_MS, NOW_MS, 0, 0)]),
    ("a log that is not here",
     [commit(250, 0, 40), commit(240, 0, 0, topic="elsewhere")], LOG,
     [(250, None, 0, 0)]),
]
# fmt: on


@pytest.fixture(scope="module")
def told(engine: Any) -> dict[str, Series]:
    """Every case as a group and a topic of its own, read at once."""
    commits = [_of(name, row, "group") for name, rows, *_ in CASES for row in rows]
    batches = [row | {"log_topic": f"{name} t"} for name, _, rows, _ in CASES for row in rows]
    return series(engine, commits, batches)


def _of(name: str, row: frames.Row, key: str) -> frames.Row:
    return row | {key: name, "topic": f"{name} {row['topic']}"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_how_long_a_record_has_waited_at_every_moment(told: dict[str, Series], case: Any) -> None:
    name, _, _, expected = case
    # Rows that only continue the line are left out, except the last.
    assert told[name][: len(expected)] == expected
    assert told[name][len(expected) :] in ([], [_continued(expected[-1], told[name][-1][0])])


def _continued(row: tuple[int, int | None, int, int], at_ms: int) -> tuple[int, int | None, int, int]:
    since = row[1]
    return (at_ms, since, 0 if since is None else at_ms - since, 0 if since is None else at_ms - since)


def test_groups_of_other_logs_have_no_series(engine: Any) -> None:
    assert series(engine, [commit(250, 0, 40, topic="elsewhere")], LOG) == {}


def test_few_intervals_keep_the_greatest_and_the_last(engine: Any) -> None:
    """Two intervals beside the first instant: (250, 300] and (300, 350]."""
    commits = [commit(250, 0, 0), commit(280, 1, 10), commit(290, 2, 40), commit(350, 3, 10)]
    assert series(engine, commits, LOG, points=3) == {
        "g": [(250, 100, 150, 150), (300, None, 0, 180), (350, 200, 150, 150)]
    }


def test_a_wait_that_comes_and_goes_inside_an_interval_has_a_row(engine: Any) -> None:
    """Nothing waits at 250 and 325, but a record had waited for 170 ms in between."""
    commits = [commit(250, 0, 40), commit(260, 1, 0), commit(270, 2, 40), commit(350, 3, 30)]
    assert series(engine, commits, LOG, points=3) == {"g": [(250, None, 0, 0), (325, None, 0, 170), (400, 400, 0, 0)]}


def test_records_below_the_log_start_do_not_wait(engine: Any) -> None:
    assert series(engine, [commit(250, 0, 0)], LOG, starts={0: 20}) == {"g": [(250, None, 0, 0), (300, 300, 0, 0)]}


def test_a_log_that_began_again(engine: Any) -> None:
    """From its first record on it is the log of the group. The log start is that of the new log."""
    batches = [*LOG, began(500, 1), one(0, 550, **{INCARNATION: 1}), one(10, 560, **{INCARNATION: 1})]
    found = series(engine, [commit(250, 0, 0), commit(600, 1, 15)], batches, starts={0: 10})
    assert found == {"g": [(250, 100, 150, 150), (500, None, 0, 400), (560, 560, 0, 0), (600, 560, 40, 40)]}


def test_a_log_that_began_again_before_the_group_came(engine: Any) -> None:
    batches = [*LOG, began(500, 1), one(0, 550, **{INCARNATION: 1})]
    assert series(engine, [commit(600, 0, 0)], batches) == {"g": [(600, 550, 50, 50)]}


def began(at_ms: int, number: int, partition: int = 0) -> frames.Row:
    """The row with which an incarnation begins, see `incarnations`."""
    row = one(0, at_ms, next_offset=0, record_count=0, log_partition=partition)
    return row | {INCARNATION: number, "first_timestamp_ms": None}


def test_every_moment_of_any_story(engine: Any, rng: Random) -> None:
    """Against the rules applied to each millisecond, for any number of intervals."""
    stories = [Story(rng) for _ in range(40)]
    commits = [_of(str(at), row, "group") for at, story in enumerate(stories) for row in story.commits]
    batches = [row | {"log_topic": f"{at} t"} for at, story in enumerate(stories) for row in story.batches]
    for points in (2, 7, 2000):
        found = series(engine, commits, batches, points=points)
        expected = {str(at): list(story.rows(points)) for at, story in enumerate(stories)}
        assert found == {name: rows for name, rows in expected.items() if rows}


UNTIL_MS = 400


class Story:
    """Random commits of a group to two partitions, whose logs may begin again."""

    def __init__(self, rng: Random) -> None:
        self.logs: list[list[tuple[int, list[int]]]] = []
        """Of each partition the incarnations: their begin, and the times of their batches of ten records."""
        self.commits: list[frames.Row] = []
        order = iter(rng.sample(range(20), 20))
        for partition in (0, 1):
            begins = [0, *sorted(rng.sample(range(51, 300, 2), rng.randrange(3)))]
            log = []
            for begin, end in zip(begins, [*begins[1:], 320], strict=True):
                log.append((begin, sorted(rng.choices(range(begin, end), k=rng.randrange(6)))))
            self.logs.append(log)
            for at_ms in rng.sample(range(40, 350, 2), rng.randrange(8)):
                offset = None if rng.random() < 0.1 else rng.randrange(0, 60, 5)
                fate = rng.choice(("plain", "plain", "committed", "aborted"))
                self.commits.append(commit(at_ms, next(order), offset, partition=partition, fate=fate))

    @property
    def batches(self) -> list[frames.Row]:
        return [
            row
            for partition, log in enumerate(self.logs)
            for number, (begin, times) in enumerate(log)
            for row in (
                began(begin, number, partition),
                *(
                    one(10 * at, time, **{INCARNATION: number, "log_partition": partition})
                    for at, time in enumerate(times)
                ),
            )
        ]

    def rows(self, points: int) -> Iterator[tuple[int, int | None, int, int]]:
        states = {at: [self.state(at, partition) for partition in (0, 1)] for at in range(UNTIL_MS)}
        moved = [at for at in range(1, UNTIL_MS) if states[at] != states[at - 1]]
        if not moved:
            return
        waits = {
            at: [since for state in both if (since := self.since(state)) is not None] for at, both in states.items()
        }
        first, last = moved[0], max(moved[-1], *waits[UNTIL_MS - 1], 0)
        parts = min(points - 1, last - first)
        ends = [first + (last - first) * part // max(parts, 1) for part in range(parts + 1)]
        was: int | None = None
        for before, at in zip([first - 1, *ends], ends, strict=False):
            since = min((one for one in waits[at] if one <= at), default=None)
            lag = 0 if since is None else at - since
            drops = [drop for drop in moved if before < drop <= at]
            peak = max(lag, *(drop - one for drop in drops for one in waits[drop - 1]), 0)
            if at in (first, last) or since != was or peak > lag:
                yield at, since, lag, peak
            was = since

    def state(self, at_ms: int, partition: int) -> tuple[int, int, int | None] | None:
        """Partition, incarnation of its log and committed offset at an instant; None before the first commit."""
        past = [row for row in self.commits if row["partition"] == partition and row["visible_at_ms"] <= at_ms]
        past = [row for row in past if row["fate"] != "aborted"]
        if not past:
            return None
        number = max(number for number, (begin, _) in enumerate(self.logs[partition]) if begin <= at_ms)
        return partition, number, max(past, key=lambda row: row["log_offset"])["offset"]

    def since(self, state: tuple[int, int, int | None] | None) -> int | None:
        """When the first unread record was produced."""
        if state is None:
            return None
        partition, number, offset = state
        if offset is None:
            return None
        unread = [time for at, time in enumerate(self.logs[partition][number][1]) if 10 * (at + 1) > offset]
        return unread[0] if unread else None

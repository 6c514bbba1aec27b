"""
Burrow's statuses out of logs, a table of cases: each rule in its order, with what Burrow overlooks put right.

Times are seconds. Every case has a partition of its own; all are judged in one frame, and once more by replaying their history.
"""

from typing import Any

import pyarrow as pa

from kohort.pipeline.tables.burrow.evaluator import Rules
from kohort.pipeline.tables.burrow.status import burrow_history, burrow_status
from kohort.pipeline.tables.incarnations import BATCH_COLUMNS
from tests.conftest import LONG
from tests.pipeline import frames

COMMITS = pa.schema(
    [
        ("log_partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("tombstone", pa.bool_()),
        ("offset", pa.int64()),
        ("fate", pa.string()),
        ("visible_at_ms", pa.int64()),
    ]
)
BASE_S = 1_700_000_000
AT = 100
GROWING = [(at, 10 * at) for at in range(0, 101, 5)]
"""Ten records a second, in batches of fifty."""
LATE = [(60, 700), (75, 750), (80, 800), (100, 1000)]
DELETED, ABORTED, PENDING = "deleted", "aborted", "pending"
"""In place of an offset; a pair is an offset in a transaction that completed at the second number, later than what follows."""

# fmt: off
CASES: dict[str, tuple[list[tuple[int, int]], list[tuple[int, Any]], str | None]] = {
    # what                                     produced     committed: at, offset                                 status
    "1 nothing is left to read":               (GROWING,     [(80, 800), (90, 900), (100, 1000)],                 "OK"),
    "1 silent, and nothing is left to read":   ([(1, 10)],   [(2, 10)],                                           "OK"),
    "2 silent for longer than its window":     (GROWING,     [(20, 50), (30, 90)],                                "STOP"),
    "2 silent for as long as its window":      (GROWING,     [(20, 50), (60, 90)],                                "WARN"),
    "2 silent, an end it had reached is kept": (GROWING,     [(40, 350), (45, 360)],                              "WARN"),
    "2 silent since a single commit":          (GROWING,     [(5, 20)],                                           "STOP"),
    "3 back, and not up again":                (GROWING,     [(70, 650), (80, 100), (95, 600)],                   "REWIND"),
    "3 back, and up again":                    (GROWING,     [(70, 650), (80, 100), (95, 651)],                   "OK"),
    "4 was caught up in the window":           (GROWING,     [(70, 650), (80, 800), (95, 900)],                   "OK"),
    "5 commits that do not move":              (GROWING,     [(70, 100), (80, 100), (95, 100)],                   "STALL"),
    "5 not moving, but was caught up":         (LATE,        [(70, 700), (80, 700), (95, 700)],                   "OK"),
    "6 lag never shrinks":                     (GROWING,     [(70, 600), (80, 650), (95, 700)],                   "WARN"),
    "6 lag stays the same":                    (GROWING,     [(70, 600), (80, 700), (95, 850)],                   "WARN"),
    "7 lag shrank once":                       (GROWING,     [(70, 500), (80, 700), (95, 800)],                   "OK"),
    "7 the window forgets its eleventh":       (GROWING,     [(45, 450), *[(at, 8 * at) for at in range(50, 100, 5)]], "WARN"),
    "tombstone: no status":                    (GROWING,     [(70, 600), (80, 650), (95, DELETED)],               None),
    "tombstone: begins anew":                  (GROWING,     [(70, 700), (80, DELETED), (90, 850), (95, 860)],    "WARN"),
    "aborted: no commit":                      (GROWING,     [(70, 600), (80, 650), (90, ABORTED), (95, 700)],    "WARN"),
    "aborted: not even the only one":          (GROWING,     [(90, ABORTED)],                                     None),
    "aborted: silence goes on":                (GROWING,     [(20, 50), (30, 90), (99, ABORTED)],                 "STOP"),
    "pending: no commit yet":                  (GROWING,     [(20, 50), (30, 90), (99, PENDING)],                 "STOP"),
    "late: where it belongs, with no lag":      (GROWING,     [(70, 600), (75, (700, 90)), (80, 650), (95, 690)],  "REWIND"),
    "late: it is not the last":                (GROWING,     [(70, 600), (80, (1000, 99)), (90, 650), (95, 1000)], "OK"),
    "late: deleted before it came":            (GROWING,     [(70, 600), (75, (650, 99)), (90, DELETED)],         None),
    "its log is not known":                    ([],          [(95, 10)],                                          None),
}
# fmt: on


def built(engine: Any) -> tuple[Any, Any]:
    commits: list[frames.Row] = []
    batches: list[frames.Row] = []
    for group, (produced, committed, _) in CASES.items():
        for at, told in committed:
            fate = told if told in (ABORTED, PENDING) else "plain"
            row = {"log_partition": 0, "log_offset": len(commits), "group": group, "topic": group, "partition": 0}
            told, visible = told if isinstance(told, tuple) else (told, at)
            row |= {
                "tombstone": told == DELETED,
                "offset": 1000 if fate != "plain" else None if told == DELETED else told,
            }
            visible_at_ms = None if fate != "plain" else (BASE_S + visible) * 1000
            commits.append(row | {"fate": fate, "visible_at_ms": visible_at_ms})
        for at, end in produced:
            place = {"log_topic": group, "log_partition": 0}
            batches.append(place | {"timestamp_ms": (BASE_S + at) * 1000, "next_offset": end})
    return frames.of_schema(engine, COMMITS, commits), frames.records(engine, BATCH_COLUMNS, batches)


def expected() -> dict[str, str]:
    return {group: status for group, (_, _, status) in CASES.items() if status is not None}


def test_at_an_instant(engine: Any) -> None:
    found = burrow_status(*built(engine), at_ms=(BASE_S + AT) * 1000)
    assert dict(frames.tuples(found, "group", "status")) == expected()


def test_in_history(engine: Any) -> None:
    found = burrow_history(*built(engine), until_ms=(BASE_S + AT) * 1000)
    now = {
        group: status for group, until, status in frames.tuples(found, "group", "until_ms", "status") if until is None
    }
    assert now == expected()


# fmt: off
SETTINGS = [
    # settings                             a case whose status they change                 to
    (Rules(intervals=11),                  "7 the window forgets its eleventh",             "OK"),
    (Rules(intervals=2),                   "4 was caught up in the window",                 "OK"),
    (Rules(intervals=1),                   "4 was caught up in the window",                 "STOP"),
    (Rules(allowed_lag=300),               "6 lag never shrinks",                           "OK"),
    (Rules(complete_min=0.5),              "5 commits that do not move",                    "OK"),
    (Rules(distance_min_ms=20_000),        "7 lag shrank once",                             "WARN"),
    (Rules(refresh_ms=1000),               "2 silent, an end it had reached is kept",       "STOP"),
    (Rules(expire_ms=60_000),              "2 silent for longer than its window",           None),
]
# fmt: on


def test_any_window(engine: Any) -> None:
    commits, batches = built(engine)
    at_ms = (BASE_S + AT) * 1000
    # The short version has the settings that change how time is looked at.
    for rules, group, status in SETTINGS if LONG else SETTINGS[-4:]:
        mine = commits.where(commits["group"] == group)
        now = dict(frames.tuples(burrow_status(mine, batches, at_ms=at_ms, rules=rules), "group", "status"))
        assert now.get(group) == status, (rules, group)
        history = burrow_history(mine, batches, until_ms=at_ms, rules=rules)
        assert [one for one, until in frames.tuples(history, "status", "until_ms") if until is None] == [
            one for one in (status,) if one is not None
        ]

"""Burrow's rules, a table of cases for each, in the order in which Burrow asks them."""

import pytest

from kohort.pipeline.tables.burrow.evaluator import Commit, Rules, Status, evaluate, group_status, window

NOW_MS = 100_000


def commits(*told: tuple[int, float, int | None]) -> tuple[Commit, ...]:
    """(offset, timestamp in seconds, lag)"""
    return tuple(Commit(offset, round(at_s * 1000), lag) for offset, at_s, lag in told)


GROWING = commits((10, 70, 5), (20, 80, 6), (30, 90, 7))

# fmt: off
CASES = [
    # rule                                    window                                          lag  ends    status
    ("1 nothing is left to read",             GROWING,                                        0,   (37,),  Status.OK),
    ("1 before silence is looked at",         commits((10, 1, 5), (20, 2, 5)),                0,   (37,),  Status.OK),
    ("2 silent for longer than the window",   commits((10, 70, 5), (20, 75, 5)),              17,  (37,),  Status.STOP),
    ("2 silent for just as long",             commits((10, 80, 5), (20, 90, 6)),              17,  (37,),  Status.WARN),
    ("2 caught up within the stored ends",    commits((10, 70, 5), (20, 75, 5)),              17,  (20,),  Status.WARN),
    ("2 a single commit in the past",         commits((10, 99, 5)),                           17,  (37,),  Status.STOP),
    ("3 back, and not up again",              commits((30, 70, 5), (10, 80, 9), (20, 95, 9)), 17,  (37,),  Status.REWIND),
    ("3 back, and up again",                  commits((30, 70, 5), (10, 80, 9), (30, 95, 9)), 17,  (47,),  Status.WARN),
    ("3 before it was caught up",             commits((30, 70, 0), (10, 80, 9), (20, 95, 9)), 17,  (37,),  Status.REWIND),
    ("3 the first step back decides", commits((30, 70, 5), (10, 80, 9), (40, 90, 9), (20, 95, 9)), 9, (47,), Status.WARN),
    ("4 was caught up in the window",         commits((10, 70, 5), (20, 80, 0), (30, 95, 7)), 17,  (47,),  Status.OK),
    ("5 commits that do not move",            commits((10, 70, 5), (10, 80, 6), (10, 95, 7)), 17,  (47,),  Status.STALL),
    ("5 not moving, but was caught up",       commits((10, 70, 0), (10, 80, 6), (10, 95, 7)), 17,  (47,),  Status.OK),
    ("6 lag never shrinks",                   GROWING,                                        17,  (47,),  Status.WARN),
    ("6 lag stays the same",                  commits((10, 70, 5), (20, 80, 5), (30, 95, 5)), 17,  (47,),  Status.WARN),
    ("6 lags that are not known are left out", commits((10, 70, 5), (20, 80, None), (30, 95, 6)), 17, (47,), Status.WARN),
    ("7 lag shrank once",                     commits((10, 70, 5), (20, 80, 4), (30, 95, 9)), 17,  (47,),  Status.OK),
    ("no commit at all",                      (),                                             17,  (47,),  Status.NOTFOUND),
]
# fmt: on


BURST = commits(*((at, 85 + at / 10, 5) for at in range(10)))
"""Silent since 14.1 s, and the window spans 0.9 s."""
STANDING = commits(*((7, 85 + at / 10, 5) for at in range(10)))


@pytest.mark.parametrize(
    ("stored", "pause_ms", "status"),
    [
        (BURST, 0, Status.STOP),
        (BURST, 7_049, Status.STOP),
        (BURST, 7_050, Status.WARN),
        (STANDING, 7_050, Status.STALL),  # a usual pause hides no other rule
    ],
)
def test_a_usual_pause_is_no_stop(stored: tuple[Commit, ...], pause_ms: int, status: Status) -> None:
    assert evaluate(stored, current_lag=17, now_ms=100_000, ends=(47,), pause_ms=pause_ms) == status


@pytest.mark.parametrize(("rule", "stored", "lag", "ends", "status"), CASES, ids=[case[0] for case in CASES])
def test_rules(rule: str, stored: tuple[Commit, ...], lag: int, ends: tuple[int, ...], status: Status) -> None:
    assert evaluate(stored, current_lag=lag, now_ms=NOW_MS, ends=ends) == status


def test_an_allowed_lag_is_none() -> None:
    assert evaluate(GROWING, current_lag=17, now_ms=NOW_MS, ends=(47,), rules=Rules(allowed_lag=17)) == Status.OK
    assert evaluate(GROWING, current_lag=17, now_ms=NOW_MS, ends=(47,), rules=Rules(allowed_lag=5)) == Status.OK
    assert evaluate(GROWING, current_lag=17, now_ms=NOW_MS, ends=(47,), rules=Rules(allowed_lag=4)) == Status.WARN


def test_an_incomplete_window_is_not_judged() -> None:
    assert evaluate(GROWING, current_lag=17, now_ms=NOW_MS, ends=(47,), rules=Rules(complete_min=0.5)) == Status.OK
    assert evaluate(GROWING, current_lag=17, now_ms=NOW_MS, ends=(47,), rules=Rules(complete_min=0.3)) == Status.WARN


def test_the_window_holds_the_last_commits() -> None:
    many = commits(*((offset, offset, 1) for offset in range(1, 15)))
    assert window(many) == many[-10:]
    assert window(many, Rules(intervals=3)) == many[-3:]


def test_a_commit_soon_after_takes_the_place_and_keeps_the_time() -> None:
    told = commits((10, 10, 5), (20, 12, 4), (30, 14, 3), (40, 20, 2))
    assert window(told, Rules(distance_min_ms=5000)) == commits((30, 10, 3), (40, 20, 2))
    # A commit after exactly that time is one of its own.
    assert window(told[:2], Rules(distance_min_ms=2000)) == told[:2]


# fmt: off
GROUPS = [
    ([],                                Status.NOTFOUND),
    ([Status.OK, Status.OK],            Status.OK),
    ([Status.OK, Status.WARN],          Status.WARN),
    ([Status.WARN, Status.STOP],        Status.ERR),
    ([Status.OK, Status.REWIND],        Status.ERR),
]
# fmt: on


@pytest.mark.parametrize(("partitions", "status"), GROUPS)
def test_a_group_is_as_bad_as_its_worst_partition(partitions: list[Status], status: Status) -> None:
    assert group_status(partitions) == status

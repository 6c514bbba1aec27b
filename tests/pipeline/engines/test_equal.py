"""Both engines give the same tables: same rows, same columns, same types, on every recording."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.engines.local.session import LocalSession
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.tables.contract import COLUMNS
from kohort_lab.history import History
from tests.conftest import NIGHTLY
from tests.pipeline.frames import check_equal
from tests.pipeline.test_odd_logs import CASES
from tests.records import kafka_logs

pytestmark = pytest.mark.spark

OTHERS = ("expiry", "legacy", "tv1", "unclean", "unclean-torn", *kafka_logs.RUNS, "history")
RUNS = ("main", *(pytest.param(run, marks=NIGHTLY) for run in OTHERS))
MIDDLE_MS = 1_795_252_900_000
"""An instant within the recording `main`."""


@pytest.fixture(scope="module")
def local() -> Iterator[LocalSession]:
    with LocalSession() as session:
        yield session


@pytest.mark.parametrize("run", RUNS)
def test_tables_are_equal(
    spark: Any, local: LocalSession, recorded: Callable[[str], Path], tmp_path: Path, rng: Any, run: str
) -> None:
    logs = tmp_path if run == "history" else recorded(run) / "logs"
    if run == "history":
        History(rng.randrange(1 << 30)).write(logs)
    check_equal((*COLUMNS, "lag_picture"), Tables(Reading(local, logs)), Tables(Reading(spark, logs)))


@NIGHTLY
@pytest.mark.parametrize("case", CASES)
def test_tables_of_odd_logs_are_equal(
    spark: Any, local: LocalSession, recorded: Callable[[str], Path], case: str
) -> None:
    logs = recorded("odd") / case
    check_equal(COLUMNS, Tables(Reading(local, logs)), Tables(Reading(spark, logs)))


@NIGHTLY
def test_tables_of_the_past_are_equal(spark: Any, local: LocalSession, recorded: Callable[[str], Path]) -> None:
    logs = recorded("main") / "logs"
    past = (Tables(Reading(one, logs, as_of_ms=MIDDLE_MS)) for one in (local, spark))
    check_equal(tuple(COLUMNS), *past)


@NIGHTLY
def test_tables_of_one_group_and_of_the_latest_commits_are_equal(
    spark: Any, local: LocalSession, recorded: Callable[[str], Path]
) -> None:
    logs = recorded("main") / "logs"
    check_equal(tuple(COLUMNS)[:10], *(Tables(Reading(one, logs, group="classic-three")) for one in (local, spark)))
    check_equal(
        ("offsets", "lag", "time_lag", "damage"),
        *(Tables(Reading(one, logs, is_latest_only=True)) for one in (local, spark)),
    )

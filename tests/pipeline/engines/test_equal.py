"""Both engines give the same tables: same rows, same columns, same types, on every recording."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kohort.pipeline.engines.local.session import LocalSession
from kohort.pipeline.jobs.contract import COLUMNS
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.testing.history import History
from tests.conftest import NIGHTLY

pytestmark = pytest.mark.spark

RUNS = (
    "main",
    *(pytest.param(run, marks=NIGHTLY) for run in ("expiry", "legacy", "tv1", "unclean", "unclean-torn", "history")),
)
MIDDLE_MS = 1_795_252_900_000
"""An instant within the recording `main`."""


@pytest.fixture(scope="module")
def local() -> Iterator[LocalSession]:
    with LocalSession() as session:
        yield session


def of_type(found: pa.DataType) -> Any:
    """A type without the names that the engines give to the elements of lists."""
    if pa.types.is_list(found):
        return [of_type(found.value_type)]
    if pa.types.is_struct(found):
        return {field.name: of_type(field.type) for field in found}
    return str(found)


def content(frame: Any) -> tuple[list[Any], list[str]]:
    table = frame.toArrow()
    return [(field.name, of_type(field.type)) for field in table.schema], sorted(map(str, table.to_pylist()))


def check(names: Any, one: Tables, other: Tables) -> None:
    for name in names:
        (columns, rows), (expected_columns, expected) = content(getattr(one, name)), content(getattr(other, name))
        assert columns == expected_columns, name
        assert rows == expected, name


@pytest.mark.parametrize("run", RUNS)
def test_tables_are_equal(
    spark: Any, local: LocalSession, recorded: Callable[[str], Path], tmp_path: Path, rng: Any, run: str
) -> None:
    logs = tmp_path if run == "history" else recorded(run) / "logs"
    if run == "history":
        History(rng.randrange(1 << 30)).write(logs)
    check((*COLUMNS, "lag_picture"), Tables(Reading(local, logs)), Tables(Reading(spark, logs)))


@NIGHTLY
def test_tables_of_the_past_are_equal(spark: Any, local: LocalSession, recorded: Callable[[str], Path]) -> None:
    logs = recorded("main") / "logs"
    past = (Tables(Reading(one, logs, as_of_ms=MIDDLE_MS)) for one in (local, spark))
    check(tuple(COLUMNS), *past)


@NIGHTLY
def test_tables_of_one_group_and_of_the_latest_commits_are_equal(
    spark: Any, local: LocalSession, recorded: Callable[[str], Path]
) -> None:
    logs = recorded("main") / "logs"
    check(tuple(COLUMNS)[:9], *(Tables(Reading(one, logs, group="classic-three")) for one in (local, spark)))
    check(("offsets", "lag", "damage"), *(Tables(Reading(one, logs, is_latest_only=True)) for one in (local, spark)))

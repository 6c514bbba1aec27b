"""Expressions mean the same on both engines, also where Spark and DuckDB differ by themselves."""

from typing import Any

import pyarrow as pa
import pytest

from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.engines.local.session import LocalSession

SCHEMA = pa.schema([("at", pa.int64()), ("key", pa.string()), ("value", pa.int64()), ("items", pa.list_(pa.int32()))])
ROWS = [
    {"at": 1, "key": "a", "value": 5, "items": [3, 3, 1]},
    {"at": 2, "key": "a", "value": None, "items": []},
    {"at": 3, "key": "b", "value": 7, "items": None},
    {"at": 4, "key": None, "value": 2, "items": [9]},
]


def last_value() -> Any:
    behind = Window.partitionBy("key").orderBy(fn.col("at").desc())
    return fn.last("value", ignorenulls=True).over(behind.rowsBetween(Window.unboundedPreceding, Window.currentRow))


EXPRESSIONS = {  # by row, in the order of `at`
    "null is the least in a window": (
        lambda: fn.row_number().over(Window.partitionBy(fn.lit(1)).orderBy("value")),
        [3, 1, 4, 2],
    ),
    "and in descending order the last": (
        lambda: fn.row_number().over(Window.partitionBy(fn.lit(1)).orderBy(fn.col("value").desc())),
        [2, 4, 1, 3],
    ),
    "null is the least in a struct": (
        lambda: fn.max(fn.struct("value", "at")).over(Window.partitionBy("key"))["at"],
        [1, 1, 3, 4],
    ),
    "the last that is not null": (last_value, [5, None, 7, 2]),
    "greatest ignores null": (lambda: fn.greatest("value", fn.lit(6)), [6, 6, 7, 6]),
    "a text with null is null": (lambda: fn.concat(fn.lit("x"), "key"), ["xa", "xa", "xb", None]),
    "equal to null, safely": (lambda: ~fn.col("key").eqNullSafe("a"), [False, False, True, True]),
    "cases without an end": (
        lambda: fn.when(fn.col("value") > 4, "high").when(fn.col("value") > 1, "low"),
        ["high", None, "high", "low"],
    ),
    "cases within cases": (
        lambda: fn.when(fn.col("at") < 3, fn.when(fn.col("at") < 2, "first")).otherwise("late"),
        ["first", None, "late", "late"],
    ),
    "elements by a function": (
        lambda: fn.transform("items", lambda one: one + fn.col("at")),
        [[4, 4, 2], [], None, [13]],
    ),
    "arrays in an array, one of them null": (
        lambda: fn.flatten(fn.array("items", "items")),
        [[3, 3, 1] * 2, [], None, [9, 9]],
    ),
    "a map of constants": (lambda: fn.create_map(fn.lit("a"), fn.lit("A"))[fn.col("key")], ["A", "A", None, None]),
    "a quotient": (lambda: fn.floor(fn.col("at") / 2), [0, 1, 1, 2]),
    "json with a missing field": (
        lambda: fn.from_json(fn.lit('{"n": [{"x": 1}]}'), "struct<n:array<struct<x:int,y:string>>>")["n"],
        [[{"x": 1, "y": None}]] * 4,
    ),
}
AGGREGATES = {
    "counts": (lambda: fn.count("value"), 3),
    "all": (lambda: fn.count("*"), 4),
    "those that hold": (lambda: fn.count_if(fn.col("value") > 2), 2),
    "distinct ones": (lambda: fn.count_distinct("key"), 2),
    "a sum": (lambda: fn.sum("at"), 10),
    "null of the last": (lambda: fn.max_by("items", fn.when(fn.col("at") < 4, fn.col("at"))), None),
    "of the first": (lambda: fn.min_by("value", "at"), 5),
    "the median": (lambda: fn.percentile_approx("at", 0.5), 2),
    "the 95th percentile": (lambda: fn.percentile_approx("at", 0.95), 4),
    "all that are not null": (lambda: fn.sort_array(fn.collect_list("value")), [2, 5, 7]),
}


@pytest.fixture
def frame(engine: Any) -> Any:
    return engine.createDataFrame(pa.Table.from_pylist(ROWS, SCHEMA))


@over_frames
def selected(frame: Any, make: Any) -> Any:
    return frame.select("at", make().alias("found"))


@over_frames
def aggregated(frame: Any, make: Any) -> Any:
    return frame.groupBy(fn.lit(1).alias("all")).agg(make().alias("found"))


@over_frames
def exploded(frame: Any, name: str) -> Any:
    return frame.select("at", getattr(fn, name)("items").alias("item"))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression(frame: Any, name: str) -> None:
    make, expected = EXPRESSIONS[name]
    found = selected(frame, make).toArrow().sort_by("at")
    assert found["found"].to_pylist() == expected


@pytest.mark.parametrize("name", AGGREGATES)
def test_an_aggregate(frame: Any, name: str) -> None:
    make, expected = AGGREGATES[name]
    assert aggregated(frame, make).toArrow()["found"].to_pylist() == [expected]


def test_elements_as_rows(frame: Any) -> None:
    def rows(name: str) -> list[tuple[int, int | None]]:
        return sorted(
            ((row["at"], row["item"]) for row in exploded(frame, name).toArrow().to_pylist()),
            key=lambda row: (row[0], row[1] or 0),
        )

    assert rows("explode") == [(1, 1), (1, 3), (1, 3), (4, 9)]
    assert rows("explode_outer") == [(1, 1), (1, 3), (1, 3), (2, None), (3, None), (4, 9)]


def test_joins_and_conditions(frame: Any) -> None:
    """Null equals nothing; `group` and `order` are words of SQL, and names of columns here."""
    other = frame.select("key").distinct().withColumnRenamed("key", "group")
    renamed = frame.withColumnRenamed("key", "group").withColumnRenamed("value", "order")

    def found(how: str) -> list[int]:
        return sorted(renamed.join(other, on=["group"], how=how).toArrow()["at"].to_pylist())

    assert found("inner") == found("left_semi") == [1, 2, 3]
    assert found("left") == [1, 2, 3, 4]
    assert found("left_anti") == [4]
    assert renamed.where("group = 'a' and order is null").toArrow()["at"].to_pylist() == [2]


def test_a_persisted_frame_is_read_once() -> None:
    reads: list[int] = []

    def rows() -> Any:
        reads.append(1)
        return iter(pa.Table.from_pylist(ROWS, SCHEMA).to_batches())

    with LocalSession() as session:
        read = session.from_rows(rows, SCHEMA).persist()
        halves = read.where("at < 3").unionByName(read.where("at >= 3"))
        assert halves.count() == halves.count() == 4
        assert len(reads) == 1
        # Within one query, a frame that is used twice is read once, too.
        again = session.from_rows(rows, SCHEMA)
        assert again.unionByName(again.where("at = 1")).count() == 5
        assert len(reads) == 2

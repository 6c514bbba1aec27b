"""What options and filters leave out is left out, and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import list_segments
from kohort.pipeline.sources.coordinator_log import LogReader
from kohort.pipeline.sources.filters import narrowed
from kohort.pipeline.sources.options import SourceOptions
from tests.pipeline import frames
from tests.pipeline.logbytes import TIMESTAMP_MS, batch, offset_key, offset_value, segment
from tests.pipeline.sources.growing import GrowingLog

Row = dict[str, Any]


def read(path: Path | str, **options: str) -> list[Row]:
    reader = LogReader(SourceOptions.parse({"path": str(path), **options}))
    return [row for task in reader.partitions() for part in reader.read(task) for row in part.to_pylist()]


def test_a_time_range(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    log.commits(12)
    every = read(tmp_path)
    times = sorted({row["timestamp_ms"] for row in every})
    for begin in times:
        for end in (times[0], times[4], times[-1] + 1):
            expected = [row for row in every if begin <= row["timestamp_ms"] < end]
            assert read(tmp_path, **{"from": str(begin), "to": str(end)}) == expected
    first = TIMESTAMP_MS + 3
    batches = read(tmp_path, kinds="batch", **{"from": str(first)})
    assert [row["log_offset"] for row in batches] == [3, 6, 9]


COMMITS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["plain", "transaction", "tombstone", "old"])), min_size=1, max_size=40
)


@given(COMMITS, st.integers(1, 200))
def test_compacting_keeps_the_last_plain_commit_of_each_key(commits: list[tuple[int, str]], window_bytes: int) -> None:
    raw, last = b"", {}
    for at, (group, kind) in enumerate(commits):
        key = offset_key(f"g{group}", "t", 0, key_type=0 if kind == "old" else 1)
        value = None if kind == "tombstone" else offset_value(at)
        is_inside = kind == "transaction"
        raw += batch(at, [(key, value)], producer_id=9 if is_inside else -1, attributes=0x10 if is_inside else 0)
        last[("inside", at) if is_inside else group] = at
    decoder = Decoder(is_compacting=True, window_bytes=window_bytes)
    found = [row for part in decoder.decode(raw, segment()) for row in part.to_pylist()]
    assert sorted(row["log_offset"] for row in found) == sorted(last.values())


def test_compacting_changes_no_latest_offset(recorded: Callable[[str], Path]) -> None:
    logs = recorded("main") / "logs"

    def latest(**options: str) -> dict[tuple[str, str, int], Row]:
        rows = [row for row in read(logs, kinds="offset_commit", **options) if not row["transactional"]]
        return {(row["group"], row["topic"], row["partition"]): row for row in rows}

    assert latest(compact="true") == latest()
    assert len(read(logs, kinds="offset_commit", compact="true")) < len(read(logs, kinds="offset_commit"))


def test_an_object_store_gives_what_the_directory_gives(recorded: Callable[[str], Path]) -> None:
    logs = recorded("main") / "logs"
    assert read(f"file://{logs}") == read(logs)
    assert read(f"file://{logs}", startingOffsets='{"__consumer_offsets": {"0": 50}}', topics="__consumer_offsets") == (
        read(logs, startingOffsets='{"__consumer_offsets": {"0": 50}}', topics="__consumer_offsets")
    )
    (one, *_) = list_segments(f"file://{logs}", topics={"__consumer_offsets"})
    assert (one.name, one.path) == (f"{0:020}.log", f"file://{logs}/__consumer_offsets-0/{0:020}.log")


# fmt: off
FILTERS: dict[str, tuple[list[Filter], dict[str, Any]]] = {
    "a kind":            ([EqualTo(("kind",), "marker")],                      {"kinds": {"marker"}}),
    "some partitions":   ([In(("log_partition",), [1, 2])],                    {"partitions": {1, 2}}),
    "both":              ([EqualTo(("log_partition",), 1), In(("log_partition",), [2])], {"partitions": set()}),
    "a topic":           ([EqualTo(("log_topic",), "__consumer_offsets")],     {"topics": {"__consumer_offsets"}}),
    "another topic":     ([EqualTo(("log_topic",), "orders")],                 {"topics": set()}),
    "since":             ([GreaterThanOrEqual(("timestamp_ms",), 5)],          {"from_ms": 5, "to_ms": None}),
    "after":             ([GreaterThan(("timestamp_ms",), 5)],                 {"from_ms": 6, "to_ms": None}),
    "until":             ([LessThanOrEqual(("timestamp_ms",), 9)],             {"from_ms": None, "to_ms": 10}),
    "before":            ([LessThan(("timestamp_ms",), 5)],                    {"from_ms": None, "to_ms": 5}),
    "at":                ([EqualTo(("timestamp_ms",), 5)],                     {"from_ms": 5, "to_ms": 6}),
    "in a struct":       ([EqualTo(("transaction", "state"), "Empty")],        {"kinds": set(schemas.DEFAULT_KINDS)}),
}
# fmt: on


@pytest.mark.parametrize("name", FILTERS)
def test_filters_narrow_the_options(name: str) -> None:
    filters, expected = FILTERS[name]
    options = narrowed(SourceOptions(path="/data"), filters)
    assert {field: getattr(options, field) for field in expected} == expected


@pytest.mark.spark
def test_filters_of_a_query_are_pushed(spark: Any, recorded: Callable[[str], Path]) -> None:
    logs = str(recorded("main") / "logs")
    condition = "log_partition = 2 and kind in ('marker', 'offset_commit') and timestamp_ms > 1795252800000"
    plain = spark.read.format("kohort").load(logs).where(condition)
    expected = frames.tuples(plain, "log_topic", "log_offset", "kind")
    assert len(expected) > 10
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = spark.read.format("kohort").option("pushFilters", "true").load(logs).where(condition)
        assert frames.tuples(pushed, "log_topic", "log_offset", "kind") == expected
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

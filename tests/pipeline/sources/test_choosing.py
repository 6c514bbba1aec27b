"""What options and filters leave out is left out, and nothing else."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from kohort.model.errors import ConfigError
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.compact import LatestByKey
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import list_segments
from kohort.pipeline.sources.coordinator_log import CoordinatorLogSource, LogReader
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


CUTS = st.lists(st.integers(0, 40), max_size=2)
COMMITS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["plain", "transaction", "tombstone", "old"])), min_size=1, max_size=40
)


def commits_of(commits: list[tuple[int, str]]) -> tuple[list[bytes], dict[Any, int]]:
    """A batch for each commit, and the offsets that are left of each group, and of each commit in a transaction."""
    raw: list[bytes] = []
    last: dict[Any, int] = {}
    for at, (group, kind) in enumerate(commits):
        key = offset_key(f"g{group}", "t", 0, key_type=0 if kind == "old" else 1)
        value = None if kind == "tombstone" else offset_value(at)
        is_inside = kind == "transaction"
        raw.append(batch(at, [(key, value)], producer_id=9 if is_inside else -1, attributes=0x10 if is_inside else 0))
        last[("inside", at) if is_inside else group] = at
    return raw, last


def decoded(decoder: Decoder, batches: list[bytes], cuts: list[int]) -> list[int]:
    """The offsets of the rows of some batches, which lie in segments that begin at `cuts`."""
    bounds = [*sorted({0, *(min(cut, len(batches)) for cut in cuts)}), len(batches)]
    parts: list[Any] = []
    for begin, end in pairwise(bounds):
        parts += decoder.decode(b"".join(batches[begin:end]), segment(base=begin))
    parts += decoder.rest()
    return [row["log_offset"] for part in parts for row in part.to_pylist()]


@given(COMMITS, st.integers(1, 200), CUTS)
def test_compacting_keeps_the_last_plain_commit_of_each_key(
    commits: list[tuple[int, str]], window_bytes: int, cuts: list[int]
) -> None:
    """Over all segments of a partition, whatever the windows are."""
    batches, last = commits_of(commits)
    decoder = Decoder(fold=LatestByKey(), window_bytes=window_bytes)
    assert sorted(decoded(decoder, batches, cuts)) == sorted(last.values())
    assert list(decoder.rest()) == []


@given(COMMITS, st.integers(1, 200), CUTS, st.integers(0, 2000))
def test_a_fold_that_is_full_gives_keys_again_and_loses_none(
    commits: list[tuple[int, str]], window_bytes: int, cuts: list[int], held_bytes: int
) -> None:
    batches, last = commits_of(commits)
    found = decoded(Decoder(fold=LatestByKey(held_bytes=held_bytes), window_bytes=window_bytes), batches, cuts)
    assert set(last.values()) <= set(found)
    assert len(found) == len(set(found))


def test_logs_of_two_partitions_are_folded_each_for_itself() -> None:
    decoder = Decoder(fold=LatestByKey())
    raw = batch(0, [(offset_key("g", "t", 0), offset_value(1))])
    found = [*decoder.decode(raw, segment(partition=3)), *decoder.decode(raw, segment(partition=4)), *decoder.rest()]
    assert [row["log_partition"] for part in found for row in part.to_pylist()] == [3, 4]


def test_what_a_fold_keeps_is_told_whole() -> None:
    """Keys, values, headers and damage are those of the window that they were found in, which has gone by then."""
    inside = batch(4, [(offset_key("h", "t", 1), offset_value(5))], producer_id=9, attributes=0x10)
    raw = batch(0, [(offset_key("g", "t", 0), offset_value(at, metadata=f"m{at}")) for at in range(3)]) + inside
    raw += batch(5, [(offset_key("g", "u", 2), None), (offset_key("g", "v", 0), b"\0\3")], producer_id=7)
    plain = [row for part in Decoder().decode(raw, segment()) for row in part.to_pylist()]
    decoder = Decoder(fold=LatestByKey(), window_bytes=1)
    folded = [row for part in [*decoder.decode(raw, segment()), *decoder.rest()] for row in part.to_pylist()]
    kept = [row for row in plain if row["log_offset"] not in (0, 1)]
    assert sorted(folded, key=lambda row: row["log_offset"]) == sorted(kept, key=lambda row: row["log_offset"])
    assert [row["kind"] for row in folded].count("damage") == 1


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


def test_filters_need_a_newer_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 4.0 has no filters of sources in Python; everything else of the source works there."""
    monkeypatch.delattr(DataSourceReader, "pushFilters")
    source = CoordinatorLogSource({"path": str(tmp_path), "pushFilters": "true"})
    with pytest.raises(
        ConfigError, match=r"pushFilters needs PySpark 4\.1 or newer, and this is \d.*; the options topics,"
    ):
        source.reader(source.schema())


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

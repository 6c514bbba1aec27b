"""A stream gives every batch once: what a batch read gives, in parts, whatever the limits are and however the log grows."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from kohort.model.errors import ConfigError
from kohort.pipeline.sources import sparse_index
from kohort.pipeline.sources.coordinator_log import CoordinatorLogSource
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.ranges import decoder
from kohort.pipeline.sources.streams.limited import LimitedLogStreamReader
from kohort.pipeline.sources.streams.progress import offsets_behind
from kohort.pipeline.sources.streams.stream import LogStreamReader
from tests.pipeline import frames
from tests.pipeline.logbytes import batch, offset_key, offset_value
from tests.pipeline.sources.growing import TOPIC, GrowingLog, damaged

Told = dict[str, dict[str, Any]]
ALL = ReadAllAvailable()


def reader(directory: Path, **options: str) -> LimitedLogStreamReader:
    return LimitedLogStreamReader(SourceOptions.parse({"path": str(directory), **options}))


def rows(stream: LogStreamReader, start: Told, end: Told) -> list[dict[str, Any]]:
    return [row for task in stream.partitions(start, end) for found in stream.read(task) for row in found.to_pylist()]


def offsets_of(found: list[dict[str, Any]]) -> list[int]:
    return [row["log_offset"] for row in found]


def everything(stream: LimitedLogStreamReader, limit: ReadLimit) -> list[list[dict[str, Any]]]:
    """The rows of each micro-batch until there is no more."""
    at, parts = stream.initialOffset(), []
    while (end := stream.latestOffset(at, limit)) != at:
        parts.append(rows(stream, at, end))
        at = end
    return parts


def batch_rows(directory: Path) -> list[dict[str, Any]]:
    """What a batch read gives, without Spark."""
    found = CoordinatorLogSource({"path": str(directory)}).reader(
        CoordinatorLogSource({"path": str(directory)}).schema()
    )
    return [row for task in found.partitions() for part in found.read(task) for row in part.to_pylist()]


def by_place(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: (row["log_partition"], row["position"] or -1, row["log_offset"] or -1))


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    return GrowingLog(tmp_path)


def test_what_is_appended_comes_once(tmp_path: Path, log: GrowingLog) -> None:
    stream = reader(tmp_path)
    log.commits(10)
    first = stream.latestOffset(stream.initialOffset(), ALL)
    assert first == {TOPIC: {"0": 10}}
    log.commits(5)
    log.roll()
    log.commits(4)
    second = stream.latestOffset(first, ALL)
    assert second == {TOPIC: {"0": 19}}
    assert offsets_of(rows(stream, stream.initialOffset(), first)) == list(range(10))
    assert offsets_of(rows(stream, first, second)) == list(range(10, 19))
    assert rows(stream, second, second) == []


def test_a_batch_that_is_being_written_waits(tmp_path: Path, log: GrowingLog) -> None:
    stream = reader(tmp_path)
    log.commits(3)
    rest = log.torn()
    first = stream.latestOffset(stream.initialOffset(), ALL)
    assert first == {TOPIC: {"0": 3}}
    assert [row["kind"] for row in rows(stream, stream.initialOffset(), first)] == ["offset_commit"] * 3
    log.append(rest)
    second = stream.latestOffset(first, ALL)
    assert second == {TOPIC: {"0": 7}}
    assert offsets_of(rows(stream, first, second)) == [3, 4, 5, 6]


def test_damage_is_told_once(tmp_path: Path, log: GrowingLog) -> None:
    stream = reader(tmp_path)
    log.commits(3)
    first = stream.latestOffset(stream.initialOffset(), ALL)
    log.append(damaged(batch(3, [(b"k", b"v")])))
    log.next_offset = 4
    log.commits(2)
    second = stream.latestOffset(first, ALL)
    log.torn()
    log.roll()
    log.commits(2)
    third = stream.latestOffset(second, ALL)
    assert {row["kind"] for row in rows(stream, stream.initialOffset(), first)} == {"offset_commit"}
    assert [row["problem"] for row in rows(stream, first, second) if row["kind"] == "damage"] == ["CRC does not match"]
    assert [row["problem"] for row in rows(stream, second, third) if row["kind"] == "damage"] == ["incomplete batch"]


def test_new_partitions_are_read_from_their_begin(tmp_path: Path, log: GrowingLog) -> None:
    stream = reader(tmp_path, startingOffsets="latest")
    log.commits(3)
    first = stream.initialOffset()
    assert first == {TOPIC: {"0": 3}}
    other = GrowingLog(tmp_path, partition=1)
    other.commits(2)
    log.commits(1)
    second = stream.latestOffset(first, ALL)
    assert second == {TOPIC: {"0": 4, "1": 2}}
    assert [(row["log_partition"], row["log_offset"]) for row in rows(stream, first, second)] == [
        (0, 3),
        (1, 0),
        (1, 1),
    ]


def test_offsets_to_start_from(tmp_path: Path, log: GrowingLog) -> None:
    log.commits(9)
    stream = reader(tmp_path, startingOffsets='{"__consumer_offsets": {"0": 4}}')
    (part,) = everything(stream, ALL)
    # Batches of three: the one that holds offset 4 began before it.
    assert offsets_of(part) == [6, 7, 8]


def test_the_log_start_may_lie_inside_a_batch(tmp_path: Path, log: GrowingLog) -> None:
    log.commits(12)
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 4\n")
    stream = reader(tmp_path)
    assert stream.initialOffset() == {TOPIC: {"0": 4}}
    (part,) = everything(stream, ALL)
    # Batches of three: the records before the log start come with the others of their batch.
    assert offsets_of(part) == list(range(3, 12))
    assert offsets_of(rows(stream, {TOPIC: {"0": 7}}, {TOPIC: {"0": 12}})) == [9, 10, 11]


LIMITS = st.one_of(st.builds(ReadMaxRows, st.integers(1, 40)), st.builds(ReadMaxBytes, st.integers(1, 4000)))
STEPS = st.lists(
    st.tuples(st.sampled_from(["commits", "transaction", "roll", "damage"]), st.integers(0, 1), st.integers(1, 12)),
    max_size=12,
)


@given(steps=STEPS, limit=LIMITS, stride=st.sampled_from([1, 300, 1 << 16]))
def test_parts_of_any_size_make_the_whole(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], limit: ReadLimit, stride: int
) -> None:
    directory = tmp_path_factory.mktemp("log")
    logs = [GrowingLog(directory, partition=partition) for partition in range(2)]
    for what, partition, count in steps:
        log = logs[partition]
        match what:
            case "commits":
                log.commits(count, per_batch=count)
            case "transaction":
                log.commits(count, producer_id=7)
                log.marker(7, committed=count % 2 == 0)
            case "roll":
                log.roll()
            case "damage":
                log.append(damaged(batch(log.next_offset, [(b"k", b"v")] * count)))
                log.next_offset += count
    for log in logs:
        # So that no damage is at the end: there it waits for what follows.
        log.commits(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_index, "STRIDE_BYTES", stride)
        parts = everything(reader(directory), limit)
    assert by_place([row for part in parts for row in part]) == by_place(batch_rows(directory))
    if isinstance(limit, ReadMaxRows):
        # The limit, one offset more for each partition, and batches are read whole.
        assert all(len(part) <= limit.max_rows + 2 * 13 for part in parts)


def test_available_now_ends_where_the_log_ended_when_it_began(tmp_path: Path, log: GrowingLog) -> None:
    stream = reader(tmp_path, maxRecordsPerTrigger="4")
    log.commits(10)
    stream.prepareForTriggerAvailableNow()
    log.commits(5)
    assert [offsets_of(part) for part in everything(stream, stream.getDefaultReadLimit())] == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8],
        [9],
    ]
    assert stream.reportLatestOffset() == {TOPIC: {"0": 15}}


def test_records_that_were_deleted_end_a_stream(tmp_path: Path, log: GrowingLog) -> None:
    log.commits(5)
    old = log.file
    log.roll()
    log.commits(4)
    stream = reader(tmp_path)
    start, end = {TOPIC: {"0": 2}}, {TOPIC: {"0": 9}}
    old.unlink()
    with pytest.raises(ConfigError, match=r"begins at offset 5 now, and was to be read from 2"):
        stream.partitions(start, end)
    assert offsets_of(rows(reader(tmp_path, failOnDataLoss="false"), start, end)) == [5, 6, 7, 8]
    assert offsets_of(rows(stream, {}, end)) == [5, 6, 7, 8]


def recreated(log: GrowingLog, topic_id: str | None) -> GrowingLog:
    """The log of the same partition after its topic was created again."""
    if log.directory.exists():
        shutil.rmtree(log.directory)
    again = GrowingLog(log.directory.parent)
    if topic_id is not None:
        (again.directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    return again


@pytest.mark.parametrize("ids", [("a" * 22, "b" * 22), (None, None), (None, "b" * 22)])
@pytest.mark.parametrize("is_looked_at", [True, False])
def test_a_topic_that_was_created_again(
    tmp_path: Path, log: GrowingLog, ids: tuple[str | None, str | None], *, is_looked_at: bool
) -> None:
    """20 records, deleted and created again, 5 records, then 30: 35 of 55 rows and no error would be a silent loss."""
    log = recreated(log, ids[0])
    log.commits(20)
    careful, lenient = reader(tmp_path), reader(tmp_path, failOnDataLoss="false")
    at = lenient.latestOffset(lenient.initialOffset(), ALL)
    assert careful.latestOffset(careful.initialOffset(), ALL) == at
    found = offsets_of(rows(lenient, lenient.initialOffset(), at))
    again = recreated(log, ids[1])
    again.commits(5)
    with pytest.raises(
        ConfigError, match=r"created again.*failOnDataLoss=false reads the new log from its first offset"
    ):
        careful.latestOffset(at, ALL)
    if is_looked_at or ids[0] is None:
        # A source without ids tells the two topics apart only while the new log is shorter.
        following = lenient.latestOffset(at, ALL)
        found += offsets_of(rows(lenient, at, following))
        at = following
    again.commits(30)
    following = lenient.latestOffset(at, ALL)
    # The rows of a micro-batch that is repeated by another process are the same.
    assert rows(reader(tmp_path), at, following) == rows(lenient, at, following)
    found += offsets_of(rows(lenient, at, following))
    assert found == [*range(20), *range(35)]
    assert lenient.latestOffset(following, ALL) == following


def test_a_topic_that_was_created_again_is_read_in_parts(
    tmp_path: Path, log: GrowingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_index, "STRIDE_BYTES", 1)
    log = recreated(log, "a" * 22)
    log.commits(20)
    lenient = reader(tmp_path, failOnDataLoss="false")
    at = lenient.latestOffset(lenient.initialOffset(), ALL)
    recreated(log, "b" * 22).commits(35)
    for limit in (ReadMaxRows(6), ReadMaxBytes(400)):
        told, found = at, []
        while (following := lenient.latestOffset(told, limit)) != told:
            found.append(offsets_of(rows(lenient, told, following)))
            told = following
        assert [offset for part in found for offset in part] == list(range(35))
        assert len(found) > 2


def test_a_planned_part_of_a_log_that_is_gone(tmp_path: Path, log: GrowingLog) -> None:
    """A micro-batch that was planned before a crash is repeated after it."""
    log = recreated(log, "a" * 22)
    log.commits(20)
    start: Told = {TOPIC: {"0": 8, "id": "a" * 22}}
    end: Told = {TOPIC: {"0": 20, "id": "a" * 22}}
    lenient = {"failOnDataLoss": "false"}
    log.file.write_bytes(log.file.read_bytes()[:-20])
    with pytest.raises(ConfigError, match=r"was to be read from offset 8 to 20, and it ends at 18 now"):
        reader(tmp_path).partitions(start, end)
    assert offsets_of(rows(reader(tmp_path, **lenient), start, end)) == list(range(9, 18))
    recreated(log, "b" * 22).commits(30)
    with pytest.raises(ConfigError, match=r"to 20, and its topic was deleted, or created again; option failOn"):
        reader(tmp_path).partitions(start, end)
    assert rows(reader(tmp_path, **lenient), start, end) == []
    shutil.rmtree(log.directory)
    with pytest.raises(ConfigError, match=r"to 20, and its topic was deleted"):
        reader(tmp_path).partitions(start, end)
    assert rows(reader(tmp_path, **lenient), start, end) == []
    # A deleted topic of which nothing is to be read is no loss that can be known.
    assert reader(tmp_path).latestOffset(end, ALL) == end


def test_a_checkpoint_of_an_older_release_learns_the_topic_ids(tmp_path: Path, log: GrowingLog) -> None:
    log = recreated(log, "a" * 22)
    log.commits(5)
    stream = reader(tmp_path)
    told = stream.latestOffset({TOPIC: {"0": 5}}, ALL)
    assert told == {TOPIC: {"0": 5, "id": "a" * 22}}
    assert rows(stream, {TOPIC: {"0": 5}}, told) == []
    # The offsets of a progress report are offsets to start from.
    begun = reader(tmp_path, startingOffsets=json.dumps({TOPIC: {"0": 3, "id": "a" * 22}}))
    assert begun.initialOffset() == {TOPIC: {"0": 3, "id": "a" * 22}}


def test_marks_that_compaction_moved_are_not_used(tmp_path: Path, log: GrowingLog, monkeypatch: Any) -> None:
    monkeypatch.setattr(sparse_index, "STRIDE_BYTES", 1)
    log.commits(30)
    stream = reader(tmp_path)
    (task,) = stream.partitions({TOPIC: {"0": 15}}, {TOPIC: {"0": 24}})
    # Compaction writes another file: the batches in it are elsewhere.
    raw = log.file.read_bytes()
    later = log.directory / "later"
    later.write_bytes(batch(0, [(offset_key("g", "t", 0), offset_value(1))]) + raw[raw.index(batch(9, [])[:8]) :])
    later.replace(log.file)
    found = [row["log_offset"] for part in decoder_rows(task.value) for row in part]
    assert found == list(range(15, 24))


def decoder_rows(task: Any) -> list[list[dict[str, Any]]]:
    from kohort.pipeline.sources.progress import Note

    options = SourceOptions(path="/nowhere")
    return [part.to_pylist() for part in task.read(decoder(options), Note(None, 0))]


# fmt: off
REFUSED = {
    "both limits":        ({"maxBytesPerTrigger": "1", "maxRecordsPerTrigger": "1"}, "has one limit"),
    "newest":             ({"newest": "true"},                                       "a stream has no newest"),
    "an end":             ({"endingOffsets": "latest"},                              "a stream has no endingOffsets"),
    "no limit":           ({"maxBytesPerTrigger": "0"},                              "one number above 0"),
    "no offsets":         ({"startingOffsets": "early"},                             "startingOffsets is earliest, latest"),
    "offsets of nothing": ({"startingOffsets": '{"t": 3}'},                          "offsets are written"),
    "an offset below":    ({"startingOffsets": '{"t": {"0": -3}}'},                  "-3 is no offset of t-0"),
    "no time":            ({"from": "yesterday"},                                    "option from 'yesterday' is no time"),
}
# fmt: on


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_stream_cannot_be_asked(tmp_path: Path, name: str) -> None:
    options, text = REFUSED[name]
    source = CoordinatorLogSource({"path": str(tmp_path), **options})
    with pytest.raises(ConfigError, match=text):
        source.streamReader(source.schema())


def old_reader(directory: Path, monkeypatch: pytest.MonkeyPatch, **options: str) -> LogStreamReader:
    """The reader with PySpark 4.0 and 4.1, whose streams have no read limits."""
    monkeypatch.delattr(DataSourceStreamReader, "getDefaultReadLimit", raising=False)
    source = CoordinatorLogSource({"path": str(directory), **options})
    found = source.streamReader(source.schema())
    assert type(found) is LogStreamReader
    return found


def test_a_stream_without_read_limits_gives_what_was_appended(
    tmp_path: Path, log: GrowingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark does not tell such a reader where a micro-batch begins; after a restart it knows the checkpoint's plan only."""
    stream = old_reader(tmp_path, monkeypatch)
    log.commits(10)
    first = stream.latestOffset()
    assert first == {TOPIC: {"0": 10}}
    log.commits(5)
    log.roll()
    log.commits(4)
    again = old_reader(tmp_path, monkeypatch)
    for following in (stream, again):
        assert following.latestOffset() == {TOPIC: {"0": 19}}
        assert offsets_of(rows(following, stream.initialOffset(), first)) == list(range(10))
        assert offsets_of(rows(following, first, {TOPIC: {"0": 19}})) == list(range(10, 19))


def test_a_stream_without_read_limits_keeps_the_place_in_a_log_that_is_away(
    tmp_path: Path, log: GrowingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = old_reader(tmp_path, monkeypatch, failOnDataLoss="false")
    log.commits(3)
    first = stream.latestOffset()
    log.directory.rename(tmp_path / "away")
    assert stream.latestOffset() == first
    (tmp_path / "away").rename(log.directory)
    log.commits(1)
    assert offsets_of(rows(stream, first, stream.latestOffset())) == [3]


def test_a_stream_without_read_limits_reports_a_log_that_was_truncated(
    tmp_path: Path, log: GrowingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.commits(3)
    stream = old_reader(tmp_path, monkeypatch)
    before = stream.latestOffset()
    shutil.rmtree(log.directory)
    GrowingLog(tmp_path).commits(2)
    with pytest.raises(ConfigError, match="ends at offset 2 now, and was read to 3 before"):
        stream.latestOffset()
    # After a restart the checkpoint tells where the micro-batch begins.
    with pytest.raises(ConfigError, match="ends at offset 2 now, and was read to 3 before"):
        old_reader(tmp_path, monkeypatch).partitions(before, {TOPIC: {"0": 2}})


def test_limits_of_micro_batches_need_a_newer_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"maxRecordsPerTrigger\) need PySpark 4\.2 or newer, and this is \d"):
        old_reader(tmp_path, monkeypatch, maxRecordsPerTrigger="8")


def test_how_far_a_stream_is_behind() -> None:
    """The progress as Spark 4.0 and 4.3 report it, beside a source of another kind."""
    read, latest = {TOPIC: {"0": 42, "1": 7, "id": "x"}}, {TOPIC: {"0": 155, "1": 7, "2": 4, "id": "x"}}
    ours = {"description": "PythonMicroBatchStream", "endOffset": read, "latestOffset": latest}
    other = {"description": "RateStream", "endOffset": 3, "latestOffset": 5}
    told = SimpleNamespace(json=json.dumps({"sources": [other, ours]}))
    assert offsets_behind(told) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 113,
        "avgOffsetsBehindLatest": 39,
        "totalOffsetsBehindLatest": 117,
    }
    for nothing in (None, SimpleNamespace(json=json.dumps({"sources": [other]}))):
        with pytest.raises(ConfigError, match="no progress of a stream"):
            offsets_behind(nothing)


@pytest.mark.spark
def test_a_stream_of_spark_equals_a_batch(spark: Any, tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    log = GrowingLog(logs)

    def run() -> Any:
        query = (
            spark.readStream.format("kohort")
            .option("maxRecordsPerTrigger", "8")
            .option("columns", "log_partition,log_offset,group,offset,kind")
            .load(str(logs))
            .writeStream.format("json")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        query.awaitTermination(120)
        return query.lastProgress

    log.commits(20)
    first = offsets_behind(run())
    # The last of three micro-batches ends at the end of the log.
    assert set(first.values()) == {0}
    log.commits(20, producer_id=3)
    log.marker(3, committed=True)
    told = run()
    found = spark.read.json(str(out)).orderBy("log_offset").collect()
    assert [row["log_offset"] for row in found] == list(range(41))
    assert json.loads(told["sources"][0]["endOffset"]) == {TOPIC: {"0": 41}}
    batch_frame = spark.read.format("kohort").load(str(logs))
    assert [row["offset"] for row in found] == [row["offset"] for row in frames.rows_of(batch_frame, "log_offset")]

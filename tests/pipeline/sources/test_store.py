"""A store in PostgreSQL as a source gives what a data directory with the same batches gives, in any parts, while it changes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from kohort.model.errors import ConfigError
from kohort.model.ids import uuid_text
from kohort.pipeline.engines.local.session import LocalSession
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.plan import tasks_of
from kohort.pipeline.sources.postgres import logs as stored_logs
from kohort.pipeline.sources.postgres.connection import opened
from kohort.pipeline.sources.postgres.logs import Reader, list_logs
from kohort.pipeline.sources.postgres.tasks import StoreLogs
from kohort.pipeline.sources.ranges import read_task
from kohort.pipeline.sources.streams.limited import LimitedLogStreamReader
from kohort.pipeline.tables.contract import COLUMNS
from tests.conftest import NIGHTLY
from tests.pipeline.frames import check_equal
from tests.pipeline.logbytes import batch
from tests.pipeline.sources.growing import TOPIC, GrowingLog, damaged
from tests.pipeline.sources.test_stream import by_place, everything, offsets_of, rows
from tests.pipeline.stored import OTHER_ID, TOPIC_ID, GrowingRows, load, new_store
from tests.pipeline.test_odd_logs import CASES

ALL = ReadAllAvailable()
HISTORIES = frozenset(
    {"lag_over_time", "lag_picture", "time_lag_over_time", "status", "status_history", "rebalance_costs"}
)
"""Tables of the batches of topics. A directory keeps deleted records until their segment goes, a store does not."""


@pytest.fixture
def url() -> Iterator[str]:
    with new_store() as made:
        yield made


@pytest.fixture
def log(url: str) -> Iterator[GrowingRows]:
    made = GrowingRows(url)
    yield made
    made.close()


def reader(url: str, **options: str) -> LimitedLogStreamReader:
    return LimitedLogStreamReader(SourceOptions.parse({"path": url, **options}))


def read(path: str, **options: str) -> list[dict[str, Any]]:
    """What a batch read gives, without Spark."""
    asked = SourceOptions.parse({"path": path, **options})
    return [row for task in tasks_of(asked) for part in read_task(asked, task) for row in part.to_pylist()]


def compare(engine: Any, logs: Path, tables: Any = tuple(COLUMNS)) -> None:
    with new_store() as url:
        load(url, logs)
        check_equal(tables, Tables(Reading(engine, url)), Tables(Reading(engine, logs)))


# Recorded logs


@pytest.mark.parametrize(
    "run", ["expiry-4.4.0", *(pytest.param(run, marks=NIGHTLY) for run in ("expiry", "legacy", "tv1", "unclean-4.4.0"))]
)
def test_tables_of_a_store_are_those_of_a_directory(recorded: Callable[[str], Path], run: str) -> None:
    with LocalSession() as local:
        compare(local, recorded(run) / "logs")


@pytest.mark.parametrize("case", ["deleted-records", *(pytest.param(case, marks=NIGHTLY) for case in CASES)])
def test_tables_of_odd_logs(recorded: Callable[[str], Path], case: str) -> None:
    """Log starts inside segments and batches, markers at the end, wrong clocks, open transactions."""
    with LocalSession() as local:
        compare(local, recorded("odd") / case, [name for name in COLUMNS if name not in HISTORIES])


def test_tables_of_groups_of_all_kinds(recorded: Callable[[str], Path]) -> None:
    with LocalSession() as local:
        compare(local, recorded("main-4.4.0") / "logs", [name for name in COLUMNS if name not in HISTORIES])


# Batches


def test_a_store_is_read_as_a_directory_with_the_same_batches(tmp_path: Path, url: str) -> None:
    log = GrowingLog(tmp_path)
    log.commits(50)
    log.commits(9, producer_id=7)
    log.marker(7, committed=True)
    load(url, tmp_path)
    assert [{**row, "segment": ""} for row in read(url)] == [{**row, "segment": ""} for row in read(str(tmp_path))]


@pytest.mark.parametrize("rows_of_statement", [1, 5, 1000])
def test_a_large_log_is_split_into_tasks_that_give_each_batch_once(
    url: str, log: GrowingRows, monkeypatch: pytest.MonkeyPatch, rows_of_statement: int
) -> None:
    log.commits(200, per_batch=7)
    whole = read(url)
    monkeypatch.setattr(stored_logs, "_ROWS", rows_of_statement)
    monkeypatch.setattr(stored_logs, "PIECE_BYTES", 1000)
    options = SourceOptions.parse({"path": url, "bytesPerTask": "2000", "kinds": "offset_commit,segment"})
    tasks = tasks_of(options)
    assert len(tasks) > 3
    found = [row for task in tasks for part in read_task(options, task) for row in part.to_pylist()]
    assert by_place([row for row in found if row["kind"] == "offset_commit"]) == whole
    assert [row["next_offset"] for row in found if row["kind"] == "segment"] == [200]


def test_small_logs_share_a_task(url: str) -> None:
    for partition in range(20):
        log = GrowingRows(url, partition)
        log.commits(3)
        log.close()
    (task,) = tasks_of(SourceOptions.parse({"path": url}))
    assert len(task.places) == 20
    assert len(tasks_of(SourceOptions.parse({"path": url, "minPartitions": "4"}))) >= 4


def test_a_statement_returns_few_bytes_but_one_batch(url: str, log: GrowingRows) -> None:
    for number in range(4):
        log.append(batch(number, [(b"k", bytes(1000))]))
    with opened(url) as connection:
        (found,) = list_logs(url)
        pieces = Reader(connection, found, 2500)
        assert [pieces.piece(at).following for at in (0, 2, 3, 4)] == [2, 4, 4, 4]  # type: ignore[union-attr]
        small = Reader(connection, found, 10)
        assert [len(small.piece(at).data) > 1000 for at in range(5)] == [True] * 4 + [False]  # type: ignore[union-attr]


def test_the_log_start_may_lie_inside_a_batch(url: str, log: GrowingRows) -> None:
    log.commits(12)
    log.remove_before(4)
    assert [(one.start, one.end) for one in list_logs(url)] == [(4, 12)]
    assert offsets_of(read(url)) == list(range(3, 12))
    assert offsets_of(read(url, endingOffsets="latest")) == list(range(3, 12))
    # Batches before the log start that are not removed yet.
    log.update("start_offset = $2", 8)
    assert offsets_of(read(url)) == list(range(6, 12))
    log.update("start_offset = $2", 12)
    assert [(row["kind"], row["next_offset"]) for row in read(url, kinds="offset_commit,segment")] == [("segment", 12)]


def test_compaction_leaves_gaps(url: str, log: GrowingRows) -> None:
    log.commits(30)
    log.connection.execute(b"DELETE FROM batch WHERE last_offset BETWEEN 6 AND 25")
    assert offsets_of(read(url)) == [*range(6), *range(24, 30)]
    assert offsets_of(read(url, bytesPerTask="200")) == [*range(6), *range(24, 30)]
    assert offsets_of(read(url, startingOffsets='{"__consumer_offsets": {"0": 10}}')) == list(range(24, 30))
    with opened(url) as connection:
        (found,) = list_logs(url)
        piece = Reader(connection, found).piece(6, 10)
    assert piece == (b"", 10, 0, 30)


def test_stray_and_deleted_logs_are_none_of_the_source(url: str, log: GrowingRows) -> None:
    log.commits(3)
    log.update("state = 1")
    assert read(url) == []
    again = GrowingRows(url, topic_id=OTHER_ID)
    again.commits(5)
    assert offsets_of(read(url)) == list(range(5))
    again.delete()
    again.close()
    assert list_logs(url) == []


def test_of_a_topic_that_was_created_again_the_new_log_counts(url: str, log: GrowingRows) -> None:
    """The row of the old one may be live for a moment."""
    log.commits(3)
    again = GrowingRows(url, topic_id=OTHER_ID)
    again.commits(6)
    again.close()
    assert len(read(url)) == 6


def test_damage_in_a_batch_is_a_row(url: str, log: GrowingRows) -> None:
    log.commits(3)
    log.append(damaged(batch(3, [(b"k", b"v")])))
    log.next_offset = 4
    log.commits(3)
    found = read(url)
    assert [row["problem"] for row in found if row["kind"] == "damage"] == ["CRC does not match"]
    assert offsets_of([row for row in found if row["kind"] == "offset_commit"]) == [0, 1, 2, 4, 5, 6]


def test_only_columns_and_kinds_that_are_asked_for(url: str, log: GrowingRows) -> None:
    log.commits(3)
    assert read(url, kinds="batch", columns="log_offset,next_offset") == [{"log_offset": 0, "next_offset": 3}]


# Logs that change while they are read


def changing(url: str, log: GrowingRows, change: Callable[[], object], **options: str) -> list[dict[str, Any]]:
    """Read with a change after the first rows."""
    asked = SourceOptions.parse({"path": url, **options})
    found: list[dict[str, Any]] = []
    for task in tasks_of(asked):
        for part in read_task(asked, task):
            if not found:
                change()
            found += part.to_pylist()
    return found


@pytest.fixture
def by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements of one batch."""
    monkeypatch.setattr(stored_logs, "PIECE_BYTES", 1)
    monkeypatch.setattr(Reader.__init__, "__defaults__", (1,))


@pytest.mark.usefixtures("by_batch")
def test_a_log_that_another_broker_takes_over_is_read_on(url: str, log: GrowingRows) -> None:
    log.commits(12)

    def move() -> None:
        log.update("leader_epoch = 7, attempt = 3")
        log.commits(6)

    assert offsets_of(changing(url, log, move)) == list(range(18))
    assert offsets_of(changing(url, log, move, endingOffsets="latest")) == list(range(18))


@pytest.mark.usefixtures("by_batch")
def test_a_whole_read_sees_the_later_records_of_compacted_ones(url: str, log: GrowingRows) -> None:
    """A record that was planned to be read is removed, because another one with its key was appended behind the planned end."""
    log.commits(12)

    def compact() -> None:
        log.connection.execute(b"DELETE FROM batch WHERE last_offset = 8")
        log.commits(3)

    assert offsets_of(changing(url, log, compact)) == [*range(6), *range(9, 15)]


@pytest.mark.usefixtures("by_batch")
@pytest.mark.parametrize("is_strict", [True, False])
def test_records_that_are_deleted_while_they_are_read(url: str, log: GrowingRows, *, is_strict: bool) -> None:
    log.commits(12)
    ranged = {"endingOffsets": "latest", "failOnDataLoss": str(is_strict)}
    if is_strict:
        with pytest.raises(
            ConfigError, match=r"__consumer_offsets-0 was to be read from offset 3 to 6, and these records"
        ):
            changing(url, log, lambda: log.remove_before(6), **ranged)
        return
    found = changing(url, log, lambda: log.remove_before(6), **ranged)
    assert [(row["kind"], row["log_offset"]) for row in found][3] == ("damage", 3)
    assert offsets_of(found) == [0, 1, 2, 3, *range(6, 12)]
    # Of a log that is read as a whole it is left out, also before it is removed.
    log.commits(3)
    assert offsets_of(changing(url, log, lambda: log.update("start_offset = $2", 12))) == [*range(6, 9), *range(12, 15)]


@pytest.mark.usefixtures("by_batch")
def test_a_topic_that_is_created_again_while_it_is_read(url: str, log: GrowingRows) -> None:
    log.commits(12)

    def again() -> None:
        log.delete()
        other = GrowingRows(url, topic_id=OTHER_ID)
        other.commits(30)
        other.close()

    assert offsets_of(changing(url, log, again)) == [0, 1, 2]
    assert len(read(url)) == 30


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_topic_that_is_created_again_between_plan_and_tasks(url: str, log: GrowingRows, *, is_strict: bool) -> None:
    log.commits(12)
    options = SourceOptions.parse({"path": url, "failOnDataLoss": str(is_strict)})
    logs = StoreLogs(options)
    end = {place: end for place, (_, end) in logs.state().bounds.items()}
    log.delete()
    again = GrowingRows(url, topic_id=OTHER_ID)
    again.commits(30)
    again.close()
    tasks = logs.tasks({}, end)
    if is_strict:
        with pytest.raises(ConfigError, match="from offset 0 to 12, and its topic was deleted, or created again"):
            list(read_task(options, tasks[0]))
    else:
        (found,) = read_task(options, tasks[0])
        assert [row["kind"] for row in found.to_pylist()] == ["damage"]


# Streams

LIMITS = st.one_of(st.builds(ReadMaxRows, st.integers(1, 40)), st.builds(ReadMaxBytes, st.integers(1, 4000)))
STEPS = st.lists(
    st.tuples(st.sampled_from(["commits", "transaction", "compact"]), st.integers(0, 1), st.integers(1, 12)), max_size=9
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, limit=LIMITS)
def test_parts_of_any_size_make_the_whole(url: str, steps: list[tuple[str, int, int]], limit: ReadLimit) -> None:
    logs = [GrowingRows(url, partition) for partition in range(2)]
    for what, partition, count in steps:
        log = logs[partition]
        match what:
            case "commits":
                log.commits(count, per_batch=count)
            case "transaction":
                log.commits(count, producer_id=7)
                log.marker(7, committed=count % 2 == 0)
            case "compact":
                log.connection.execute(
                    b"DELETE FROM batch WHERE log_id = $1 AND last_offset BETWEEN $2 AND $3",
                    (log.log_id, count, 3 * count),
                )
    parts = everything(reader(url), limit)
    assert by_place([row for part in parts for row in part]) == by_place(read(url))
    for log in logs:
        log.delete()
        log.close()


def test_a_micro_batch_has_about_so_many_bytes(url: str, log: GrowingRows) -> None:
    log.commits(60)
    (found,) = list_logs(url)
    parts = everything(reader(url), ReadMaxBytes(found.size_bytes // 4))
    assert [len(part) for part in parts] == [15, 15, 15, 15]


def test_a_stream_has_the_offsets_of_one_over_a_directory(tmp_path: Path, url: str, log: GrowingRows) -> None:
    files = GrowingLog(tmp_path)
    for each in (files, log):
        each.commits(10)
    told = [reader(path).latestOffset({}, ALL) for path in (str(tmp_path), url)]
    assert told == [{TOPIC: {"0": 10}}, {TOPIC: {"0": 10, "id": uuid_text(TOPIC_ID)}}]
    # A checkpoint of a stream over the directory.
    assert offsets_of(rows(reader(url), {TOPIC: {"0": 6}}, told[0])) == list(range(6, 10))
    new = GrowingRows(url, 1)
    new.commits(2)
    new.close()
    assert reader(url).latestOffset(told[1], ALL)[TOPIC] == {"0": 10, "1": 2, "id": uuid_text(TOPIC_ID)}


def test_a_topic_that_was_created_again(url: str, log: GrowingRows) -> None:
    log.commits(20)
    careful, lenient = reader(url), reader(url, failOnDataLoss="false")
    at = lenient.latestOffset(lenient.initialOffset(), ALL)
    assert careful.latestOffset(careful.initialOffset(), ALL) == at
    log.delete()
    again = GrowingRows(url, topic_id=OTHER_ID)
    again.commits(35)
    again.close()
    with pytest.raises(
        ConfigError, match=r"created again.*failOnDataLoss=false reads the new log from its first offset"
    ):
        careful.latestOffset(at, ALL)
    following = lenient.latestOffset(at, ALL)
    assert offsets_of(rows(lenient, at, following)) == list(range(35))
    # Of a micro-batch that was planned before, nothing is left.
    with pytest.raises(ConfigError, match="its topic was deleted, or created again"):
        reader(url).partitions({TOPIC: {"0": 8, "id": uuid_text(TOPIC_ID)}}, at)
    deleted = GrowingRows(url, 1, OTHER_ID)
    deleted.commits(40)
    deleted.remove_before(30)
    deleted.close()
    with pytest.raises(ConfigError, match="begins at offset 30 now, and was to be read from 3"):
        reader(url).partitions({TOPIC: {"1": 3}}, {TOPIC: {"1": 40}})


# Bad input


def test_a_password_in_the_address_of_a_source_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="the address of a source has no password") as refused:
        SourceOptions.parse({"path": "postgresql://kohort:secret@/x"})
    assert "secret" not in str(refused.value)


def test_connections_of_readers_cannot_write(url: str, log: GrowingRows) -> None:
    with (
        pytest.raises(ConfigError, match="cannot execute DELETE in a read-only transaction"),
        opened(url) as it,
    ):
        it.execute(b"DELETE FROM batch")


def test_a_piece_costs_the_same_without_statistics_of_the_table(url: str, log: GrowingRows) -> None:
    """Until the first autovacuum the database takes a log for small, and would sort the rest of it for each piece."""
    log.connection.execute(
        b"INSERT INTO batch SELECT $1, number, number, 0, decode(repeat('00', 120), 'hex')"
        b" FROM generate_series(1, 50000) AS number",
        (log.log_id,),
    )
    asked = {"$1": log.log_id, "$2": 15_000, "$3": 50_000, "$4": 256, "$5": 1 << 20}
    statement = stored_logs._PIECE.decode()
    for name, value in asked.items():
        statement = statement.replace(name, str(value))
    with opened(url) as connection:
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN (ANALYZE, BUFFERS OFF) {statement}".encode()))
    assert "Index Scan using batch_pkey on batch" in plan, plan
    assert "rows=256.00" in plan or "rows=256 " in plan, plan
    assert "rows=35000" not in plan, plan


def test_a_read_holds_no_snapshot_and_no_lock(url: str, log: GrowingRows) -> None:
    log.commits(12)
    asked = SourceOptions.parse({"path": url})
    (task,) = tasks_of(asked)
    parts = read_task(asked, task)
    next(parts)
    seen = log.connection.execute(
        b"SELECT state, backend_xmin, (SELECT count(*) FROM pg_locks WHERE pg_locks.pid = pg_stat_activity.pid)"
        b" FROM pg_stat_activity WHERE application_name = 'kohort-pipeline'"
    ).fetchall()
    assert seen == [("idle", None, 0)]
    parts.close()  # type: ignore[attr-defined]

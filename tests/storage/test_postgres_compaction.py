"""Compaction of logs in a database: what stays is what the cleaner on disk leaves, whatever happens beside it."""

import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.ids import TopicPartition
from kohort.storage.log import CleanerConfig, LogConfig
from kohort.storage.postgres import PostgresStore
from kohort.storage.postgres.connect import Target, connect
from kohort.storage.postgres.log import PostgresLog
from kohort.storage.postgres.tail import Tail
from kohort.storage.postgres.tools.verify import verify
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import BatchRecord, build_batch, encode_batch, iter_batches
from kohort.wire.compression import Codec
from tests.conftest import LONG
from tests.storage.compacted import CLEANER, CONFIG, batches, clean, newest, put, records
from tests.storage.conftest import IN_MEMORY
from tests.storage.database import shared_database
from tests.storage.owner import PARTITION, TOPIC_ID, WAIT_SECONDS, Owner
from tests.storage.test_compaction_coordinator import OneKeyMaker, loaded
from tests.storage.test_compaction_property import PRODUCERS, RETENTION_MS, Run, do, pairs, steps
from tests.storage.test_memory_cleaner import Both, contents
from tests.storage.test_memory_cleaner import steps as steps_of_both
from tests.storage.test_postgres import Stored, stored
from tests.wire.control_batches import control_batch

SEGMENT_MS = 1_000_000
"""A new segment begins with a batch whose time is in another multiple of this."""
TIMED = msgspec.structs.replace(CONFIG, segment_bytes=1 << 30, segment_ms=SEGMENT_MS, delete_retention_ms=RETENTION_MS)

__all__ = ["stored"]


def pass_over(owner: Owner, store: PostgresStore, config: CleanerConfig = CLEANER) -> None:
    """Passes until nothing is due."""
    store.flush()
    store.clean(config)
    owner.wait_for(lambda: not store.cleaner.is_busy)
    owner.run_posted()


def problems(schema: str) -> list[str]:
    with connect(Target(shared_database().url, schema)) as connection:
        return verify(connection).problems


# The same as on a disk


class DiskAndDatabase(Both):
    """The same log on disk and in a database. The times of batches roll both."""

    def __init__(self, path: Path) -> None:
        self.owner = Owner()
        self.disk = self.owner.disk(path)
        self.store = self.owner.postgres()
        self.on_disk = self.disk.open(PARTITION, TOPIC_ID, TIMED)
        self.in_database = self.store.open(PARTITION, TOPIC_ID, TIMED)
        self.sequences = {}
        self.open = set()
        self.values = self.era = 0

    @property
    def timestamp_ms(self) -> int:
        return 3 * SEGMENT_MS * self.era

    def append(self, data: bytes) -> None:
        assert self.on_disk.append(data, leader_epoch=0) == self.in_database.append(data, leader_epoch=0)

    def put(self, chosen: list[tuple[str, bool]], codec: Codec = Codec.NONE, **header: Any) -> None:
        found = []
        for key, has_value in chosen:
            self.values += 1
            found.append(BatchRecord(key.encode(), b"value %d" % self.values if has_value else None))
        self.append(build_batch(found, timestamp_ms=self.timestamp_ms, compression=codec, **header))

    def end(self, producer_id: int, committed: bool) -> None:
        if producer_id in self.open:
            self.open.remove(producer_id)
            marker = control_batch(
                producer_id=producer_id,
                producer_epoch=0,
                committed=committed,
                coordinator_epoch=0,
                timestamp_ms=self.timestamp_ms,
            )
            self.append(marker)

    def roll(self) -> None:
        self.era += 1

    def delete(self, _offset: int) -> None:
        """What is before the log start in its segment takes part in a pass on disk, and is gone here."""

    def clean(self, elapsed_ms: int) -> None:
        self.owner.node.advance(elapsed_ms)
        clean(self.owner, self.disk)
        pass_over(self.owner, self.store)
        assert not self.store.cleaner.uncleanable

    def check(self) -> None:
        disk, database = self.on_disk, self.in_database
        assert contents(database) == contents(disk)
        assert database.aborted == [entry for segment in disk.segments for entry in segment.aborted.entries]
        assert self.store.cleaner.offsets.get(PARTITION, 0) == self.disk.cleaner.offsets.get(PARTITION, 0)
        assert database.size_bytes == disk.size_bytes


@settings(max_examples=1000 if LONG else 25, deadline=None)
@given(steps_of_both)
def test_a_database_keeps_what_the_disk_keeps(chosen: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory(dir=IN_MEMORY) as directory:
        both = DiskAndDatabase(Path(directory))
        with closing(both.store), closing(both.disk):
            for name, *arguments in chosen:
                getattr(both, name)(*arguments)
                if name == "clean":
                    both.check()
            both.clean(RETENTION_MS + 1)
            both.check()


# Beside a model


class DatabaseRun(Run):
    """A compacted log in a database; some of it is read from memory."""

    def __init__(self) -> None:
        self.schema = shared_database().new_schema()
        self.era = 0
        super().__init__(Path())

    def open(self) -> None:
        self.config = TIMED
        self.in_database = self.owner.postgres(self.schema, written_bytes_kept=500)
        self.store = self.in_database  # type: ignore[assignment]
        self.log = self.in_database.open(PARTITION, TOPIC_ID, self.config)  # type: ignore[assignment]

    @property
    def timestamp_ms(self) -> int:
        return 3 * SEGMENT_MS * self.era

    def roll(self) -> None:
        self.era += 1

    def begin(self, elapsed_ms: int) -> None:
        """Begin a pass, and go on."""
        self.owner.node.advance(elapsed_ms)
        self.store.flush()
        self.store.clean(CLEANER)
        self.owner.run_posted()

    def turn(self) -> None:
        self.owner.run_posted()

    def clean(self, elapsed_ms: int) -> None:
        self.owner.node.advance(elapsed_ms)
        self.owner.wait_for(lambda: not self.in_database.cleaner.is_busy)
        pass_over(self.owner, self.in_database)
        assert not self.in_database.cleaner.uncleanable

    def restart(self, is_clean: bool) -> None:
        self.store.flush()
        if is_clean:
            self.store.close()
        else:
            self.kill()
            now_ms, self.owner = self.owner.clock.now_ms(), Owner()
            self.owner.clock.set(now_ms)
        self.open()

    def kill(self) -> None:
        """The database ends the connections, those of a pass in the midst of its transaction."""
        with connect(Target(shared_database().url, self.schema, "killer")) as connection:
            connection.execute(
                b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kohort'"
            )
        self.in_database.cleaner.stop(60)
        self.in_database._writer.stop(60)
        self.in_database._removals.stop(60)
        self.in_database._reads.close()


steps_beside = st.lists(
    st.one_of(
        st.tuples(st.just("put"), pairs),
        st.tuples(st.just("idempotent"), pairs),
        st.tuples(st.just("transactional"), st.sampled_from(PRODUCERS), pairs),
        st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
        st.tuples(st.just("roll")),
        st.tuples(st.just("delete"), st.integers(0, 40)),
        st.tuples(st.just("begin"), st.sampled_from([0, RETENTION_MS, RETENTION_MS + 1])),
        st.tuples(st.just("turn")),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    min_size=5,
    max_size=60,
)


def go(chosen: list[tuple[Any, ...]]) -> None:
    run = DatabaseRun()
    try:
        for step in chosen:
            if step == ("roll",):
                run.roll()
            else:
                do(run, step)
            run.check()
        for _ in range(3):
            run.clean(RETENTION_MS)
            run.check()
        run.owner.run_posted()
    finally:
        run.store.close()
    assert problems(run.schema) == []


@settings(max_examples=1000 if LONG else 15, deadline=None)
@given(steps)
def test_a_compacted_log_in_a_database_agrees_with_a_list(chosen: list[tuple[Any, ...]]) -> None:
    go(chosen)


@settings(max_examples=1000 if LONG else 15, deadline=None)
@given(steps_beside)
def test_a_reader_beside_a_pass_gets_what_a_list_says(chosen: list[tuple[Any, ...]]) -> None:
    go(chosen)


def dirty(stored: Stored, rounds: int = 30, *, partition: int = 0, config: LogConfig = TIMED) -> PostgresLog:
    """A log whose keys come again in each round, and a segment behind them."""
    log = stored.store.open(TopicPartition("orders", partition), TOPIC_ID, config)
    for number in range(rounds):
        put(log, *((f"k{key}", f"{number} " * 20) for key in range(10)))
    put(log, ("end", "x"), timestamp_ms=3 * SEGMENT_MS)
    stored.store.flush()
    return log


# Fences


@pytest.mark.parametrize(
    "change", ["leader_epoch = 7", "attempt = 1", "start_offset = 5", "state = 2"], ids=lambda text: text.split()[0]
)
def test_a_pass_over_a_log_that_another_node_has_changed_changes_nothing(stored: Stored, change: str) -> None:
    log = dirty(stored)
    stored.rows(f"UPDATE log SET {change} RETURNING 1")
    before = stored.rows("SELECT last_offset, data FROM batch ORDER BY 1")
    pass_over(stored.owner, stored.store)
    assert stored.rows("SELECT last_offset, data FROM batch ORDER BY 1") == before
    assert stored.rows("SELECT clean_offset FROM log") == [(0,)]
    assert not stored.store.cleaner.uncleanable
    assert stored.store.cleaner_metrics().passes == 0
    assert log.refusal is None


def test_a_pass_does_not_wait_for_a_lock_while_it_rewrites(stored: Stored) -> None:
    """An append beside it is committed, though the rewriting waits for a batch that another one has locked."""
    log = dirty(stored)
    stored.sql.execute(b"BEGIN")
    stored.rows("SELECT 1 FROM batch ORDER BY last_offset LIMIT 1 FOR UPDATE")
    stored.store.clean(CLEANER)
    log.append(build_batch([BatchRecord(b"z", b"z")], timestamp_ms=1), leader_epoch=0)
    stored.owner.wait_for(lambda: log.high_watermark == log.end_offset)
    assert stored.store.cleaner.is_busy
    stored.sql.execute(b"COMMIT")
    stored.owner.wait_for(lambda: not stored.store.cleaner.is_busy)
    assert len(records(log)) == 12


# A database that cannot do it


REFUSALS = {
    "full": ("53100", "could not extend file: No space left on device"),
    "statement timeout": ("57014", "canceling statement due to statement timeout"),
    "lock timeout": ("55P03", "canceling statement due to lock timeout"),
}


def refuse(stored: Stored, when: str, case: str) -> None:
    """Let statements on batches fail."""
    state, message = REFUSALS[case]
    stored.sql.execute(
        f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          RAISE EXCEPTION USING ERRCODE = '{state}', MESSAGE = '{message}';
        END $$;
        CREATE TRIGGER refuse BEFORE {when} ON batch FOR EACH ROW EXECUTE FUNCTION refuse();
        """.encode()
    )


@pytest.mark.parametrize("case", REFUSALS)
def test_a_database_that_is_full_in_a_pass_loses_nothing(
    stored: Stored, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first piece is committed, and a later one is not; the next pass does the rest. Appends go on."""
    log = dirty(stored, 600)
    before = newest(log)
    refuse(stored, "DELETE OR UPDATE", case)
    stored.sql.execute(b"DROP TRIGGER refuse ON batch")
    stored.sql.execute(
        b"CREATE TRIGGER refuse BEFORE DELETE OR UPDATE ON batch FOR EACH ROW WHEN (OLD.last_offset > 3000) "
        b"EXECUTE FUNCTION refuse()"
    )
    pass_over(stored.owner, stored.store)
    assert f"store.cleaning_failed partition=orders-0 error='{REFUSALS[case][1]}'" in caplog.text
    assert 11 < len(records(log)) < 6_001
    assert newest(log) == before
    assert not stored.store.cleaner.uncleanable
    assert verify(stored.sql).problems == []
    put(log, ("end", "y"), timestamp_ms=6 * SEGMENT_MS)
    stored.sql.execute(b"DROP TRIGGER refuse ON batch")
    pass_over(stored.owner, stored.store)
    assert len(records(log)) == 12
    assert verify(stored.sql).problems == []


@pytest.mark.parametrize("case", REFUSALS)
def test_appends_wait_while_the_database_refuses(stored: Stored, case: str) -> None:
    """The volume says why: `/ready` shows it."""
    log = dirty(stored, 1)
    refuse(stored, "INSERT", case)
    put(log, ("k", "late"))
    stored.owner.run_turn()
    deadline = time.monotonic() + WAIT_SECONDS
    while REFUSALS[case][1] not in stored.store.volume().problem:
        assert time.monotonic() < deadline
    assert log.high_watermark == 11
    stored.sql.execute(b"DROP TRIGGER refuse ON batch")
    stored.owner.wait_for(lambda: log.high_watermark == 12)
    assert stored.store.volume().problem == ""


# What is left of a pass


def test_a_pass_is_counted_and_a_restart_knows_where_it_ended(stored: Stored) -> None:
    log = dirty(stored)
    before = log.size_bytes
    pass_over(stored.owner, stored.store)
    metrics = stored.store.cleaner_metrics()
    assert (metrics.passes, len(records(log)), metrics.bytes_read > before) == (1, 11, True)
    assert 0 < metrics.bytes_written < before // 10
    assert metrics.max_dirty_percent == 0.0
    assert log.size_bytes < before // 10
    assert stored.rows("SELECT clean_offset, size_bytes FROM log") == [(300, log.size_bytes)]
    stored.store.close()
    stored.open_store()
    again = stored.store.open(log.topic_partition, TOPIC_ID, TIMED)
    pass_over(stored.owner, stored.store)
    assert (stored.store.cleaner_metrics().passes, len(records(again))) == (0, 11)
    assert verify(stored.sql).problems == []


def test_segments_end_at_their_size(stored: Stored) -> None:
    config = msgspec.structs.replace(TIMED, segment_bytes=5_000)
    log = dirty(stored, config=config)
    pass_over(stored.owner, stored.store)
    assert len(records(log)) == 11
    again = stored.store.open(TopicPartition("orders", 1), TOPIC_ID, config)
    for number in range(40):
        put(again, ("k", f"{number} " * 100))
    stored.store.flush()
    stored.store.clean(CleanerConfig())
    stored.owner.wait_for(lambda: not stored.store.cleaner.is_busy)
    assert 10 < len(records(again)) < 25
    assert records(again)[-1][0] == 39


@pytest.mark.parametrize(
    ("bytes_more", "ms_more", "is_counted"), [(0, 0, False), (2_500, 0, True), (0, SEGMENT_MS, True)]
)
def test_a_segment_is_counted_again_when_it_may_have_ended(
    stored: Stored, bytes_more: int, ms_more: int, is_counted: bool
) -> None:
    config = msgspec.structs.replace(TIMED, segment_bytes=5_000)
    log = stored.store.open(PARTITION, TOPIC_ID, config)
    put(log, ("a", "1"))
    pass_over(stored.owner, stored.store)
    (first,) = log.segments
    for _ in range(2):
        put(log, ("b", "x" * bytes_more), timestamp_ms=1000 + ms_more)
    pass_over(stored.owner, stored.store)
    assert (list(log.segments) == [first]) == (not is_counted)


def test_memory_forgets_the_records_of_a_transaction_that_the_database_forgets(stored: Stored) -> None:
    """Without the entry of the aborted transaction they would count as committed."""
    stored.store.close()
    store = stored.open_store(written_bytes_kept=1 << 20)
    log = store.open(PARTITION, TOPIC_ID, msgspec.structs.replace(TIMED, delete_retention_ms=0))
    aborted_transaction(log)
    for era in (1, 2, 3, 4):
        put(
            *(log, (f"k{era}", "v")),
            timestamp_ms=3 * SEGMENT_MS * era,
            producer_id=5,
            producer_epoch=0,
            base_sequence=era,
        )
        if era > 1:
            pass_over(stored.owner, store)
        data = log.read(0, bytes_max=1 << 20)
        told = {entry.producer_id for entry in log.aborted_transactions(0, data)}
        assert not any(h.is_transactional and not h.is_control and r for h, r in batches(log)) or told == {5}
    assert log.aborted == []
    assert log.tail.start == 2
    assert stored.rows("SELECT count(*) FROM aborted") == [(0,)]


def aborted_transaction(log: PostgresLog) -> None:
    put(log, ("k", "aborted"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    marker = control_batch(producer_id=5, producer_epoch=0, committed=False, coordinator_epoch=0, timestamp_ms=0)
    log.append(marker, leader_epoch=0)


def test_a_pass_tells_what_an_earlier_one_did_whose_outcome_was_not_known(stored: Stored) -> None:
    log = stored.store.open(PARTITION, TOPIC_ID, TIMED)
    aborted_transaction(log)
    (entry,) = log.aborted
    for era in (1, 2, 3):
        put(
            log, (f"k{era}", "x"), timestamp_ms=3 * era * SEGMENT_MS, producer_id=5, producer_epoch=0, base_sequence=era
        )
        pass_over(stored.owner, stored.store)
    assert not log.aborted
    log.aborted.append(entry)
    put(log, ("k4", "x"), timestamp_ms=12 * SEGMENT_MS)
    pass_over(stored.owner, stored.store)
    assert not log.aborted


def test_a_pass_ends_when_batches_go_meanwhile(stored: Stored) -> None:
    dirty(stored)
    stored.sql.execute(b"BEGIN")
    stored.rows(
        "WITH gone AS (DELETE FROM batch WHERE last_offset = 9 RETURNING octet_length(data) AS size) "
        "UPDATE log SET size_bytes = size_bytes - gone.size FROM gone RETURNING 1"
    )
    stored.store.clean(CLEANER)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with connect(stored.target) as other:
        while other.execute(waiting.encode()).fetchone() != (1,):
            assert stored.store.cleaner.is_busy
            stored.owner.run_posted()
    stored.sql.execute(b"COMMIT")
    stored.owner.wait_for(lambda: not stored.store.cleaner.is_busy)
    assert verify(stored.sql).problems == []
    assert stored.rows("SELECT clean_offset, (SELECT count(*) FROM batch) FROM log") == [(0, 30)]


def test_a_transaction_before_the_log_start_aborts_nothing_behind_it(stored: Stored) -> None:
    """Its marker is not read, so it would not end."""
    log = stored.store.open(PARTITION, TOPIC_ID, TIMED)
    aborted_transaction(log)
    put(log, ("k", "committed"), producer_id=5, producer_epoch=0, base_sequence=1, transactional=True)
    log.append(
        control_batch(producer_id=5, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp_ms=0),
        leader_epoch=0,
    )
    put(log, ("end", "x"), timestamp_ms=3 * SEGMENT_MS)
    stored.store.flush()
    log.delete_before(2)
    stored.store.flush()
    stored.see("SELECT count(*) FROM aborted", [(0,)])
    stored.rows("INSERT INTO aborted SELECT log_id, 1, 5, 0, 2 FROM log RETURNING 1")
    pass_over(stored.owner, stored.store)
    assert [offset for offset, *_ in records(log)] == [2, 4]
    assert stored.store.cleaner_metrics().passes == 1


def test_batches_in_memory_are_forgotten_once() -> None:
    """Those that compaction has forgotten are not counted again when their turn comes."""
    tail = Tail(0)
    for offset in range(6):
        tail.append(b"%d" % offset, offset, 0)
    tail.forget_before(2)
    tail.forget(1)
    tail.forget(2)
    assert (tail.start, tail.read(0, 100, 6)) == (3, b"345")
    tail.forget_before(3)
    tail.forget(1)
    assert (tail.start, tail.read(0, 100, 6)) == (4, b"45")


@pytest.mark.parametrize("delete_retention_ms", [0, 86_400_000])
def test_a_shard_of_a_compacted_log_equals_that_of_the_whole(stored: Stored, delete_retention_ms: int) -> None:
    config = LogConfig(
        segment_bytes=20_000,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=delete_retention_ms,
    )
    for seed in range(3):
        maker = OneKeyMaker(seed)
        maker.transactional_share = 0.0
        log = stored.store.open(TopicPartition("offsets", seed), TOPIC_ID, config)
        for batch in maker.log(records=300).batches:
            log.append(batch, leader_epoch=0)
        log.append(encode_batch([(b"\x00\x7f", b"of a kind that is not known" * 500)], 5), leader_epoch=0)
        stored.store.flush()
        expected, before = loaded(log), len(records(log))
        for _ in range(3):
            pass_over(stored.owner, stored.store)
            assert loaded(log) == expected
            log.append(encode_batch([(b"\x00\x7f", b"of a kind that is not known" * 500)], 5), leader_epoch=0)
        assert len(records(log)) < before


def test_a_damaged_batch_makes_its_log_uncleanable_and_no_other(stored: Stored) -> None:
    damaged, other = dirty(stored), dirty(stored, partition=1)
    stored.rows(
        f"UPDATE batch SET data = set_byte(data, {HEADER_BYTES}, 99) FROM log WHERE log.log_id = batch.log_id "
        "AND partition = 0 AND last_offset = 59 RETURNING 1"
    )
    before = damaged.size_bytes
    pass_over(stored.owner, stored.store)
    metrics = stored.store.cleaner_metrics()
    assert stored.store.cleaner.uncleanable == {damaged.topic_partition}
    assert (metrics.uncleanable_partitions, metrics.uncleanable_bytes, damaged.size_bytes) == (1, before, before)
    assert len(records(other)) == 11


def test_both_policies_delete_and_compact(stored: Stored) -> None:
    now_ms = stored.owner.clock.now_ms()
    config = msgspec.structs.replace(TIMED, cleanup_policy="compact,delete", retention_ms=5_000)
    log = stored.store.open(PARTITION, TOPIC_ID, config)
    for number in range(10):
        put(log, (f"k{number}", "v"), timestamp_ms=now_ms - 9_500 + number * 1_000)
    stored.store.flush()
    stored.store.clean(CLEANER)
    stored.owner.wait_for(lambda: log.log_start_offset == 5)
    plain = stored.store.open(TopicPartition("orders", 1), TOPIC_ID, msgspec.structs.replace(TIMED, retention_ms=0))
    put(plain, ("k", "v"), timestamp_ms=1)
    pass_over(stored.owner, stored.store)
    assert plain.log_start_offset == 0


def test_a_log_that_is_deleted_beside_a_pass_leaves_nothing(stored: Stored) -> None:
    log = dirty(stored)
    stored.store.clean(CLEANER)
    stored.store.delete(log.topic_partition)
    stored.owner.wait_for(lambda: not stored.store.cleaner.is_busy)
    stored.see("SELECT count(*) FROM log", [(0,)])
    stored.see("SELECT count(*) FROM batch", [(0,)])
    assert not stored.store.cleaner.offsets
    assert not stored.store.cleaner._views


# What Apache Kafka's cleaner made of its own logs


RECORDED = Path(__file__).parents[1] / "data" / "compaction" / "recorded.tar.xz"


def test_a_log_is_compacted_as_kafkas_was(stored: Stored, tmp_path: Path) -> None:
    """The survivors of the first recorded round, record by record."""
    with tarfile.open(RECORDED) as archive:
        archive.extractall(tmp_path, filter="data")
    before, after = (
        [path.read_bytes() for path in sorted((tmp_path / moment / "long-0").glob("*.log"))]
        for moment in ("0-before", "0-after")
    )
    log = stored.store.open(PARTITION, TOPIC_ID, msgspec.structs.replace(TIMED, segment_ms=60_000))
    for data in before:
        log.append(data, leader_epoch=0)
    pass_over(stored.owner, stored.store)
    assert list(keys_of(contents(log))) == list(keys_of(after))


def keys_of(datas: list[bytes]) -> Iterator[tuple[int, int]]:
    for data in datas:
        for _, header in iter_batches(data):
            yield header.base_offset, header.record_count

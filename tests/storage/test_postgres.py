"""The store in a database: what it finds at a start, whom it refuses, and what it does while the database fails."""

import re
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kohort.machine.shard import EndTransaction, Producer
from kohort.model.errors import ConfigError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.model.limits import UNWRITTEN_BYTES_MAX
from kohort.storage import producers
from kohort.storage.log import LogConfig
from kohort.storage.postgres import PostgresStore
from kohort.storage.postgres.claims import claim
from kohort.storage.postgres.connect import Identity, Target, connect, shown, try_lock
from kohort.storage.postgres.log import PostgresLog
from kohort.storage.postgres.schema import MIGRATIONS, VERSION, upgrade, version_of
from kohort.storage.postgres.tools.verify import verify
from kohort.storage.shared import Claim
from kohort.wire.batches import BatchRecord, build_batch, iter_batches, read_records
from kohort_lab.cutting_proxy import CuttingProxy, connect_in, listen_in
from kohort_lab.database import url_of
from tests.storage.database import Database, shared_database
from tests.storage.owner import PARTITION, TOPIC_ID, WAIT_SECONDS, Owner, batch


class Stored:
    """A store in a schema of its own, and a connection beside it."""

    def __init__(self) -> None:
        self.owner = Owner()
        self.schema = shared_database().new_schema()
        self.target = Target(shared_database().url, self.schema)
        self.sql = connect(self.target)
        self.store = self.open_store()

    def open_store(self, **options: Any) -> PostgresStore:
        self.store = self.owner.postgres(self.schema, **options)
        return self.store

    def log(self, partition: int = 0) -> PostgresLog:
        return self.store.open(TopicPartition("orders", partition), TOPIC_ID, LogConfig())

    def fill(self, partition: int, count: int) -> PostgresLog:
        """A log with so many committed records, one a batch."""
        log = self.log(partition)
        for number in range(count):
            log.append(batch(str(number)), leader_epoch=0)
        self.store.flush()
        return log

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self.sql.execute(statement.encode()).fetchall()

    def see(self, statement: str, wanted: list[tuple[Any, ...]]) -> None:
        """Wait until the database has this."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (found := self.rows(statement)) != wanted:
            assert time.monotonic() < deadline, found

    def close(self) -> None:
        self.store.close()
        self.sql.close()


@pytest.fixture
def stored() -> Iterator[Stored]:
    stored = Stored()
    yield stored
    stored.close()


def values(log: PostgresLog) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while data := log.read(offset, bytes_max=10_000):
        for position, header in iter_batches(data):
            found += [record.value for record in read_records(memoryview(data)[position:], header=header)]
            offset = header.next_offset
    return found


# Starts


def test_a_start_finds_what_was_committed(stored: Stored) -> None:
    log = stored.log()
    log.append(batch("a", "b"), leader_epoch=3)
    log.become_leader(5)
    guard = log.start_verification(Producer("tx", 9, 1), 0)
    data = build_batch(
        [BatchRecord(b"k", b"v")], timestamp_ms=7, producer_id=9, producer_epoch=1, base_sequence=0, transactional=True
    )
    log.append_transactional(data, leader_epoch=5, producer_id=9, producer_epoch=1, guard=guard)
    log.append_marker(EndTransaction(9, 1, 4, False, 1), leader_epoch=5, timestamp_ms=8)
    log.append_transactional(
        data, leader_epoch=5, producer_id=9, producer_epoch=1, guard=log.start_verification(Producer("tx", 9, 1), 0)
    )
    stored.store.flush()
    stable, aborted = log.last_stable_offset, log.aborted
    states, epochs, size_bytes = log.producers.states, log.epochs.entries, log.size_bytes
    assert (stable, len(aborted), log.end_offset) == (4, 1, 5)
    stored.store.close()
    stored.open_store()
    again = stored.log()
    assert (again.end_offset, again.high_watermark, again.leader_epoch) == (5, 5, 5)
    assert (again.last_stable_offset, again.aborted, again.size_bytes) == (stable, aborted, size_bytes)
    assert (again.producers.states, again.epochs.entries) == (states, epochs)
    assert again.append(batch("c"), leader_epoch=5) == 6


def test_a_log_without_records_has_no_row(stored: Stored) -> None:
    stored.log().become_leader(0)
    stored.store.flush()
    assert stored.rows("SELECT * FROM log") == []


def test_a_leader_epoch_without_records_is_kept(stored: Stored) -> None:
    stored.log().become_leader(2)
    stored.owner.run_turn()
    stored.store.close()
    stored.open_store()
    assert stored.log().leader_epoch == 2


def test_clients_are_told_the_address_without_its_user(stored: Stored) -> None:
    assert stored.store.location == shared_database().url.replace("kohort@", "")


def test_a_store_has_one_node(stored: Stored) -> None:
    with pytest.raises(ConfigError, match="another node uses the store"):
        Owner().postgres(stored.schema, lock_s=0.0)


def test_the_thread_that_serves_clients_reads_little_at_a_time(stored: Stored) -> None:
    """A load of a coordinator goes on in its next turn. Another thread reads what was asked for."""
    log = stored.log()
    for _ in range(10):
        log.append(batch("x" * 100_000), leader_epoch=0)
    stored.store.flush()
    sizes = [len(reader.read(0, bytes_max=1 << 20)) for reader in (log, log.view())]
    assert sizes == [2 * log.size_bytes // 10, log.size_bytes]


def test_small_batches_are_read_many_at_a_time(stored: Stored) -> None:
    """As many as fit, with the offset behind them, however many rows that are; the newest are in memory."""
    log = stored.fill(0, 2_900)
    for number in range(2_900, 3_000):
        log.append(batch(str(number)), leader_epoch=0)
    batches = [batch(str(number)) for number in range(3_000)]
    sizes = list(accumulate(map(len, batches)))
    view = log.view()
    for fitting in (1, 1_024, 1_025, 2_000, 2_900, 3_000):
        first, behind = view.read_on(0, sizes[fitting - 1], 3_000)
        assert (len(first), behind) == (sizes[min(fitting, 2_900) - 1], min(fitting, 2_900))
        assert view.read_on(0, sizes[fitting - 1], 2_000)[1] == min(fitting, 2_000)
    almost = sizes[1_024] - 1
    assert view.read_on(0, almost, 3_000)[1] == 1_024, "the next one is larger than those before"
    assert view.read_on(2_900, sizes[-1], 3_000)[1] == 3_000
    assert view.read_on(3_000, 1, 3_000) == (b"", 3_000)


# Log starts and removals


def test_batches_before_the_log_start_are_removed(stored: Stored) -> None:
    log = stored.fill(0, 1200)
    done: list[int] = []
    log.delete_before(1150, lambda: done.append(log.log_start_offset))
    assert not done
    stored.owner.wait_for(lambda: bool(done) and log.size_bytes == 50 * len(batch("1")) + 50 * 3)
    assert stored.rows("SELECT min(base_offset), count(*) FROM batch") == [(1150, 50)]
    stored.store.close()
    stored.open_store()
    again = stored.log()
    assert (again.log_start_offset, again.size_bytes, len(values(again))) == (1150, log.size_bytes, 50)


def producer_batch(producer_id: int, sequence: int, timestamp_ms: int) -> bytes:
    return build_batch(
        [BatchRecord(b"k", b"v", timestamp_ms=timestamp_ms)],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )


def test_producers_that_have_expired_are_removed(stored: Stored) -> None:
    log = stored.log()
    for producer_id in range(3):
        log.append(producer_batch(producer_id, 0, 1_000), leader_epoch=0)
    log.append(producer_batch(3, 0, 2_000), leader_epoch=0)
    stored.store.flush()
    log.producers.expire(2_500, 1_000)
    log.append(producer_batch(1, 0, 2_600), leader_epoch=0)
    stored.store.flush()
    log.apply_retention(0)
    stored.see("SELECT producer_id FROM producer ORDER BY 1", [(1,), (3,)])
    stored.store.close()
    stored.open_store()
    assert stored.log().producers.states == log.producers.states


def test_producers_that_go_for_new_ones_are_removed(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_OF_PARTITION_MAX", 10)
    log = stored.log()
    for producer_id in range(1_020):
        log.append(producer_batch(producer_id, 0, 1_000), leader_epoch=0)
        if producer_id % 300 == 0:
            stored.store.flush()
    stored.store.flush()
    assert len(log._forgotten) == 10
    log.apply_retention(0)
    stored.see("SELECT count(*), min(producer_id) FROM producer", [(10, 1_010)])


def test_epochs_before_the_log_start_are_removed(stored: Stored) -> None:
    log = stored.log()
    for leader_epoch in (0, 2, 5, 7):
        log.append(batch("a", "b"), leader_epoch=leader_epoch)
    stored.store.flush()
    log.delete_before(5)
    stored.store.flush()
    stored.see("SELECT start_offset, leader_epoch FROM epoch ORDER BY 1", [(4, 5), (6, 7)])
    stored.store.close()
    stored.open_store()
    assert stored.log().epochs.entries == log.epochs.entries


# fmt: off
RETENTION = {  # retention.ms, retention.bytes in batches, the time: the log start of ten batches, at 0 s to 9 s
    "nothing limits":           (-1, -1, 1 << 40, 0),
    "too old":                  (1_000, -1, 4_500, 4),
    "just old enough":          (1_000, -1, 4_000, 3),
    "all of them":              (1_000, -1, 1 << 40, 10),
    "too large":                (-1, 3, 0, 7),
    "nothing is to be kept":    (-1, 0, 0, 10),
    "by size, and more by time": (1_000, 8, 6_000, 5),
    "no time at all":           (0, -1, 9_000, 9),
}
# fmt: on


@pytest.mark.parametrize("case", RETENTION)
def test_retention_takes_the_oldest_batches(stored: Stored, case: str) -> None:
    """As of segments of one batch. Source: Kafka UnifiedLog.deleteOldSegments."""
    retention_ms, batches, now_ms, start = RETENTION[case]
    size = len(batch("0"))
    retention_bytes = batches * size if batches >= 0 else -1
    config = LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes)
    log = stored.store.open(PARTITION, TOPIC_ID, config)
    for number in range(10):
        log.append(batch(str(number), timestamp_ms=number * 1_000), leader_epoch=0)
    stored.store.flush()
    log.config = LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes, cleanup_policy="compact")
    log.apply_retention(now_ms)
    assert not stored.store._expiring
    log.config = config
    log.apply_retention(now_ms)
    stored.owner.wait_for(lambda: not stored.store._expiring)
    assert log.log_start_offset == start
    stored.owner.wait_for(lambda: log.size_bytes == (10 - start) * size)


def test_a_log_start_may_lie_in_an_open_transaction(stored: Stored) -> None:
    """Kafka answers the base offset of the batch that holds the log start."""
    log = stored.log()
    data = build_batch(
        [BatchRecord(b"k", b"v"), BatchRecord(b"k", b"v")],
        timestamp_ms=7,
        producer_id=9,
        producer_epoch=1,
        base_sequence=0,
        transactional=True,
    )
    guard = log.start_verification(Producer("tx", 9, 1), 0)
    log.append(batch("a"), leader_epoch=0)
    log.append_transactional(data, leader_epoch=0, producer_id=9, producer_epoch=1, guard=guard)
    stored.store.flush()
    done: list[int] = []
    log.delete_before(2, lambda: done.append(log.last_stable_offset))
    stored.owner.wait_for(lambda: bool(done))
    assert done == [1]


def test_a_deleted_log_leaves_nothing_and_a_stray_one_everything(stored: Stored) -> None:
    deleted, stray = stored.fill(0, 3), stored.fill(1, 3)
    stored.store.delete(deleted.topic_partition)
    stored.store.rename_to_stray(stray.topic_partition)
    stored.owner.run_turn()
    stored.see("SELECT partition, state FROM log", [(1, 1)])
    stored.store.close()
    assert stored.rows("SELECT count(*) FROM batch") == [(3,)]
    assert not list(stored.open_store().partitions())


def test_a_start_goes_on_with_a_removal(stored: Stored) -> None:
    stored.fill(0, 3)
    stored.store.close()
    stored.rows("UPDATE log SET state = 2 RETURNING 1")
    stored.open_store()
    stored.see("SELECT count(*) FROM log", [(0,)])
    assert stored.rows("SELECT count(*) FROM batch") == [(0,)]


def test_a_start_goes_on_with_the_removal_of_batches(stored: Stored) -> None:
    stored.fill(0, 3)
    stored.store.close()
    stored.rows("UPDATE log SET start_offset = 2 RETURNING 1")
    stored.open_store()
    stored.owner.wait_for(lambda: stored.log().size_bytes == len(batch("1")))
    assert stored.rows("SELECT base_offset FROM batch") == [(2,)]


def test_a_name_that_is_used_again_is_another_log(stored: Stored) -> None:
    first = stored.fill(0, 3)
    again = stored.store.open(first.topic_partition, UUID(int=8), LogConfig())
    again.append(batch("z"), leader_epoch=0)
    stored.store.flush()
    assert (again.high_watermark, values(again)) == (1, [b"z"])


# Fences


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("leader_epoch = 7", "another node leads it"),
        ("next_offset = 9", "another node has written to it"),
        ("next_offset = 2", "the database has lost acknowledged records"),
        ("state = 1", "it was deleted"),
        ("attempt = 1", "another node has written to it"),
    ],
)
def test_a_log_that_another_node_has_changed_is_refused_alone(
    stored: Stored, change: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    changed, other = stored.fill(0, 3), stored.fill(1, 3)
    offline: list[str] = []
    changed.when_offline(lambda: offline.append(changed.refusal or ""))
    stored.rows(f"UPDATE log SET {change} WHERE partition = 0 RETURNING 1")
    for log in (changed, other):
        log.append(batch("late"), leader_epoch=0)
    stored.owner.wait_for(lambda: other.high_watermark == 4 and bool(offline))
    assert reason in offline[0]
    assert [it.getMessage().split()[0] for it in caplog.records if it.levelname == "ERROR"] == ["log.failed"]
    assert changed.high_watermark == 3
    with pytest.raises(UnavailableError, match=reason):
        changed.append(batch("more"), leader_epoch=0)
    assert stored.rows("SELECT count(*) FROM batch JOIN log USING (log_id) WHERE partition = 0") == [(3,)]


def test_a_late_claim_of_this_node_fences_it_from_nothing(stored: Stored) -> None:
    """Nodes that share a store differ by leader epochs. A claim whose answer was lost may raise the attempt late."""
    store = stored.open_store(is_shared=True)
    claims = [Claim(PARTITION, TOPIC_ID, 5)]
    (loaded,) = claim(stored.sql, 1, claims).values()
    log = store.log_of(loaded)
    store.lead(log)
    claim(stored.sql, 1, claims)
    log.append(batch("late"), leader_epoch=5)
    stored.owner.wait_for(lambda: log.high_watermark == 1 or log.refusal is not None)
    assert stored.rows("SELECT attempt, next_offset FROM log") == [(3, 1)]
    log.append(batch("more"), leader_epoch=5)
    stored.owner.wait_for(lambda: log.high_watermark == 2 or log.refusal is not None)
    assert (log.refusal, values(log)) == (None, [b"late", b"more"])


def test_a_node_that_another_leader_fences_has_no_fault(stored: Stored, caplog: pytest.LogCaptureFixture) -> None:
    """A node may append before it hears that the controller has moved a leader."""
    store = stored.open_store(is_shared=True)
    (loaded,) = claim(stored.sql, 1, [Claim(PARTITION, TOPIC_ID, 5)]).values()
    log = store.log_of(loaded)
    store.lead(log)
    claim(stored.sql, 2, [Claim(PARTITION, TOPIC_ID, 6)])
    with caplog.at_level("INFO", logger="kohort.storage"):
        log.append(batch("late"), leader_epoch=5)
        stored.owner.wait_for(lambda: log.refusal is not None)
    assert [(it.levelname, it.getMessage().split()[0]) for it in caplog.records] == [("INFO", "log.fenced")]
    assert "another node leads it" in (log.refusal or "")


def test_a_row_that_is_locked_delays_its_own_log_only(stored: Stored) -> None:
    locked, removed, other = stored.fill(0, 1), stored.fill(1, 1), stored.fill(2, 1)
    stored.sql.execute(b"BEGIN")
    stored.rows("SELECT 1 FROM log WHERE partition < 2 FOR UPDATE")
    done: list[int] = []
    stored.store.delete(removed.topic_partition)
    for _ in range(3):
        for log in (locked, other):
            log.append(batch("late"), leader_epoch=0)
        locked.delete_before(1, lambda: done.append(locked.log_start_offset))
        stored.owner.wait_for(lambda: other.high_watermark == other.end_offset)
    assert (locked.high_watermark, done) == (1, [])
    stored.sql.execute(b"COMMIT")
    stored.owner.wait_for(lambda: locked.high_watermark == 4 and done == [1, 1, 1])
    stored.see("SELECT partition, next_offset, start_offset FROM log ORDER BY 1", [(0, 4, 1), (2, 4, 0)])


def test_a_cancelled_wait_for_a_standby_is_an_unknown_outcome(stored: Stored) -> None:
    """PostgreSQL tells of it by a warning, with the commit."""
    log = stored.fill(0, 1)
    stored.sql.execute(
        b"""
        CREATE SEQUENCE warnings;
        CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF nextval('warnings') = 1 THEN RAISE WARNING 'canceling wait for synchronous replication'; END IF;
          RETURN NEW;
        END $$;
        CREATE TRIGGER warn BEFORE UPDATE ON log FOR EACH ROW EXECUTE FUNCTION warn();
        """
    )
    log.append(batch("late"), leader_epoch=0)
    stored.owner.wait_for(lambda: log.high_watermark == 2)
    assert stored.rows("SELECT attempt, next_offset FROM log") == [(1, 2)]
    assert values(log) == [b"0", b"late"]


def test_a_log_whose_records_are_refused_fails_alone(stored: Stored) -> None:
    logs = [stored.fill(partition, 1) for partition in range(5)]
    stored.rows("INSERT INTO batch SELECT log_id, 1, 1, 0, '' FROM log WHERE partition = 3 RETURNING 1")
    for log in logs:
        log.append(batch("late"), leader_epoch=0)
    stored.owner.wait_for(lambda: all(log.refusal is not None or log.high_watermark == 2 for log in logs))
    assert [log.topic_partition.partition for log in logs if log.refusal is not None] == [3]
    assert "refuses its records: duplicate key" in (logs[3].refusal or "")


# Failures of the database


def test_no_record_is_lost_or_doubled_when_connections_are_cut(stored: Stored, tmp_path: Path, rng: Random) -> None:
    """Cut before a statement has arrived, and after its commit: the node cannot tell one from the other."""
    proxy = CuttingProxy()
    proxy.stand_before(lambda: connect_in(shared_database().directory), listen_in(tmp_path))
    stored.store.close()
    store = PostgresStore(
        url_of(tmp_path),
        defer=stored.owner.defer,
        call_soon_threadsafe=stored.owner.call_soon_threadsafe,
        schema=stored.schema,
    )
    logs = [store.open(TopicPartition("orders", partition), TOPIC_ID, LogConfig()) for partition in range(3)]
    for number in range(40):
        proxy.cut = rng.choice(("request", "answer"))
        for log in rng.sample(logs, rng.randint(1, 3)):
            log.append(batch(str(number)), leader_epoch=0)
        stored.owner.wait_for(lambda: all(log.refusal or log.high_watermark == log.end_offset for log in logs))
        assert not any(log.refusal for log in logs)
    wanted = [values(log) for log in logs]
    assert proxy.hits >= 40
    store.close()
    proxy.close()
    stored.open_store()
    assert [values(stored.log(partition)) for partition in range(3)] == wanted
    assert not verify(stored.sql).problems


def test_a_database_that_restarts_holds_up_appends_and_loses_none() -> None:
    database, owner = Database(), Owner()
    try:
        store = PostgresStore(
            database.url,
            defer=owner.defer,
            call_soon_threadsafe=owner.call_soon_threadsafe,
            schema=database.new_schema(),
            written_bytes_kept=0,
        )
        log = store.open(PARTITION, TOPIC_ID, LogConfig())
        log.append(batch("a"), leader_epoch=0)
        store.flush()
        database.stop()
        log.append(batch("b"), leader_epoch=0)
        owner.run_turn()
        while not store.volume().problem:
            owner.run_turn()
        with pytest.raises(UnavailableError, match=re.escape(f"cannot be read: the database {database.url} ")):
            log.read(0, bytes_max=100)
        assert "takes no records" in store.volume().problem
        assert log.high_watermark == 1
        database.start()
        owner.wait_for(lambda: log.high_watermark == 2)
        assert (values(log), store.volume().problem) == ([b"a", b"b"], "")
        store.close()
    finally:
        database.close()


def test_a_store_that_stops_while_the_database_is_away_does_not_wait_for_ever() -> None:
    database, owner = Database(fsync="on"), Owner()
    try:
        store = PostgresStore(
            database.url,
            defer=owner.defer,
            call_soon_threadsafe=owner.call_soon_threadsafe,
            schema=database.new_schema(),
            stop_s=0.1,
        )
        log = store.open(PARTITION, TOPIC_ID, LogConfig())
        database.stop()
        log.append(batch("a"), leader_epoch=0)
        store.close()
        assert log.high_watermark == 0
    finally:
        database.close()


@pytest.mark.parametrize("cause", ["another database", "another node"])
def test_a_node_whose_database_is_not_its_own_any_more_ends(stored: Stored, cause: str) -> None:
    stored.store.close()
    reasons: list[str] = []
    store = stored.open_store(on_offline=reasons.append)
    store._writer._lock_s = 0.0  # type: ignore[misc]
    log = stored.fill(0, 1)
    if cause == "another database":
        store._writer._identity = Identity(1, 1)  # type: ignore[misc]
    stored.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
    )
    if cause == "another node":
        deadline = time.monotonic() + WAIT_SECONDS
        while not try_lock(stored.sql, store.cluster_id):
            assert time.monotonic() < deadline
    log.append(batch("late"), leader_epoch=0)
    stored.owner.wait_for(lambda: bool(reasons))
    assert ("is another database than at the start" if cause == "another database" else "another node uses") in reasons[
        0
    ]
    with pytest.raises(UnavailableError, match="another"):
        log.append(batch("more"), leader_epoch=0)
    with pytest.raises(UnavailableError, match="another"):
        store.flush()
    assert stored.rows("SELECT count(*) FROM batch") == [(1,)]


def test_what_the_database_has_not_taken_is_bounded(stored: Stored) -> None:
    log = stored.fill(0, 1)
    stored.store._gathering.unwritten_bytes += UNWRITTEN_BYTES_MAX + 1
    with pytest.raises(UnavailableError, match="the database has not taken"):
        log.append(batch("b"), leader_epoch=0)
    stored.store._gathering.unwritten_bytes -= UNWRITTEN_BYTES_MAX + 1
    assert log.append(batch("b"), leader_epoch=0) == 2


# Promises, schemas, addresses


def refusal(url: str, schema: str = "kohort") -> str:
    owner = Owner()
    with pytest.raises(ConfigError) as refused:
        PostgresStore(url, defer=owner.defer, call_soon_threadsafe=owner.call_soon_threadsafe, schema=schema)
    return str(refused.value)


def test_a_database_without_its_promises_is_refused() -> None:
    url = shared_database().url + "&options=-c%20"
    assert "synchronous_commit off" in refusal(url + "synchronous_commit%3Doff")
    assert "is read-only" in refusal(url + "default_transaction_read_only%3Don")
    database = Database(fsync="off")
    try:
        assert "has fsync off" in refusal(database.url)
    finally:
        database.close()


def test_a_schema_of_another_version_is_refused_and_not_written(stored: Stored) -> None:
    stored.store.close()
    stored.rows("UPDATE store SET version = 99 RETURNING 1")
    assert f"has version 99; this Kohort knows versions up to {VERSION}" in refusal(
        shared_database().url, stored.schema
    )
    with pytest.raises(ConfigError, match="has version 99"):
        upgrade(stored.sql, "there")
    stored.rows("UPDATE store SET version = 0 RETURNING 1")
    assert f"needs {VERSION}: stop every node, and run `kohort store upgrade" in refusal(
        shared_database().url, stored.schema
    )
    assert "has no store of Kohort; make one with `kohort store init" in refusal(shared_database().url, "nowhere")


def test_an_upgrade_makes_the_tables_of_each_version(stored: Stored) -> None:
    """A store of the first version, with a log, becomes what `store init` makes."""
    columns = "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = '{}'"
    stored.sql.execute(b"CREATE SCHEMA first; SET search_path = first")
    stored.sql.execute(MIGRATIONS[0].encode())
    stored.sql.execute(b"INSERT INTO store (id, version, cluster_id) VALUES (1, 1, 'c')")
    stored.sql.execute(b"INSERT INTO log (topic, partition, topic_id) VALUES ('t', 0, gen_random_uuid())")
    assert upgrade(stored.sql, "there") == (1, VERSION)
    assert version_of(stored.sql) == (VERSION, "c")
    assert stored.rows("SELECT clean_offset FROM log") == [(0,)]
    assert sorted(stored.rows(columns.format("first"))) == sorted(stored.rows(columns.format(stored.schema)))
    stored.sql.execute(b"DROP SCHEMA first CASCADE")


def test_a_database_that_cannot_be_reached_is_named_without_its_password(tmp_path: Path) -> None:
    said = refusal(f"postgresql://me:secret@/orders?host={tmp_path}")
    assert said.startswith(f"the database postgresql://me@/orders?host={tmp_path} cannot be used: connection ")
    assert said.endswith("failed: No such file or directory. Start it, or correct the address")
    assert "secret" not in said.replace(str(tmp_path), "")
    assert shown("postgres://me:secret@a:5432,b:5433/orders") == "postgresql://me@a:5432,b:5433/orders"
    assert shown("postgres://me:secret@/orders?host=/run/a,/run/b") == "postgresql://me@/orders?host=/run/a,/run/b"
    assert shown("postgres://me:secret@a:5432/orders", with_user=False) == "postgresql://a:5432/orders"
    with pytest.raises(ConfigError, match="begins with postgresql://"):
        shown("mysql://there")
    with pytest.raises(ConfigError) as refused:
        shown("postgresql://me:se%cret@there/orders")
    assert "cret" not in str(refused.value)


def test_verification_names_what_is_damaged(stored: Stored) -> None:
    stored.fill(0, 3)
    assert (verify(stored.sql).problems, verify(stored.sql).batches) == ([], 3)
    stored.rows("UPDATE batch SET data = set_byte(data, 65, get_byte(data, 65) # 1) WHERE base_offset = 0 RETURNING 1")
    stored.rows("UPDATE batch SET max_timestamp = 5 WHERE base_offset = 1 RETURNING 1")
    stored.rows("DELETE FROM batch WHERE base_offset = 2 RETURNING 1")
    stored.rows("INSERT INTO batch VALUES (999, 1, 1, 0, '') RETURNING 1")
    stored.rows("INSERT INTO aborted SELECT log_id, 2, 5, 1, 2 FROM log RETURNING 1")
    stored.rows("UPDATE log SET clean_offset = 9 RETURNING 1")
    assert verify(stored.sql).problems == [
        "orders-0, batch 0 to 0: its checksum is wrong",
        "orders-0, batch 1 to 1: its bytes say 1 to 1, and time 1000 instead of 5",
        "orders-0 has batches up to 2, and its next offset is 3",
        f"orders-0 has {2 * len(batch('0'))} bytes, and its row says {3 * len(batch('0'))}",
        "orders-0 has an aborted transaction whose marker, 2, is not there",
        "orders-0 is compacted up to 9, which is above its next offset",
        "1 batches belong to no log",
    ]

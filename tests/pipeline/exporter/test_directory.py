"""The exporter of a data directory, and of a store: its metrics are those of the cluster, and it follows what is appended."""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from typer.testing import CliRunner

from kohort.cli.pipeline.commands import app
from kohort.model.ids import TopicPartition
from kohort.pipeline.decode.batches import scans
from kohort.pipeline.decode.segments import list_segments
from kohort.pipeline.decode.storage import mapped
from kohort.pipeline.decode.transaction_files import OpenTransaction
from kohort.pipeline.exporter import directory, log_ends
from kohort.pipeline.exporter import exporter as exporter_module
from kohort.pipeline.exporter.commits import GroupPartition
from kohort.pipeline.exporter.exporter import Exporter
from kohort.pipeline.exporter.log_ends import LogEnd
from kohort.pipeline.exporter.metrics import Snapshot
from kohort.pipeline.sources.instants import end_of_logs, latest_ms
from kohort.pipeline.tables.burrow.verdicts import NUMBERS, UNKNOWN
from kohort.storage.producer_states import ProducerStateEntry
from kohort.storage.producers import ProducerStateManager
from kohort.storage.segments.snapshots import write_snapshot
from kohort.testing.served import ServedKohort
from tests.clients.waiting import wait_until
from tests.pipeline.exporter.test_exporter import ORDERS, SETTINGS, Values, commit, produce, transact, value, values
from tests.pipeline.logbytes import TIMESTAMP_MS, batch
from tests.pipeline.sources.growing import GrowingLog
from tests.pipeline.stored import new_store
from tests.records import kafka_logs

READER = {"group_id": "live", "enable_auto_commit": False, "session_timeout_ms": 300_000}
COMPACTED = 3
OF_THE_POLL = "kohort_exporter_poll_duration_seconds"


def shown(exporter: Exporter) -> Values:
    return {key: value for key, value in values(exporter).items() if key[0] != OF_THE_POLL}


@pytest.fixture(params=["directory", "store"])
def store(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The address of a store; None for a directory."""
    if request.param == "directory":
        yield None
        return
    with new_store() as url:
        yield url


def test_the_metrics_are_those_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str | None
) -> None:
    """Members, transactions of every outcome, lag and its age; before and after a restart."""
    clock = SimpleNamespace(time=time.time, monotonic=time.monotonic)
    monkeypatch.setattr(exporter_module, "time", clock)
    with ServedKohort(tmp_path, SETTINGS, store=store) as broker:
        both = [Exporter(source) for source in (f"kafka://{broker.bootstrap}", store or str(broker.data_dir))]

        def compare() -> Snapshot:
            # Verdicts depend on the time. A directory that has grown since the first poll is judged by the clock, as a cluster.
            now_s = time.time()
            clock.time = lambda: now_s
            wire, local = (one.poll() for one in both)
            assert (wire.problems, local.problems) == ((), ())
            assert shown(both[1]) == shown(both[0])
            return local

        def until(condition: Callable[[Snapshot], bool], what: str) -> None:
            # Verdicts depend on the polls, too.
            wait_until(lambda: [condition(one.poll()) for one in both] == [True, True], what=what)

        async def story() -> None:
            assert [one.poll().problems for one in both] == [(), ()]
            await produce(broker.bootstrap, 9)
            await produce(broker.bootstrap, 4, partition=1)
            await commit(broker.bootstrap, "g", {ORDERS[0]: 4, ORDERS[1]: 0})
            assert compare().cluster
            producers = [await transact(broker.bootstrap, end, count=2, end=end) for end in ("abort", "commit", "open")]
            await commit(broker.bootstrap, "g", {ORDERS[1]: 4})
            until(lambda found: len(found.transactions) == 1, "the markers")
            reader = AIOKafkaConsumer("orders", bootstrap_servers=broker.bootstrap, **READER)
            await reader.start()
            await reader.commit({ORDERS[0]: 2})
            found = compare()
            # Two aborted records and their marker are skipped, so the first of the committed ones waits.
            assert found.blocked == {("orders", 1): 2}
            assert found.commits == {"g": 3, "live": 1}
            assert found.groups["live"].state == "Stable"
            await producers[2].abort_transaction()
            until(lambda found: not found.blocked and not found.transactions, "the markers")
            assert compare().blocked == {}
            await reader.stop()
            for one in producers:
                await one.stop()
            compare()

        asyncio.run(story())
        broker.kill()
        broker.start()
        asyncio.run(produce(broker.bootstrap, 3))
        # The first request finds the old connection closed.
        until(lambda found: not found.problems, "a connection")
        assert any(one.key.group == "g" and one.lag == 8 for one in compare().partitions)
        for one in both:
            one.close()


LAST_MS = TIMESTAMP_MS + 1
"""The timestamp of the second record of a batch."""


def log_end(logs: Path, end: LogEnd | None = None) -> LogEnd:
    found = LogEnd() if end is None else end
    found.update(list_segments(logs, topics={"orders"}))
    return found


def transactional(log: GrowingLog, producer_id: int, count: int = 2) -> None:
    """A batch of records in a transaction."""
    raw = batch(log.next_offset, [(b"k", b"v")] * count, producer_id=producer_id, attributes=0x10)
    log.append(raw)
    log.next_offset += count


def test_open_transactions_of_a_log_that_grows(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path, "orders")
    transactional(log, 5)
    transactional(log, 6)
    end = log_end(tmp_path)
    assert (end.end_offset, end.stable_end) == (4, 0)
    assert end.open == {5: OpenTransaction(0, LAST_MS), 6: OpenTransaction(2, LAST_MS)}
    log.marker(5, committed=True)
    log.roll()
    transactional(log, 6)
    torn = log.torn()
    assert (log_end(tmp_path, end).end_offset, end.stable_end) == (7, 2)
    log.append(torn)
    log.marker(6, committed=False)
    assert (log_end(tmp_path, end).end_offset, end.stable_end, end.open) == (12, 12, {})
    assert log_end(tmp_path) == end


def test_a_log_is_scanned_from_its_newest_snapshot(tmp_path: Path) -> None:
    """The state before the newest segment is in the snapshot; a damaged one is not believed."""
    log = GrowingLog(tmp_path, "orders")
    transactional(log, 5)
    log.roll()
    transactional(log, 6)
    known = ProducerStateEntry(9, timestamp_ms=77, transaction_offset=1)
    path = write_snapshot(log.directory, 2, ProducerStateManager([known]))
    assert log_end(tmp_path).open == {9: OpenTransaction(1, 77), 6: OpenTransaction(2, LAST_MS)}
    path.write_bytes(path.read_bytes()[:-1])
    assert set(log_end(tmp_path).open) == {5, 6}


def test_a_truncated_or_replaced_log_is_scanned_anew(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path, "orders")
    transactional(log, 5)
    size_bytes = log.file.stat().st_size
    transactional(log, 6)
    end = log_end(tmp_path)
    os.truncate(log.file, size_bytes)
    assert (log_end(tmp_path, end).end_offset, set(end.open)) == (2, {5})
    log.roll()
    end = log_end(tmp_path)
    log.file.unlink()
    (log.directory / f"{0:020}.log").write_bytes(b"")
    assert (log_end(tmp_path, end).end_offset, end.open) == (0, {})


def test_open_transactions_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ends, "EXPORTED_OPEN_PRODUCERS_MAX", 2)
    log = GrowingLog(tmp_path, "orders")
    for producer_id in (5, 6, 7):
        transactional(log, producer_id)
    transactional(log, 6)
    end = log_end(tmp_path)
    assert (set(end.open), end.dropped) == ({5, 6}, 1)
    GrowingLog(tmp_path)
    exporter = Exporter(str(tmp_path))
    assert exporter.poll().dropped == 1


def state_of(exporter: Exporter) -> dict[GroupPartition, Any]:
    found = exporter.poll()
    assert found.problems == ()
    return {one.key: (one.offset, one.lag) for one in found.partitions}


def test_a_log_that_grows_between_polls_is_read_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In small pieces, over rolled segments and a torn batch, with a transaction that ends later."""
    monkeypatch.setattr(directory, "PIECE_BYTES", 200)
    data = GrowingLog(tmp_path, "orders")
    for partition in range(3):
        GrowingLog(tmp_path, "orders", partition).append(batch(0, [(b"k", b"v")] * 500))
    log = GrowingLog(tmp_path)
    log.commits(30)
    exporter = Exporter(str(tmp_path))
    assert len(state_of(exporter)) == 21
    log.commits(4, group="tx", producer_id=7)
    log.roll()
    log.commits(40)
    rest = log.torn()
    before = state_of(exporter)
    assert max(offset for offset, _ in before.values()) == 73
    log.append(rest)
    # Compaction has removed the last records of a segment.
    log.next_offset += COMPACTED
    log.roll()
    log.marker(7, committed=True)
    log.commits(20)
    found = state_of(exporter)
    assert found == state_of(Exporter(str(tmp_path)))
    assert found[GroupPartition("torn", "orders", 0)] == (1, 499)
    assert max(offset for offset, _ in found.values()) == log.next_offset - 1
    assert {key for key in found if key.group.startswith("tx")} != set()
    assert exporter.snapshot is not None
    assert exporter.snapshot.records == log.next_offset - COMPACTED
    data.file.unlink()
    data.directory.rmdir()
    assert {lag for key, (_, lag) in state_of(exporter).items() if key.partition == 0} == {None}


@pytest.mark.parametrize("run", ["main", "unclean-torn", *kafka_logs.RUNS])
def test_recorded_logs_of_apache_kafka(recorded: Any, run: str) -> None:
    """Ends and open transactions from snapshots and indexes are those of a scan of everything; every lag has an age."""
    logs = recorded(run) / "logs"
    source = directory.Directory(str(logs))
    found = source.logs()
    assert found
    for log in found:
        segments = list_segments(logs, topics={log.topic}, partitions={log.partition})
        whole = LogEnd(end_offset=segments[0].base_offset)
        for segment in segments:
            for piece in scans(mapped(segment.path), check_crc=False):
                if len(piece.positions):
                    whole._look(piece)
        assert (log.end, source.stable_ends([log])[log.topic, log.partition]) == (whole.end_offset, whole.stable_end)
    exporter = Exporter(str(logs))
    now = exporter.poll()
    assert now.problems == ()
    assert now.partitions
    waits = [one for one in now.partitions if one.lag]
    assert all(one.time_lag_ms is not None for one in waits)
    assert {TopicPartition(log.topic, log.partition) for log in found} >= {
        TopicPartition(one.key.topic, one.key.partition) for one in now.partitions
    }


@pytest.mark.parametrize("run", kafka_logs.RUNS)
def test_lag_is_that_of_the_broker(recorded: Any, run: str) -> None:
    """Of consumer groups, and of share groups whose partitions have a start offset."""
    broker = kafka_logs.broker(run)
    ends = {
        f"{topic}-{partition}": one["end_offset"]
        for topic, told in broker["topics"].items()
        for partition, one in told["partitions"].items()
    }
    expected = {}
    for group, told in broker["groups"].items():
        for place, one in (told.get("offsets") or {}).items():
            expected[group, place] = (one["offset"], max(ends[place] - one["offset"], 0))
        for place, one in (told.get("share_offsets") or {}).items():
            if one is not None:
                expected[group, place] = (one["start_offset"], one["lag"])
    now = Exporter(str(recorded(run) / "logs")).poll()
    found = {(one.key.group, f"{one.key.topic}-{one.key.partition}"): (one.offset, one.lag) for one in now.partitions}
    # Kafka tells no offset of partitions that a member owns and its group has not committed.
    uncommitted = {key for key, lag in found.items() if lag == (None, None)}
    assert len(uncommitted) == {"main-4.4.0": 9}.get(run, 0)
    assert {key: lag for key, lag in found.items() if key not in uncommitted} == expected


def test_sources_that_do_not_grow_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "current.json").write_text("{}")
    for source, sentence in (
        (
            str(tmp_path),
            "export follows kafka://HOST:PORT, a store (postgresql://...) or the data directory of a broker",
        ),
        (
            "s3://bucket/logs",
            "export follows kafka://HOST:PORT, a store (postgresql://...) or the data directory of a broker",
        ),
        (str(tmp_path / "nowhere"), "is not a directory; name the data directory of a broker"),
    ):
        assert CliRunner().invoke(app, ("export", source)).exit_code == 2
        assert sentence in capfd.readouterr().err


def test_a_directory_at_rest_is_judged_at_the_end_of_its_logs(
    recorded: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever the exporter runs. A directory that has grown is that of a running broker, judged by the clock beside it."""
    logs = tmp_path / "logs"
    shutil.copytree(recorded("odd") / "instant", logs)
    now_ms = 1_900_000_000_000
    monkeypatch.setattr(exporter_module, "time", SimpleNamespace(time=lambda: now_ms / 1000, monotonic=time.monotonic))
    exporter = Exporter(str(logs))
    end_ms = end_of_logs(latest_ms(list_segments(logs)))
    for _ in range(2):
        found = exporter.poll()
        assert (found.at_ms, found.polled_ms) == (end_ms, now_ms)
    log = GrowingLog(logs, "another")
    log.append(batch(0, [(b"k", b"v")]))
    assert exporter.poll().at_ms == now_ms


def test_without_the_logs_of_coordinators_and_topics_nothing_is_judged(
    recorded: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which transactions hang only all coordinators know; of a group without the log of its topic the verdict is UNKNOWN."""
    monkeypatch.setattr(exporter_module, "HANGING_GRACE_MS", 0)
    whole = recorded("odd") / "open-transaction"
    for name in ("__consumer_offsets-0", "ledger-0", "clock-0"):
        shutil.copytree(whole / name, tmp_path / name)
    exporter = Exporter(str(tmp_path))
    assert exporter.poll().hanging is None
    assert value(exporter, "kohort_hanging_transactions") is None
    assert value(exporter, "kohort_partition_blocked_records", topic="ledger", partition="0") is not None
    shutil.rmtree(tmp_path / "ledger-0")
    exporter = Exporter(str(tmp_path))
    exporter.poll()
    assert value(exporter, "kohort_group_verdict", group="stands-once") == NUMBERS[UNKNOWN]
    assert value(exporter, "kohort_group_unknown_partitions", group="stands-once") == 1
    assert value(exporter, "kohort_group_lag", group="stands-once") is None
    assert value(exporter, "kohort_group_verdict", group="clock") == 0


def test_partitions_without_a_commit_are_bounded(
    recorded: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together with those that have one: a client can let a group own any number of partitions."""
    directory = str(recorded("odd") / "never-committed")
    committed = [one for one in Exporter(directory).poll().partitions if one.offset is not None]
    for more in (0, 1):
        monkeypatch.setattr(exporter_module, "EXPORTED_PARTITIONS_MAX", len(committed) + more)
        assert len(Exporter(directory).poll().partitions) == len(committed) + more

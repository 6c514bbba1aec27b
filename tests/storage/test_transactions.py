"""Transactions in recorded logs of Apache Kafka 4.2.1: what its broker said of them, and its transaction indexes."""

import json
from pathlib import Path

import pytest

from kohort.model.ids import TopicPartition
from kohort.storage.files.checkpoint_formats import CLEAN_SHUTDOWN, RECOVERY_POINTS
from kohort.storage.log import Log, LogStore
from kohort.storage.producer_states import AbortedTxn
from kohort.storage.segments.aborted import find_overlapping
from kohort.storage.segments.snapshots import snapshot_from_bytes
from tests.storage.owner import Owner
from tests.storage.test_recorded import LOGS, unpack

OFFSETS = json.loads((LOGS / "offsets.json").read_text())
"""What ListOffsets of the broker answered, by run and partition."""


def found(store: LogStore, name: str) -> Log:
    topic, _, partition = name.rpartition("-")
    log = store.get(TopicPartition(topic, int(partition)))
    assert log is not None
    return log


@pytest.mark.parametrize("run", OFFSETS)
def test_offsets_are_those_that_kafka_reported(run: str, tmp_path: Path) -> None:
    store = Owner().disk(unpack(run, tmp_path))
    for name, wanted in OFFSETS[run].items():
        log = found(store, name)
        newest = log.max_timestamp()
        assert {
            "log_start_offset": log.log_start_offset,
            "end_offset": log.end_offset,
            "last_stable_offset": log.last_stable_offset,
            "max_timestamp": newest.timestamp_ms if newest else -1,
            "max_timestamp_offset": newest.offset if newest else -1,
        } == wanted, name
    store.close()


@pytest.mark.parametrize("run", OFFSETS)
def test_recovery_builds_what_kafka_had_built(run: str, tmp_path: Path) -> None:
    """Without the marks of a clean stop, with no index and no snapshot: all of it comes from the batches."""
    directory, original = unpack(run, tmp_path / "opened"), unpack(run, tmp_path / "before")
    for name in (CLEAN_SHUTDOWN, RECOVERY_POINTS):
        (directory / name).unlink()
    for suffix in ("snapshot", "txnindex"):
        for path in directory.glob(f"*/*.{suffix}"):
            path.unlink()
    store = Owner().disk(directory)
    for name, wanted in OFFSETS[run].items():
        log = found(store, name)
        assert (log.end_offset, log.last_stable_offset) == (wanted["end_offset"], wanted["last_stable_offset"]), name
    store.close()
    compacted = {"d-compact-0", "d-compact-1", *(f"__{topic}-{n}" for topic in COMPACTED[run] for n in range(4))}
    for path in original.glob("*/*.txnindex"):
        if path.parent.name not in compacted:
            assert (directory / path.relative_to(original)).read_bytes() == path.read_bytes(), path
    if run == "expiry":  # there the producers had expired
        return
    for name, wanted in OFFSETS[run].items():
        path = original / name / f"{wanted['end_offset']:020d}.snapshot"
        if name not in compacted and path.exists():
            kept = snapshot_from_bytes((directory / name / path.name).read_bytes())
            assert sorted(kept, key=lambda state: state.producer_id) == sorted(
                snapshot_from_bytes(path.read_bytes()), key=lambda state: state.producer_id
            ), name


COMPACTED = {"main": (), "expiry": ("consumer_offsets", "transaction_state", "share_group_state")}
"""Internal topics whose logs lack batches by now: what was known of their producers is not all in the batches."""


def test_aborted_transactions_are_those_of_the_index(tmp_path: Path) -> None:
    store = Owner().disk(unpack("main", tmp_path))
    log = found(store, "d-txn-0")
    aborted = log.aborted_transactions(0, log.read(0, bytes_max=1 << 20))
    assert [(entry.producer_id, entry.first_offset) for entry in aborted][:3] == [(4, 1), (3, 7), (4, 15)]
    assert [entry.last_offset for entry in aborted] == sorted(entry.last_offset for entry in aborted)
    later = log.aborted_transactions(14, log.read(14, bytes_max=1 << 20))
    assert later == aborted[2:]
    assert log.aborted_transactions(log.end_offset, b"") == []
    store.close()


def test_aborted_transactions_of_several_segments(tmp_path: Path) -> None:
    store = Owner().disk(unpack("main", tmp_path))
    log = found(store, "d-segments-0")
    for offset, wanted in {0: [8], 9: [8], 10: [], 25: [28], 40: [48], 50: []}.items():
        data = log.read(offset, bytes_max=1 << 20)
        assert [entry.first_offset for entry in log.aborted_transactions(offset, data)] == wanted
    store.close()


@pytest.mark.parametrize(
    ("offset", "upper", "found"), [(0, 5, False), (0, 6, True), (8, 9, True), (9, 20, False), (5, 6, True)]
)
def test_an_aborted_transaction_is_told_for_the_offsets_that_it_spans(offset: int, upper: int, found: bool) -> None:
    aborted = AbortedTxn(producer_id=1, first_offset=5, last_offset=8, last_stable_offset=9)
    assert find_overlapping([aborted], offset, upper)[0] == ([aborted] if found else [])

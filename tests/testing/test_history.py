"""Histories are what their seed says, and hold everything that they are for."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kohort.model.ids import CONSUMER_OFFSETS
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import list_segments
from kohort.wire.batches import check_crc, iter_batches
from kohort_lab.history import History
from kohort_lab.history.expected_tables import ExpectedTables
from kohort_lab.history.logs import ABORT, COMMIT, Log, Record
from tests.pipeline.logbytes import decode_directory

SEEDS = range(40)


def test_a_seed_tells_the_same_story_again(tmp_path: Path) -> None:
    for name in ("one", "other"):
        History(7).write(tmp_path / name, torn=True)
    files = [
        sorted(path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*.log"))
        for name in ("one", "other")
    ]
    assert files[0] == files[1]
    assert all((tmp_path / "one" / path).read_bytes() == (tmp_path / "other" / path).read_bytes() for path in files[0])


def test_everything_happens_in_some_story() -> None:
    histories = [History(seed) for seed in SEEDS]
    truths = [ExpectedTables(history, history.now_ms) for history in histories]
    events = Counter(row["event"] for truth in truths for row in truth.rebalances())
    assert set(events) == {"created", "rebalanced", "replaced", "emptied", "deleted"}
    why = {cause for truth in truths for row in truth.rebalances() for cause in row["why"]}
    assert why == {"joined", "left", "fenced", "subscription", "metadata", "rejoined"}
    ends = {(row["outcome"], row["ended_by"]) for truth in truths for row in truth.transactions()}
    assert ends >= {
        ("committed", "client"),
        ("aborted", "client"),
        ("aborted", "fence"),
        ("aborted", "timeout"),
        ("open", None),
    }
    assert {row["fate"] for truth in truths for row in truth.offset_commits()} == {
        "plain",
        "committed",
        "aborted",
        "pending",
    }
    assert {row["verdict"] for truth in truths for row in truth.blocking_transactions()} >= {"hanging", "ongoing"}
    assert any(row["records_lost"] == 0 for truth in truths for row in truth.time_lag())
    overtaken = [row for truth in truths for row in truth.rebalances() if row["completed_at_ms"] is None]
    assert overtaken


@pytest.mark.parametrize("seed", range(10))
def test_cleaning_takes_records_but_no_offset(seed: int) -> None:
    history = History(seed)
    truth = ExpectedTables(history, history.now_ms)
    before, records = truth.offsets(), sum(len(batch.records) for batch in history.world.log(CONSUMER_OFFSETS).batches)
    for _ in range(3):
        history.clean(share=history.world.rng.random(), drop_tombstones=True)
    assert sorted(map(str, truth.offsets())) == sorted(map(str, before))
    assert sum(len(batch.records) for batch in history.world.log(CONSUMER_OFFSETS).batches) <= records


def test_batches_are_what_the_broker_would_accept(tmp_path: Path) -> None:
    history = History(3)
    history.clean(share=0.5)
    history.write(tmp_path)
    for log in history.logs:
        for path in sorted((tmp_path / f"{log.topic}-{log.partition}").glob("*.log")):
            data = path.read_bytes()
            assert all(check_crc(data, position) for position, _ in iter_batches(data))


def test_the_decoder_finds_every_record(tmp_path: Path) -> None:
    history = History(4)
    history.write(tmp_path)
    rows = decode_directory(list_segments(tmp_path), Decoder()).to_pylist()
    written = [
        (log.topic, log.partition, offset)
        for log in history.logs
        for batch in log.batches
        for offset in batch.records
        if log.topic.startswith("__")
    ]
    assert sorted((row["log_topic"], row["log_partition"], row["log_offset"]) for row in rows) == sorted(written)
    assert not [row for row in rows if row["kind"] == "damage"]


def keyed(key: str, value: str | None) -> Record:
    return Record(key.encode(), None if value is None else value.encode())


def test_what_cleaning_keeps() -> None:
    log = Log("t", 0)
    log.append([keyed("a", "1"), keyed("b", "1")], 0)
    log.append([keyed("a", "2"), keyed("c", None)], 1)
    log.append([keyed("b", "in a transaction that is aborted")], 2, producer=(7, 0), transactional=True)
    log.mark(ABORT, 3, producer=(7, 0))
    log.append([keyed("d", "committed")], 4, producer=(8, 0), transactional=True)
    log.mark(COMMIT, 5, producer=(8, 0))
    log.append([keyed("e", "open")], 6, producer=(9, 0), transactional=True)
    log.append([keyed("a", "3")], 7)
    assert log.last_stable_offset() == 8
    log.clean(log.next_offset, drop_tombstones=False)
    # What is open holds the cleaner back, so the newest of "a" shadows nothing yet.
    assert [offset for batch in log.batches for offset in batch.records] == [1, 2, 3, 5, 6, 7, 8, 9]
    log.mark(ABORT, 8, producer=(9, 0))
    log.clean(log.next_offset, drop_tombstones=True)
    assert [offset for batch in log.batches for offset in batch.records] == [1, 5, 6, 7, 9, 10]


def test_a_seed_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    code = "import pathlib, sys; from kohort_lab.history import History; History(2).write(pathlib.Path(sys.argv[1]))"
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-c", code, str(tmp_path / hash_seed)]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, check=True, timeout=300)
    first, second = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*.log")}
        for root in (tmp_path / "1", tmp_path / "2")
    )
    assert first
    assert first == second

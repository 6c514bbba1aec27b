"""The exporter's state equals the truth of generated logs, in whatever pieces it is read, also after compaction."""

import json
from collections import Counter, deque
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kohort.model import limits
from kohort.model.ids import CONSUMER_OFFSETS, TopicPartition
from kohort.pipeline.decode.segments import list_segments
from kohort.pipeline.decode.storage import mapped
from kohort.pipeline.exporter import commits, memberships, shares, state, transactions
from kohort.pipeline.exporter.commits import Commits, GroupPartition, newest_rows
from kohort.pipeline.exporter.memberships import GroupState, Memberships
from kohort.pipeline.exporter.shares import Shares
from kohort.pipeline.exporter.state import TOPICS, CoordinatorState, decoder
from kohort.pipeline.exporter.transactions import OpenProducer, Transactions
from kohort.pipeline.sources.live import whole_batches
from kohort.pipeline.tables.burrow.evaluator import PAUSES
from kohort.pipeline.tables.burrow.verdicts import GAP_MS
from kohort.pipeline.tables.groups.group_history import GroupHistory
from kohort.pipeline.tables.offsets.offset_commits import FATE_COLUMNS
from kohort_lab.history import History
from kohort_lab.history.expected_tables import ExpectedTables
from tests.conftest import LONG
from tests.records import kafka_logs

SEEDS = range(60 if LONG else 12)
T = 1_795_252_834_123


def replayed(directory: Path, rng: Random) -> CoordinatorState:
    """Read the logs of coordinators segment by segment, some batches at a time."""
    found = CoordinatorState()
    for segment in list_segments(directory, topics=TOPICS):
        data, at = bytes(mapped(segment.path)), 0
        while at < len(data):
            whole, _ = whole_batches(data[at : at + rng.choice((300, 2_000, 1 << 20))])
            if not whole:
                whole, _ = whole_batches(data[at:])
            if not whole:
                break
            found.apply(segment.topic, list(decoder().decode(data[at : at + whole], segment)))
            at += whole
    found.memberships.remove_deleted()
    return found


def truth(history: History) -> ExpectedTables:
    return ExpectedTables(history, history.now_ms)


@pytest.mark.parametrize("is_cleaned", [False, True], ids=["whole", "cleaned"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_state_is_the_truth(tmp_path: Path, seed: int, is_cleaned: bool) -> None:
    history = History(seed)
    if is_cleaned:
        history.clean(share=history.world.rng.random(), drop_tombstones=seed % 2 == 0)
    history.write(tmp_path, torn=seed % 3 == 0)
    found, expected = replayed(tmp_path, Random(seed)), truth(history)
    assert {(*key, one.offset) for key, one in found.commits.found.items()} == {
        (row["group"], row["topic"], row["partition"], row["offset"]) for row in expected.offsets()
    }
    opened = {
        (name, place.topic, place.partition) for name, one in found.transactions.open() for place in one.partitions
    }
    assert opened == {(row["transactional_id"], row["topic"], row["partition"]) for row in expected.open_transactions()}
    assert {(one.group, one.topic_id, one.partition, one.start_offset, one.done) for one in found.shares} == {
        (
            row["group"],
            row["topic_id"],
            row["partition"],
            row["start_offset"],
            max(row["delivery_complete_count"], 0),
        )
        for row in expected.share_state()
        if row["start_offset"] is not None
    }
    if is_cleaned:
        return
    counts = Counter(row["group"] for row in expected.counting() if not row["tombstone"])
    assert {group: count for group, count in found.commits.counts.items() if count} == dict(counts)
    rebalances = [row for row in expected.rebalances() if row["event"] == "rebalanced"]
    there = found.memberships.groups
    assert {group: one.rebalances.count for group, one in there.items()} == {
        group: sum(row["group"] == group for row in rebalances) for group in there
    }
    for group, one in there.items():
        theirs = [row for row in rebalances if row["group"] == group]
        assert one.rebalances.moved == sum(row["moved"] or 0 for row in theirs)
        assert set(one.members) == {
            row["member_id"] for row in expected.members() if row["group"] == group and row["until_ms"] is None
        }


def row(log_offset: int, offset: int | None, **other: Any) -> dict[str, Any]:
    found = {"kind": "offset_commit", "log_partition": 0, "log_offset": log_offset, "timestamp_ms": T + log_offset}
    found |= {"producer_id": -1, "transactional": False, "group": "g", "topic": "t", "partition": 0, "control": None}
    return found | {"offset": offset, "tombstone": offset is None} | other


def marker(log_offset: int, control: str) -> dict[str, Any]:
    return row(log_offset, None, kind="marker", producer_id=7, control=control)


KEY = GroupPartition("g", "t", 0)
INSIDE = {"transactional": True, "producer_id": 7}

# fmt: off
STORIES: list[tuple[str, list[dict[str, Any]], int | None]] = [
    ("the last commit",                      [row(0, 5), row(1, 8)],                                          8),
    ("back",                                 [row(0, 5), row(1, 3)],                                          3),
    ("deleted",                              [row(0, 5), row(1, None)],                                       None),
    ("deleted and committed again",          [row(0, 5), row(1, None), row(2, 2)],                            2),
    ("in an open transaction",               [row(0, 5), row(1, 9, **INSIDE)],                                5),
    ("in a committed transaction",           [row(0, 5), row(1, 9, **INSIDE), marker(2, "COMMIT")],           9),
    ("in an aborted transaction",            [row(0, 5), row(1, 9, **INSIDE), marker(2, "ABORT")],            5),
    ("a transaction that ends later",        [row(0, 5, **INSIDE), row(1, 9), marker(2, "COMMIT")],           9),
    ("deleted during a transaction",         [row(0, 5, **INSIDE), row(1, None), marker(2, "COMMIT")],        None),
    ("a marker of an unknown transaction",   [row(0, 5), marker(1, "COMMIT")],                                5),
]
# fmt: on


@pytest.mark.parametrize(("story", "rows", "offset"), STORIES, ids=[story[0] for story in STORIES])
def test_which_commit_counts(story: str, rows: list[dict[str, Any]], offset: int | None) -> None:
    found = Commits()
    found.replay(rows, {})
    assert (found.found[KEY].offset if KEY in found.found else None) == offset


def test_the_longest_pause_is_that_of_the_last_commits() -> None:
    """Of the last half of them and of the half before."""
    found, at_ms, seen = Commits(), 0, []
    for pause_ms in (70, 50, 60, 40):
        for at in range(PAUSES // 2):
            at_ms += 1 if at else pause_ms
            found.replay([row(at_ms, at_ms, timestamp_ms=at_ms)], {})
        seen.append(found.found[KEY].pauses_ms)
    # Before the first commit there is no pause.
    assert seen == [(1, 0), (50, 1), (60, 50), (40, 60)]


def test_commits_that_were_left_out_are_no_pause() -> None:
    rows = [row(at, at, timestamp_ms=1000 * at) for at in range(30)]
    batch = pa.RecordBatch.from_pylist(rows)
    found = Commits()
    found.replay(newest_rows(batch, found.counts), {})
    found.replay(newest_rows(pa.RecordBatch.from_pylist([row(90, 90, timestamp_ms=90_000)]), found.counts), {})
    assert found.found[KEY].pauses_ms == (61_000, 0)
    found = Commits()
    found.replay([row(0, 0, timestamp_ms=0)], {})
    found.replay(newest_rows(batch.slice(15), found.counts), {})
    # Of the second batch only the last ten commits are known.
    assert found.found[KEY].pauses_ms == (1_000, 0)


def test_since_when_partitions_are_owned() -> None:
    """One owner after the other; as `verdicts.owned_since` of the table of assignments."""
    known = GroupState(0, GroupHistory("g", 0))
    one, two = ("t", 0), ("t", 1)
    known.own({one: "a"}, 10)
    known.own({one: "b", two: "a"}, 20)
    assert known.stays == {one: (10, None), two: (20, None)}
    known.own({two: "a"}, 30)
    known.own({one: "a", two: "a"}, 30 + GAP_MS)
    assert known.stays == {one: (10, None), two: (20, None)}
    known.own({}, 50)
    known.own({one: "a"}, 51 + GAP_MS)
    assert known.stays == {one: (51 + GAP_MS, None)}


def test_lag_at_a_commit_is_that_of_the_end_before() -> None:
    found = Commits()
    found.replay([row(0, 5)], {})
    found.replay([row(1, 8), row(2, 12)], {("t", 0): 10})
    assert [one.lag for one in found.found[KEY].window] == [None, 2, 0]


def test_a_long_batch_is_thinned_without_a_difference() -> None:
    """The window, and the number of commits, are those of all rows."""
    rng = Random(4)
    rows = [
        row(at, None if rng.random() < 0.05 else at, group=f"g{rng.randrange(3)}", partition=rng.randrange(2))
        | (INSIDE if rng.random() < 0.1 else {})
        for at in range(state.THINNED_ROWS + 1)
    ]
    rows = [one | {"transactional": one["transactional"] and not one["tombstone"]} for one in rows]
    (batch,) = [decoder_batch(rows)]
    whole, thin = Commits(), Commits()
    whole.replay(rows, {})
    thin.replay(newest_rows(batch, thin.counts), {})
    assert {key: list(one.window) for key, one in thin.found.items()} == {
        key: list(one.window) for key, one in whole.found.items()
    }
    assert thin.counts == whole.counts


def decoder_batch(rows: list[dict[str, Any]]) -> Any:
    from kohort.pipeline.decode import schemas

    return schemas.from_rows(schemas.subset(FATE_COLUMNS), rows)


def test_a_log_that_began_again_is_forgotten() -> None:
    found = CoordinatorState()
    found.commits.replay([row(0, 5), row(0, 6, group="h", log_partition=1), row(3, 7, **INSIDE)], {})
    found.forget(CONSUMER_OFFSETS, 0)
    assert set(found.commits.found) == {GroupPartition("h", "t", 0)}
    found.commits.replay([marker(4, "COMMIT")], {})
    assert set(found.commits.found) == {GroupPartition("h", "t", 0)}


def transaction(name: str, status: str, *places: TopicPartition, producer_id: int = 7) -> dict[str, Any]:
    listed = [{"topic": place.topic, "partition": place.partition} for place in places]
    value = {"state": status, "producer_id": producer_id, "start_ms": T, "timeout_ms": 1000, "partitions": listed}
    return {"log_partition": 0, "log_offset": 0, "transactional_id": name, "tombstone": False, "transaction": value}


def test_a_hanging_transaction_is_open_in_a_partition_and_in_no_coordinator() -> None:
    found, here, there = Transactions(), TopicPartition("t", 0), TopicPartition("t", 1)
    found.replay(transaction("known", "Ongoing", here))
    found.replay(transaction("over", "CompleteCommit", there, producer_id=8))
    told = [
        OpenProducer(here, 7, T),
        OpenProducer(there, 7, T),
        OpenProducer(there, 8, T),
        OpenProducer(here, 9, T + 59),
    ]
    hanging = list(found.hanging(told, now_ms=T + 100, grace_ms=50))
    assert hanging == [OpenProducer(there, 7, T), OpenProducer(there, 8, T)]


@pytest.mark.parametrize("run", kafka_logs.RUNS)
def test_totals_of_rebalances_never_fall(recorded: Any, run: str) -> None:
    """Also not when an epoch overtakes one whose assignment the members still take."""
    found, before = Memberships(), dict[str, Counter[str]]()
    for segment in list_segments(recorded(run) / "logs", topics={CONSUMER_OFFSETS}):
        rows = [row for batch in decoder().decode(mapped(segment.path), segment) for row in batch.to_pylist()]
        ours = [row for row in rows if row["kind"] in ("group_metadata", "coordinator")]
        for row in sorted(ours, key=lambda row: row["log_offset"]):
            found.replay(row)
            if known := found.groups.get(row["group"]):
                totals, last = known.rebalances, before.get(row["group"], Counter())
                numbers = {"count": totals.count, "moved": totals.moved, "durations_ms": totals.durations_ms}
                now = totals.causes + Counter(numbers)
                # The cause of a first epoch is known with its assignment, a record of the same batch.
                del now["unknown"]
                assert now >= last, row
                before[row["group"]] = now
    assert sum(one["count"] for one in before.values())


@pytest.mark.parametrize("module", ["partitions", "pending", "groups", "ids"])
def test_state_is_bounded(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setattr(commits, "EXPORTED_PARTITIONS_MAX", 2)
    monkeypatch.setattr(commits, "EXPORTED_PENDING_COMMITS_MAX", 2)
    monkeypatch.setattr(memberships, "EXPORTED_GROUPS_MAX", 2)
    monkeypatch.setattr(transactions, "EXPORTED_TRANSACTIONAL_IDS_MAX", 2)
    held, groups, ids = Commits(), Memberships(), Transactions()
    if module == "partitions":
        held.replay([row(at, at, partition=at) for at in range(5)], {})
        assert (len(held.found), held.dropped) == (2, 3)
    elif module == "pending":
        held.replay([row(at, at, **INSIDE) for at in range(5)], {})
        held.replay([marker(9, "COMMIT")], {})
        assert (held.found[KEY].offset, held.dropped) == (1, 3)
    elif module == "groups":
        for at in range(5):
            record = {
                "kind": "group_metadata",
                "log_partition": 0,
                "log_offset": at,
                "timestamp_ms": T,
                "group": f"g{at}",
            }
            record |= {"tombstone": False, "protocol_type": "consumer", "generation": 0, "protocol": "", "leader": ""}
            groups.replay(record | {"state_timestamp_ms": T, "members": [], "record_type": None, "value": None})
        assert (len(groups.groups), groups.dropped) == (2, 3)
    else:
        for at in range(5):
            ids.replay(transaction(f"id{at}", "Ongoing"))
        assert (len(ids.found), ids.dropped) == (2, 3)
    assert limits.EXPORTED_PARTITIONS_MAX == 100_000


def initialised(group: str, partitions: list[int], *, log_partition: int = 0) -> dict[str, Any]:
    topics = [{"topicId": "id", "topicName": "t", "partitions": partitions}]
    value = json.dumps({"initializingTopics": [], "initializedTopics": topics, "deletingTopics": []})
    return {
        "record_type": "ShareGroupStatePartitionMetadata",
        "group": group,
        "log_partition": log_partition,
        "tombstone": not partitions,
        "value": value if partitions else None,
    }


def test_partitions_of_share_groups_that_coordinators_know_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last record of a group counts, and a deleted group makes room."""
    monkeypatch.setattr(shares, "EXPORTED_PARTITIONS_MAX", 3)
    found = Shares()

    def known() -> list[tuple[str, int]]:
        return [(one.group, one.partition) for one in found.without_state()]

    for _ in range(2):
        found.initialise(initialised("a", [0, 1]))
    found.initialise(initialised("b", [0, 1]))
    assert (known(), found.dropped) == ([("a", 0), ("a", 1)], 1)
    found.initialise(initialised("b", [5], log_partition=1))
    found.initialise(initialised("a", []))
    assert (known(), found.names) == ([("b", 5)], {"id": "t"})
    found.forget_initialised(1)
    found.initialise(initialised("c", [0, 1, 2]))
    assert (known(), found.dropped) == ([("c", 0), ("c", 1), ("c", 2)], 1)


def test_the_window_is_burrows() -> None:
    found = Commits()
    found.replay([row(at, at) for at in range(50)], {})
    assert found.found[KEY].window == deque(list(found.found[KEY].window)[-10:], maxlen=10)

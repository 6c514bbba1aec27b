"""How updates of a share group's state combine: the plain class, without Spark."""

import json
from typing import Any

import pytest

from kohort.pipeline.tables.shares.share_history import ShareHistory, StateBatch, combined

A, K, X = 0, 2, 4
"""Available, acknowledged, archived."""

# fmt: off
CASES = [
    # before                   update                     start  after
    ([],                       [(0, 9, K, 1)],            0,     [(0, 9, K, 1)]),
    ([(0, 9, K, 1)],           [],                        4,     [(4, 9, K, 1)]),
    ([(0, 9, K, 1)],           [],                        10,    []),
    ([(0, 4, K, 1)],           [(5, 9, K, 1)],            0,     [(0, 9, K, 1)]),
    ([(0, 4, K, 1)],           [(5, 9, K, 2)],            0,     [(0, 4, K, 1), (5, 9, K, 2)]),
    ([(0, 4, K, 1)],           [(6, 9, K, 1)],            0,     [(0, 4, K, 1), (6, 9, K, 1)]),
    ([(0, 9, A, 1)],           [(3, 5, K, 2)],            0,     [(0, 2, A, 1), (3, 5, K, 2), (6, 9, A, 1)]),
    ([(0, 9, A, 1)],           [(3, 5, K, 1)],            0,     [(0, 2, A, 1), (3, 5, K, 1), (6, 9, A, 1)]),
    ([(0, 9, A, 2)],           [(3, 5, K, 1)],            0,     [(0, 9, A, 2)]),
    ([(0, 3, A, 1), (4, 9, X, 1)], [(2, 6, K, 3)],        1,     [(1, 1, A, 1), (2, 6, K, 3), (7, 9, X, 1)]),
]
# fmt: on


@pytest.mark.parametrize(("before", "update", "start", "after"), CASES)
def test_batches_combine(before: list[Any], update: list[Any], start: int, after: list[Any]) -> None:
    found = combined([StateBatch(*one) for one in before], [StateBatch(*one) for one in update], start_offset=start)
    assert [tuple(one) for one in found] == after


def record(name: str, value: dict[str, Any] | None) -> dict[str, Any]:
    told = None if value is None else json.dumps({"leaderEpoch": 0, "stateBatches": [], "writeTimestamp": 5, **value})
    return {"record_type": name, "tombstone": value is None, "value": told, "timestamp_ms": 7}


SNAPSHOT = record("ShareSnapshot", {"snapshotEpoch": 1, "stateEpoch": 2, "startOffset": 3})


def left(*records: dict[str, Any]) -> list[tuple[int, int]]:
    history = ShareHistory("g", "id", 0)
    for one in records:
        list(history.replay(one))
    return [(row["start_offset"], row["delivery_complete_count"]) for row in history.finish()]


def test_an_update_counts_for_its_snapshot_alone() -> None:
    update = {"snapshotEpoch": 1, "startOffset": 8, "deliveryCompleteCount": 2}
    assert left(SNAPSHOT, record("ShareUpdate", update)) == [(8, 2)]
    for epoch in (0, 2):
        assert left(SNAPSHOT, record("ShareUpdate", update | {"snapshotEpoch": epoch})) == [(3, -1)]
    assert left(record("ShareUpdate", update)) == []


def test_an_update_without_a_start_offset_leaves_it() -> None:
    assert left(SNAPSHOT, record("ShareUpdate", {"snapshotEpoch": 1, "startOffset": -1})) == [(3, -1)]


def test_a_tombstone_leaves_nothing() -> None:
    assert left(SNAPSHOT, record("ShareSnapshot", None)) == []
    assert left(SNAPSHOT, record("ShareSnapshot", None), SNAPSHOT) == [(3, -1)]

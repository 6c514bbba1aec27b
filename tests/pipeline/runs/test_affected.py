"""The groups and transactional ids that new rows affect, rule by rule; found in Parquet files, without Spark."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kohort.pipeline.runs.affected import Affected, find_affected
from kohort.pipeline.tables.burrow.evaluator import EXPIRE_MS

Row = dict[str, Any]

WAS_MS, AT_MS = EXPIRE_MS + 10_000, EXPIRE_MS + 20_000
STRING, INTEGER = pa.string(), pa.int64()
SCHEMAS = {
    "offset_commits": {"group": STRING, "topic": STRING, "fate": STRING, "visible_at_ms": INTEGER},
    "status": {"group": STRING, "basis": STRING, "lag": INTEGER},
    "assignments": {"group": STRING, "topic": STRING, "topic_id": STRING},
    "members": {"group": STRING},
    "share_state": {"group": STRING, "topic": STRING, "topic_id": STRING},
    "transactions": {"transactional_id": STRING, "state": STRING},
    "blocking_transactions": {"topic": STRING},
}
ROWS = {"group": STRING, "transactional_id": STRING}
G: Row = {"group": "g"}


def commit(*, fate: str = "plain", at_ms: int = 5_000) -> dict[str, list[Row]]:
    """A commit of topic t; by default it expired before both instants."""
    return {"offset_commits": [G | {"topic": "t", "fate": fate, "visible_at_ms": None if fate == "pending" else at_ms}]}


def status(name: str, *, lag: int) -> dict[str, list[Row]]:
    return {"status": [G | {"basis": name, "lag": lag}]}


def write(path: Path, rows: list[Row], columns: dict[str, pa.DataType]) -> None:
    path.mkdir(parents=True)
    full = [{name: row.get(name) for name in columns} for row in rows]
    pq.write_table(pa.Table.from_pylist(full, pa.schema(list(columns.items()))), path / "part.parquet")


def affected(
    root: Path,
    before: dict[str, list[Row]],
    new: dict[str, list[Row]],
    *,
    topics: tuple[str, ...] = (),
    share_max: float = 1.0,
) -> Affected | None:
    """Beside the rows of the case there are two groups that nothing affects."""
    idle: dict[str, list[Row]] = {
        "offset_commits": [{"group": "idle", "topic": "quiet", "visible_at_ms": 0}],
        "members": [{"group": "absent"}],
    }
    for name, columns in SCHEMAS.items():
        write(root / "1" / name, [*idle.get(name, ()), *before.get(name, ())], columns)
    for kind, rows in new.items():
        write(root / "new" / f"kind={kind}", rows, ROWS)
    part = root / "new" if new else None
    return find_affected(root / "1", part, topics=topics, was_ms=WAS_MS, at_ms=AT_MS, share_max=share_max)


# fmt: off
CASES: dict[str, tuple[dict[str, list[Row]], dict[str, list[Row]], str, bool]] = {
    # rule                               previous tables                           new rows                    topic affected
    "a new record":                      ({},                                      {"group_metadata": [G]},   "",  True),
    "a marker that may decide a commit": (commit(fate="pending"),                  {"marker": [{}]},          "",  True),
    "a marker, and nothing is pending":  (commit(),                                {"marker": [{}]},          "",  False),
    "a pending commit, and no marker":   (commit(fate="pending"),                  {"batch": [{}]},           "",  False),
    "records of a topic that it commits": (commit(),                                {},                        "t", True),
    "records of a topic that it shares": ({"share_state": [G | {"topic": "t"}]},   {},                        "t", True),
    "records of a topic that it owns":   ({"assignments": [G | {"topic": "t"}]},   {},                        "t", True),
    "records of another topic":          (commit(),                                {},                        "u", False),
    "a lag that may become STOP":        (status("WARN", lag=1),                   {},                        "",  True),
    "STOP stays STOP":                   (status("STOP", lag=1),                   {},                        "",  False),
    "no lag stays OK":                   (status("OK", lag=0),                     {},                        "",  False),
    "a commit enters the window":        (commit(at_ms=WAS_MS + 1),                {},                        "",  True),
    "a commit was in the window":        (commit(at_ms=WAS_MS),                    {},                        "",  False),
    "a commit that had expired":         (commit(at_ms=9_999),                     {},                        "",  False),
    "the first commit that expires":     (commit(at_ms=10_000),                    {},                        "",  True),
    "the last commit that expires":      (commit(at_ms=19_999),                    {},                        "",  True),
    "a commit that does not expire yet": (commit(at_ms=20_000),                    {},                        "",  False),
    "owned partitions without a name":   ({"assignments": [G | {"topic_id": "id"}]}, {},                       "",  True),
    "shared partitions without a name":  ({"share_state": [G | {"topic_id": "id"}]}, {},                       "",  True),
    "tasks have no topic id":            ({"assignments": [G]},                    {},                        "",  False),
}
# fmt: on


@pytest.mark.parametrize("case", CASES)
def test_groups(tmp_path: Path, case: str) -> None:
    before, new, topic, is_affected = CASES[case]
    topics = (topic,) if topic else ()
    found = affected(tmp_path, before, new, topics=topics)
    assert found == Affected(frozenset({"g"} if is_affected else ()), frozenset(), frozenset(topics))


def test_transactional_ids(tmp_path: Path) -> None:
    """Ids with new records, and ids whose transaction may still end."""
    states = {"open": "Ongoing", "prepared": "PrepareCommit", "done": "CompleteCommit", "aborted": "CompleteAbort"}
    before = {"transactions": [{"transactional_id": name, "state": state} for name, state in states.items()]}
    found = affected(tmp_path, before, {"transaction": [{"transactional_id": "new"}]})
    assert found is not None
    assert found.transactional_ids == {"open", "prepared", "new"}


def test_topics_of_blocking_transactions_are_read_again(tmp_path: Path) -> None:
    found = affected(tmp_path, {"blocking_transactions": [{"topic": "blocked"}]}, {}, topics=("t",))
    assert found is not None
    assert found.topics == {"blocked", "t"}


@pytest.mark.parametrize(("count", "is_partial"), [(2, True), (3, False)])
def test_with_most_groups_affected_all_tables_are_made_again(tmp_path: Path, count: int, is_partial: bool) -> None:
    """Two groups are idle: of four groups in all, two are half."""
    new = {"group_metadata": [{"group": f"g{at}"} for at in range(count)]}
    assert (affected(tmp_path, {}, new, share_max=0.5) is not None) == is_partial

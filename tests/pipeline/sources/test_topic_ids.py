"""A source knows its topics by their ids."""

from collections.abc import Callable
from pathlib import Path

from kohort.pipeline.sources.topic_ids import topic_ids

ID = "7H-SLoYzTTm0vjLA-u3HvA"


def test_from_beside_the_logs(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1", "a-b-7", "no-partition-directory", "torn-0", "odd-0"):
        (tmp_path / name).mkdir()
    for name in ("orders-0", "orders-1"):
        (tmp_path / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID}")
    (tmp_path / "torn-0" / "partition.metadata").write_text("vers")
    (tmp_path / "odd-0" / "partition.metadata").write_bytes(b"\xff\xfe")
    assert topic_ids(str(tmp_path)) == {ID: "orders"}


def test_of_recorded_logs_nothing_is_known_beside_them(recorded: Callable[[str], Path]) -> None:
    assert isinstance(topic_ids(str(recorded("main") / "logs")), dict)

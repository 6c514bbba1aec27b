"""A source knows its topics by their ids."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from kohort.broker.catalog.catalog import topic_record
from kohort.broker.catalog.view import Topic
from kohort.model.ids import uuid_text
from kohort.pipeline.sources.topic_ids import topic_ids
from tests.pipeline.logbytes import batch

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


def test_the_catalog_of_kohort_names_topics_without_records(tmp_path: Path) -> None:
    """Kohort creates the directory of a partition with its first record. Kafka creates it with the topic."""
    kept, deleted = (Topic(name, UUID(int=number), 1, {}) for number, name in enumerate(("kept", "deleted"), 1))
    pairs = [topic_record(kept), topic_record(deleted), (topic_record(deleted)[0], None), (b"producer-ids", b"{}")]
    pairs += [(b"topic:no-id", b"{}"), (topic_record(deleted)[0], b"no json")]
    directory = tmp_path / "__kohort_catalog-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(batch(0, pairs[:2]) + batch(2, pairs[2:]))
    assert topic_ids(str(tmp_path)) == {uuid_text(kept.topic_id): "kept"}

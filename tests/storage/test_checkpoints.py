"""The small files beside the logs: read as Kafka wrote them, written as Kafka reads them."""

import tarfile
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.errors import ConfigError, CorruptError
from kohort.model.ids import TopicPartition, uuid_from_text, uuid_text
from kohort.storage.files.checkpoint_formats import (
    offsets_to_text,
    read_offsets,
    read_partition_metadata,
    read_properties,
    write_atomically,
    write_partition_metadata,
)
from kohort.storage.files.checksums import seal
from kohort.storage.log import NO_TOPIC_ID
from tests.storage.owner import Owner

LOGS = Path(__file__).parents[1] / "data" / "logs"


@given(st.uuids())
def test_ids_are_written_as_kafka_prints_them(value: UUID) -> None:
    assert len(uuid_text(value)) == 22
    assert uuid_from_text(uuid_text(value)) == value


def test_offsets_are_read_back(tmp_path: Path) -> None:
    offsets = {TopicPartition("b", 0): 5, TopicPartition("a.b-c", 10): 1 << 40, TopicPartition("a.b-c", 2): 0}
    write_atomically(tmp_path / "offsets", offsets_to_text(offsets))
    assert (tmp_path / "offsets").read_text() == seal(f"0\n3\na.b-c 2 0\na.b-c 10 {1 << 40}\nb 0 5\n")
    assert read_offsets(tmp_path / "offsets") == offsets
    assert read_offsets(tmp_path / "none") == {}
    (tmp_path / "offsets").write_text("")
    assert read_offsets(tmp_path / "offsets") == {}


@pytest.mark.parametrize("text", ["1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na b c\n", "0\n"])
def test_anything_else_is_refused_with_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text(text)
    with pytest.raises(CorruptError):
        read_offsets(path)
    with pytest.raises(ConfigError, match="move it away"):
        Owner().disk(tmp_path)
    path.unlink()
    Owner().disk(tmp_path).close()


def test_recorded_files(tmp_path: Path) -> None:
    with tarfile.open(LOGS / "main.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    offsets = read_offsets(tmp_path / "main" / "recovery-point-offset-checkpoint")
    assert offsets[TopicPartition("d-trimmed", 0)] == 41
    properties = read_properties(tmp_path / "main" / "meta.properties")
    assert properties is not None
    assert (properties["version"], properties["node.id"]) == ("1", "1")
    recorded = tmp_path / "main" / "d-none-0"
    (tmp_path / "again").mkdir()
    write_partition_metadata(tmp_path / "again", read_partition_metadata(recorded))
    written = (tmp_path / "again" / "partition.metadata").read_bytes()
    assert written == (recorded / "partition.metadata").read_bytes()


@pytest.mark.parametrize("text", [None, "", "version: 0\n", "version: 0\ntopic_id: x", "version: 9\ntopic_id: AA"])
def test_metadata_that_was_not_written_to_its_end_names_no_topic(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "partition.metadata").write_text(text)
    assert read_partition_metadata(tmp_path) == NO_TOPIC_ID

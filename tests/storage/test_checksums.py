"""Checksums in text files: a flipped bit is corrected, other damage is refused, a file without a checksum is read as it is."""

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from kohort.model.errors import ConfigError, CorruptError
from kohort.model.ids import TopicPartition
from kohort.storage.epochs import EpochCache
from kohort.storage.files.checkpoint_formats import claim_directory, read_offsets
from kohort.storage.files.checksums import comment, correct_bit, read_commented, read_sealed, seal
from kohort.storage.segments.index_checksums import IndexChecksums, read_checksums
from kohort.wire.native import crc32c
from tests.storage.owner import Owner

TEXT = "0\n2\norders 0 17\nwords 12 9000\n"
NEW_ID = UUID(int=5)


def test_the_blanks_are_a_checksum(tmp_path: Path) -> None:
    """Kafka splits lines at white space: `"words 12 9000 \\t".split("\\\\s+")` has three parts."""
    sealed = seal(TEXT)
    content, blanks = sealed[:-33], sealed[-33:-1]
    assert content == TEXT.removesuffix("\n")
    assert int(blanks.replace(" ", "0").replace("\t", "1"), 2) == crc32c(content.encode())
    assert [line.split() for line in sealed.splitlines()] == [line.split() for line in TEXT.splitlines()]
    (tmp_path / "file").write_text(sealed)
    assert read_sealed(tmp_path / "file") == TEXT
    assert seal("0\n0\n") == "0\n0\n"


@pytest.mark.parametrize("position", range(len(seal(TEXT)) - 1))
def test_one_wrong_bit_of_a_checkpoint_file_changes_no_entry(tmp_path: Path, position: int) -> None:
    path, right = tmp_path / "file", {TopicPartition("orders", 0): 17, TopicPartition("words", 12): 9000}
    for bit in range(8):
        data = bytearray(seal(TEXT).encode())
        data[position] ^= 1 << bit
        path.write_bytes(data)
        assert read_offsets(path) == right


@pytest.mark.parametrize("change", [("17", "71"), ("orders", "orbits"), ("9000", "90000"), ("words 12", "words 1")])
def test_other_damage_is_refused(tmp_path: Path, change: tuple[str, str]) -> None:
    (tmp_path / "log-start-offset-checkpoint").write_text(seal(TEXT).replace(*change))
    with pytest.raises(CorruptError, match="log-start-offset-checkpoint has a wrong checksum"):
        read_offsets(tmp_path / "log-start-offset-checkpoint")
    with pytest.raises(ConfigError, match=r"wrong checksum.*move it away"):
        Owner().disk(tmp_path)


@pytest.mark.parametrize("text", [TEXT, "0\n0\n", "", "0\n1\na 0 1\n", "0\n1\na 0 1   \n"])
def test_a_file_of_apache_kafka_has_no_checksum(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    assert read_sealed(tmp_path / "file") == text


def test_epochs_are_read_with_their_checksum(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(seal("0\n2\n0 0\n3 17\n"))
    assert EpochCache.from_text(read_sealed(tmp_path / "file")).entries == [(0, 0), (3, 17)]
    assert EpochCache.from_text((tmp_path / "file").read_text()).entries == [(0, 0), (3, 17)], "as Kafka reads it"


def test_one_wrong_bit_of_meta_properties_changes_nothing(tmp_path: Path) -> None:
    cluster_id = claim_directory(tmp_path, node_id=1, cluster_id=None, new_id=NEW_ID)
    path = tmp_path / "meta.properties"
    right = path.read_bytes()
    assert right.startswith(b"#kohort.crc32c=")
    for position in range(len(right)):
        for bit in range(8):
            data = bytearray(right)
            data[position] ^= 1 << bit
            path.write_bytes(data)
            try:
                assert claim_directory(tmp_path, node_id=1, cluster_id=None, new_id=NEW_ID) == cluster_id
            except ConfigError:
                assert position <= right.index(b"\n"), "only damage of the first line may refuse the start"


def test_other_damage_of_meta_properties_refuses_the_start(tmp_path: Path) -> None:
    cluster_id, _ = claim_directory(tmp_path, node_id=1, cluster_id=None, new_id=NEW_ID)
    path = tmp_path / "meta.properties"
    path.write_text(path.read_text().replace(cluster_id, cluster_id[::-1]))
    with pytest.raises(ConfigError, match=r"wrong checksum.*remove the first line"):
        claim_directory(tmp_path, node_id=1, cluster_id=None, new_id=NEW_ID)
    path.write_text(comment("cluster.id=a\n"))
    assert read_commented(path) == "cluster.id=a\n"


@pytest.mark.parametrize("size", [1, 2, 61, 4096])
def test_the_checksum_tells_which_bit_is_wrong(rng: Random, size: int) -> None:
    data = rng.randbytes(size)
    for position in {0, size - 1, rng.randrange(size)}:
        for bit in range(8):
            wrong = bytearray(data)
            wrong[position] ^= 1 << bit
            assert correct_bit(bytes(wrong), crc32c(data)) == data
    wrong = bytearray(data)
    wrong[0] ^= 0b11
    assert correct_bit(bytes(wrong), crc32c(data)) is None


def test_checksums_of_indexes_are_read_back(tmp_path: Path) -> None:
    checksums, path = IndexChecksums(1, 2, 3), tmp_path / "file"
    assert checksums.is_right(path), "Apache Kafka writes none"
    checksums.write(path)
    assert checksums.is_right(path)
    assert not IndexChecksums(1, 2, 4).is_right(path)
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1
        assert read_checksums(bytes(damaged)) is None
    path.write_bytes(content[:-1])
    assert not checksums.is_right(path), "a torn file"

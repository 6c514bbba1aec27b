"""`kohort log repair` on the catalog of topics: every entry that can be read is kept, and the report names the others first."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from kohort.broker.catalog.catalog import CATALOG, Catalog, new_topic_id
from kohort.broker.catalog.repair import CatalogRescue
from kohort.broker.catalog.view import CatalogChange, ConfiguredGroup, Topic
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.storage.batchset import iter_spans
from kohort.storage.log import LogConfig
from kohort.storage.tools.repair import find_damaged, repair
from kohort_lab.crashed_disk import read_tree
from tests.storage.owner import Owner, batch

NAMES = ("orders", "payments", "words")
CONFIGS = {"retention.ms": "1000"}


def left_behind(tmp_path: Path) -> tuple[Path, dict[str, Topic]]:
    """Three topics in one batch each, one group, one deleted topic; each topic has data in its second partition."""
    owner = Owner()
    store = owner.disk(tmp_path / "data")
    catalog = Catalog(store, owner.clock)
    codes: list[ErrorCode] = []
    topics = {name: Topic(name, new_topic_id(), 3, CONFIGS) for name in NAMES}
    deleted = Topic("deleted", new_topic_id(), 1)
    for topic in (*topics.values(), deleted):
        catalog.change(CatalogChange(put=(topic,)), codes.append)
    catalog.change(
        CatalogChange(groups=(ConfiguredGroup("g", {"consumer.session.timeout.ms": "50000"}),)), codes.append
    )
    catalog.change(CatalogChange(deleted=(deleted,)), codes.append)
    catalog.reserve_producer_ids(0, 1000, lambda code, _first: codes.append(code))
    for topic in topics.values():
        store.open(TopicPartition(topic.name, 1), topic.topic_id, LogConfig()).append(batch("x"), leader_epoch=0)
    store.flush()
    assert codes == [ErrorCode.NONE] * 7
    store.close()
    (path,) = (tmp_path / "data" / str(CATALOG)).glob("*.log")
    return path, topics


def damage(path: Path, index: int, *changes: tuple[bytes, int]) -> None:
    """In one batch, invert the bytes at some distance behind the first occurrence of a text."""
    content = bytearray(path.read_bytes())
    start, size = list(iter_spans(bytes(content)))[index][:2]
    for text, distance in changes:
        content[content.index(text, start, start + size) + distance] ^= 0x7F
    path.write_bytes(content)


def loaded(tmp_path: Path) -> tuple[dict[str, Topic], Catalog]:
    store = Owner().disk(tmp_path / "data")
    catalog = Catalog(store, Owner().clock)
    topics = {topic.name: topic for topic in catalog.topics()}
    store.close()
    return topics, catalog


def rescued(tmp_path: Path) -> list[str]:
    """Repair, after the report of a run that changes nothing; returns the notes."""
    before = read_tree(tmp_path / "data")
    (damaged,) = find_damaged(tmp_path / "data", {CATALOG: CatalogRescue(tmp_path / "data")})
    assert read_tree(tmp_path / "data") == before
    repair(tmp_path / "data", [damaged])
    assert list(find_damaged(tmp_path / "data", {CATALOG: CatalogRescue(tmp_path / "data")})) == []
    return damaged.notes


ENTRY_IS_KEPT: dict[str, tuple[bytes, int]] = {
    "the key": (b"topic:", 0),
    "behind the value": (b"}}}", 3),
    "a timestamp": (b"topic:", -10),
}


@pytest.mark.parametrize("place", ENTRY_IS_KEPT)
@pytest.mark.parametrize("index", range(3))
def test_an_entry_is_read_from_a_batch_with_a_wrong_checksum(tmp_path: Path, index: int, place: str) -> None:
    path, topics = left_behind(tmp_path)
    damage(path, index, (b"topic:", -8), ENTRY_IS_KEPT[place])
    notes = rescued(tmp_path)
    found, catalog = loaded(tmp_path)
    name = NAMES[index]
    if place == "the key":  # the text of the key is not found
        assert notes[-1].startswith(
            f"the entry of topic {name} is lost and made anew from its directories, with 2 partitions"
        )
        assert found == topics | {name: Topic(name, topics[name].topic_id, 2)}
    else:
        assert notes[0].startswith("kept from a batch with a wrong checksum: ")
        assert found == topics
    assert catalog.next_producer_id == 1000
    assert catalog.configured_group("g").configs


@pytest.mark.parametrize("place", [(b'"name"', 8), (b"partition_count", 18), (b"retention", 3), (b"topic:", 9)])
def test_one_wrong_bit_of_an_entry_is_corrected(tmp_path: Path, place: tuple[bytes, int]) -> None:
    path, topics = left_behind(tmp_path)
    content = bytearray(path.read_bytes())
    content[content.index(place[0]) + place[1]] ^= 2
    path.write_bytes(content)
    assert [note.rpartition(": ")[2] for note in rescued(tmp_path)] == ["the one wrong bit of the batch is corrected"]
    assert loaded(tmp_path)[0] == topics


UNREADABLE: dict[str, Callable[[Path], None]] = {
    "its value": lambda path: damage(path, 1, (b'"topic"', 0), (b'"version"', 0)),
    "another id": lambda path: damage(path, 1, (b"topic:", 7), (b"topic:", 9)),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_lost_entry_is_made_anew_from_its_directories(tmp_path: Path, what: str) -> None:
    path, topics = left_behind(tmp_path)
    UNREADABLE[what](path)
    assert "the entry of topic payments is lost and made anew" in rescued(tmp_path)[-1]
    payments = Topic("payments", topics["payments"].topic_id, 2)
    assert loaded(tmp_path)[0] == topics | {"payments": payments}


def test_a_deleted_topic_does_not_come_back(tmp_path: Path) -> None:
    path, topics = left_behind(tmp_path)
    directory = tmp_path / "data" / "deleted-0"
    directory.mkdir()
    damage(path, 1, (b'"topic"', 0), (b'"version"', 0))
    rescued(tmp_path)
    assert set(loaded(tmp_path)[0]) == set(topics)
    assert UUID(int=0) not in {topic.topic_id for topic in topics.values()}

"""
Data directories and partitions that others have written: a start refuses them in a sentence and changes nothing, neither a byte
nor a name nor a time stamp. What the directory's own broker made and left behind is no reason to refuse.
"""

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kohort.broker.catalog.catalog import CATALOG, Catalog
from kohort.broker.catalog.view import CatalogChange, Topic
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.topics.directory_check import check_directory
from kohort.cli.main import run
from kohort.hosting import hosted
from kohort.machine.results import Result
from kohort.model.errors import ConfigError, StorageError
from kohort.model.ids import TopicPartition
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.storage.files.checkpoint_formats import (
    CLEAN_SHUTDOWN,
    LOCK,
    RECOVERY_POINTS,
    read_partition_metadata,
    write_partition_metadata,
)
from kohort.storage.log import NO_TOPIC_ID, LogConfig
from kohort.testing.process import KOHORT
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch
from tests.broker.harness import Harness, disk_store
from tests.runtime.shards import Put, PutSerde, TableShard
from tests.storage.owner import Owner, abandon, batch
from tests.storage.test_recorded import unpack

ORDERS = TopicPartition("orders", 0)
METADATA_LOG = "__cluster_metadata-0"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that Apache Kafka left after a clean stop, without its metadata log."""
    return unpack("main", tmp_path_factory.mktemp("recorded"))


def kafka_directory(recorded: Path, data_dir: Path, *names: str) -> Path:
    data_dir.mkdir()
    for name in names:
        copy = shutil.copytree if (recorded / name).is_dir() else shutil.copy2
        copy(recorded / name, data_dir / name)
    return data_dir


def everything(data_dir: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Content, time of the last change, mode and inode of the directory and of all that is in it."""
    found = {}
    for path in (data_dir, *sorted(data_dir.rglob("*"))):
        state = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(data_dir))] = content, state.st_mtime_ns, state.st_mode, state.st_ino
    return found


def started(data_dir: Path, **options: Any) -> Harness:
    node = VirtualNode()
    store = disk_store(data_dir, node, cluster_id=None, **options)
    try:
        return Harness(store=store, node=node)
    except BaseException:
        store.close()
        raise


def stop(harness: Harness) -> None:
    harness.store.close()


def with_orders(data_dir: Path) -> None:
    """A directory of Kohort with a topic of two partitions that have records, after a clean stop."""
    harness = started(data_dir)
    topic_id = harness.create("orders", 2)
    for partition in range(2):
        append(harness, TopicPartition("orders", partition), topic_id)
    stop(harness)


def append(harness: Harness, topic_partition: TopicPartition, topic_id: UUID) -> None:
    log = harness.store.open(topic_partition, topic_id, LogConfig())
    log.append(build_batch([BatchRecord(None, b"x")], timestamp_ms=1000), leader_epoch=0)


def refusal(data_dir: Path) -> str:
    """The sentence of a start that is refused and changes nothing, twice."""
    before = everything(data_dir)
    sentences = set()
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            started(data_dir)
        sentences.add(str(caught.value))
        assert everything(data_dir) == before
    (sentence,) = sentences
    return sentence


KAFKA_DIRECTORIES: dict[str, tuple[tuple[str, ...], str]] = {
    "a metadata log": (
        ("meta.properties", "orders-0", METADATA_LOG),
        f"Apache Kafka, which has written {METADATA_LOG}",
    ),
    "a metadata log alone": ((METADATA_LOG,), f"Apache Kafka, which has written {METADATA_LOG}"),
    "no metadata log": (
        ("meta.properties", "orders-0", "__consumer_offsets-0", CLEAN_SHUTDOWN, RECOVERY_POINTS),
        "Apache Kafka, which has written meta.properties",
    ),
    "a formatted directory": (("meta.properties", "bootstrap.checkpoint"), "Apache Kafka, which has written meta.prop"),
    "partitions alone": (
        ("orders-0", "orders-1"),
        r"has 2 partitions \(the first is orders-0\), but __kohort_catalog-0",
    ),
}


@pytest.mark.parametrize("kind", KAFKA_DIRECTORIES)
@pytest.mark.parametrize("has_lock", [False, True])
def test_a_directory_of_apache_kafka_is_refused_by_every_start(
    recorded: Path, tmp_path: Path, kind: str, *, has_lock: bool
) -> None:
    names, sentence = KAFKA_DIRECTORIES[kind]
    data_dir = kafka_directory(recorded, tmp_path / "data", *(name for name in names if name != METADATA_LOG))
    if METADATA_LOG in names:
        shutil.copytree(recorded / "d-none-0", data_dir / METADATA_LOG)
    if has_lock:
        (data_dir / LOCK).touch()
    before = everything(data_dir)
    for start in (started, embedded):
        with pytest.raises(ConfigError, match=sentence + ".*`kohort pipeline`.*read this one as it is"):
            start(data_dir)
    with pytest.raises(ConfigError, match=r"of Apache Kafka|of a broker"):
        host(data_dir)
    assert everything(data_dir) == before


def embedded(data_dir: Path) -> None:
    loop = asyncio.new_event_loop()
    try:
        Node(Settings(data_dir=data_dir, port=0, config=BrokerConfig()), loop)
    finally:
        loop.close()


def test_the_command_ends_with_the_sentence_and_exit_code_2(recorded: Path, tmp_path: Path) -> None:
    data_dir = kafka_directory(recorded, tmp_path / "data", "meta.properties", "orders-0")
    before = everything(data_dir)
    command = [*KOHORT, "serve", "--port", "0", "--data-dir", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"kohort: {data_dir} is a data directory of Apache Kafka, which has written meta.")
    assert everything(data_dir) == before


def test_a_directory_of_apache_kafka_is_still_read(recorded: Path, tmp_path: Path) -> None:
    data_dir = kafka_directory(recorded, tmp_path / "data", "meta.properties", "orders-0", RECOVERY_POINTS)
    before = everything(data_dir)
    assert run(["log", "verify", str(data_dir)]) == 0
    assert run(["log", "dump", str(data_dir / "orders-0" / f"{0:020d}.log")]) == 0
    assert everything(data_dir) == before


def test_a_partition_of_apache_kafka_in_a_directory_of_kohort_is_refused(recorded: Path, tmp_path: Path) -> None:
    with_orders(tmp_path)
    shutil.copytree(recorded / "jobs-0", tmp_path / "jobs-0")
    assert refusal(tmp_path).startswith(
        f"{tmp_path / 'jobs-0'} was not written by the owner of {tmp_path}: the catalog"
    )
    shutil.copytree(recorded / "jobs-1", tmp_path / "jobs-1")
    assert refusal(tmp_path).startswith(f"{tmp_path / 'jobs-0'} and 1 more was not written")
    for name in ("jobs-0", "jobs-1"):
        shutil.rmtree(tmp_path / name)
    stop(started(tmp_path))


def test_a_partition_of_apache_kafka_in_the_place_of_one_of_kohort_is_refused(recorded: Path, tmp_path: Path) -> None:
    with_orders(tmp_path)
    shutil.rmtree(tmp_path / "orders-0")
    shutil.copytree(recorded / "orders-0", tmp_path / "orders-0")
    assert "orders-0 was not written by the owner" in refusal(tmp_path)


def test_a_partition_of_another_directory_of_kohort_is_refused(tmp_path: Path) -> None:
    with_orders(tmp_path / "one")
    harness = started(tmp_path / "other")
    harness.create("jobs", 1)
    stop(harness)
    shutil.copytree(tmp_path / "one" / "orders-1", tmp_path / "other" / "orders-1")
    assert "orders-1 was not written by the owner" in refusal(tmp_path / "other")


def test_a_directory_whose_catalog_was_removed_is_refused(tmp_path: Path) -> None:
    with_orders(tmp_path)
    shutil.rmtree(tmp_path / str(CATALOG))
    (tmp_path / RECOVERY_POINTS).unlink()
    assert "has 2 partitions (the first is orders-0), but __kohort_catalog-0, the catalog of their" in refusal(tmp_path)


def test_a_directory_whose_catalog_was_emptied_is_refused(tmp_path: Path) -> None:
    with_orders(tmp_path)
    for path in (tmp_path / str(CATALOG)).iterdir():
        path.unlink()
    (tmp_path / RECOVERY_POINTS).unlink()
    assert "__kohort_catalog-0, the catalog of their topics, is missing or empty" in refusal(tmp_path)


def test_a_catalog_that_is_in_the_journal_only_is_restored(tmp_path: Path) -> None:
    """A power cut leaves neither the directory of the catalog nor the topic ids of the partitions."""
    topic = Topic("orders", UUID(int=9), 1)
    owner = Owner()
    store = owner.disk(tmp_path, check=check_directory)
    Catalog(store, owner.clock).change(CatalogChange(put=(topic,)), lambda _: None)
    store.open(ORDERS, topic.topic_id, LogConfig()).append(batch("x"), leader_epoch=0)
    store.flush()
    abandon(store)
    shutil.rmtree(tmp_path / str(CATALOG))
    (tmp_path / "orders-0" / "partition.metadata").unlink()
    store = owner.disk(tmp_path, check=check_directory)
    assert Catalog(store, owner.clock).topic("orders") == topic
    assert store.open(ORDERS, topic.topic_id, LogConfig()).end_offset == 1
    store.close()


def test_a_catalog_that_the_recovery_points_know_can_be_repaired(tmp_path: Path) -> None:
    with_orders(tmp_path)
    shutil.rmtree(tmp_path / str(CATALOG))
    with pytest.raises(StorageError, match=r"__kohort_catalog-0 is missing.*kohort log repair --dry-run"):
        started(tmp_path)
    assert run(["log", "repair", str(tmp_path)]) == 0
    harness = started(tmp_path)
    assert harness.store.open(ORDERS, read_partition_metadata(tmp_path / "orders-0"), LogConfig()).end_offset == 1
    stop(harness)
    assert strays(tmp_path) == []


def test_no_partition_is_renamed_by_an_empty_catalog(tmp_path: Path) -> None:
    """A power cut before the first checkpoint of a broker that flushes nothing: zeros, which the recovery truncates."""
    with_orders(tmp_path)
    (path,) = (tmp_path / str(CATALOG)).glob("*.log")
    path.write_bytes(bytes(path.stat().st_size))
    for name in (CLEAN_SHUTDOWN, RECOVERY_POINTS):
        (tmp_path / name).unlink()
    for _ in range(2):
        with pytest.raises(ConfigError, match="the catalog of their topics, is missing or empty"):
            started(tmp_path)
    assert strays(tmp_path) == []


def strays(data_dir: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in data_dir.glob("*-stray"))


def as_before(path: Path, topic_id: UUID) -> None:
    """Write the file as it was before it named the directory, also as Apache Kafka writes it."""
    write_partition_metadata(path, topic_id)


@pytest.mark.parametrize("metadata", [None, as_before])
def test_partitions_of_a_deleted_topic_are_strays(
    tmp_path: Path, metadata: Callable[[Path, UUID], None] | None
) -> None:
    """A crash came between the deletion in the catalog, whose tombstone is there, and the renaming."""
    with_orders(tmp_path)
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "orders-1", kept)
    harness = started(tmp_path)
    topic_id = read_partition_metadata(kept)
    request = m.DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000)
    assert harness.ask(ApiKey.DELETE_TOPICS, request, version=5).responses[0].error_code == 0
    stop(harness)
    assert not (tmp_path / "orders-1").exists()
    shutil.copytree(kept, tmp_path / "orders-1")
    if metadata is not None:
        metadata(tmp_path / "orders-1", topic_id)
    stop(started(tmp_path))
    assert strays(tmp_path) == ["orders-1"]


def test_a_partition_whose_topic_the_catalog_lost_is_a_stray(tmp_path: Path) -> None:
    """A power cut without flushes lost the record of the topic; the directory names this data directory."""
    with_orders(tmp_path)
    harness = started(tmp_path)
    append(harness, TopicPartition("lost", 0), UUID(int=9))
    stop(harness)
    stop(started(tmp_path))
    assert strays(tmp_path) == ["lost-0"]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_directory_without_topic_id_is_a_stray_after_a_crash_only(tmp_path: Path, *, is_stopped: bool) -> None:
    """A power cut leaves one if it was made shortly before. A stop leaves none, so somebody else has put it there."""
    with_orders(tmp_path)
    shutil.copytree(tmp_path / "orders-1", tmp_path / "half-0")
    (tmp_path / "half-0" / "partition.metadata").write_bytes(b"")
    assert read_partition_metadata(tmp_path / "half-0") == NO_TOPIC_ID
    if is_stopped:
        assert "half-0 was not written by the owner" in refusal(tmp_path)
        return
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    stop(started(tmp_path))
    assert strays(tmp_path) == ["half-0"]


def test_a_partition_of_a_topic_takes_its_id_if_it_has_none(tmp_path: Path) -> None:
    with_orders(tmp_path)
    path = tmp_path / "orders-0" / "partition.metadata"
    before = path.read_bytes()
    path.unlink()
    harness = started(tmp_path)
    topic = harness.broker.catalog.topic("orders")
    assert topic is not None
    assert harness.store.open(ORDERS, topic.topic_id, LogConfig()).end_offset == 1
    stop(harness)
    assert path.read_bytes() == before


def test_a_directory_of_an_older_version_is_taken_up(tmp_path: Path) -> None:
    """Its partitions do not name the directory, and its meta.properties may have lost the line with the checksum."""
    with_orders(tmp_path)
    for path in tmp_path.glob("*-[0-9]"):
        as_before(path, read_partition_metadata(path))
    properties = tmp_path / "meta.properties"
    properties.write_text(properties.read_text().partition("\n")[2])
    harness = started(tmp_path)
    assert harness.store.open(ORDERS, read_partition_metadata(tmp_path / "orders-0"), LogConfig()).end_offset == 1
    stop(harness)
    assert strays(tmp_path) == []


def test_hosted_shards_refuse_the_directory_of_a_broker_and_take_their_own(tmp_path: Path) -> None:
    with_orders(tmp_path / "broker")
    before = everything(tmp_path / "broker")
    with pytest.raises(
        ConfigError, match=r"has partitions of a broker \(the first is __kohort_catalog-0\). Nothing was"
    ):
        host(tmp_path / "broker")
    assert everything(tmp_path / "broker") == before
    host(tmp_path / "own", topic="state")
    host(tmp_path / "own", topic="more")
    before = everything(tmp_path / "own")
    with pytest.raises(ConfigError, match=r"has 2 partitions \(the first is more-0\), but __kohort_catalog-0"):
        started(tmp_path / "own")
    assert everything(tmp_path / "own") == before


def host(data_dir: Path, **options: Any) -> None:
    with hosted(TableShard, PutSerde(), data_dir=data_dir, **options) as host:
        host.write(0, lambda _shard, _now_ms: Result([Put("a", 1)], 1))

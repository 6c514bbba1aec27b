"""Segment files that are removed or cut while the broker runs: the stop and the next start name them, and nothing is served."""

import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from kohort.model.errors import UnavailableError
from kohort.storage.files.checkpoint_formats import CLEAN_SHUTDOWN
from kohort.storage.log import LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.tools.repair import find_damaged, repair
from kohort.wire.batches import iter_batches, read_records
from tests.storage.compacted import make_durable
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, abandon, batch
from tests.storage.test_deletions import await_background

CONFIG = LogConfig(segment_bytes=250)
OTHER = PARTITION._replace(partition=1)


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


def cut_between_batches(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 3)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "removed": (Path.unlink, "cannot be found: No such file or directory"),
    "cut": (cut, r"has \d+ of \d+ bytes"),
    "cut between batches": (cut_between_batches, r"has \d+ of \d+ bytes"),
    "emptied": (lambda path: path.open("wb").close(), r"has 0 of \d+ bytes"),
}


@pytest.mark.parametrize("flush", ["commit", "os"])
@pytest.mark.parametrize("index", [0, 1, -1], ids=["first", "middle", "active"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_stop_and_the_next_start_name_the_file(
    base: Path, caplog: pytest.LogCaptureFixture, damage: str, index: int, flush: str
) -> None:
    owner = Owner()
    store = owner.disk(base / "data", flush=flush)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    for number in range(10):
        log.append(batch(f"value {number}"), leader_epoch=0)
    store.open(OTHER, TOPIC_ID, CONFIG).append(batch("x"), leader_epoch=0)
    make_durable(owner, store)
    assert len(log.segments) >= 3
    path = log.segments[index].path
    destroy, what = DAMAGE[damage]
    destroy(path)
    store.close()
    assert f"log.missing_data partition={PARTITION} error='{path}" in caplog.text
    assert not (base / "data" / CLEAN_SHUTDOWN).exists()
    for _ in range(2):
        caplog.clear()
        store = Owner().disk(base / "data", flush=flush)
        assert f"log.damaged partition={PARTITION}" in caplog.text
        with pytest.raises(UnavailableError, match=f"{path.name} {what}.*kohort log repair --dry-run"):
            store.open(PARTITION, TOPIC_ID, CONFIG)
        assert store.open(OTHER, TOPIC_ID, CONFIG).end_offset == 1
        store.close()


def left_without_directory(base: Path, how: str) -> None:
    """A store whose partition loses its directory while it runs or after it; the journal has 3 batches more."""
    owner = Owner()
    store = owner.disk(base / "data", flush="os" if how == "stopped, unflushed" else "commit")
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    for number in range(10):
        log.append(batch(f"value {number}"), leader_epoch=0)
    store.open(OTHER, TOPIC_ID, CONFIG).append(batch("x"), leader_epoch=0)
    make_durable(owner, store)
    for number in range(3):
        log.append(batch(f"later {number}"), leader_epoch=0)
    store.flush()
    if how == "killed":
        abandon(store)
    if how == "running":
        shutil.rmtree(base / "data" / str(PARTITION))
    if how != "killed":
        store.close()
        assert (store.missing_data is not None) == (how == "running")
    if how != "running":
        shutil.rmtree(base / "data" / str(PARTITION))


@pytest.mark.parametrize("how", ["running", "stopped", "stopped, unflushed", "killed"])
def test_a_partition_without_its_directory_is_refused_until_a_repair(
    base: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    left_without_directory(base, how)
    for _ in range(2):
        caplog.clear()
        store = Owner().disk(base / "data")
        with pytest.raises(
            UnavailableError,
            match=r"(is missing, though the log was flushed|cannot be found).*kohort log repair --dry-run",
        ):
            store.open(PARTITION, TOPIC_ID, CONFIG)
        assert f"log.damaged partition={PARTITION}" in caplog.text
        assert store.open(OTHER, TOPIC_ID, CONFIG).end_offset == 1
        store.close()
    (damaged,) = find_damaged(base / "data")
    is_journaled = how in ("running", "killed")
    assert [(each.offset, each.next_offset) for each in damaged.lost] == ([] if is_journaled else [(0, 13)])
    repair(base / "data", [damaged])
    store = Owner().disk(base / "data")
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    assert log.end_offset == 13, "no offset is given again"
    assert [offset for offset, _ in records_from(log, 0 if is_journaled else 13)] == list(
        range(13 if is_journaled else 0)
    )
    store.close()


def records_from(log: DiskLog, offset: int) -> list[tuple[int, bytes | None]]:
    data = log.read(offset, bytes_max=1 << 20)
    return [
        (record.offset, record.value)
        for position, header in iter_batches(data)
        for record in read_records(memoryview(data)[position:], header=header)
    ]


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_a_deleted_partition_is_not_missing(base: Path, flush: str) -> None:
    """Also if the process is killed before the next checkpoint, and a partition of that name is created by the next one."""
    owner = Owner()
    store = owner.disk(base / "data", flush=flush)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    log.append(batch("value"), leader_epoch=0)
    store.open(OTHER, TOPIC_ID, CONFIG).append(batch("x"), leader_epoch=0)
    make_durable(owner, store)
    store.delete(PARTITION)
    store.flush()
    await_background(store)
    abandon(store)
    store = Owner().disk(base / "data", flush=flush)
    assert list(store.missing()) == []
    assert store.open(PARTITION, UUID(int=8), CONFIG).end_offset == 0
    store.close()


def test_the_journal_knows_that_a_partition_of_an_older_checkpoint_was_deleted(base: Path) -> None:
    """A power cut brings back the checkpoint from before the deletion; the directory is gone, the journal has the deletion."""
    owner = Owner()
    store = owner.disk(base / "data")
    for each in (PARTITION, OTHER):
        store.open(each, TOPIC_ID, CONFIG).append(batch("value"), leader_epoch=0)
    make_durable(owner, store)
    checkpoint = base / "data" / "recovery-point-offset-checkpoint"
    older = checkpoint.read_bytes()
    assert PARTITION.topic.encode() in older
    store.delete(PARTITION)
    store.flush()
    await_background(store)
    abandon(store)
    checkpoint.write_bytes(older)
    again = Owner().disk(base / "data")
    assert list(again.missing()) == []
    assert again.open(PARTITION, UUID(int=8), CONFIG).end_offset == 0
    again.close()


def test_only_the_caller_knows_whether_a_topic_exists(base: Path) -> None:
    left_without_directory(base, "stopped")
    store = Owner().disk(base / "data")
    assert list(store.missing()) == [PARTITION]
    store.forget_missing(PARTITION)
    assert store.open(PARTITION, TOPIC_ID, CONFIG).end_offset == 0
    store.close()
    assert list(Owner().disk(base / "data").missing()) == []

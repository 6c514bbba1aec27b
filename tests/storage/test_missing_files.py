"""Segment files that are removed or cut while the broker runs: the stop and the next start name them, and nothing is served."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.model.errors import UnavailableError
from kohort.storage.durability.checkpoint_formats import CLEAN_SHUTDOWN
from kohort.storage.log import LogConfig
from tests.storage.compacted import make_durable
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch

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

"""
A shard that loads a compacted log equals the one that loads the whole, but for groups that were only ever named: an aborted
commit of offsets leaves one behind, and is gone itself after a pass. Without offsets such a group goes at the next clean-up
tick, in Apache Kafka as here.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kohort.group.classic.states import ClassicGroupState
from kohort.group.records import GroupRecordSerde
from kohort.runtime.loading.loader import load
from kohort.runtime.loading.windows import LoadSummary
from kohort.storage.log import Log, LogConfig
from kohort.wire.batches import encode_batch
from kohort_lab.faulty_files import FaultyFiles
from tests.conftest import LONG
from tests.group.raw_offsets import RUNS, LogMaker, RawLog, fresh, picture, recorded
from tests.storage.compacted import CONFIG, clean, open_log, records, roll
from tests.storage.owner import Owner

SEEDS = 200 if LONG else 8
CONFIGS = (
    msgspec.structs.replace(CONFIG, segment_bytes=1 << 20),
    msgspec.structs.replace(CONFIG, segment_bytes=1 << 20, delete_retention_ms=0),
)


class OneKeyMaker(LogMaker):
    """An offset has one key: with two, the removal of one key's tombstone would bring back the other's offset."""

    def key(self, *, is_legacy: bool = False) -> bytes:
        return super().key()


def loaded(log: Log) -> dict[str, Any]:
    shard = fresh()
    for _ in load(log, shard, GroupRecordSerde(), LoadSummary(), start=log.log_start_offset, end=log.end_offset):
        pass
    found = picture(shard)
    found["groups"] = {
        group_id: group
        for group_id, group in found["groups"].items()
        if group[0] is not ClassicGroupState.EMPTY or group[1] != 0
    }
    return found


def check(path: Path, raw: RawLog, config: LogConfig) -> int:
    """Clean it twice, growing in between; how many records that has saved."""
    with FaultyFiles(path):  # nothing is flushed for real
        owner = Owner()
        store = owner.disk(path)
        log = open_log(store, config)
        for place, batch in enumerate(raw.batches):
            log.append(batch, leader_epoch=0)
            if place % 5 == 4:
                roll(log)
        before = len(records(log))
        for _ in range(3):
            roll(log)
            log.append(encode_batch([(b"\x00\x7f", b"of a kind that is not known")], 5), leader_epoch=0)
            expected = loaded(log)
            clean(owner, store, store.cleaner.config)
            assert not store.cleaner.uncleanable
            assert loaded(log) == expected
        saved = before - len(records(log))
        store.close()
        return saved


@pytest.mark.parametrize("config", CONFIGS, ids=["tombstones stay", "tombstones go"])
def test_a_shard_of_a_compacted_log_equals_that_of_the_whole(tmp_path: Path, config: LogConfig) -> None:
    saved = []
    for seed in range(SEEDS):
        maker = OneKeyMaker(seed)
        maker.transactional_share = 0.0  # it would have transactions of groups' metadata, which no coordinator writes
        saved.append(check(tmp_path / str(seed), maker.log(records=300), config))
    assert max(saved) > 100


@pytest.mark.parametrize("run", RUNS)
def test_recorded_logs_of_coordinators_are_the_same_when_compacted(tmp_path: Path, run: str) -> None:
    for name, raw in sorted(recorded(run).items()):
        if raw.batches:
            check(tmp_path / name, raw, CONFIGS[0])

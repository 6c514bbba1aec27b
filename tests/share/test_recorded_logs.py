"""Logs that Apache Kafka wrote are loaded: start offsets, leader epochs and lags are those that Kafka reported."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kohort.machine.timeline import SnapshotRegistry
from kohort.model.ids import SHARE_GROUP_STATE
from kohort.records.serde import CoordinatorRecordSerde
from kohort.records.values import ShareGroupStatePartitionMetadata
from kohort.runtime.loading.loader import load
from kohort.runtime.loading.windows import LoadSummary
from kohort.share.config import ShareConfig
from kohort.share.records import ShareRecordSerde
from kohort.share.shard import ShareShard
from kohort.testing import FaultyLog
from kohort.wire.batches import iter_batches, read_records
from tests.records.kafka_logs import ARCHIVES

RUNS = ("main", "main-4.4.0", "expiry-4.4.0", "unclean-4.4.0")
CONFIG = ShareConfig(share_coordinator_snapshot_update_records_per_snapshot=5)
"""As the recorded brokers."""
KILLED = "unclean-4.4.0"
"""Its summary is that of the broker that recovered, and its topics have grown since."""


def batches_of(archive: tarfile.TarFile, prefix: str) -> dict[str, list[bytes]]:
    """The batches of the logs of a topic, a list a partition."""
    found: dict[str, list[bytes]] = {}
    for member in sorted(archive.getmembers(), key=lambda each: each.name):
        if member.name.startswith(f"logs/{prefix}-") and member.name.endswith(".log"):
            data = archive.extractfile(member).read()  # type: ignore[union-attr]
            cut = [data[at : at + header.size_bytes] for at, header in iter_batches(data)]
            found.setdefault(Path(member.name).parent.name, []).extend(cut)
    return found


def loaded(batches: list[bytes]) -> ShareShard:
    log = FaultyLog(SHARE_GROUP_STATE, 0)
    for batch in batches:
        log.append(batch, leader_epoch=0)
    shard, summary = ShareShard(SnapshotRegistry(), CONFIG), LoadSummary()
    for _ in load(log, shard, ShareRecordSerde(), summary, start=0, end=log.end_offset, is_compacted=False):
        """A step of the load."""
    assert summary.set_aside_count == 0
    assert summary.replayed == summary.records > 0
    return shard


def topic_names(archive: tarfile.TarFile) -> dict[Any, str]:
    """The names of the topics that share groups knew, by id."""
    serde, names = CoordinatorRecordSerde("__consumer_offsets"), {}
    for batches in batches_of(archive, "__consumer_offsets").values():
        for batch in batches:
            for record in read_records(batch):
                if record.key is not None and record.key[:2] == b"\0\x0f" and record.value is not None:
                    decoded = serde.decode(record.key, record.value)
                    assert isinstance(decoded, ShareGroupStatePartitionMetadata)
                    for topic in (*decoded.initializing_topics, *decoded.initialized_topics):
                        names[topic.topic_id] = topic.topic_name
    return names


@pytest.mark.parametrize("run", RUNS)
def test_the_state_is_what_kafka_reported(run: str) -> None:
    with tarfile.open(ARCHIVES / f"{run}.tar.xz") as archive:
        summary = json.loads(archive.extractfile("summary.json").read())  # type: ignore[union-attr]
        shards = [loaded(batches) for batches in batches_of(archive, SHARE_GROUP_STATE).values()]
        names = topic_names(archive)
    broker = summary.get("broker") or summary["broker_after_recovery"]
    ends = {place: found["next_offset"] for place, found in summary["partitions"].items()}
    compared = 0
    for shard in shards:
        for key, state in shard.states.items():
            place = f"{names[key.topic_id]}-{key.partition}"
            told = broker["groups"].get(key.group_id, {}).get("share_offsets", {}).get(place, "unknown")
            if told == "unknown":
                continue
            compared += 1
            if told is None:
                assert state.start_offset == -1, (key, state)
                continue
            assert told["start_offset"] == state.start_offset, key
            assert told["leader_epoch"] == state.leader_epoch, key
            if run != KILLED and state.complete_count >= 0 and ends[place] is not None:
                assert told["lag"] == ends[place] - state.start_offset - state.complete_count, key
    reported = sum(len(group.get("share_offsets") or ()) for group in broker["groups"].values())
    assert compared == reported > 0

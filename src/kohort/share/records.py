"""The records of `__share_group_state`: snapshots, updates since the last snapshot, and the tombstone of a deleted state."""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

import msgspec

from kohort.machine.ports import SharePartitionKey, StateBatch
from kohort.model.ids import SHARE_GROUP_STATE
from kohort.records.serde import CoordinatorRecordSerde
from kohort.records.values import ShareSnapshot, ShareSnapshotTombstone, ShareUpdate, ShareUpdateTombstone

ShareRecord: TypeAlias = ShareSnapshot | ShareUpdate | ShareSnapshotTombstone | ShareUpdateTombstone

_ZERO_ID: Final = UUID(int=0)


class ShareRecordSerde(CoordinatorRecordSerde):
    """A `kohort.machine.shard.RecordSerde`. The batches of records are `StateBatch`es."""

    def __init__(self) -> None:
        super().__init__(SHARE_GROUP_STATE)

    def converted(self, record: ShareRecord) -> ShareRecord:
        if isinstance(record, ShareSnapshot | ShareUpdate) and record.state_batches:
            return msgspec.structs.replace(record, state_batches=state_batches(record.state_batches))
        return record


def state_batches(batches: Iterable[Any]) -> tuple[StateBatch, ...]:
    """The batches of a record or a request."""
    return tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in batches
    )


def batches_of(record: ShareSnapshot | ShareUpdate) -> tuple[StateBatch, ...]:
    """The batches of a record that the serde has decoded, or the coordinator has made."""
    return cast("tuple[StateBatch, ...]", record.state_batches)


def key_of(record: ShareRecord) -> SharePartitionKey:
    return SharePartitionKey(record.group_id, record.topic_id or _ZERO_ID, record.partition)

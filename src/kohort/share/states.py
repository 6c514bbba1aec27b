"""
The states of the share partitions in one partition of `__share_group_state`, by the records of its log.

Source: Kafka ShareCoordinatorShard.
"""

from collections.abc import Callable

from kohort.machine.ports import SharePartitionKey
from kohort.machine.shard import PlainShard
from kohort.machine.timeline import SnapshotRegistry, TimelineDict
from kohort.model.image import NO_TOPICS, ClusterImage
from kohort.records.values import ShareSnapshot, ShareUpdate
from kohort.share.config import ShareConfig
from kohort.share.records import ShareRecord, key_of
from kohort.share.state import ShareState, after_snapshot, after_update


class ShareStates(PlainShard[ShareRecord]):
    """
    What operations work on.

    Args:
        snapshots: the shard's; the runtime takes them.
        image: the topics of the cluster; a live view.
        level: returns the finalised level of `share.version`.

    Attributes:
        states: by share partition.
        updates_max: the number of updates after which a snapshot is written.
        pruned_offset: the offset before which the log was cut last; 0 after a load.
    """

    def __init__(
        self,
        snapshots: SnapshotRegistry,
        config: ShareConfig,
        image: ClusterImage = NO_TOPICS,
        level: Callable[[], int] = lambda: 1,
    ) -> None:
        self.states: TimelineDict[SharePartitionKey, ShareState] = TimelineDict(snapshots)
        self.config = config
        self.image = image
        self.level = level
        self.updates_max = config.share_coordinator_snapshot_update_records_per_snapshot
        self.pruned_offset = 0

    def replay(self, offset: int, _producer_id: int, _producer_epoch: int, record: ShareRecord, /) -> None:
        key = key_of(record)
        if isinstance(record, ShareUpdate):
            self.states.put(key, after_update(self.states.get(key), record, offset))
        elif isinstance(record, ShareSnapshot):
            self.states.put(key, after_snapshot(self.states.get(key), record, offset, self.updates_max))
        else:
            self.states.remove(key)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, /, *, committed: bool) -> None:
        """Ignore a marker: a client may have named a partition of this topic in a transaction, and cannot write to it."""

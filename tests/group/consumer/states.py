"""
Consumer groups in a certain state, made of the records that Apache Kafka would have written: a log with them is loaded.

The topic `orders` has four partitions, 0 to 3. A `Known` is a member as its records describe it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kohort.group.configs import GroupConfig
from kohort.group.kinds import record_serde
from kohort.group.metadata_hash import TopicHashes
from kohort.group.records import GroupRecord
from kohort.records import values as v
from kohort.wire.batches import encode_batch
from tests.group.harness import Coordinator, Image

GROUP = "group"
REBALANCE_MS = 60_000
ORDERS = Image().by_name["orders"].topic_id
PAYMENTS = Image().by_name["payments"].topic_id


@dataclass(frozen=True)
class Known:
    """`target`, `assigned` and `pending` are partitions of `orders`."""

    member_id: str
    epoch: int
    previous: int = 0
    state: int = 0
    assigned: Sequence[int] = ()
    pending: Sequence[int] = ()
    target: Sequence[int] = ()
    instance: str | None = None
    topics: Sequence[str] = ("orders",)
    rebalance_ms: int = REBALANCE_MS

    def records(self, group: str = GROUP) -> list[GroupRecord]:
        target, current = (
            v.ConsumerGroupTargetAssignmentMemberTopicPartition,
            v.ConsumerGroupCurrentMemberAssignmentTopicPartitions,
        )
        return [
            v.ConsumerGroupMemberMetadata(
                group,
                self.member_id,
                instance_id=self.instance,
                rack_id=None,
                client_id="client",
                client_host="/127.0.0.1",
                subscribed_topic_names=tuple(sorted(self.topics)),
                subscribed_topic_regex="",
                rebalance_timeout_ms=self.rebalance_ms,
                server_assignor=None,
                classic_member_metadata=None,
            ),
            v.ConsumerGroupTargetAssignmentMember(
                group, self.member_id, (target(ORDERS, tuple(self.target)),) if self.target else ()
            ),
            v.ConsumerGroupCurrentMemberAssignment(
                group,
                self.member_id,
                member_epoch=self.epoch,
                previous_member_epoch=self.previous,
                state=self.state,
                assigned_partitions=(current(ORDERS, tuple(self.assigned)),) if self.assigned else (),
                partitions_pending_revocation=(current(ORDERS, tuple(self.pending)),) if self.pending else (),
            ),
        ]


def group_of(
    members: Iterable[Known], *, epoch: int = 5, assignment_epoch: int = 5, config: GroupConfig | None = None
) -> Coordinator:
    """A coordinator that has loaded the group."""
    members = list(members)
    coordinator = Coordinator(config)
    topics = {topic for member in members for topic in member.topics}
    records: list[GroupRecord] = [
        v.ConsumerGroupMetadata(GROUP, epoch, TopicHashes().group_hash(topics, coordinator.image)),
        v.ConsumerGroupTargetAssignmentMetadata(GROUP, assignment_epoch),
    ]
    for member in members:
        records += member.records()
    write(coordinator, records)
    return coordinator


def write(coordinator: Coordinator, records: Iterable[GroupRecord]) -> None:
    """Put records into the log, and load it."""
    serde = record_serde()
    batch = encode_batch([serde.encode(record) for record in records], coordinator.now_ms)
    coordinator.log.append(batch, leader_epoch=coordinator.leader_epoch)
    coordinator.log.commit()
    coordinator.restart()

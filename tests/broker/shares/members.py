"""Members of a share group in virtual time, at the leader of the partitions that they read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kohort.machine.ports import SharePartitionKey
from kohort.model.errors import CoordinatorError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness

GROUP = "g"
GROUP_RESOURCE = 32


def sharing(**settings: Any) -> Harness:
    """A broker with the share coordinator."""
    harness = Harness(share_coordinator_state_topic_num_partitions="1", **settings)
    harness.host_shares()
    return harness


def configure(harness: Harness, group_id: str = GROUP, **configs: str) -> None:
    """Set configurations of a group."""
    alterations = [
        m.IncrementalAlterConfigsRequestAlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in configs.items()
    ]
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group_id, configs=alterations
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = harness.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses
    assert answer.error_code == 0, answer


def initialize(harness: Harness, topic_id: UUID, partition: int = 0, *, start: int = -1, group_id: str = GROUP) -> None:
    """Make the state of a share partition, as the group coordinator does."""
    answers: list[CoordinatorError | None] = []
    harness.broker.persister.initialize(SharePartitionKey(group_id, topic_id, partition), 1, start, answers.append)
    harness.node.advance(100)
    assert answers == [None]


class Member:
    """
    A member with one partition.

    Attributes:
        epoch: of its session.
        answer: the last one.
    """

    def __init__(
        self, harness: Harness, member_id: str, topic_id: UUID, *, partition: int = 0, group_id: str = GROUP
    ) -> None:
        self.harness = harness
        self.member_id = member_id
        self.group_id = group_id
        self.topic_id = topic_id
        self.partition = partition
        self.epoch = 0
        self.answer: Any = None
        self.forgetting: list[Any] = []
        led = harness.broker.apis[1].shares.leader.find(group_id, topic_id, partition)
        if led is None and self._has_no_state():
            initialize(harness, topic_id, partition, group_id=group_id)

    def _has_no_state(self) -> bool:
        answers: list[Any] = []
        key = SharePartitionKey(self.group_id, self.topic_id, self.partition)
        self.harness.broker.persister.summary(key, answers.append)
        self.harness.node.settle()
        return bool(answers[0].state_epoch == 0)

    def begin(self, *, wait_ms: int = 0, batches: Any = (), at: int = 1, **fields: Any) -> list[Any]:
        """Ask; the answer comes into the list."""
        partition = m.ShareFetchRequestFetchPartition(partition_index=self.partition, acknowledgement_batches=batches)
        topic = m.ShareFetchRequestFetchTopic(topic_id=self.topic_id, partitions=[partition])
        asked: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 5000,
            "batch_size": 5000,
            "topics": [topic],
        }
        request = m.ShareFetchRequest(**asked | fields)
        self.epoch += 1
        return self.harness.begin(ApiKey.SHARE_FETCH, request, at=at, forgetting=self.forgetting)

    def fetch(self, *, wait_ms: int = 200, **fields: Any) -> list[tuple[int, int, int]]:
        """Fetch, in as much time as it takes; the acquired offsets with their numbers of deliveries."""
        answers = self.begin(wait_ms=wait_ms, **fields)
        self.harness.node.settle()
        if not answers:
            self.harness.node.advance(wait_ms)
        return self.acquired(answers)

    def acquired(self, answers: list[Any]) -> list[tuple[int, int, int]]:
        (self.answer,) = answers
        assert self.answer.error_code == 0, self.answer
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for topic in self.answer.responses
            for partition in topic.partitions
            for each in partition.acquired_records
        ]

    @property
    def error(self) -> int:
        """The error of the partition in the last answer."""
        return int(self.answer.responses[0].partitions[0].error_code)

    def begin_acknowledging(self, first: int, last: int, *types: int, at: int = 1) -> list[Any]:
        """Acknowledge; the answer comes into the list."""
        batch = m.ShareAcknowledgeRequestAcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=types
        )
        partition = m.ShareAcknowledgeRequestAcknowledgePartition(
            partition_index=self.partition, acknowledgement_batches=[batch]
        )
        topic = m.ShareAcknowledgeRequestAcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])
        request = m.ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            is_renew_ack=4 in types,
            topics=[topic],
        )
        self.epoch += 1
        return self.harness.begin(ApiKey.SHARE_ACKNOWLEDGE, request, at=at)

    def acknowledge(self, first: int, last: int, *types: int) -> int:
        """The error code of an acknowledgement."""
        answers = self.begin_acknowledging(first, last, *types)
        self.harness.node.settle()
        (self.answer,) = answers
        return int(self.answer.error_code or self.error)

    def disconnect(self) -> None:
        """Close the connection."""
        forgetting, self.forgetting = self.forgetting, []
        for forget in forgetting:
            forget()
        self.harness.node.settle()


def state_of(harness: Harness, topic_id: UUID, partition: int = 0, *, at: int = 1) -> tuple[int, int]:
    """The start offset of a share partition in memory, and the number of records in flight."""
    led = harness.broker.apis[at].shares.leader.find(GROUP, topic_id, partition)
    assert led is not None
    assert led.records is not None
    return led.records.start_offset, led.records.in_flight
